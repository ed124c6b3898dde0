"""Which open trajectories end because they are idle, and when, as SQL.

Owns: that rule, and the form of such rules (`DueRule`). Refuses: ending trajectories (`recorder.queue.groups.closure`).
The sweep ends trajectories by it, and the forecast of a group's end uses it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    FromClause,
    Select,
    Subquery,
    Table,
    and_,
    case,
    exists,
    func,
    literal,
    not_,
    or_,
    select,
    true,
)

from recorder.queue.groups.call_kinds import TOOL_FINISHES
from recorder.settings import RecorderSettings
from recorder.states import CallState, Origin, TrajectoryState
from recorder.store.schema import calls, choices, tool_requests, trajectories
from recorder.store.sql import now
from recorder.store.statement import equals_literal

_FEW: Final = 64
_NO_LIMIT: Final = 2**62


@dataclass(frozen=True, slots=True)
class DueRule:
    """Objects of one kind that change when a time comes, and that time (unix seconds)."""

    table: Table
    these: Sequence[ColumnElement[bool]]
    at: ColumnElement[float]

    @property
    def is_due(self) -> ColumnElement[bool]:
        """Whether an object is due."""
        return and_(*self.these, self.at <= now())

    def due(self) -> Select[Any]:
        """The query for the ids of due objects."""
        return select(self.table.c.id).where(self.is_due)

    def first(self) -> Sequence[ColumnElement[Any]]:
        """Return columns whose least value that is not null is the time when the first object is due."""
        return [select(func.min(self.at)).where(*self.these).scalar_subquery()]


@dataclass(frozen=True, slots=True)
class IdleRule(DueRule):
    """Open trajectories, due after one of two idle times. Which one applies is an expensive query, run for few of them.

    `soon(run)`: the cheap and the expensive condition for the shorter time (`least_s`, not `most_s`), for a row with a
    trajectory's id and leaf.
    """

    least_s: float
    most_s: float
    soon: Callable[[FromClause], tuple[ColumnElement[bool], ColumnElement[bool]]]

    @property
    def is_due(self) -> ColumnElement[bool]:
        """As in the base class, with the time first: nothing else is evaluated for a trajectory with a recent call."""
        quiet_since = trajectories.c.last_call_at
        late = or_(quiet_since <= now() - self.most_s, and_(*self.soon(trajectories)))
        return and_(*self.these, quiet_since <= now() - self.least_s, late)

    def first(self) -> Sequence[ColumnElement[Any]]:
        """Return when the longest idle trajectory is due by `most_s`, and when the first is due by `least_s`.

        Any later trajectory that is due by `least_s` is due after both. So trajectories are tested in order until one
        matches: first the oldest few, among which it usually is; then the cheap condition for all, and the expensive
        one for the rest, in order.
        """
        few = self._in_order(_FEW)
        oldest = select(
            func.min(few.c.last_call_at).label("quiet_since"),
            func.min(case((and_(*self.soon(few)), few.c.last_call_at))).label("soon"),
        ).subquery()
        cheap, _ = self.soon(trajectories)
        left = self._in_order(_NO_LIMIT, cheap)
        _, rest = self.soon(left)
        soon = select(left.c.last_call_at).where(rest).limit(1).scalar_subquery()
        return [oldest.c.quiet_since + self.most_s, func.coalesce(oldest.c.soon, soon) + self.least_s]

    def _in_order(self, most: int, *conditions: ColumnElement[bool]) -> Subquery:
        """The trajectories that meet further conditions, the longest idle first.

        The limit, even if infinite, prevents both databases from evaluating later conditions before ordering.
        """
        columns = (trajectories.c.id, trajectories.c.leaf_call_id, trajectories.c.last_call_at)
        these = select(*columns).where(*self.these, *conditions)
        return these.order_by(trajectories.c.last_call_at).limit(most).subquery()


def idle_trajectories(project_id: str, settings: RecorderSettings) -> IdleRule:
    """Open live trajectories without a running call, and when each has been idle for too long.

    The time is longer while a trajectory waits for a tool or for its first answer.
    """
    answering = select(calls.c.trajectory_id).where(
        calls.c.project_id == project_id, equals_literal(calls.c.state, "open")
    )
    these = (
        trajectories.c.project_id == project_id,
        trajectories.c.state == TrajectoryState.OPEN,
        trajectories.c.origin == Origin.LIVE,
        # read once, by its index; a read per trajectory would take longer than the rest
        trajectories.c.id.not_in(answering),
    )
    answered_s, waiting_s = settings.answered_idle_s, settings.idle_timeout_s
    answered = and_(*_is_answered(trajectories))
    patience = case((answered, literal(answered_s)), else_=literal(waiting_s))
    soon = _is_answered if answered_s <= waiting_s else _is_not_answered
    least_s, most_s = sorted((answered_s, waiting_s))
    return IdleRule(trajectories, these, trajectories.c.last_call_at + patience, least_s, most_s, soon)


def _is_answered(run: FromClause) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    """Whether an open trajectory has an answer and does not wait for a tool.

    The newest answer is tested first: in most active trajectories it calls a tool. An answer without tool calls may be
    an auxiliary call beside a waiting thread. So the newest answer of each set of tools counts.
    """
    own = calls.alias("own")
    age = func.row_number().over(partition_by=own.c.tools_blob_id, order_by=(own.c.started_at.desc(), own.c.id.desc()))
    answered = (own.c.state == CallState.COMPLETE, own.c.superseded_by.is_(None))
    by_age = select(own.c.id, age.label("age")).where(own.c.trajectory_id == run.c.id, *answered)
    aged = by_age.correlate(run).subquery("aged")
    newest = select(aged.c.id).where(aged.c.age == 1)
    leaf_asks = _asks_for_tools(run, lambda call: call == run.c.leaf_call_id)
    return (
        and_(run.c.leaf_call_id.is_not(None), not_(leaf_asks)),
        not_(_asks_for_tools(run, lambda call: call.in_(newest))),
    )


def _is_not_answered(run: FromClause) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    return true(), not_(and_(*_is_answered(run)))


def _asks_for_tools(
    run: FromClause, answer: Callable[[ColumnElement[str]], ColumnElement[bool]]
) -> ColumnElement[bool]:
    """Whether an answer calls a tool. If the tool was forced, engines report the finish reason `stop`."""
    said = exists().where(answer(choices.c.call_id), choices.c.finish_reason.in_(TOOL_FINISHES))
    asked = exists().where(answer(tool_requests.c.call_id))
    return or_(said.correlate(run), asked.correlate(run))
