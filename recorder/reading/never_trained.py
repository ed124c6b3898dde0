"""Agents none of whose calls can be trained on as they sample: who, why, and which setting would change it.

Owns: that question, over a project's newest calls by their client's name. Refuses: what makes a call untrainable
(`recorder.content.trainable`), and reasons that are no setting's: whose call it was, how it ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, func, select

from recorder.content.extras import CLIENT
from recorder.content.trainable import LeftOut, sampling_reasons
from recorder.content.turns import Sampling
from recorder.reading.assemble import sampling_of
from recorder.states import Purpose, TurnKind
from recorder.store import sql
from recorder.store.project import Project
from recorder.store.schema import aliases, calls, choices, trajectories

LOOKED_AT: Final = 2_000  # of a project, the newest calls: among these are those that are asked about, if any are
MOST_CALLS: Final = 500  # of a project, the newest, that are looked at
JUDGED_BY: Final = 20  # calls of one client, the newest: what it did before somebody changed a setting says nothing
UNKNOWN: Final = "(no User-Agent)"

# What only says that this call did not count; of any other reason the sampling is at fault, or it was as it must be.
_OF_THE_CALL: Final = frozenset(
    {
        LeftOut.PURPOSE,
        LeftOut.NOT_COMPLETE,
        LeftOut.AMBIGUOUS,
        LeftOut.AUXILIARY,
        LeftOut.SUPERSEDED,
        LeftOut.REDACTED,
        LeftOut.IDS_MISSING,
    }
)
_SEVERAL: Final = (LeftOut.DISTORTED, LeftOut.STRUCTURED_OUTPUT)  # told by the names of what distorts
_OVERRIDES: Final[Mapping[str, str]] = {
    LeftOut.TEMPERATURE: "temperature = 0.7",
    LeftOut.TOP_P: "top_p = 1",
    LeftOut.TOP_K: "top_k = 0",
    LeftOut.MIN_P: "min_p = 0",
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
class NeverTrained:
    """A client whose calls of an alias all sample in a way that cannot be trained on."""

    client: str
    alias: str
    calls: int  # that were looked at
    reasons: tuple[str, ...]  # codes of `LeftOut`
    distorting: tuple[str, ...]  # the parameters behind `distorted_sampling`
    settings: tuple[str, ...]  # what would change it
    no_setting: tuple[str, ...]  # what only the agent can change
    at: float  # of its newest call, unix seconds

    def advice(self) -> str:
        """What to do, in words."""
        told = [f"set {' and '.join(self.settings)}"] if self.settings else []
        if self.no_setting:
            told.append(f"no setting changes {', '.join(self.no_setting)}: the agent must not send it")
        return "; ".join(told)

    def why(self) -> str:
        """The reasons, in words."""
        return ", ".join(
            f"{reason} ({', '.join(self.distorting)})" if reason == LeftOut.DISTORTED else reason
            for reason in self.reasons
        )


def newest_calls(project_id: str) -> tuple[ColumnElement[bool], ...]:
    """That a call is of a project, and one of its newest: a bound on what a page may cost. Ids begin with the time."""
    mine = sql.passed_by(calls.c.project_id) == project_id
    newest = calls.alias("newest")
    ids = select(newest.c.id).where(sql.passed_by(newest.c.project_id) == project_id).order_by(newest.c.id.desc())
    page = ids.limit(LOOKED_AT).subquery("page")
    return mine, calls.c.id >= select(func.min(page.c.id)).scalar_subquery()


async def never_trained(project: Project) -> list[NeverTrained]:
    """The clients of which no call can be trained on, by name."""
    query = (
        select(
            sql.member(calls.c.response_meta, CLIENT).label("client"),
            aliases.c.name.label("alias"),
            calls.c.sampling,
            calls.c.started_at,
            choices.c.untrainable_reason.label("reason"),
        )
        .join(choices, choices.c.call_id == calls.c.id)
        .join(aliases, aliases.c.id == calls.c.alias_id)
        .join(trajectories, trajectories.c.id == calls.c.trajectory_id)
        .where(
            *newest_calls(project.id),
            choices.c["index"] == 0,
            calls.c.turn_kind != TurnKind.AUX,
            trajectories.c.purpose == Purpose.TRAIN,
        )
        .order_by(calls.c.id.desc())
        .limit(MOST_CALLS)
    )
    async with project.store.read() as conn:
        rows = (await conn.execute(query)).all()
    newest: dict[tuple[str, str], list[Any]] = {}
    for row in rows:
        if row.reason not in _OF_THE_CALL:
            newest.setdefault((row.client or UNKNOWN, row.alias), []).append(row)
    told = (_told(client, alias, seen[:JUDGED_BY]) for (client, alias), seen in sorted(newest.items()))
    return [one for one in told if one is not None]


def _told(client: str, alias: str, rows: list[Any]) -> NeverTrained | None:
    samplings: list[Sampling] = [sampling_of(row.sampling) for row in rows]
    found = [sampling_reasons(sampling) for sampling in samplings]
    if not all(found):
        return None
    reasons = _once([*(row.reason for row in rows), *(reason for of_call in found for reason in of_call)])
    distorting = _once(name for sampling in samplings for name in sampling.distorting)
    if LeftOut.STRUCTURED_OUTPUT in reasons and distorting == ("response_format",):
        reasons = tuple(reason for reason in reasons if reason != LeftOut.DISTORTED)
    at_fault = [*(r for r in reasons if r not in _SEVERAL), *distorting]
    values = [_OVERRIDES[name] for name in at_fault if name in _OVERRIDES]
    settings = [_SETTINGS[name] for name in at_fault if name in _SETTINGS]
    if values:
        settings.append(f"[aliases.{alias}.sampling] override = {{ {', '.join(values)} }}")
    others = tuple(name for name in at_fault if name not in _OVERRIDES and name not in _SETTINGS)
    return NeverTrained(client, alias, len(rows), reasons, distorting, tuple(settings), others, rows[0].started_at)


def _once(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(map(str, names)))
