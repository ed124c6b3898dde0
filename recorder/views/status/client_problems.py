"""Find clients with a problem: sampling parameters exclude all their calls, or related calls are not attributed.

Owns: two checks over a project's newest calls, by the client's User-Agent. The first finds clients whose calls all have
sampling parameters that exclude them from training, and the settings that would change this. The second finds clients
whose calls each become a separate trajectory although one plainly continues another. Refuses: what makes a call
untrainable (`recorder.messages.trainability`), reasons that no setting changes (how a call ended, for example), and
attributing calls by the second check, because quoted text or a repeated prompt is no proof for a single call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.messages import lineage
from recorder.messages.calls import CLIENT, Message, SamplingParameters
from recorder.messages.plain_text import text_parts
from recorder.messages.trainability import Exclusion, sampling_reasons
from recorder.states import CallKind, CallState, Purpose
from recorder.store import sql
from recorder.store.database import Project
from recorder.store.schema import aliases, calls, choices, nodes, trajectories
from recorder.views.trajectories.assembly import parse_sampling

NEWEST_CALLS: Final = 2_000  # the newest calls of a project that the checks search
MOST_CALLS: Final = 500  # how many of these are checked for their sampling at most
JUDGED_BY: Final = 20  # the newest calls of one client; older ones may predate a changed setting
UNKNOWN: Final = "(no User-Agent)"

# Reasons that do not concern how the call was sampled.
_NOT_ABOUT_SAMPLING: Final = frozenset(
    {
        Exclusion.PURPOSE,
        Exclusion.NOT_COMPLETE,
        Exclusion.AMBIGUOUS,
        Exclusion.AUXILIARY,
        Exclusion.SUPERSEDED,
        Exclusion.REDACTED,
        Exclusion.MEDIA,
        Exclusion.IDS_MISSING,
        Exclusion.IDS_DISAGREE,
    }
)
_NAMED_BY_PARAMETER: Final = (Exclusion.DISTORTED, Exclusion.STRUCTURED_OUTPUT)  # shown as the names of the parameters
_OVERRIDES: Final[Mapping[str, str]] = {
    Exclusion.TEMPERATURE: "temperature = 0.7",
    Exclusion.TOP_P: "top_p = 1",
    Exclusion.TOP_K: "top_k = 0",
    Exclusion.MIN_P: "min_p = 0",
    "presence_penalty": "presence_penalty = 0",
    "frequency_penalty": "frequency_penalty = 0",
    "repetition_penalty": "repetition_penalty = 1",
}
_SETTINGS: Final[Mapping[str, str]] = {
    "tool_choice": 'proxy.forced_tools = "plain"',
    "strict_tools": 'proxy.strict_tools = "plain"',
    "engine_defaults": 'proxy.defaults = "neutral"',
}


@dataclass(frozen=True, slots=True)
class UntrainableClient:
    """A client whose calls of an alias all have sampling parameters that exclude them from training."""

    client: str
    alias: str
    calls: int  # the number of checked calls
    reasons: tuple[str, ...]  # codes of `Exclusion`
    distorting: tuple[str, ...]  # the parameters behind `distorted_sampling`
    settings: tuple[str, ...]  # settings that would make the calls trainable
    no_setting: tuple[str, ...]  # parameters that only the agent can change
    at: float  # the time of its newest call, unix seconds

    def advice(self) -> str:
        """Return what to do, as text."""
        problems = [f"set {' and '.join(self.settings)}"] if self.settings else []
        if self.no_setting:
            problems.append(f"no setting changes {', '.join(self.no_setting)}: the agent must not send it")
        return "; ".join(problems)

    def why(self) -> str:
        """Return the reasons, as text."""
        return ", ".join(
            f"{reason} ({', '.join(self.distorting)})" if reason == Exclusion.DISTORTED else reason
            for reason in self.reasons
        )


def is_newest_call(project_id: str) -> tuple[ColumnElement[bool], ...]:
    """Return SQL conditions for a project's newest calls. They bound the cost of a page; ids begin with the time."""
    mine = sql.without_index(calls.c.project_id) == project_id
    newest = calls.alias("newest")
    ids = select(newest.c.id).where(sql.without_index(newest.c.project_id) == project_id).order_by(newest.c.id.desc())
    page = ids.limit(NEWEST_CALLS).subquery("page")
    return mine, calls.c.id >= select(func.min(page.c.id)).scalar_subquery()


async def find_untrainable_clients(project: Project) -> list[UntrainableClient]:
    """Return the clients without a trainable call, by name."""
    query = (
        select(
            sql.json_member(calls.c.response_meta, CLIENT).label("client"),
            aliases.c.name.label("alias"),
            calls.c.sampling,
            calls.c.started_at,
            choices.c.untrainable_reason.label("reason"),
        )
        .join(choices, choices.c.call_id == calls.c.id)
        .join(aliases, aliases.c.id == calls.c.alias_id)
        .join(trajectories, trajectories.c.id == calls.c.trajectory_id)
        .where(
            *is_newest_call(project.id),
            choices.c["index"] == 0,
            calls.c.turn_kind != CallKind.AUX,
            trajectories.c.purpose == Purpose.TRAIN,
        )
        .order_by(calls.c.id.desc())
        .limit(MOST_CALLS)
    )
    async with project.store.read() as conn:
        rows = (await conn.execute(query)).all()
    newest: dict[tuple[str, str], list[Any]] = {}
    for row in rows:
        if row.reason not in _NOT_ABOUT_SAMPLING:
            newest.setdefault((row.client or UNKNOWN, row.alias), []).append(row)
    problems = (
        _untrainable_client(client, alias, seen[:JUDGED_BY]) for (client, alias), seen in sorted(newest.items())
    )
    return [one for one in problems if one is not None]


def _untrainable_client(client: str, alias: str, rows: list[Any]) -> UntrainableClient | None:
    samplings: list[SamplingParameters] = [parse_sampling(row.sampling) for row in rows]
    found = [sampling_reasons(sampling) for sampling in samplings]
    if not all(found):
        return None
    reasons = _once([*(row.reason for row in rows), *(reason for of_call in found for reason in of_call)])
    distorting = _once(name for sampling in samplings for name in sampling.distorting)
    if Exclusion.STRUCTURED_OUTPUT in reasons and distorting == ("response_format",):
        reasons = tuple(reason for reason in reasons if reason != Exclusion.DISTORTED)
    at_fault = [*(r for r in reasons if r not in _NAMED_BY_PARAMETER), *distorting]
    values = [_OVERRIDES[name] for name in at_fault if name in _OVERRIDES]
    settings = [_SETTINGS[name] for name in at_fault if name in _SETTINGS]
    if values:
        settings.append(f"[aliases.{alias}.sampling] override = {{ {', '.join(values)} }}")
    others = tuple(name for name in at_fault if name not in _OVERRIDES and name not in _SETTINGS)
    return UntrainableClient(client, alias, len(rows), reasons, distorting, tuple(settings), others, rows[0].started_at)


def _once(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(map(str, names)))


MOST_CALLS_READ: Final = 48  # the newest calls of a project that are separate trajectories
MOST_MESSAGES: Final = 12  # messages of a prompt that are compared, from its end
LOOKED_BACK: Final = 8  # earlier calls of the client that are compared with a call: several agents may alternate
MIN_IN_TURN: Final = 3  # calls of a chain; a chain of two may be a plan and its execution
ADVICE: Final = (
    "give each trajectory an address: the base URL …/t/<run>/v1, the header x-hone-trajectory, or a key minted for it "
    "(docs/attribution.md)"
)


@dataclass(frozen=True, slots=True)
class UnattributedCalls:
    """A client whose calls of an alias continue each other but are attributed to separate trajectories."""

    client: str
    alias: str
    calls: int  # the number of checked calls that continue one another
    at: float  # the time of the newest one, unix seconds


@dataclass(frozen=True, slots=True)
class _SingleCallTrajectory:
    """A call that is the only one of its trajectory."""

    row: Any
    prompt: Sequence[tuple[bytes, Message]]  # the last message first, each with its node
    answer: Message


async def find_unattributed_clients(project: Project) -> list[UnattributedCalls]:
    """Return the clients whose calls are separate trajectories and should not be, by name."""
    async with project.store.read() as conn:
        single_calls = await _single_call_trajectories(conn, project.id)
    by_client: dict[tuple[str, str], list[_SingleCallTrajectory]] = {}
    for one in single_calls:
        by_client.setdefault((one.row.client or UNKNOWN, one.row.alias), []).append(one)
    found = []
    for (client, alias), ones in sorted(by_client.items()):
        chained = _chained_calls(ones)
        if chained:
            found.append(UnattributedCalls(client, alias, len(chained), max(one.row.started_at for one in chained)))
    return found


def _chained_calls(ones: Sequence[_SingleCallTrajectory]) -> list[_SingleCallTrajectory]:
    """Return the calls that are part of a chain of at least `MIN_IN_TURN`. `ones` is in order of time."""
    chains: list[list[_SingleCallTrajectory]] = []  # for each call, the longest chain that ends in it
    for at, one in enumerate(ones):
        before = [chains[n] for n in range(max(0, at - LOOKED_BACK), at) if _continues(ones[n], one)]
        chains.append([*max(before, key=len, default=[]), one])
    long = [one for chain in chains if len(chain) >= MIN_IN_TURN for one in chain]
    return list({one.row.id: one for one in long}.values())


def _continues(earlier: _SingleCallTrajectory, later: _SingleCallTrajectory) -> bool:
    """Return whether a later call's prompt extends an earlier one's, or quotes the earlier one's answer."""
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
    answer_lines = [line for text in _texts(earlier.answer) for line in text.splitlines()]
    return any(lineage.is_quoted(line, new) for line in answer_lines)


def _texts(answer: Message) -> list[str]:
    return [*text_parts(answer), *lineage.asked_of_tools(answer)]


async def _single_call_trajectories(conn: AsyncConnection, project_id: str) -> list[_SingleCallTrajectory]:
    """Return the newest calls that are separate trajectories, oldest first."""
    query = (
        select(
            calls.c.id,
            sql.json_member(calls.c.response_meta, CLIENT).label("client"),
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
            *is_newest_call(project_id),
            calls.c.attribution_source == "new",
            calls.c.state == CallState.COMPLETE,
            trajectories.c.call_count == 1,
        )
        .order_by(calls.c.id.desc())
        .limit(MOST_CALLS_READ)
    )
    rows = (await conn.execute(query)).all()
    known = await _messages(conn, [row.prompt_node_id for row in rows if row.prompt_node_id is not None])
    # ids of the same millisecond have no order
    in_time = sorted(rows, key=lambda row: (row.started_at, row.finished_at or row.started_at))
    return [_SingleCallTrajectory(row, _prompt_from(row.prompt_node_id, known), row.message) for row in in_time]


async def _messages(conn: AsyncConnection, ends: Sequence[bytes]) -> dict[bytes, Any]:
    """Return the last messages of some prompts, by node id."""
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


def _prompt_from(end: bytes | None, known: Mapping[bytes, Any]) -> list[tuple[bytes, Message]]:
    prompt: list[tuple[bytes, Message]] = []
    while end is not None and end in known and len(prompt) < MOST_MESSAGES:
        prompt.append((end, known[end].message))
        end = known[end].parent_id
    return prompt
