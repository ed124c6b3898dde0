"""What `/metrics` shows, in Prometheus' words.

Owns: the metrics' names and labels, in a registry of its own (several apps in one process do not share figures).
Refuses: deciding anything by them.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from recorder.recorder import Recorder

CONTENT_TYPE = b"text/plain; version=1.0.0; charset=utf-8"
_SECONDS = (0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_COMMIT_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 5)


class Metrics:
    """The proxy's figures. One an app."""

    def __init__(self, recorder: Recorder) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_RecorderFigures(recorder))
        self._calls = Counter(
            "hone_calls",
            "Calls by what became of them.",
            ["dialect", "version", "state"],
            registry=self._registry,
        )
        self._seconds = Histogram(
            "hone_call_seconds",
            "From a request to the end of its answer.",
            ["dialect"],
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._first = Histogram(
            "hone_first_token_seconds",
            "From a streamed request to its first token.",
            ["dialect"],
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._commit = Histogram(
            "hone_commit_wait_seconds",
            "How long the end of an answer waited for its turn to be committed.",
            buckets=_COMMIT_SECONDS,
            registry=self._registry,
        )
        self._tokens = Counter("hone_tokens", "Tokens by kind.", ["kind"], registry=self._registry)
        self._unrecorded = Counter(
            "hone_unrecorded_calls",
            "Calls that were served although they could not be recorded. Anything but 0 is an alarm.",
            ["why"],
            registry=self._registry,
        )
        self._refused = Counter(
            "hone_refused_requests",
            "Requests answered with an error by Hone itself.",
            ["status"],
            registry=self._registry,
        )
        self._prompt_tokens = self._tokens.labels("prompt")
        self._sampled_tokens = self._tokens.labels("sampled")

    def call(
        self,
        dialect: str,
        version: str,
        state: str,
        seconds: float,
        first_token_s: float | None,
        prompt_tokens: int,
        sampled_tokens: int,
    ) -> None:
        """Count an ended call."""
        self._calls.labels(dialect, version, state).inc()
        self._seconds.labels(dialect).observe(seconds)
        if first_token_s is not None:
            self._first.labels(dialect).observe(first_token_s)
        self._prompt_tokens.inc(prompt_tokens)
        self._sampled_tokens.inc(sampled_tokens)

    def committed(self, seconds: float) -> None:
        """Count how long an answer waited for its commit."""
        self._commit.observe(seconds)

    def unrecorded(self, why: str) -> None:
        """Count a call that was served and not recorded: attribution, timeout or store."""
        self._unrecorded.labels(why).inc()

    def refused(self, status: int) -> None:
        """Count an error that Hone answered itself."""
        self._refused.labels(str(status)).inc()

    def text(self) -> bytes:
        """Everything in Prometheus' text format."""
        return generate_latest(self._registry)


class _RecorderFigures(Collector):
    """The recorder's own counts, read when they are asked for."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def collect(self) -> Iterator[Metric]:
        stats = self._recorder.stats()
        yield GaugeMetricFamily("hone_queue_turns", "Turns that wait for their commit.", stats.queued_turns)
        yield GaugeMetricFamily("hone_queue_bytes", "Bytes of turns that wait.", stats.queued_bytes)
        yield CounterMetricFamily("hone_commits", "Commits.", stats.commits)
        yield CounterMetricFamily("hone_committed_turns", "Turns committed.", stats.committed_turns)
        yield CounterMetricFamily("hone_failed_commits", "Commits that failed.", stats.failed_commits)
        yield CounterMetricFamily("hone_uncommitted_turns", "Turns whose commit failed.", stats.unrecorded_turns)

    def describe(self) -> list[Metric]:
        return []
