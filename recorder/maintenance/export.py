"""Recorded calls as JSON lines: all fields (raw), conversations for fine-tuning (openai), or tool calls (tools).

Owns: the shape of exported lines, and which trajectories are fine-tuning data. Refuses: files and printing
(`recorder.commands.trajectories`).

Fine-tuning data are completed trajectories with purpose train and origin live or campaign. Held-out scenarios, which
measure versions, never are. Others (`MORE`) only if they are named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from sqlalchemy import select, tuple_

from recorder.curation.datasets import trajectories_in
from recorder.messages.calls import Message
from recorder.messages.content_hashes import ECHO_EXTRAS
from recorder.queue.judging import scores
from recorder.queue.judging.scores import REWARD, NewPart
from recorder.states import Origin, Purpose, TrajectoryState
from recorder.store.database import Project, Store
from recorder.store.schema import aliases, groups, tool_calls, trajectories, versions
from recorder.views.trajectories.assembly import Row, tool_call_view
from recorder.views.trajectories.shapes import CallView, ToolCallView, TrajectoryView
from recorder.views.trajectories.transcripts import load_trajectories

PAGE = 20  # trajectories in memory at a time, with tokens
ID_PAGE = 500
GATE: Final = "gate"  # answers of a version and the live one to the same first turns
MORE: Final = (GATE, Origin.SHADOW.value, Origin.REPLAY.value, Origin.IMPORT.value)


@dataclass(slots=True)
class ExportCounts:
    """How many trajectories were exported as fine-tuning data, and how many were not, by reason."""

    exported: int = 0
    excluded: Counter[str] = field(default_factory=Counter)

    def sentence(self) -> str:
        """Return the counts in words."""
        noun = "trajectory" if self.exported == 1 else "trajectories"
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in self.excluded.most_common())
        return f"{self.exported:,} {noun} exported" + (f"; excluded: {reasons}." if reasons else ".")


async def raw_lines(
    project: Project, *, trajectory_id: str | None = None, since: float | None = None, dataset: str | None = None
) -> AsyncIterator[dict[str, Any]]:
    """Yield one line per call, by trajectory in the order of their start, from `since` (unix seconds) on.

    `dataset`: only trajectories of the dataset of that name.

    `request` and `response` are in the chat form, whatever the wire format was; `timings` are seconds since the start;
    `parts` are the parts of the trajectory's `reward`, by name, each with its reason.
    """
    names: dict[str, str] = {}
    async for page in _pages(project, trajectory_id, since, dataset, with_tokens=True):
        own = [(t, call) for t in page for call in t.calls if call.trajectory_id == t.id]
        await _add_names(project.store, names, {call.version_id for _, call in own if call.version_id is not None})
        parts = await _parts(project.store, page)
        for trajectory, call in own:
            yield _raw(trajectory, call, names.get(call.version_id or ""), parts.get(trajectory.id, ()))


async def openai_lines(
    project: Project,
    *,
    trajectory_id: str | None = None,
    since: float | None = None,
    dataset: str | None = None,
    include: Collection[str] = (),
    min_reward: float | None = None,
    counts: ExportCounts | None = None,
) -> AsyncIterator[dict[str, Any]]:
    """Yield one line per trajectory: `{"messages": […], "tools": […]}`, the path to its last main leaf.

    `include`: of `MORE`, what is fine-tuning data besides trajectories for training. `min_reward`: only trajectories
    whose current reward is at least this. `counts` is filled in.
    """
    counts = counts if counts is not None else ExportCounts()
    async for page in _pages(project, trajectory_id, since, dataset, with_tokens=False):
        rewards = await _rewards(project.store, page) if min_reward is not None else {}
        for trajectory in page:
            reason = _why_not(trajectory, include)
            if reason is None and min_reward is not None:
                reason = _too_low(rewards.get(trajectory.id), min_reward)
            if reason is not None:
                counts.excluded[reason] += 1
                continue
            counts.exported += 1
            line: dict[str, Any] = {"messages": [_plain(m) for m in trajectory.messages]}
            yield line | ({"tools": list(trajectory.tools)} if trajectory.tools else {})


def _why_not(trajectory: TrajectoryView, include: Collection[str]) -> str | None:
    """Return why a trajectory is no fine-tuning data; None if it is."""
    purpose, origin = trajectory.purpose, trajectory.origin
    kind = GATE if origin is Origin.SHADOW and purpose is Purpose.EVAL else origin.value
    if kind in MORE and kind not in include:
        return f"{kind} (--include {kind})"
    if kind != GATE and purpose in (Purpose.VAL, Purpose.EVAL):
        return f"held-out (purpose {purpose.value})"
    if purpose is Purpose.NONE:
        return "not for training (purpose none)"
    if trajectory.state is not TrajectoryState.COMPLETED:
        return f"not completed ({trajectory.state.value})"
    if trajectory.drift_set_at is not None:
        return "in a drift set, which is never trained on"
    if trajectory.selection:
        return f"choices of one call ({trajectory.selection})"
    return None if trajectory.main_path else "without an answer"


def _too_low(reward: float | None, least: float) -> str | None:
    if reward is None:
        return "without a reward"
    return None if reward >= least else "below --min-reward"


async def tool_lines(
    project: Project, *, trajectory_id: str | None = None, since: float | None = None, dataset: str | None = None
) -> AsyncIterator[dict[str, Any]]:
    """Yield one line per tool call of the gateway, in the order of their start, also without a known trajectory."""
    t = tool_calls.c
    query = select(tool_calls).where(t.project_id == project.id).order_by(t.started_at, t.id).limit(PAGE)
    if trajectory_id is not None:
        query = query.where(t.trajectory_id == trajectory_id)
    if since is not None:
        query = query.where(t.started_at >= since)
    if dataset is not None:
        query = query.where(t.trajectory_id.in_(trajectories_in(project.id, dataset)))
    page = query
    while True:
        async with project.store.read() as conn:
            rows = (await conn.execute(page)).all()
        for row in rows:
            yield _tool(tool_call_view(row))
        if len(rows) < PAGE:
            return
        page = query.where(tuple_(t.started_at, t.id) > (rows[-1].started_at, rows[-1].id))


async def _pages(
    project: Project, trajectory_id: str | None, since: float | None, dataset: str | None, *, with_tokens: bool
) -> AsyncIterator[list[TrajectoryView]]:
    wanted: list[str] = []
    async for row in _trajectories(project, trajectory_id, dataset):
        if row.project_id == project.id and (since is None or row.started_at >= since):
            wanted.append(row.id)
        if len(wanted) == PAGE:
            yield await load_trajectories(project.store, wanted, with_tokens=with_tokens)
            wanted = []
    if wanted:
        yield await load_trajectories(project.store, wanted, with_tokens=with_tokens)


async def _trajectories(project: Project, trajectory_id: str | None, dataset: str | None) -> AsyncIterator[Row]:
    """Yield all trajectories of the store, one, or those of a dataset, by id.

    Ids sort by time, and each page costs the same. An ordered query for one project would make SQLite sort the project
    for each page.
    """
    t = trajectories.c
    query = select(t.id, t.project_id, t.started_at).order_by(t.id).limit(ID_PAGE)
    if dataset is not None:
        query = query.where(t.id.in_(trajectories_in(project.id, dataset)))
    page = query.where(t.id == trajectory_id) if trajectory_id is not None else query
    while True:
        async with project.store.read() as conn:
            rows = (await conn.execute(page)).all()
        for row in rows:
            yield row
        if len(rows) < ID_PAGE:
            return
        page = query.where(t.id > rows[-1].id)


async def _add_names(store: Store, names: dict[str, str], ids: Iterable[str]) -> None:
    missing = [id_ for id_ in ids if id_ not in names]
    if not missing:
        return
    joined = select(versions.c.id, aliases.c.name, versions.c.number).join(aliases, aliases.c.id == versions.c.alias_id)
    async with store.read() as conn:
        for id_, name, number in await conn.execute(joined.where(versions.c.id.in_(missing))):
            names[id_] = f"{name}@{number}"


async def _parts(store: Store, page: Iterable[TrajectoryView]) -> dict[str, list[NewPart]]:
    """Return the parts of each trajectory's reward in its group's current score."""
    group_ids = {t.group_id for t in page if t.group_id is not None}
    async with store.read() as conn:
        query = select(groups.c.current_score_id).where(
            groups.c.id.in_(sorted(group_ids)), groups.c.current_score_id.is_not(None)
        )
        current = list((await conn.execute(query)).scalars())
    parts: dict[str, list[NewPart]] = {}
    for score in (await scores.get_scores(store, current)).values():
        for part in score.parts:
            parts.setdefault(part.trajectory_id, []).append(part)
    return parts


async def _rewards(store: Store, page: Iterable[TrajectoryView]) -> dict[str, float]:
    """Return the current reward of each trajectory that has one."""
    parts = await _parts(store, page)
    return {
        id_: part.value for id_, own in parts.items() for part in own if part.part == REWARD and part.value is not None
    }


def _raw(trajectory: TrajectoryView, call: CallView, version: str | None, parts: Sequence[NewPart]) -> dict[str, Any]:
    return {
        "call_id": call.id,
        "parent_call_id": call.parent_call_id,
        "trajectory_id": trajectory.id,
        "trajectory_external_id": trajectory.external_id,
        "group_id": trajectory.group_id,
        "attribution": {"source": call.attribution_source, "confidence": call.attribution_confidence.value},
        "dialect": call.dialect,
        "endpoint": call.endpoint,
        "model": call.model,
        "version": version,
        "status": call.state.value if call.superseded_by is None else "superseded",
        "turn_kind": call.call_kind.value,
        "purpose": trajectory.purpose.value,
        "origin": trajectory.origin.value,
        "request": _request(call),
        "response": _response(call),
        "prompt_token_ids": _list(call.prompt_token_ids),
        "choices": [
            {
                "token_ids": _list(choice.token_ids),
                "logprobs": _list(choice.logprobs),
                "finish_reason": choice.finish_reason,
                "trainable": choice.trainable,
            }
            for choice in call.choices
        ],
        "tool_calls": [_tool(t) for t in trajectory.tool_calls if t.call_id == call.id],
        "sampling": asdict(call.sampling),
        "usage": call.usage,
        "reward": next((part.value for part in parts if part.part == REWARD), None),
        "parts": [
            {
                "part": part.part,
                "value": part.value,
                "weight": part.weight,
                "explanation": part.explanation,
                "unasked": part.unasked,
            }
            for part in parts
        ],
        "started_at": call.started_at,
        "timings": {
            "first_token_s": _since(call.first_token_at, call.started_at),
            "total_s": _since(call.finished_at, call.started_at),
        },
    }


def _tool(call: ToolCallView) -> dict[str, Any]:
    return {
        "tool_call_id": call.tool_call_id,
        "trajectory_id": call.trajectory_id,
        "call_id": call.call_id,
        "choice": call.choice,
        "joined": {"source": call.join_source, "confidence": call.join_confidence.value},
        "server": call.server,
        "name": call.name,
        "tool": call.tool,
        "arguments": call.arguments,
        "status": call.outcome.value,
        "result": call.result,
        "error": call.error,
        "annotations": call.annotations,
        "started_at": call.started_at,
        "timings": {"total_s": call.finished_at - call.started_at},
    }


def _request(call: CallView) -> dict[str, Any]:
    body: dict[str, Any] = {**call.rest, "messages": list(call.messages)}
    if call.tools is not None:
        body["tools"] = list(call.tools)
    if call.response_format is not None:
        body["response_format"] = call.response_format
    return body


def _response(call: CallView) -> dict[str, Any]:
    said = [{"index": c.index, "message": c.message, "finish_reason": c.finish_reason} for c in call.choices]
    body: dict[str, Any] = {**(call.response_meta or {}), "choices": said, "http_status": call.http_status}
    return body | ({"error": call.error} if call.error is not None else {})


def _list(packed: Iterable[Any] | None) -> list[Any] | None:
    return list(packed) if packed is not None else None


def _since(at: float | None, start: float) -> float | None:
    return at - start if at is not None else None


def _plain(message: Message) -> Mapping[str, Any]:
    """Return a message without fields that fine-tuning formats do not have."""
    plain = {k: v for k, v in message.items() if v is not None and k not in ECHO_EXTRAS}
    return plain if plain.get("content") is not None or plain.get("tool_calls") else {**plain, "content": ""}
