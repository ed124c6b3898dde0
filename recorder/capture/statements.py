"""The SQL of the hot path, compiled once. Rows have their parameters in the order of `Statement.names`.

Refuses: deciding when a statement runs (`recorder.capture.resolve_trajectory`, `recorder.capture.batch`), and queries
of attribution (`recorder.capture.lookups.statements`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Executable,
    ScalarSelect,
    TableValuedAlias,
    Text,
    bindparam,
    cast,
    delete,
    exists,
    func,
    literal_column,
    null,
    or_,
    select,
    true,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite

from recorder.capture.lookups.statements import AMBIGUOUS_ISSUED
from recorder.queue.groups.lookup import is_counted
from recorder.store.schema import (
    blobs,
    calls,
    choices,
    groups,
    issued,
    ledger,
    node_blobs,
    nodes,
    projects,
    tool_calls,
    tool_requests,
    trajectories,
    unindexed,
)
from recorder.store.sql import now
from recorder.store.statement import RawJson, Statement, equals_literal, insert_into, insert_new, insert_values


def _insert_issued(dialect: Any) -> Any:
    statement = dialect.insert(issued).values(insert_values(issued))
    new = statement.excluded
    return statement.on_conflict_do_update(
        index_elements=["project_id", "issued_id"],
        set_={"kind": literal_column(f"'{AMBIGUOUS_ISSUED}'")},
        where=or_(issued.c.call_id != new.call_id, issued.c.choice != new.choice),
    )


NOW: Final = Statement(select(now()))
# The clock, and the projects' numbers of deletions: a lock shared with other writers, not with a deletion (PostgreSQL).
NOW_AND_DELETIONS: Final = Statement(
    select(now(), projects.c.id, projects.c.deletions)
    .where(projects.c.id.in_(bindparam("projects", expanding=True)))
    .with_for_update(read=True)
)
NODE_KEY: Final = Statement(
    select(projects.c.node_key, projects.c.deletions).where(projects.c.id == bindparam("project"))
)

# --- what a batch writes

INSERT_NODES: Final = insert_new(nodes)
INSERT_BLOBS: Final = insert_new(blobs)
INSERT_NODE_BLOBS: Final = insert_new(node_blobs)
INSERT_CALLS: Final = insert_into(calls)
INSERT_CHOICES: Final = insert_into(choices)
INSERT_UNINDEXED: Final = insert_new(unindexed)
INSERT_ISSUED: Final = Statement(_insert_issued(sqlite), _insert_issued(postgresql))
INSERT_TOOL_REQUESTS: Final = insert_into(tool_requests)
INSERT_TOOL_CALLS: Final = insert_into(tool_calls)
# rows: (trajectory, call, choice, position, tool-call id, source, confidence, tool call)
JOIN_TOOL_CALLS: Final = Statement(
    update(tool_calls)
    .ordered_values(
        (tool_calls.c.trajectory_id, bindparam("home")),
        (tool_calls.c.call_id, bindparam("asked")),
        (tool_calls.c.choice, bindparam("of_choice")),
        (tool_calls.c.position, bindparam("at")),
        (tool_calls.c.tool_call_id, bindparam("issued", type_=Text)),
        (tool_calls.c.join_source, bindparam("source")),
        (tool_calls.c.join_confidence, bindparam("confidence")),
        (tool_calls.c.request_match, null()),
        (tool_calls.c.evidence, null()),
    )
    .where(tool_calls.c.id == bindparam("joined_id"), tool_calls.c.request_match.is_not(None))
)
TIE_TOOL_CALLS: Final = Statement(
    update(tool_calls)
    .values(evidence=bindparam("kept", type_=RawJson()))
    .where(tool_calls.c.id == bindparam("joined_id"), tool_calls.c.request_match.is_not(None))
)
INSERT_GROUPS: Final = insert_into(groups)
INSERT_TRAJECTORIES: Final = insert_into(trajectories)

# Its end could not be written.
ERROR_OPEN_CALLS: Final = Statement(
    update(calls)
    .ordered_values(
        (calls.c.state, literal_column("'errored'")),
        (calls.c.error, bindparam("why", type_=Text)),
        (calls.c.finished_at, bindparam("at")),
    )
    .where(calls.c.id == bindparam("call"), equals_literal(calls.c.state, "open"))
)
# The ended call replaces the row that was written while it was open. The sweep may have marked it as lost meanwhile.
DELETE_OPEN_CALLS: Final = Statement(
    delete(calls).where(
        calls.c.id == bindparam("call"),
        or_(equals_literal(calls.c.state, "open"), equals_literal(calls.c.state, "errored")),
    )
)

# rows: (at, leaf call or null, leaf choice or null, calls to add, version, engine or null, trajectory). The version of
# the first call pins; of engines, the last counts.
TOUCH_TRAJECTORIES: Final = Statement(
    update(trajectories)
    .ordered_values(
        (trajectories.c.last_call_at, bindparam("at")),
        (trajectories.c.leaf_call_id, func.coalesce(bindparam("leaf", type_=Text), trajectories.c.leaf_call_id)),
        (trajectories.c.leaf_choice, func.coalesce(bindparam("choice"), trajectories.c.leaf_choice)),
        (trajectories.c.call_count, trajectories.c.call_count + bindparam("calls")),
        (trajectories.c.version_id, func.coalesce(trajectories.c.version_id, bindparam("version", type_=Text))),
        (trajectories.c.engine_url, func.coalesce(bindparam("engine", type_=Text), trajectories.c.engine_url)),
    )
    .where(trajectories.c.id == bindparam("trajectory"), equals_literal(trajectories.c.state, "open"))
)
# A trajectory whose tools are running is not idle.
TOUCH_BY_TOOLS: Final = Statement(
    update(trajectories)
    .values(last_call_at=bindparam("at"))
    .where(trajectories.c.id == bindparam("trajectory"), equals_literal(trajectories.c.state, "open"))
)
TOUCH_GROUPS: Final = Statement(
    update(groups).values(last_call_at=bindparam("at")).where(groups.c.id == bindparam("group_id"))
)
TRAJECTORY_STATES: Final = Statement(
    select(trajectories.c.id, trajectories.c.state).where(trajectories.c.id.in_(bindparam("ids", expanding=True)))
)

# Which of some trajectories without a row were deleted.
DELETED: Final = Statement(
    select(ledger.c.object_id).where(
        equals_literal(ledger.c.object_kind, "trajectory"),
        ledger.c.object_id.in_(bindparam("ids", expanding=True)),
        equals_literal(ledger.c.code, "deleted"),
    )
)

# --- trajectories and groups

_GROUP = (
    groups.c.id,
    groups.c.external_id,
    groups.c.implicit_key,
    groups.c.sequence,
    groups.c.state,
    groups.c.declared_size,
    groups.c.campaign_id,
    groups.c.version_id,
    groups.c.made_by,
)


def _for_each(names: Sequence[str], core: Callable[[Sequence[TableValuedAlias]], Executable]) -> Statement:
    """A statement over parameters that are JSON arrays of texts. `core` gets a table with the column `value` for each.

    A subquery for each text reads one row of an index. `IN` with GROUP BY would read every row under a key, and both
    databases would read all groups that a key ever had.
    """
    rows: list[TableValuedAlias] = []
    elsewhere: list[TableValuedAlias] = []
    for name in names:
        rows.append(func.json_each(bindparam(name, type_=Text)).table_valued("value", name=f"each_{name}"))
        texts = func.jsonb_array_elements_text(cast(bindparam(name, type_=Text), postgresql.JSONB))
        elsewhere.append(texts.table_valued("value").render_derived(name=f"each_{name}"))
    return Statement(core(rows), core(elsewhere))


def _newest(column: ColumnElement[Any], *conditions: ColumnElement[bool]) -> ScalarSelect[Any]:
    """The value of the newest of the project's groups under some conditions."""
    return (
        select(column)
        .where(_earlier.c.project_id == bindparam("project"), *conditions)
        .order_by(_earlier.c.sequence.desc())
        .limit(literal_column("1"))
        .offset(literal_column("0"))
        .scalar_subquery()
    )


def _groups_by(keys: TableValuedAlias, newest: ScalarSelect[Any]) -> Executable:
    """Locked (PostgreSQL): two transactions that join one group must see each other."""
    return select(*_GROUP).select_from(keys.join(groups, groups.c.id == newest)).with_for_update(of=groups)


_earlier = groups.alias("earlier")
# The newest group of each name, whosever it is.
NEWEST_EXPLICIT: Final = _for_each(
    ["keys"], lambda each: _groups_by(each[0], _newest(_earlier.c.id, _earlier.c.external_id == each[0].c.value))
)
NEWEST_OPEN_IMPLICIT: Final = _for_each(
    ["keys"],
    lambda each: _groups_by(
        each[0],
        _newest(_earlier.c.id, _earlier.c.implicit_key == each[0].c.value, equals_literal(_earlier.c.state, "open")),
    ),
)
# The highest number of each key, or null: of its newest groups of each state.
LAST_SEQUENCES: Final = _for_each(
    ["keys", "states"],
    lambda each: (
        select(
            each[0].c.value,
            func.max(
                _newest(
                    _earlier.c.sequence,
                    _earlier.c.implicit_key == each[0].c.value,
                    _earlier.c.state == each[1].c.value,
                )
            ),
        )
        .select_from(each[0].join(each[1], true()))
        .group_by(each[0].c.value)
    ),
)
# The newest group of a name that one key may use, where the newest of all is another key's.
NEWEST_OF_OWNER: Final = Statement(
    select(*_GROUP)
    .where(
        groups.c.project_id == bindparam("project"),
        groups.c.external_id == bindparam("name"),
        groups.c.made_by.in_((literal_column("''"), bindparam("owner", type_=Text))),
    )
    .order_by(groups.c.sequence.desc())
    .limit(literal_column("1"))
    .offset(literal_column("0"))
    .with_for_update()
)
# Groups are locked before their members (see `closure.lock_groups_of`): here before the batch touches a trajectory.
LOCK_GROUPS: Final = Statement(
    select(groups.c.id).where(groups.c.id.in_(bindparam("ids", expanding=True))).order_by(groups.c.id).with_for_update()
)
MEMBER_COUNTS: Final = Statement(
    select(trajectories.c.group_id, func.count())
    .where(trajectories.c.group_id.in_(bindparam("ids", expanding=True)), is_counted())
    .group_by(trajectories.c.group_id)
)
JOIN_GROUPS: Final = Statement(
    update(groups)
    .ordered_values(
        (groups.c.joined_at, bindparam("joined")),
        (groups.c.last_call_at, bindparam("called")),
        (groups.c.declared_size, func.coalesce(groups.c.declared_size, bindparam("size"))),
        (groups.c.version_id, func.coalesce(groups.c.version_id, bindparam("version", type_=Text))),
        (groups.c.alias_id, func.coalesce(groups.c.alias_id, bindparam("alias", type_=Text))),
    )
    .where(groups.c.id == bindparam("group_id"))
)
PIN_GROUPS: Final = Statement(
    update(groups)
    .values(version_id=bindparam("version"))
    .where(groups.c.id == bindparam("group_id"), groups.c.version_id.is_(None))
)
NAME_GROUPS: Final = Statement(
    update(groups)
    .values(alias_id=bindparam("alias"))
    .where(groups.c.id == bindparam("group_id"), groups.c.alias_id.is_(None))
)
ADOPT_TRAJECTORIES: Final = Statement(
    update(trajectories).values(group_id=bindparam("group")).where(trajectories.c.id == bindparam("trajectory"))
)
PIN_TRAJECTORIES: Final = Statement(
    update(trajectories)
    .ordered_values(
        (trajectories.c.version_id, func.coalesce(trajectories.c.version_id, bindparam("version", type_=Text))),
        (trajectories.c.alias_id, func.coalesce(trajectories.c.alias_id, bindparam("alias", type_=Text))),
    )
    .where(trajectories.c.id == bindparam("trajectory"))
)

# --- retries of one call

_child = calls.alias("child")
ATTEMPTS: Final = Statement(
    select(
        calls.c.id,
        calls.c.retry_count,
        calls.c.state,
        calls.c.started_at,
        calls.c.superseded_by,
        exists().where(_child.c.parent_call_id == calls.c.id).label("continued"),
    ).where(calls.c.trajectory_id == bindparam("trajectory"), calls.c.body_hash == bindparam("body"))
)
SUPERSEDE: Final = Statement(
    update(calls).values(superseded_by=bindparam("winner")).where(calls.c.id == bindparam("call"))
)
MOVE_LEAF: Final = Statement(
    update(trajectories)
    .ordered_values(
        (trajectories.c.leaf_call_id, bindparam("winner")),
        (trajectories.c.leaf_choice, literal_column("0")),
    )
    .where(trajectories.c.id == bindparam("trajectory"), trajectories.c.leaf_call_id == bindparam("loser"))
)
