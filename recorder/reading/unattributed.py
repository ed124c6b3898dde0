"""Agents whose every call becomes a run of its own, though one call plainly goes on from another: attribution missing.

Owns: that suspicion, over a project's newest runs of one call. Refuses: placing anything by it: what it goes by (quoted
words, a prompt that comes back in a longer one) proves nothing about any single run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.content.extras import CLIENT
from recorder.content.said import text_parts
from recorder.content.turns import Message
from recorder.lineage import likeness
from recorder.reading.never_trained import UNKNOWN, newest_calls
from recorder.states import CallState
from recorder.store import sql
from recorder.store.project import Project
from recorder.store.schema import aliases, calls, choices, nodes, trajectories

MOST_CALLS: Final = 48  # of a project, the newest that are runs of their own
MOST_MESSAGES: Final = 12  # of a prompt, from its end
LOOKED_BACK: Final = 8  # calls of a client before a call: several agents may take turns
MIN_IN_TURN: Final = 3  # calls of which each goes on from another: two may be a plan and its work
ADVICE: Final = (
    "give each run an address: the base URL …/t/<run>/v1, the header x-hone-trajectory, or a key minted for it "
    "(docs/attribution.md)"
)


@dataclass(frozen=True, slots=True)
class Unattributed:
    """A client whose calls of an alias go on from each other and are found in no run."""

    client: str
    alias: str
    calls: int  # that go on from one another, of those looked at
    at: float  # the newest of them, unix seconds


@dataclass(frozen=True, slots=True)
class _Alone:
    """A call that is a run of its own."""

    row: Any
    prompt: Sequence[tuple[bytes, Message]]  # the last message first, each with its node
    answer: Message


async def unattributed(project: Project) -> list[Unattributed]:
    """The clients whose calls are runs of their own and should not be, by name."""
    async with project.store.read() as conn:
        alone = await _alone(conn, project.id)
    by_client: dict[tuple[str, str], list[_Alone]] = {}
    for one in alone:
        by_client.setdefault((one.row.client or UNKNOWN, one.row.alias), []).append(one)
    found = []
    for (client, alias), ones in sorted(by_client.items()):
        in_turn = _in_turn(ones)
        if in_turn:
            found.append(Unattributed(client, alias, len(in_turn), max(one.row.started_at for one in in_turn)))
    return found


def _in_turn(ones: Sequence[_Alone]) -> list[_Alone]:
    """The calls, given oldest first, that are part of a chain of `MIN_IN_TURN`."""
    chains: list[list[_Alone]] = []  # for each call, the longest chain that ends in it
    for at, one in enumerate(ones):
        before = [chains[n] for n in range(max(0, at - LOOKED_BACK), at) if _goes_on(ones[n], one)]
        chains.append([*max(before, key=len, default=[]), one])
    long = [one for chain in chains if len(chain) >= MIN_IN_TURN for one in chain]
    return list({one.row.id: one for one in long}.values())


def _goes_on(earlier: _Alone, later: _Alone) -> bool:
    """Whether a call has another's whole prompt and more than it, or says in its own prompt what that one answered."""
    row = earlier.row
    if (
        row.finished_at is None
        or later.row.started_at < row.finished_at
        or row.tools_blob_id != later.row.tools_blob_id
    ):
        return False
    new = [message for node, message in later.prompt if node not in {node for node, _ in earlier.prompt}]
    grown = any(node == row.prompt_node_id for node, _ in later.prompt[1:])
    if grown and any(message.get("role") == "assistant" for message in new):
        return True
    said = [line for text in _texts(earlier.answer) for line in text.splitlines()]
    return any(likeness.quoted(line, new) for line in said)


def _texts(answer: Message) -> list[str]:
    return [*text_parts(answer), *likeness.asked_of_tools(answer)]


async def _alone(conn: AsyncConnection, project_id: str) -> list[_Alone]:
    """The newest calls that are runs of their own, oldest first."""
    query = (
        select(
            calls.c.id,
            sql.member(calls.c.response_meta, CLIENT).label("client"),
            aliases.c.name.label("alias"),
            calls.c.tools_blob_id,
            calls.c.prompt_node_id,
            calls.c.started_at,
            calls.c.finished_at,
            nodes.c.message,
        )
        .join(trajectories, trajectories.c.id == calls.c.trajectory_id)
        .join(aliases, aliases.c.id == calls.c.alias_id)
        .join(choices, (choices.c.call_id == calls.c.id) & (choices.c["index"] == 0))
        .join(nodes, nodes.c.id == choices.c.node_id)
        .where(
            *newest_calls(project_id),
            calls.c.attribution_source == "new",
            calls.c.state == CallState.COMPLETE,
            trajectories.c.call_count == 1,
        )
        .order_by(calls.c.id.desc())
        .limit(MOST_CALLS)
    )
    rows = (await conn.execute(query)).all()
    known = await _messages(conn, [row.prompt_node_id for row in rows if row.prompt_node_id is not None])
    # ids of one millisecond are in no order
    in_time = sorted(rows, key=lambda row: (row.started_at, row.finished_at or row.started_at))
    return [_Alone(row, _up(row.prompt_node_id, known), row.message) for row in in_time]


async def _messages(conn: AsyncConnection, ends: Sequence[bytes]) -> dict[bytes, Any]:
    """The last messages of some prompts, by their nodes."""
    known: dict[bytes, Any] = {}
    wanted = set(ends)
    for _ in range(MOST_MESSAGES):
        if not wanted:
            break
        query = select(nodes.c.id, nodes.c.parent_id, nodes.c.message).where(nodes.c.id.in_(wanted))
        found = {bytes(row.id): row for row in await conn.execute(query)}
        known |= found
        wanted = {row.parent_id for row in found.values() if row.parent_id is not None} - known.keys()
    return known


def _up(end: bytes | None, known: Mapping[bytes, Any]) -> list[tuple[bytes, Message]]:
    prompt: list[tuple[bytes, Message]] = []
    while end is not None and end in known and len(prompt) < MOST_MESSAGES:
        prompt.append((end, known[end].message))
        end = known[end].parent_id
    return prompt
