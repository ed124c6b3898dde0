"""Metrics of the store on `/metrics`: groups, rewards, steps, versions, gates, engines, the learner and the judge.

Owns: these families, and reading the store at most every `EVERY_S` seconds however often `/metrics` is read. Refuses:
the proxy's own metrics (`proxy.metrics`). All proxies of a store export the same values: take the maximum, not the sum.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Final, get_args

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from recorder.base.rate_limited_log import RateLimitedLog
from recorder.errors import StoreError
from recorder.queue import leases
from recorder.queue.groups.uses import GroupUse
from recorder.queue.judging.switches import STRONG
from recorder.registry.moves import count_moves
from recorder.registry.replicas import ReplicaState, list_replicas
from recorder.registry.versions import get_versions, parse_name
from recorder.search.documents import MOST_COUNTED, count_queued
from recorder.settings import LearnSettings, RecorderSettings
from recorder.states import GroupState, VersionState
from recorder.store.database import Project
from recorder.views.status.figures import ProjectFigures, load_figures
from recorder.views.status.stage_facts import APART, UNFINISHED

EVERY_S: Final = 5.0
_TRAINER: Final = "trainer:"
# Exported as 0 from the start: Prometheus sees no increase in a counter that begins at 1.
_MOVES: Final = ("gate", "promote", "rollback", "canary_ended", "rejected")

log = logging.getLogger(__name__)


class StoreMetrics(Collector):
    """The metrics of one project. An app has one."""

    def __init__(
        self, project: Project, settings: RecorderSettings, learn: Callable[[], LearnSettings] = LearnSettings
    ) -> None:
        self._project = project
        self._settings = settings
        self._learn = learn
        self._figures: ProjectFigures | None = None
        self._live: dict[str, int] = {}  # alias → number
        self._moves: dict[tuple[str, str], int] = {}
        self._workers: dict[str, int] = {}
        self._engines: Counter[str] = Counter()  # by state
        self._unindexed = 0
        self._read_at = float("-inf")
        self._failing = RateLimitedLog(log)
        self._registry = CollectorRegistry()
        self._registry.register(self)

    async def text(self) -> bytes:
        """All metrics in Prometheus' text format; empty while the store does not answer."""
        if time.monotonic() - self._read_at >= EVERY_S:
            self._read_at = time.monotonic()
            try:
                await self._read()
            except StoreError as e:
                self._figures = None
                self._failing(logging.WARNING, "/metrics has no figures of the store now: %s", e)
        return generate_latest(self._registry)

    async def _read(self) -> None:
        figures = await load_figures(self._project, self._settings, self._learn())
        holders = [lease.name for lease in await leases.list_holders(self._project)]
        self._workers = {
            "judge": sum(name.startswith(leases.JUDGE) for name in holders),
            "trainer": sum(name.startswith(_TRAINER) for name in holders),
        }
        live = await get_versions(self._project, [VersionState.LIVE])
        self._live = {version.alias_name: version.number for version in live}
        self._engines = Counter(one.state for one in await list_replicas(self._project))
        self._unindexed = await count_queued(self._project)
        self._moves = {(alias, move): 0 for alias in self._live for move in _MOVES}
        self._moves |= await count_moves(self._project)
        self._figures = figures

    def collect(self) -> Iterator[Metric]:
        """The metrics as Prometheus families."""
        figures = self._figures
        if figures is None:
            return
        yield from _of_groups(figures)
        yield from _of_learning(figures)
        yield from _of_judges(figures)
        yield _of_health(figures)
        live = GaugeMetricFamily("hone_live_version", "The number of the live version.", labels=["alias"])
        for alias, number in self._live.items():
            live.add_metric([alias], number)
        yield live
        workers = GaugeMetricFamily("hone_workers", "Judges and trainers that hold a lease.", labels=["kind"])
        for kind, count in self._workers.items():
            workers.add_metric([kind], count)
        yield workers
        engines = GaugeMetricFamily("hone_engines", "Engines by the state that proxies observed.", labels=["state"])
        for state in get_args(ReplicaState):
            engines.add_metric([state], self._engines[state])
        yield engines
        yield _moved(self._moves)
        behind = f"Calls that are not in the full-text index yet, counted up to {MOST_COUNTED}."
        yield GaugeMetricFamily("hone_unindexed_calls", behind, self._unindexed)


def _moved(counts: Mapping[tuple[str, str], int]) -> Metric:
    what = "Decisions about versions, as `hone versions --moves` lists them."
    moves = CounterMetricFamily("hone_moves", what, labels=["alias", "move"])
    for labels, count in counts.items():
        moves.add_metric(labels, count)
    return moves


def _of_groups(figures: ProjectFigures) -> Iterator[Metric]:
    groups = GaugeMetricFamily(
        "hone_groups",
        "Groups by state: those that the learner could take, and all that are trained or excluded.",
        labels=["state"],
    )
    for state in GroupState:
        groups.add_metric([state], figures.waiting.groups.get(state, 0))
    shadow = GaugeMetricFamily("hone_shadow_groups", "Of hone_groups, those of shadow answers.", labels=["state"])
    for name, count in figures.waiting.shadow.items():
        shadow.add_metric([name], count)
    other = GaugeMetricFamily(
        "hone_other_groups",
        "Unfinished groups that the learner takes none of, by use and state.",
        labels=["use", "state"],
    )
    for use in APART:
        for state in UNFINISHED:
            other.add_metric([use, state], figures.waiting.apart.get(use, {}).get(state, 0))
    yield from (groups, shadow, other)
    due = GaugeMetricFamily(
        "hone_groups_due_seconds",
        "Seconds until the next group of a state changes its state by time.",
        labels=["state"],
    )
    for waiting_in in figures.waiting.due:
        due.add_metric([waiting_in], figures.waiting.in_s(waiting_in) or 0.0)
    yield due
    yield GaugeMetricFamily(
        "hone_open_trajectories", "Trajectories that have not ended.", figures.waiting.open_trajectories
    )
    yield GaugeMetricFamily("hone_trained_trajectories", "Trajectories that versions were trained on.", figures.trained)
    excluded = GaugeMetricFamily("hone_excluded_trajectories", "Excluded trajectories by ledger code.", labels=["code"])
    for code, count in figures.excluded.items():
        excluded.add_metric([code], count)
    yield excluded
    unscored = GaugeMetricFamily("hone_unscored_groups", "Groups that could not be judged, by reason.", labels=["code"])
    for one in figures.troubles:
        unscored.add_metric([one.code], one.groups)
    yield unscored


def _of_health(figures: ProjectFigures) -> Metric:
    what = "A health rule signals about the newest step of live learning. 1: noted; 2: learning waits for a person."
    rules = GaugeMetricFamily("hone_health_rule", what, labels=["alias", "rule"])
    for health in figures.health:
        for one in health.signals:
            rules.add_metric([health.alias, one.rule], 2.0 if one.then == "pause" else 1.0)
    return rules


def _of_judges(figures: ProjectFigures) -> Iterator[Metric]:
    what = "Agreement of the judge with the strong judge: mean tau-b over the newest groups that both judged."
    agree = GaugeMetricFamily("hone_judge_agreement", what, labels=["alias", "recipe"])
    drift = GaugeMetricFamily(
        "hone_judge_drift", "1: their agreement is too low, and the strong judge scores.", labels=["alias", "recipe"]
    )
    for one in figures.judges:
        if one.mean is not None:
            agree.add_metric([one.alias, one.recipe], one.mean)
        drift.add_metric([one.alias, one.recipe], float(one.scores == STRONG))
    yield from (agree, drift)


def _of_rewards(figures: ProjectFigures) -> Iterator[Metric]:
    of_version = ["alias", "version"]
    mean = GaugeMetricFamily(
        "hone_reward_mean", "Mean reward of the newest trajectories that a version sampled.", labels=of_version
    )
    number = GaugeMetricFamily(
        "hone_rewarded_trajectories", "The number of trajectories in hone_reward_mean.", labels=of_version
    )
    relative = GaugeMetricFamily(
        "hone_reward_relative",
        "1: a judge's ranking has a part in hone_reward_mean, so do not compare versions by it.",
        labels=of_version,
    )
    for one in figures.rewards:
        mean.add_metric([one.alias, one.version], one.mean)
        number.add_metric([one.alias, one.version], one.trajectories)
        relative.add_metric([one.alias, one.version], float(one.relative))
    yield from (mean, number, relative)


def _of_learning(figures: ProjectFigures) -> Iterator[Metric]:
    yield from _of_rewards(figures)
    steps = GaugeMetricFamily("hone_steps", "Steps by state.", labels=["alias", "state"])
    for step in figures.steps:
        for state, count in step.counts.items():
            steps.add_metric([step.alias, state], count)
    yield steps
    last = GaugeMetricFamily("hone_last_step", "The trainer's figures for the newest step.", labels=["alias", "figure"])
    for step in figures.steps:
        for name, value in step.metrics.items():
            if isinstance(value, int | float):
                last.add_metric([step.alias, name], value)
    yield last
    versions = GaugeMetricFamily("hone_versions", "Versions by state.", labels=["alias", "state"])
    for (alias, state), count in figures.versions.items():
        versions.add_metric([alias, state], count)
    yield versions
    gate = GaugeMetricFamily(
        "hone_pending_version_seconds",
        "Time that a version has waited for a decision, in its state.",
        labels=["alias", "version", "state"],
    )
    for one in figures.undecided:
        gate.add_metric([parse_name(one.version)[0], one.version, one.state], figures.at - one.since)
    yield gate
    tokens = GaugeMetricFamily(
        "hone_judge_tokens_today",
        "Tokens that the judge used today, by the purpose of the groups.",
        labels=["purpose"],
    )
    usd = GaugeMetricFamily(
        "hone_judge_usd_today",
        "What the judge cost today in US dollars, as far as prices are known, by the purpose of the groups.",
        labels=["purpose"],
    )
    for use in GroupUse:
        spent = figures.spent_by_purpose.get(use)
        tokens.add_metric([use], spent.tokens if spent else 0)
        usd.add_metric([use], (spent.cost_usd or 0.0) if spent else 0.0)
    yield from (tokens, usd)
