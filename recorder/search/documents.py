"""The searchable text of a call: what it adds to its trajectory, as one document; and the queue of unindexed calls.

Owns: which messages are searchable, which of their text, a document's number, and queueing calls. Refuses: splitting
into words (`recorder.search.terms`), indexing and taking calls from the queue (`recorder.search.indexer`).

A document's key is its call's id. A sibling (one choice of a shared call) has no call of its own. So its key is its
trajectory's id, and its document is the shared call's with its own choice, which the call's document omits.

A call's prompt repeats the conversation so far. It adds the messages that its parent's prompt and answer do not have,
and its own answer. System and developer messages and tool schemas are omitted, because they are the same in every
trajectory. The text is read from the store, so it is already redacted.

A document's number begins with the millisecond of its trajectory's start, so a descending scan finds new trajectories
first.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy import ColumnElement, and_, func, insert, literal, select
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.ids import id_time_ms
from recorder.messages.calls import Message
from recorder.messages.plain_text import find_texts, text_parts
from recorder.states import CallState, Origin
from recorder.store import sql
from recorder.store.database import Project
from recorder.store.schema import calls, choices, nodes, trajectories, unindexed
from recorder.store.statement import json_as_text

# A document of this size takes a few milliseconds to index, which is how long one transaction may hold SQLite's lock.
MOST_CHARS: Final = 32_768
# Of one message, so that a file that a tool read leaves room for the other messages.
MOST_OF_ONE: Final = 16_384
_UNSAID: Final = frozenset({"system", "developer"})


@dataclass(slots=True)
class Document:
    """The text of one call: the answer first, then the messages before it, one text per message."""

    call_id: str
    trajectory_id: str
    texts: list[str] = field(default_factory=list)
    key: str = ""

    def take(self, message: Message) -> None:
        """Add the text of a message, up to the size limits."""
        room = MOST_CHARS - sum(map(len, self.texts))
        text = "\n".join(_said(message))[: min(room, MOST_OF_ONE)]
        if text:
            self.texts.append(text)


async def load_documents(conn: AsyncConnection, keys: Sequence[str]) -> list[Document]:
    """Return the documents of the existing ones of some keys. The caller bounds their number."""
    siblings = await _siblings(conn, trajectories.c.id.in_(keys))
    of_calls = select(calls.c.id, calls.c.trajectory_id, calls.c.parent_call_id, calls.c.parent_choice)
    shared = [one.call_id for one in siblings]
    rows = {row.id: row for row in await conn.execute(of_calls.where(calls.c.id.in_([*keys, *shared])))}
    taken = {(one.call_id, one.choice) for one in await _siblings_of(conn, list(rows))}
    answers = await _answers(conn, list(rows))
    added = await _added(conn, list(rows))
    heard = await _heard(conn, [row for row in rows.values() if row.parent_call_id is not None])

    async def document(key: str, run: str, call_id: str, answered: Iterable[Message]) -> Document:
        made = Document(call_id, run, key=key)
        for message in (*answered, *await _new(conn, rows[call_id], added.get(call_id, []), heard.get(call_id))):
            made.take(message)
        return made

    found, wanted = [], set(keys)
    for id_ in (id_ for id_ in rows if id_ in wanted):
        own = [message for choice, message in answers.get(id_, ()) if (id_, choice) not in taken]
        found.append(await document(id_, rows[id_].trajectory_id, id_, own))
    for one in siblings:
        if one.call_id in rows:
            own = [message for choice, message in answers.get(one.call_id, ()) if choice == one.choice]
            found.append(await document(one.id, one.id, one.call_id, own))
    return found


@dataclass(frozen=True, slots=True)
class _Sibling:
    """A trajectory that is one choice of a shared call."""

    id: str
    call_id: str
    choice: int


def is_sibling() -> ColumnElement[bool]:
    """Whether a trajectory has no call of its own, but one choice of a shared call."""
    return and_(trajectories.c.forked_from_call == trajectories.c.leaf_call_id, trajectories.c.origin != Origin.SHADOW)


async def _siblings(conn: AsyncConnection, where: ColumnElement[bool]) -> list[_Sibling]:
    columns = (trajectories.c.id, trajectories.c.leaf_call_id, func.coalesce(trajectories.c.leaf_choice, 0))
    return [_Sibling(*row) for row in await conn.execute(select(*columns).where(where, is_sibling()))]


async def _siblings_of(conn: AsyncConnection, call_ids: Sequence[str]) -> list[_Sibling]:
    """Return the siblings that share some calls; all are in the call's group."""
    home = trajectories.alias("home")
    of_calls = select(home.c.group_id).join(calls, calls.c.trajectory_id == home.c.id).where(calls.c.id.in_(call_ids))
    return await _siblings(conn, and_(trajectories.c.group_id.in_(of_calls), trajectories.c.leaf_call_id.in_(call_ids)))


@dataclass(frozen=True, slots=True)
class _Node:
    id: bytes
    parent_id: bytes | None


_Path = Sequence[tuple[_Node, Message]]  # first to last


async def _new(conn: AsyncConnection, row: Any, path: _Path, heard: set[bytes] | None) -> list[Message]:
    """Return the messages of a call's prompt that its parent does not have.

    `path`: the messages that are deeper than the end of the parent's prompt.
    """
    if heard is not None and not (path and path[0][0].parent_id in heard):  # the agent rewrote its history
        path = await _whole_path(conn, row.id)
        heard = heard | {node.id for node, _ in await _whole_path(conn, row.parent_call_id)}
    return [message for node, message in path if heard is None or node.id not in heard]


async def _answers(conn: AsyncConnection, call_ids: Sequence[str]) -> dict[str, list[tuple[int, Message]]]:
    """Return the answers by call, each with its index among the choices."""
    query = (
        select(choices.c.call_id, choices.c.index, json_as_text(nodes.c.message))
        .join(nodes, nodes.c.id == choices.c.node_id)
        .where(choices.c.call_id.in_(call_ids))
        .order_by(choices.c.call_id, choices.c.index)
    )
    found: dict[str, list[tuple[int, Message]]] = {}
    for call_id, index, message in await conn.execute(query):
        found.setdefault(call_id, []).append((index, json.loads(message)))
    return found


async def _added(conn: AsyncConnection, call_ids: Sequence[str]) -> dict[str, list[tuple[_Node, Message]]]:
    """Return by call the messages of its prompt that are deeper than the end of its parent's prompt."""
    parents, ends = calls.alias("parents"), nodes.alias("ends")
    floor = func.coalesce(ends.c.depth, literal(-1)).label("floor")
    of_calls = (
        select(calls.c.id.label("call_id"), nodes.c.id, nodes.c.parent_id, nodes.c.depth, floor)
        .join(nodes, nodes.c.id == calls.c.prompt_node_id)
        .outerjoin(parents, parents.c.id == calls.c.parent_call_id)
        .outerjoin(ends, ends.c.id == parents.c.prompt_node_id)
        .where(calls.c.id.in_(call_ids))
    )
    return await _up(conn, of_calls.cte("up", recursive=True))


async def _whole_path(conn: AsyncConnection, call_id: str) -> list[tuple[_Node, Message]]:
    """Return all messages of a prompt that does not continue its parent's, because an agent rewrote its history."""
    of_call = (
        select(calls.c.id.label("call_id"), nodes.c.id, nodes.c.parent_id, nodes.c.depth, literal(-1).label("floor"))
        .join(nodes, nodes.c.id == calls.c.prompt_node_id)
        .where(calls.c.id == call_id)
    )
    return (await _up(conn, of_call.cte("up", recursive=True))).get(call_id, [])


async def _up(conn: AsyncConnection, start: Any) -> dict[str, list[tuple[_Node, Message]]]:
    above, shown = nodes.alias("above"), nodes.alias("shown")
    up = start.union_all(
        select(start.c.call_id, above.c.id, above.c.parent_id, above.c.depth, start.c.floor).where(
            above.c.id == start.c.parent_id, above.c.depth > start.c.floor
        )
    )
    query = (
        select(up.c.call_id, up.c.id, up.c.parent_id, shown.c.role, json_as_text(shown.c.message))
        .join(shown, shown.c.id == up.c.id)
        .order_by(up.c.call_id, up.c.depth)
    )
    found: dict[str, list[tuple[_Node, Message]]] = {}
    for call_id, id_, parent_id, role, message in await conn.execute(query):
        said = {} if role in _UNSAID else json.loads(message)
        found.setdefault(call_id, []).append((_Node(id_, parent_id), said))
    return found


async def _heard(conn: AsyncConnection, rows: Sequence[Any]) -> dict[str, set[bytes]]:
    """Return by call the last node of its parent's prompt, and the nodes of its parent's answers."""
    parents = {row.parent_call_id for row in rows}
    prompts = select(calls.c.id, calls.c.prompt_node_id).where(calls.c.id.in_(parents))
    ends = {row.id: row.prompt_node_id for row in await conn.execute(prompts)}
    answered = select(choices.c.call_id, choices.c.index, choices.c.node_id).where(choices.c.call_id.in_(parents))
    answers = {(call_id, index): node for call_id, index, node in await conn.execute(answered)}
    return {
        row.id: {ends[row.parent_call_id], answers.get((row.parent_call_id, row.parent_choice or 0))} - {None}
        for row in rows
        if row.parent_call_id in ends
    }


# --- the text of a message


def _said(message: Message) -> Iterator[str]:
    yield from text_parts(message)
    yield from find_texts(message.get("refusal"))
    for call in _each(message.get("tool_calls")):
        asked = call.get("function") or call.get("custom")
        if isinstance(asked, Mapping):
            yield from find_texts([asked.get("name"), asked.get("arguments"), asked.get("input")])


def _each(value: object) -> Iterator[Mapping[str, Any]]:
    if isinstance(value, list):
        yield from (one for one in value if isinstance(one, Mapping))


MOST_COUNTED: Final = 10_000


async def queue_calls(conn: AsyncConnection, project_id: str, call_ids: Sequence[str]) -> None:
    """Queue calls to be indexed, or indexed again; a sibling, which has no call of its own, by its trajectory's id."""
    if call_ids:
        rows = [{"project_id": project_id, "call_id": id_} for id_ in call_ids]
        await conn.execute(sql.insert_ignore(conn, unindexed), rows)


async def queue_all_calls(conn: AsyncConnection) -> None:
    """Queue every ended call of a store that was copied without its index."""
    ended = select(calls.c.project_id, calls.c.id).where(calls.c.state != CallState.OPEN)
    siblings = select(trajectories.c.project_id, trajectories.c.id).where(is_sibling())
    await conn.execute(insert(unindexed).from_select(["project_id", "call_id"], ended.union_all(siblings)))


async def count_queued(project: Project, *, most: int = MOST_COUNTED) -> int:
    """Return how many calls of a project wait to be indexed, counted up to `most`."""
    some = select(literal(1)).where(unindexed.c.project_id == project.id).limit(most).subquery("some")
    async with project.store.read() as conn:
        return int((await conn.execute(select(func.count()).select_from(some))).scalar_one())


_COUNT_BITS: Final = 20
PER_MS: Final = 1 << _COUNT_BITS  # documents of all trajectories that began in one millisecond
_LAST_MS: Final = (1 << 63 - _COUNT_BITS) - 1


def first_number(trajectory_id: str) -> int:
    """Return the least document number for this trajectory's millisecond; 0 for an id that Hone did not make."""
    return min(id_time_ms(trajectory_id), _LAST_MS) << _COUNT_BITS


def next_number(trajectory_id: str) -> int:
    """Return the least document number of trajectories that began in a later millisecond."""
    return first_number(trajectory_id) + PER_MS


def is_same_ms(a: int, b: int) -> bool:
    """Whether two documents' trajectories began in the same millisecond, so that the numbers do not order them."""
    return a >> _COUNT_BITS == b >> _COUNT_BITS
