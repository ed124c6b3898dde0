"""The proxy's own metrics on `/metrics`, in Prometheus' text format, of one worker and of several as one page.

Owns: their counts, names and labels; the label `worker`, and reporting workers that do not answer. The counts are plain
numbers that only the event loop changes, because prometheus_client's counters lock and cost 20 µs a call. Refuses:
figures of the store (`proxy.store_metrics`), which all workers share, and asking workers (`proxy.worker_ipc.peers`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from recorder.capture.recorder import Recorder

CONTENT_TYPE = b"text/plain; version=1.0.0; charset=utf-8"
_SECONDS = (0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
_COMMIT_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0)
# Why a call or a tool call was not recorded. Exported as 0 from the start: Prometheus sees no increase in a counter
# that begins at 1.
_UNRECORDED = tuple(f"{of}{why}" for of in ("", "tool_") for why in ("attribution", "store", "timeout"))


class _Histogram:
    """Observations by bucket."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def add_to(self, family: HistogramMetricFamily, labels: list[str]) -> None:
        below, buckets = 0, []
        for bound, count in zip((*map(str, self._bounds), "+Inf"), self._counts, strict=True):
            below += count
            buckets.append((bound, float(below)))
        family.add_metric(labels, buckets, self._sum)


class Metrics(Collector):
    """The proxy's figures. One an app."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._calls: Counter[tuple[str, str, str]] = Counter()  # dialect, version, state
        self._unrecorded = Counter(dict.fromkeys(_UNRECORDED, 0))
        self._late = 0
        self._fallbacks: Counter[tuple[str, str]] = Counter()  # alias, the provider's model
        self._refused: Counter[str] = Counter()  # status
        self._tokens: Counter[str] = Counter()  # kind
        self._seconds: dict[str, _Histogram] = {}  # dialect
        self._first: dict[str, _Histogram] = {}
        self._commit = _Histogram(_COMMIT_SECONDS)
        self._tools: Counter[tuple[str, str]] = Counter()  # server, state
        self._tool_seconds: dict[str, _Histogram] = {}  # server
        self._servers: dict[str, bool] = {}  # MCP server → whether it answers
        self._sessions: dict[str, int] = {}  # MCP server → sessions of callers
        self._shadow_turns: Counter[tuple[str, str]] = Counter()  # alias, outcome
        self._shadow_answers: Counter[tuple[str, str]] = Counter()  # alias, state
        self._shadow_tokens: Counter[tuple[str, str]] = Counter()  # alias, kind
        self._judge_calls: Counter[tuple[str, str]] = Counter()  # alias, state
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def call(self, dialect: str, version: str, state: str, seconds: float, first_token_s: float | None) -> None:
        """Count an ended call."""
        self._calls[dialect, version, state] += 1
        if dialect not in self._seconds:
            self._seconds[dialect], self._first[dialect] = _Histogram(_SECONDS), _Histogram(_SECONDS)
        self._seconds[dialect].observe(seconds)
        if first_token_s is not None:
            self._first[dialect].observe(first_token_s)

    def tokens(self, prompt: int, sampled: int) -> None:
        """Count tokens."""
        self._tokens["prompt"] += prompt
        self._tokens["sampled"] += sampled

    def tool_call(self, server: str, state: str, seconds: float) -> None:
        """Count an ended tool call."""
        self._tools[server, state] += 1
        if server not in self._tool_seconds:
            self._tool_seconds[server] = _Histogram(_SECONDS)
        self._tool_seconds[server].observe(seconds)

    def mcp_server(self, server: str, up: bool) -> None:
        """Note whether an MCP server answers."""
        self._servers[server] = up

    def mcp_sessions(self, server: str, count: int) -> None:
        """Note how many sessions callers have at an MCP server."""
        self._sessions[server] = count

    def shadow_turn(self, alias: str, outcome: str) -> None:
        """Count a trajectory that was drawn for shadow answers, by the outcome."""
        self._shadow_turns[alias, outcome] += 1

    def shadow_answer(self, alias: str, state: str, prompt: int = 0, sampled: int = 0) -> None:
        """Count a shadow answer and its tokens."""
        self._shadow_answers[alias, state] += 1
        self._shadow_tokens[alias, "prompt"] += prompt
        self._shadow_tokens[alias, "sampled"] += sampled

    def judge_call(self, alias: str, state: str) -> None:
        """Count a judge's request to an alias's base model."""
        self._judge_calls[alias, state] += 1

    def committed(self, seconds: float) -> None:
        """Count how long an answer waited for its commit."""
        self._commit.observe(seconds)

    def unrecorded(self, why: str) -> None:
        """Count a call that was served and not recorded, by one of `_UNRECORDED`."""
        self._unrecorded[why] += 1

    def late(self) -> None:
        """Count an answer that was sent before its commit. It may still be recorded."""
        self._late += 1

    def fell_back(self, alias: str, model: str) -> None:
        """Count a call that was sent to a provider's model because no engine could answer."""
        self._fallbacks[alias, model] += 1

    def refused(self, status: int) -> None:
        """Count an error response that came from Hone itself."""
        self._refused[str(status)] += 1

    def text(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """The metrics as Prometheus families."""
        calls = CounterMetricFamily("hone_calls", "Calls by outcome.", labels=["dialect", "version", "state"])
        for labels, count in self._calls.items():
            calls.add_metric(labels, count)
        yield calls
        fallbacks = CounterMetricFamily(
            "hone_fallbacks", "Calls sent to an alias's fallback model.", labels=["alias", "model"]
        )
        for pair, count in self._fallbacks.items():
            fallbacks.add_metric(pair, count)
        yield fallbacks
        yield _counted("hone_tokens", "Tokens by kind.", "kind", self._tokens)
        yield _counted("hone_refused_requests", "Error responses that came from Hone itself.", "status", self._refused)
        yield _counted(
            "hone_unrecorded_calls",
            "Calls that were served but could not be recorded. Any value but 0 is an alarm.",
            "why",
            self._unrecorded,
        )
        yield _timed("hone_call_seconds", "Time from a request to the end of its answer.", self._seconds)
        yield _timed("hone_first_token_seconds", "Time from a streamed request to its first token.", self._first)
        commit = HistogramMetricFamily(
            "hone_commit_wait_seconds", "Time from the end of an answer until its call was committed."
        )
        self._commit.add_to(commit, [])
        yield commit
        yield from self._of_shadows()
        judge_calls = CounterMetricFamily(
            "hone_judge_calls", "Requests of the judge `base`. Not counted in `hone_calls`.", labels=["alias", "state"]
        )
        for pair, count in self._judge_calls.items():
            judge_calls.add_metric(pair, count)
        yield judge_calls
        yield from self._of_tools()
        yield from self._recorders()

    def _of_shadows(self) -> Iterator[Metric]:
        """Shadow answers. `hone_calls` and `hone_tokens` count agents' calls only."""
        figures = (
            ("hone_shadow_calls", "Live trajectories drawn for shadow answers.", "outcome", self._shadow_turns),
            ("hone_shadow_answers", "Shadow answers.", "state", self._shadow_answers),
            ("hone_shadow_tokens", "Tokens of shadow answers by kind.", "kind", self._shadow_tokens),
        )
        for name, what, label, counts in figures:
            family = CounterMetricFamily(name, what, labels=["alias", label])
            for labels, count in counts.items():
                family.add_metric(labels, count)
            yield family

    def _of_tools(self) -> Iterator[Metric]:
        calls = CounterMetricFamily(
            "hone_tool_calls", "Tool calls through the gateway by outcome.", labels=["server", "state"]
        )
        for labels, count in self._tools.items():
            calls.add_metric(labels, count)
        yield calls
        seconds = HistogramMetricFamily(
            "hone_tool_call_seconds", "Time from a tool call to its result.", labels=["server"]
        )
        for server, histogram in self._tool_seconds.items():
            histogram.add_to(seconds, [server])
        yield seconds
        up = GaugeMetricFamily("hone_mcp_server_up", "1 while an MCP server answers.", labels=["server"])
        for server, answers in self._servers.items():
            up.add_metric([server], float(answers))
        yield up
        sessions = GaugeMetricFamily("hone_mcp_sessions", "Sessions of callers at an MCP server.", labels=["server"])
        for server, count in self._sessions.items():
            sessions.add_metric([server], float(count))
        yield sessions

    def _recorders(self) -> Iterator[Metric]:
        """The recorder's counts."""
        stats = self._recorder.stats()
        yield GaugeMetricFamily("hone_queue_calls", "Calls that wait for their commit.", stats.queued_turns)
        yield GaugeMetricFamily("hone_queue_bytes", "Bytes of calls that wait for their commit.", stats.queued_bytes)
        yield CounterMetricFamily("hone_commits", "Commits.", stats.commits)
        yield CounterMetricFamily("hone_committed_calls", "Calls committed.", stats.committed_turns)
        yield CounterMetricFamily("hone_failed_commits", "Commits that failed.", stats.failed_commits)
        yield GaugeMetricFamily(
            "hone_recording",
            "1 while calls can be recorded. 0 is an alarm.",
            float(self._recorder.trouble() is None),
        )
        yield CounterMetricFamily("hone_store_alarms", "How often the store became unable to record.", stats.alarms)
        yield CounterMetricFamily(
            "hone_redaction_timeouts",
            "Texts and calls that were stored without text, because redaction did not finish.",
            stats.redaction_timeouts,
        )
        yield CounterMetricFamily(
            "hone_late_calls", "Answers that were sent before their call was committed.", self._late
        )
        yield CounterMetricFamily("hone_uncommitted_calls", "Calls whose commit failed.", stats.unrecorded_turns)


def _counted(name: str, what: str, label: str, counts: Counter[str]) -> CounterMetricFamily:
    family = CounterMetricFamily(name, what, labels=[label])
    for value, count in counts.items():
        family.add_metric([value], count)
    return family


def _timed(name: str, what: str, by_dialect: dict[str, _Histogram]) -> HistogramMetricFamily:
    family = HistogramMetricFamily(name, what, labels=["dialect"])
    for dialect, histogram in by_dialect.items():
        histogram.add_to(family, [dialect])
    return family


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
