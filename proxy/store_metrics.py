"""What `/metrics` shows of the store: groups, rewards, steps, versions, gates, engines, the learner and the judge.

Owns: these families, and asking the store at most every `EVERY_S`, however often the page is read. Refuses: the
proxy's own figures (`proxy.metrics`). All proxies of a store show the same: take one, or the maximum, not the sum.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final, get_args

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from recorder.base.rate_limited_log import RateLimitedLog
from recorder.errors import StoreError
from recorder.queue import leases
from recorder.queue.judging.switches import STRONG
from recorder.registry.moves import count_moves
from recorder.registry.replicas import ReplicaState, list_replicas
from recorder.registry.versions import get_versions, parse_name
from recorder.search.documents import MOST_COUNTED, count_queued
from recorder.settings import RecorderSettings
from recorder.states import GroupState, VersionState
from recorder.store.database import Project
from recorder.views.status.figures import ProjectFigures, load_figures

EVERY_S: Final = 5.0
_TRAINER: Final = "trainer:"
# Shown from the start, as 0: Prometheus does not see the rise of a count that begins at 1.
_MOVES: Final = ("gate", "promote", "rollback", "canary_ended", "rejected")

log = logging.getLogger(__name__)


class StoreMetrics(Collector):
    """One project's figures. One an app."""

    def __init__(self, project: Project, settings: RecorderSettings) -> None:
        self._project = project
        self._settings = settings
        self._figures: ProjectFigures | None = None
        self._live: dict[str, int] = {}  # alias → number
        self._moves: dict[tuple[str, str], int] = {}
        self._workers: dict[str, int] = {}
        self._engines: Counter[str] = Counter()  # by state
        self._unindexed = 0
        self._asked_at = float("-inf")
        self._failing = RateLimitedLog(log)
        self._registry = CollectorRegistry()
        self._registry.register(self)

    async def text(self) -> bytes:
        """Everything in Prometheus' text format; nothing while the store does not answer."""
        if time.monotonic() - self._asked_at >= EVERY_S:
            self._asked_at = time.monotonic()
            try:
                await self._ask()
            except StoreError as e:
                self._figures = None
                self._failing(logging.WARNING, "/metrics shows nothing of the store: %s", e)
        return generate_latest(self._registry)

    async def _ask(self) -> None:
        found = await load_figures(self._project, self._settings)
        held = [lease.name for lease in await leases.list_holders(self._project)]
        self._workers = {
            "judge": sum(name.startswith(leases.JUDGE) for name in held),
            "trainer": sum(name.startswith(_TRAINER) for name in held),
        }
        live = await get_versions(self._project, [VersionState.LIVE])
        self._live = {version.alias_name: version.number for version in live}
        self._engines = Counter(one.state for one in await list_replicas(self._project))
        self._unindexed = await count_queued(self._project)
        self._moves = {(alias, move): 0 for alias in self._live for move in _MOVES}
        self._moves |= await count_moves(self._project)
        self._figures = found

    def collect(self) -> Iterator[Metric]:
        """The figures as Prometheus' families."""
        found = self._figures
        if found is None:
            return
        yield from _of_groups(found)
        yield from _of_learning(found)
        yield from _of_judges(found)
        live = GaugeMetricFamily("hone_live_version", "The number of the version in service.", labels=["alias"])
        for alias, number in self._live.items():
            live.add_metric([alias], number)
        yield live
        workers = GaugeMetricFamily("hone_workers", "Judges and trainers that hold a lease.", labels=["kind"])
        for kind, count in self._workers.items():
            workers.add_metric([kind], count)
        yield workers
        engines = GaugeMetricFamily("hone_engines", "Engines by what the proxies found of them.", labels=["state"])
        for state in get_args(ReplicaState):
            engines.add_metric([state], self._engines[state])
        yield engines
        yield _moved(self._moves)
        behind = f"Calls that full-text search does not find yet, counted up to {MOST_COUNTED}."
        yield GaugeMetricFamily("hone_unindexed_calls", behind, self._unindexed)


def _moved(counts: Mapping[tuple[str, str], int]) -> Metric:
    what = "Decisions about versions, as `hone versions --moves` tells them."
    moves = CounterMetricFamily("hone_moves", what, labels=["alias", "move"])
    for labels, count in counts.items():
        moves.add_metric(labels, count)
    return moves


def _of_groups(found: ProjectFigures) -> Iterator[Metric]:
    groups = GaugeMetricFamily("hone_groups", "Groups by state.", labels=["state"])
    for state in GroupState:
        groups.add_metric([state], found.waiting.groups.get(state, 0))
    yield groups
    due = GaugeMetricFamily("hone_groups_due_seconds", "Until time moves the next group of a state.", labels=["state"])
    for waiting_in in found.waiting.due:
        due.add_metric([waiting_in], found.waiting.in_s(waiting_in) or 0.0)
    yield due
    yield GaugeMetricFamily("hone_open_runs", "Runs that have not ended.", found.waiting.open_trajectories)
    yield GaugeMetricFamily("hone_trained_runs", "Runs that versions were trained on.", found.trained)
    left = GaugeMetricFamily("hone_left_out_runs", "Runs that were left out, by the ledger's code.", labels=["code"])
    for code, count in found.excluded.items():
        left.add_metric([code], count)
    yield left
    unscored = GaugeMetricFamily("hone_unscored_groups", "Groups that could not be judged, by why.", labels=["code"])
    for one in found.troubles:
        unscored.add_metric([one.code], one.groups)
    yield unscored


def _of_judges(found: ProjectFigures) -> Iterator[Metric]:
    what = "How far the judge and the strong one agree: mean tau-b over the newest groups that both judged."
    agree = GaugeMetricFamily("hone_judges_agreement", what, labels=["alias", "recipe"])
    drift = GaugeMetricFamily(
        "hone_judge_drift", "1: they agree too little, and the strong one scores.", labels=["alias", "recipe"]
    )
    for one in found.judges:
        if one.mean is not None:
            agree.add_metric([one.alias, one.recipe], one.mean)
        drift.add_metric([one.alias, one.recipe], float(one.scores == STRONG))
    yield from (agree, drift)


def _of_learning(found: ProjectFigures) -> Iterator[Metric]:
    reward = GaugeMetricFamily("hone_reward_mean", "Mean reward of the newest runs.", labels=["alias", "version"])
    rewarded = GaugeMetricFamily("hone_rewarded_runs", "How many runs that is over.", labels=["alias", "version"])
    for of in found.rewards:
        reward.add_metric([of.alias, of.version], of.mean)
        rewarded.add_metric([of.alias, of.version], of.trajectories)
    yield from (reward, rewarded)
    steps = GaugeMetricFamily("hone_steps", "Steps by state.", labels=["alias", "state"])
    for step in found.steps:
        for state, count in step.counts.items():
            steps.add_metric([step.alias, state], count)
    yield steps
    last = GaugeMetricFamily("hone_last_step", "The trainer's figures of the newest step.", labels=["alias", "figure"])
    for step in found.steps:
        for name, value in step.metrics.items():
            if isinstance(value, int | float):
                last.add_metric([step.alias, name], value)
    yield last
    versions = GaugeMetricFamily("hone_versions", "Versions by state.", labels=["alias", "state"])
    for (alias, state), count in found.versions.items():
        versions.add_metric([alias, state], count)
    yield versions
    gate = GaugeMetricFamily(
        "hone_undecided_seconds",
        "How long a version has been in its state before a decision.",
        labels=["alias", "version", "state"],
    )
    for one in found.undecided:
        gate.add_metric([parse_name(one.version)[0], one.version, one.state], found.at - one.since)
    yield gate
    spent = found.spent_today
    yield GaugeMetricFamily("hone_judge_tokens_today", "Tokens that the judge used today.", spent.tokens)
    yield GaugeMetricFamily("hone_judge_usd_today", "What it cost, where prices are known.", spent.cost_usd or 0.0)
