"""The status of a project: processes, versions in service, progress of learning, and alarms.

Owns: reading it from the store, and the sentences of alarms. `hone status`, `GET /hone/v1/status` and the first page
show the same. Refuses: the figures (`recorder.views.status.figures`), and facts of this machine only
(`proxy.commands.status_view`).

A process counts as alive by its process number on this machine, its lease, and the age of its last report. The state
of an engine counts as unknown if its last report is old, because its controller may be dead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from recorder.base.terminal import format_duration
from recorder.queue import leases
from recorder.queue.judging.scores import FOR_USERS
from recorder.queue.training.gpu_pauses import PauseBudget
from recorder.registry import replicas
from recorder.registry.alias_moves import BY_HAND
from recorder.registry.aliases import AliasView, get_aliases
from recorder.registry.learning_health import LearningHealth
from recorder.registry.moves import list_moves
from recorder.registry.replicas import ProxyView, ReplicaView
from recorder.registry.versions import VersionView, get_versions
from recorder.states import CampaignState, GroupState, StepState
from recorder.store.database import Project
from recorder.views.campaigns.progress import CampaignProgress, list_campaigns_progress
from recorder.views.status.client_problems import (
    ADVICE,
    UnattributedCalls,
    UntrainableClient,
    find_unattributed_clients,
    find_untrainable_clients,
)
from recorder.views.status.engine_problems import DisagreeingEngine, find_disagreeing_engines
from recorder.views.status.figures import (
    JudgeSpending,
    JudgingTrouble,
    MissingPart,
    PendingVersion,
    ProjectFigures,
    ShadowCost,
    StepFigures,
    list_shadow_costs,
    load_figures,
)
from recorder.views.status.judge_agreement import JudgeAgreement
from recorder.views.status.stage_facts import read_pauses, read_stages
from recorder.views.status.stages import LoopSettings, StageCode, StageStatus
from recorder.views.versions.progress import AliasProgress, load_progress
from recorder.views.versions.rewards import VersionReward
from recorder.views.versions.steps import count_done_steps

RECENT_S: Final = 30.0  # engines and proxies report every ten seconds
HOUR_S: Final = 3600.0
DAY_S: Final = 86400.0
MOVES_LIVE: Final = ("gate", "promote", "rollback")


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """One engine. `state`: up, down, starting, asleep while a trainer uses its GPU, or unknown if its last report is
    older than `RECENT_S`.
    """

    url: str
    state: str
    detail: str | None
    loaded: list[str]
    base_model: str | None
    last_seen_s: float


@dataclass(frozen=True, slots=True)
class ProxyStatus:
    """One proxy process, with the number of calls that it is answering."""

    url: str
    process: str
    alive: bool
    in_flight: int
    last_seen_s: float


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """A worker that holds a lease. The lease of a dead process stays until it expires or another worker takes it."""

    name: str
    process: str
    alive: bool
    lease_left_s: float


@dataclass(frozen=True, slots=True)
class AliasStatus:
    """One alias; its versions are given by name."""

    name: str
    live: str | None
    live_for_s: float | None
    previous: str | None
    canary: str | None
    canary_share: float
    holdback_share: float
    watched_for_s: float | None
    generation: int


@dataclass(frozen=True, slots=True)
class RevertedVersion:
    """An automatic rollback that no later move has changed; `live` is the version that is live again."""

    alias: str
    live: str
    for_s: float
    why: str | None


@dataclass(frozen=True, slots=True)
class LastStep(StepFigures):
    """The newest step of an alias, and how long ago it ended."""

    ended_s_ago: float | None


@dataclass(frozen=True, slots=True)
class GateStatus(PendingVersion):
    """A version that waits for a decision, and for how many seconds."""

    for_s: float = 0.0


@dataclass(frozen=True, slots=True)
class UnscoredGroups(JudgingTrouble):
    """Groups that could not be judged, and when they are tried again."""

    next_in_s: float | None


@dataclass(frozen=True, slots=True)
class NeverTrainedClient:
    """A client whose calls to an alias are all untrainable, with the reasons and the advice as text."""

    client: str
    alias: str
    calls: int
    reasons: tuple[str, ...]
    distorting: tuple[str, ...]
    settings: tuple[str, ...]
    no_setting: tuple[str, ...]
    at: float
    why: str
    advice: str


@dataclass(frozen=True, slots=True)
class UnattributedClient(UnattributedCalls):
    """A client whose calls are separate trajectories and should not be, with the advice as text."""

    advice: str = ADVICE


@dataclass(frozen=True, slots=True)
class Status:
    """The status of a project at a time (unix seconds)."""

    at: float
    engines: list[EngineStatus]
    proxies: list[ProxyStatus]
    workers: list[WorkerStatus]
    aliases: list[AliasStatus]
    taken_back: list[RevertedVersion]
    calls_per_s: float
    open_trajectories: int
    groups: Mapping[str, int]  # by state: what the learner could take, and what is trained or excluded
    shadow_groups: Mapping[str, int]  # by state: of `groups`, those of shadow answers
    other_groups: Mapping[str, Mapping[str, int]]  # unfinished ones that the learner takes none of: by use, by state
    groups_due_in_s: Mapping[str, float | None]
    waiting: str
    stages: Sequence[StageStatus]  # recording, judging, and learning of each alias
    trained: int
    excluded: Mapping[str, int]
    excluded_groups: Mapping[str, int]
    spent_today: JudgeSpending
    spent_by_purpose: Mapping[str, JudgeSpending]  # today: learning, shadow, gate, evaluation
    rewards: Sequence[VersionReward]
    steps: list[LastStep]
    steps_last_hour: int  # done, of all aliases
    campaigns: Sequence[CampaignProgress]  # the running ones
    gate: list[GateStatus]
    missing_parts: Sequence[MissingPart]
    judges: Sequence[JudgeAgreement]
    health: Sequence[LearningHealth]  # of each alias about which a health rule signals
    unscored: list[UnscoredGroups]
    shadow_answers: list[ShadowCost]
    never_trained: list[NeverTrainedClient]
    attribution_missing: list[UnattributedClient]
    ids_disagree: list[DisagreeingEngine]
    pauses: PauseBudget | None = None  # of engines, for training; None: they are not paused
    hung_trainer: str | None = None  # its lease on the GPU expired, and it is not known to have ended
    alarms: tuple[str, ...] = ()
    progress: Sequence[AliasProgress] = ()  # of each alias: its newest versions with their measures


async def load_status(project: Project, settings: LoopSettings) -> Status:
    """Read the whole status from the store."""
    found = await load_figures(project, settings.recorder, settings.learn)
    versions = {v.id: v for v in await get_versions(project)}
    engines = await replicas.list_replicas(project, replicas.REMEMBERED_S)
    proxies = await replicas.list_live_proxies(project, replicas.REMEMBERED_S)
    alias_views = await get_aliases(project)
    status = Status(
        at=found.at,
        engines=[_engine(one, found.at) for one in engines],
        proxies=[_proxy(one, found.at) for one in proxies],
        workers=[_worker(lease, found.at) for lease in await leases.list_holders(project)],
        aliases=[_alias(one, versions, found.at) for one in alias_views],
        taken_back=[one for alias in alias_views if (one := await _reverted_version(project, alias, found.at))],
        **_learning(found),
        stages=await read_stages(project, settings, found.waiting),
        steps_last_hour=sum((await count_done_steps(project, found.at - HOUR_S)).values()),
        campaigns=await list_campaigns_progress(project, state=CampaignState.RUNNING),
        shadow_answers=await list_shadow_costs(project, found.at - DAY_S),
        never_trained=[_never_trained(one) for one in await find_untrainable_clients(project)],
        ids_disagree=await find_disagreeing_engines(project),
        attribution_missing=[UnattributedClient(**_fields(one)) for one in await find_unattributed_clients(project)],
        pauses=await read_pauses(project, settings, found.at),
        hung_trainer=await _hung_trainer(project),
        progress=await load_progress(project, alias_views, list(versions.values()), found.rewards),
    )
    return replace(status, alarms=tuple(list_alarms(status)))


async def _hung_trainer(project: Project) -> str | None:
    found = await leases.find_lease(project, leases.GPU)
    return None if found is None or found[1] or leases.has_ended(found[0]) else found[0].owner


def _fields(one: Any) -> dict[str, Any]:
    """Return a view's fields by name, to construct a view with more fields."""
    return {field.name: getattr(one, field.name) for field in fields(one)}


def _engine(one: ReplicaView, at: float) -> EngineStatus:
    seen_s_ago = at - one.seen_at
    state = one.state if seen_s_ago <= RECENT_S else "unknown"
    return EngineStatus(one.url, state, one.detail, one.loaded, one.base_model, seen_s_ago)


def _proxy(one: ProxyView, at: float) -> ProxyStatus:
    seen_s_ago = at - one.seen_at
    dead = leases.is_dead(one.id) or seen_s_ago > RECENT_S
    return ProxyStatus(one.url, one.id, not dead, sum(one.in_flight.values()), seen_s_ago)


def _worker(lease: leases.Lease, at: float) -> WorkerStatus:
    return WorkerStatus(lease.name, lease.owner, not leases.is_dead(lease.owner), lease.expires_at - at)


def _alias(one: AliasView, versions: Mapping[str, VersionView], at: float) -> AliasStatus:
    def name(version_id: str | None) -> str | None:
        found = versions.get(version_id or "")
        return found.name if found else None

    live = versions.get(one.live_version_id or "")
    return AliasStatus(
        name=one.name,
        live=name(one.live_version_id),
        live_for_s=at - live.state_at if live else None,
        previous=name(one.previous_version_id),
        canary=name(one.canary_version_id),
        canary_share=one.canary_share,
        holdback_share=one.holdback_share if one.watched_until is not None else 0.0,
        watched_for_s=one.watched_until - at if one.watched_until is not None else None,
        generation=one.generation,
    )


async def _reverted_version(project: Project, alias: AliasView, at: float) -> RevertedVersion | None:
    moves = [move for move in await list_moves(project, alias=alias.name) if move.move in MOVES_LIVE]
    if not moves or moves[0].move != "rollback" or moves[0].who == BY_HAND:
        return None
    return RevertedVersion(alias.name, moves[0].version, at - moves[0].at, moves[0].why)


def _learning(found: ProjectFigures) -> dict[str, Any]:
    there = found.waiting
    return {
        "calls_per_s": found.calls_per_s,
        "open_trajectories": there.open_trajectories,
        "groups": dict(there.groups),
        "shadow_groups": dict(there.shadow),
        "other_groups": {use: dict(counts) for use, counts in there.apart.items()},
        "groups_due_in_s": {str(state): there.in_s(state) for state in there.due},
        "waiting": there.sentence(),
        "trained": found.trained,
        "excluded": dict(found.excluded),
        "excluded_groups": dict(found.excluded_groups),
        "spent_today": found.spent_today,
        "spent_by_purpose": found.spent_by_purpose,
        "rewards": found.rewards,
        "steps": [
            LastStep(**_fields(one), ended_s_ago=found.at - one.ended_at if one.ended_at else None)
            for one in found.steps
        ],
        "gate": [GateStatus(**_fields(one), for_s=found.at - one.since) for one in found.undecided],
        "missing_parts": found.missing_parts,
        "judges": found.judges,
        "health": found.health,
        "unscored": [
            UnscoredGroups(**_fields(one), next_in_s=None if one.next_at is None else max(0.0, one.next_at - found.at))
            for one in found.troubles
        ],
    }


def _never_trained(one: UntrainableClient) -> NeverTrainedClient:
    return NeverTrainedClient(**_fields(one), why=one.why(), advice=one.advice())


@dataclass(frozen=True, slots=True)
class StatusAlarm:
    """What needs the operator's attention. `code` and `about` name it; `text` may quote an error, `brief` never does.

    `is_event`: the ledger has a row of it.
    """

    code: str
    about: str
    text: str
    brief: str
    is_event: bool = False


def list_alarms(status: Status) -> Iterator[str]:
    """Return what needs the operator's attention, as sentences."""
    return (one.text for one in find_alarms(status))


def find_alarms(status: Status) -> Iterator[StatusAlarm]:
    """Return what needs the operator's attention."""
    for back in status.taken_back:
        brief = f"{back.live} is live again"
        ago = format_duration(back.for_s)
        text = f"{back.live} is live again since {ago}: {back.why}. `hone versions --moves` has the figures"
        yield StatusAlarm("rolled_back", back.live, text, brief, is_event=True)
    for engine in status.engines:
        if engine.state == "down":
            brief = f"engine {engine.url} is down"
            yield StatusAlarm("engine_down", engine.url, f"{brief}: {engine.detail}", brief)
        elif engine.state == "up" and engine.detail is not None:
            brief = f"engine {engine.url} lacks a version"
            yield StatusAlarm("version_lacking", engine.url, f"engine {engine.url} is up: {engine.detail}", brief)
    if status.hung_trainer is not None:
        text = (
            f"the trainer {status.hung_trainer} no longer renews its lease on the GPU: the engine stays asleep until "
            "its memory is free. End that process"
        )
        yield StatusAlarm("hung_trainer", status.hung_trainer, text, text)
    for disagreeing in status.ids_disagree:
        text = disagreeing.sentence()
        yield StatusAlarm("ids_disagree", disagreeing.url or "", text, text)
    for worker in status.workers:
        if not worker.alive:
            brief = f"{worker.name} is dead"
            text = f"{brief}; its lease expires in {format_duration(worker.lease_left_s)}"
            yield StatusAlarm("dead_process", worker.name, text, brief)
    for one in status.unscored:
        if one.code in FOR_USERS:
            continue
        again = "" if one.next_in_s is None else f", tried again in {format_duration(one.next_in_s)}"
        brief = f"{_groups(one.groups)} could not be judged ({one.code}"
        yield StatusAlarm("unscored", one.code, f"{brief}{again}): {one.detail}", f"{brief})")
    for part in status.missing_parts:
        missing = f"reward {part.part!r} is missing for {part.trajectories} of the newest {part.of} trajectories"
        yield StatusAlarm("missing_part", part.part, f"{missing}: {part.detail}", missing)
    for judges in status.judges:
        brief = f"the two judges of recipe {judges.recipe!r} need attention"
        yield from (StatusAlarm("judges", f"{judges.alias} {judges.recipe}", text, brief) for text in judges.alarms)
    for watched in status.health:
        yield from (
            StatusAlarm("health_rule", watched.alias, text, text, is_event=True) for text in watched.sentences()
        )
    for stage in status.stages:
        if stage.code == StageCode.LOGPROB_GAP:
            text = f"{stage.code}: {stage.text}"
            yield StatusAlarm("logprob_gap", stage.alias or "", text, text)
    ready = sum(counts.get(GroupState.READY, 0) for counts in (status.groups, *status.other_groups.values()))
    if ready and not any(_is_judge(worker) for worker in status.workers):
        text = f"{_groups(ready)} ready and no judge runs: start one with `hone judge`"
        yield StatusAlarm("no_judge", "", text, text)
    for step in status.steps:
        if step.state == StepState.ABANDONED and not str(step.reason).startswith(f"{StageCode.LOGPROB_GAP}:"):
            brief = f"step {step.number} of {step.alias} was abandoned"
            yield StatusAlarm("step_abandoned", f"{step.alias} {step.number}", f"{brief} ({step.reason})", brief)


def _groups(number: int) -> str:
    return f"{number} group{'' if number == 1 else 's'}"


def _is_judge(worker: WorkerStatus) -> bool:
    return worker.alive and worker.name.startswith("judge:")
