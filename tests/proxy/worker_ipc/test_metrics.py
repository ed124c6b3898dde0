"""One page of figures for all workers: each one's with its number, the store's once, and who does not answer."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from proxy.metrics import merge_metrics
from recorder.store.database import Store
from tests.proxy.fake_engine import FakeEngine
from tests.proxy.running import Proxy
from tests.proxy.worker_ipc.pair import both, worker

pytestmark = pytest.mark.slow

OWN = b"""# HELP hone_calls_total Calls.
# TYPE hone_calls_total counter
hone_calls_total{state="complete"} 2.0
# HELP hone_call_seconds Time.
# TYPE hone_call_seconds histogram
hone_call_seconds_bucket{le="1.0"} 1.0
hone_call_seconds_bucket{le="+Inf"} 2.0
hone_call_seconds_count 2.0
hone_call_seconds_sum 1.5
"""


async def page(proxy: Proxy) -> dict[str, list[tuple[dict[str, str], float]]]:
    """`/metrics`: by the name of a sample, labels and value."""
    answer = await proxy.http.get("/metrics")
    assert answer.status_code == 200
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(answer.text):
        assert family.name not in {name.removesuffix("_total") for name in found}, "a family is told twice"
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def test_each_workers_figures_have_its_number_and_their_kind() -> None:
    text = merge_metrics({1: OWN, 2: OWN}).decode()
    assert text.count("# TYPE hone_calls_total counter") == 1
    assert text.count("# TYPE hone_call_seconds histogram") == 1
    for number in (1, 2):
        assert f'hone_calls_total{{state="complete",worker="{number}"}} 2.0' in text
        assert f'hone_call_seconds_bucket{{le="+Inf",worker="{number}"}} 2.0' in text


def test_who_does_not_answer_is_told() -> None:
    text = merge_metrics({1: OWN, 2: None}).decode()
    assert 'hone_proxy_worker_up{worker="1"} 1.0' in text
    assert 'hone_proxy_worker_up{worker="2"} 0.0' in text
    assert text.count("hone_calls_total{") == 1


async def test_whichever_worker_is_asked_tells_all(store: Store, engine: FakeEngine, meeting: Path) -> None:
    async with both(store, engine, meeting) as (one, two):
        for asked, times in ((one, 1), (two, 2)):
            for _ in range(times):
                assert (await asked.chat("Where is order 4821?")).status_code == 200
        for asked in (one, two):
            told = await page(asked)
            assert {(labels["worker"], value) for labels, value in told["hone_calls_total"]} == {("1", 1.0), ("2", 2.0)}
            assert [labels for labels, _ in told["hone_open_trajectories"]] == [{}], "the store's figures are told once"
            assert {labels["worker"]: value for labels, value in told["hone_proxy_worker_up"]} == {"1": 1, "2": 1}


async def test_a_worker_that_is_gone_is_told_as_gone(store: Store, engine: FakeEngine, meeting: Path) -> None:
    async with worker(store, engine, meeting, 1) as one:
        async with worker(store, engine, meeting, 2):
            assert {value for _, value in (await page(one))["hone_proxy_worker_up"]} == {1.0}
        told = await page(one)
        assert {labels["worker"]: value for labels, value in told["hone_proxy_worker_up"]} == {"1": 1, "2": 0}
        assert {labels["worker"] for labels, _ in told["hone_commits_total"]} == {"1"}


async def test_a_proxy_alone_has_no_such_label(store: Store, engine: FakeEngine) -> None:
    from tests.proxy.running import serving

    async with serving(store, engine) as proxy:
        told = await page(proxy)
    assert "hone_proxy_worker_up" not in told
    assert not [labels for found in told.values() for labels, _ in found if "worker" in labels]
