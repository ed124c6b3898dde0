"""The metrics of several workers as one page of Prometheus' text format.

Owns: the label `worker`, and reporting workers that do not answer. Refuses: asking them (`proxy.worker_ipc.peers`), and
the store's metrics, which all workers share and which are written once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from prometheus_client import generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector, CollectorRegistry

LABEL = "worker"


def merge_metrics(texts: Mapping[int, bytes | None]) -> bytes:
    """Merge the metrics of the workers, by number, into one text; None is reported as a worker that does not answer."""
    registry = CollectorRegistry()
    registry.register(_SeenFamilies([*_labelled(texts), _up(texts)]))
    return generate_latest(registry)


def _labelled(texts: Mapping[int, bytes | None]) -> Iterable[Metric]:
    families: dict[str, Metric] = {}
    for number, text in sorted(texts.items()):
        for family in text_string_to_metric_families((text or b"").decode()):
            one = families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
            for sample in family.samples:
                one.samples.append(sample._replace(labels={**sample.labels, LABEL: str(number)}))
    return families.values()


def _up(texts: Mapping[int, bytes | None]) -> Metric:
    up = GaugeMetricFamily("hone_proxy_worker_up", "Whether a worker of this proxy answers.", labels=[LABEL])
    for number, text in sorted(texts.items()):
        up.add_metric([str(number)], float(text is not None))
    return up


class _SeenFamilies(Collector):
    """A collector of given families."""

    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        """Yield them."""
        yield from self._families
