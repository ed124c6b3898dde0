"""Events of a project since the last read, as sentences: groups judged, steps, versions, engines, faults.

Owns: comparing the store with the snapshot of the last read, and the sentences. Refuses: waiting for changes
(`recorder.store.changes`), printing, and events before the first read.

Ids of scores and steps sort by time, so each read asks only for rows younger than the last read, less `OVERLAP_S`: a
transaction with an earlier id may commit later.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.base.terminal import format_duration
from recorder.ids import first_id_at
from recorder.queue import gate_requests
from recorder.queue.gate_requests import GateProgress
from recorder.queue.groups.uses import GroupUse, group_use
from recorder.queue.judging import switches
from recorder.queue.judging.rescoring import REQUESTED
from recorder.queue.judging.scores import FOR_USERS, REWARD
from recorder.queue.judging.switches import JudgeSwitch
from recorder.queue.training.refusals import GAP_ALLOWED, LOGPROB_GAP
from recorder.queue.training.steps import COMPUTED_ON
from recorder.registry.ancestry import GIVEN_BACK
from recorder.states import GroupState, StepState, VersionState
from recorder.store import sql
from recorder.store.database import Project
from recorder.store.schema import aliases, groups, ledger, replicas, score_parts, scores, steps, versions

OVERLAP_S: Final = 30.0
MOST_ROWS: Final = 500  # of one kind in one read
_UP: Final = "up"  # states of engines
_DOWN: Final = "down"
_REFUSED: Final = "refused"
_OF: Final = {GroupUse.GATE: " of the gate", GroupUse.EVALUATION: " of an evaluation"}  # the others are agents' traffic
_PURPOSES: Final = {GroupUse.GATE: " for the gate", GroupUse.EVALUATION: " to be measured"}
_RETRIED: Final = "try_after_s"  # the key, in the ledger's detail, of a group that is judged again later


class EventKind(StrEnum):
    """The kind of an event."""

    JUDGED = "judged"
    STEP = "step"
    GATE = "gate"
    SWAP = "swap"
    ROLLBACK = "rollback"
    EXCLUDED = "excluded"
    FAULT = "fault"
    ENGINE = "engine"


@dataclass(frozen=True, slots=True)
class Event:
    """One event: its sentence, and in `facts` the same as data."""

    kind: EventKind
    text: str
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class _Snapshot:
    """The state of the store at one read."""

    at: float = 0.0
    ledger_id: int = 0
    scores: set[str] = field(default_factory=set)
    steps: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    engines: dict[str, str] = field(default_factory=dict)  # URL → `_engine_state`
    live: dict[str, int] = field(default_factory=dict)  # alias → number
    switches: dict[str, JudgeSwitch] = field(default_factory=dict)  # of judges, by id
    rounds: dict[str, int] = field(default_factory=dict)  # finished rounds of held-out scenarios, by version


class EventReader:
    """Reads the events of one project. The first read only takes a snapshot.

    `starting`: URLs of engines that the caller is starting. It is not a fault if they are down before they were up
    once.
    """

    def __init__(self, project: Project, *, starting: Collection[str] = ()) -> None:
        self._project = project
        self._starting = set(starting)
        self._seen: _Snapshot | None = None

    async def look(self) -> list[Event]:
        """Return the events since the last read, in the order of a group's life. Raises StoreError."""
        before = self._seen
        after = _Snapshot()
        async with self._project.store.read() as conn:
            after.at = await sql.current_time(conn)
            since = (before.at if before else after.at) - OVERLAP_S
            events = [
                *await self._judged(conn, before, after, since),
                *await self._judge_switches(conn, before, after, since),
                *await self._ledger(conn, before, after),
                *await self._steps(conn, before, after, since),
                *await self._gates(conn, before, after),
                *await self._versions(conn, before, after),
                *await self._engines(conn, before, after),
            ]
        self._seen = after
        return events if before is not None else []

    async def _gates(self, conn: AsyncConnection, before: _Snapshot | None, after: _Snapshot) -> list[Event]:
        in_progress = (await gate_requests.list_in_progress(conn, self._project.id)).values()
        after.rounds = {one.version: one.rounds for one in in_progress}
        known = before.rounds if before is not None else after.rounds
        return [_gate_progress(one) for one in in_progress if one.rounds > known.get(one.version, 0)]

    async def _judged(
        self, conn: AsyncConnection, before: _Snapshot | None, after: _Snapshot, since: float
    ) -> list[Event]:
        query = (
            select(scores.c.id, scores.c.cost_usd, aliases.c.name.label("alias"), group_use().label("use"))
            .join(groups, groups.c.id == scores.c.group_id)
            .outerjoin(aliases, aliases.c.id == groups.c.alias_id)
            .where(scores.c.project_id == self._project.id, scores.c.id >= first_id_at("score", since))
            .order_by(scores.c.id.desc())
            .limit(MOST_ROWS)
        )
        rows = list(await conn.execute(query))
        after.scores = {row.id for row in rows}
        new: dict[tuple[str, str], list[Any]] = defaultdict(list)
        for row in rows:
            if before is not None and row.id not in before.scores:
                purpose = str(GroupUse.LEARNING if row.use == GroupUse.SHADOW else row.use)
                new[row.alias or "no alias", purpose].append(row)
        events = []
        for (alias, purpose), of in sorted(new.items()):
            ids = [row.id for row in of]
            events += [_batch(alias, purpose, of, await _rewards(conn, ids)), *await _missing(conn, alias, ids)]
        return events

    async def _judge_switches(
        self, conn: AsyncConnection, before: _Snapshot | None, after: _Snapshot, since: float
    ) -> list[Event]:
        after.switches = await switches.switches_since(conn, self._project.id, first_id_at("turn", since))
        known = before.switches if before is not None else after.switches
        return [_judge_switch(one) for id_, one in after.switches.items() if id_ not in known]

    async def _ledger(self, conn: AsyncConnection, before: _Snapshot | None, after: _Snapshot) -> Sequence[Event]:
        if before is None:
            after.ledger_id = int((await conn.execute(select(func.coalesce(func.max(ledger.c.id), 0)))).scalar_one())
            return ()
        query = (
            select(ledger.c.id, ledger.c.code, ledger.c.detail, group_use().label("use"), groups.c.state)
            .outerjoin(groups, groups.c.id == ledger.c.object_id)
            .where(
                ledger.c.id > before.ledger_id,
                ledger.c.project_id == self._project.id,
                ledger.c.object_kind == "group",
                ledger.c.code.not_in(sorted(FOR_USERS)),
            )
            .order_by(ledger.c.id)
            .limit(MOST_ROWS)
        )
        rows = list(await conn.execute(query))
        after.ledger_id = rows[-1].id if rows else before.ledger_id
        by_code: dict[tuple[str, bool, str, bool], list[Any]] = defaultdict(list)
        for row in rows:
            measured = row.state == GroupState.MEASURED
            by_code[row.code, _RETRIED in (row.detail or {}), row.use, measured].append(row.detail or {})
        return [_group_trouble(*of, details) for of, details in by_code.items()]

    async def _steps(
        self, conn: AsyncConnection, before: _Snapshot | None, after: _Snapshot, since: float
    ) -> list[Event]:
        running = steps.c.state == StepState.RUNNING
        recent = running | (steps.c.ended_at >= since)
        query = (
            select(steps, aliases.c.name.label("alias"), versions.c.number.label("version"))
            .join(aliases, aliases.c.id == steps.c.alias_id)
            .outerjoin(versions, versions.c.id == steps.c.version_id)
            .where(steps.c.project_id == self._project.id, recent)
            .order_by(steps.c.id)
            .limit(MOST_ROWS)
        )
        rows = list(await conn.execute(query))
        after.steps = {row.id: row.state for row in rows}
        changed = [row for row in rows if before is not None and before.steps.get(row.id) != row.state]
        return [_step(row) for row in changed]

    async def _versions(self, conn: AsyncConnection, before: _Snapshot | None, after: _Snapshot) -> list[Event]:
        query = (
            select(versions, aliases.c.name.label("alias"), aliases.c.canary_share)
            .join(aliases, aliases.c.id == versions.c.alias_id)
            .where(versions.c.project_id == self._project.id)
            .order_by(versions.c.state_at.desc())
            .limit(MOST_ROWS)
        )
        rows = list(await conn.execute(query))
        after.versions = {row.id: row.state for row in rows}
        after.live = {row.alias: row.number for row in rows if row.state == VersionState.LIVE}
        if before is None:
            return []
        changed = [row for row in reversed(rows) if before.versions.get(row.id) != row.state]
        whys = await _whys(conn, [row.id for row in changed])
        return [events for row in changed if (events := _version(row, before, whys.get(row.id)))]

    async def _engines(self, conn: AsyncConnection, before: _Snapshot | None, after: _Snapshot) -> list[Event]:
        columns = (replicas.c.url, replicas.c.state, replicas.c.detail, replicas.c.base_model)
        rows = list(await conn.execute(select(*columns).where(replicas.c.project_id == self._project.id)))
        after.engines = {row.url: _engine_state(row) for row in rows}
        self._starting -= {url for url, state in after.engines.items() if state in (_UP, _REFUSED)}
        known = before.engines if before is not None else after.engines
        awaited = self._starting | (after.engines.keys() - known.keys())
        return [_engine(row, row.url in awaited) for row in rows if known.get(row.url) != _engine_state(row)]


async def _whys(conn: AsyncConnection, version_ids: Sequence[str]) -> Mapping[str, str | None]:
    """Return the reason of the newest decision about each version, by version id."""
    decisions = (ledger.c.object_kind == "version", ledger.c.object_id.in_(version_ids))
    rows = await conn.execute(select(ledger.c.object_id, ledger.c.detail).where(*decisions).order_by(ledger.c.id))
    return {id_: (detail or {}).get("reason") for id_, detail in rows}


async def _rewards(conn: AsyncConnection, score_ids: Sequence[str]) -> list[tuple[float, bool]]:
    """Return the rewards of trajectories, each with whether it was given without a judge or function (`unasked`)."""
    part = (score_parts.c.score_id.in_(score_ids), score_parts.c.part == REWARD, score_parts.c.value.is_not(None))
    rows = await conn.execute(select(score_parts.c.value, score_parts.c.unasked).where(*part))
    return [(float(row.value), row.unasked) for row in rows]


async def _missing(conn: AsyncConnection, alias: str, score_ids: Sequence[str]) -> list[Event]:
    """Return an event for each reward part that some trajectories lack, for example because a function raised."""
    missing_part = (score_parts.c.score_id.in_(score_ids), score_parts.c.part != REWARD, score_parts.c.value.is_(None))
    query = select(score_parts.c.part, func.count(), func.max(score_parts.c.explanation)).where(*missing_part)
    return [
        Event(
            EventKind.FAULT,
            f"{alias}: {part!r} is missing for {_trajectories(number)}: {why}",
            {"alias": alias, "part": part, "trajectories": number, "message": why},
        )
        for part, number, why in await conn.execute(query.group_by(score_parts.c.part))
    ]


def _batch(alias: str, purpose: str, judged: Sequence[Any], given: Sequence[tuple[float, bool]]) -> Event:
    """Return the event that groups of one purpose were judged; those of shadow answers are for learning, and named."""
    costs = [row.cost_usd for row in judged if row.cost_usd is not None]
    rewards = [reward for reward, unasked in given if not unasked]
    shadow = sum(row.use == GroupUse.SHADOW for row in judged)
    facts: dict[str, Any] = {"alias": alias, "purpose": purpose, "groups": len(judged), "shadow": shadow}
    facts |= {"trajectories": len(given), "unasked": len(given) - len(rewards)}
    facts |= {"cost_usd": sum(costs) if costs else None}
    named = f" ({shadow} of shadow answers)" if shadow else ""
    text = f"{alias}: {_count(len(judged), 'group')} judged{_PURPOSES.get(GroupUse(purpose), '')}{named}"
    text += f", {_trajectories(len(given))}"
    text += f" ({facts['unasked']} without a judge)" if facts["unasked"] else ""
    if rewards:
        facts |= {"reward_mean": sum(rewards) / len(rewards), "reward_min": min(rewards), "reward_max": max(rewards)}
        text += f", reward {facts['reward_mean']:.2f} ({min(rewards):.2f} to {max(rewards):.2f})"
    return Event(EventKind.JUDGED, text + (f", ${sum(costs):.4f}" if costs else ""), facts)


def _judge_switch(switch: JudgeSwitch) -> Event:
    """Return the event that the other of two judges scores from now on."""
    facts = {
        "code": switch.reason,
        "alias": switch.alias,
        "recipe": switch.recipe,
        "scores": switch.judge,
        "mean": switch.mean,
    }
    return Event(EventKind.FAULT if switch.drifted else EventKind.JUDGED, f"{switch.reason}: {switch}", facts)


# What happened to groups that a ledger row does not exclude.
_KEPT: Final[Mapping[str, str]] = {
    "lease_expired": "given back: the worker's lease expired",
    GIVEN_BACK: f"may be trained on again ({GIVEN_BACK})",
    GAP_ALLOWED: f"may be trained on again ({GAP_ALLOWED})",
    REQUESTED: f"will be scored again ({REQUESTED})",
}


def _group_trouble(code: str, again: bool, use: str, measured: bool, details: Sequence[Mapping[str, Any]]) -> Event:
    facts = {"code": code, "groups": len(details), "purpose": use}
    which = _count(len(details), "group") + _OF.get(GroupUse(use), "")
    message = detail_text(details[-1])
    more = f": {message}" if message else ""
    if measured and not again and code not in _KEPT:
        return Event(EventKind.FAULT, f"{which} got no score ({code}){more}", facts)
    if not again:
        is_refused = code == LOGPROB_GAP and "bound" in details[-1]  # by a step; it stays scored
        kind = EventKind.FAULT if code == "lease_expired" or is_refused else EventKind.EXCLUDED
        what = f"held back ({code})" if is_refused else _KEPT.get(code, f"excluded ({code}){more}")
        return Event(kind, f"{which} {what}", facts)
    wait_s = float(details[-1][_RETRIED])
    text = f"{which} could not be judged ({code}){more}; tried again in {format_duration(wait_s)}"
    return Event(EventKind.FAULT, text, {**facts, "message": message, _RETRIED: wait_s})


def detail_text(detail: Mapping[str, Any]) -> str:
    """Return the text in a ledger row's detail: the value of `detail`, or its `message`; empty if there is none."""
    inner = detail.get("detail")
    text = inner.get("message") if isinstance(inner, Mapping) else inner
    return "" if text is None else str(text)


def _step(row: Any) -> Event:
    name = f"{row.alias}: step {row.number}"
    facts: dict[str, Any] = {"alias": row.alias, "step": row.number, "state": row.state}
    if row.state == StepState.RUNNING:
        return Event(EventKind.STEP, f"{name} begins", facts)
    if row.state == StepState.ABANDONED:
        return Event(EventKind.FAULT, f"{name} was abandoned ({row.reason})", {**facts, "reason": row.reason})
    facts |= {"version": f"{row.alias}@{row.version}", "metrics": row.metrics, "seconds": row.ended_at - row.started_at}
    reward = row.metrics.get("reward_mean")
    figures = [f"{facts['seconds']:.1f} s", *([f"reward {reward:.2f}"] if isinstance(reward, int | float) else [])]
    figures += [f"computed on {copy}"] if (copy := row.metrics.get(COMPUTED_ON)) else []
    return Event(EventKind.STEP, f"{name} made {facts['version']} ({', '.join(figures)})", facts)


def _version(row: Any, before: _Snapshot, why: str | None) -> Event | None:
    name, live = f"{row.alias}@{row.number}", before.live.get(row.alias)
    facts = {"alias": row.alias, "version": name, "state": row.state, "reason": row.reason}
    if row.state == VersionState.LIVE:
        if live is None:  # the alias was declared just now
            return None
        kind = EventKind.ROLLBACK if row.number < live else EventKind.SWAP
        text = f"{name} is live, in place of {row.alias}@{live}" + (f": {why}" if why else "")
        return Event(kind, text, {**facts, "why": why})
    if row.state == VersionState.RETIRED and before.versions.get(row.id) == VersionState.CANARY:
        text = f"{name} is no longer the canary" + (f": {why}" if why else "")
        return Event(EventKind.ROLLBACK, text, {**facts, "why": why})
    because = f" ({row.reason})" if row.reason else ""
    words: Mapping[str, tuple[EventKind, str]] = {
        VersionState.LOADED: (EventKind.GATE, "is loaded"),
        VersionState.GATED: (EventKind.GATE, "passed the checks of its files, its load and its probe"),
        VersionState.CANARY: (EventKind.GATE, f"is the canary, for {row.canary_share:.0%} of new trajectories"),
        VersionState.REJECTED: (EventKind.GATE, f"is rejected{because}"),
        VersionState.ABANDONED: (EventKind.FAULT, f"is abandoned{because}"),
    }
    if row.state not in words:
        return None
    kind, text = words[row.state]
    return Event(kind, f"{name} {text}", facts)


def _gate_progress(one: GateProgress) -> Event:
    alias, _, _ = one.version.rpartition("@")
    facts = {"alias": alias, "version": one.version, "attempts": one.ended, "at_most": one.most}
    return Event(EventKind.GATE, f"{one.version} attempts its held-out scenarios: {one}", facts)


def _engine_state(row: Any) -> str:
    """Return an engine's state; `refused` if it is down but answers, because it serves what must not be used."""
    return _REFUSED if row.state == _DOWN and row.base_model is not None else str(row.state)


def _engine(row: Any, awaited: bool) -> Event:
    """Return the event of an engine's new state. `awaited`: it was never up, so if it is down it is still starting."""
    early = awaited and _engine_state(row) == _DOWN
    text = f"{row.url} is {'not up yet' if early else row.state}" + (f": {row.detail}" if row.detail else "")
    facts = {"url": row.url, "state": row.state, "detail": row.detail}
    return Event(EventKind.FAULT if row.state == _DOWN and not early else EventKind.ENGINE, text, facts)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _trajectories(number: int) -> str:
    return f"{number} {'trajectory' if number == 1 else 'trajectories'}"
