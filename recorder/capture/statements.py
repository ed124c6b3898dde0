"""The statements of the hot path, compiled once. Rows give their parameters in the order of `Statement.names`.

Owns: their text. Refuses: deciding when one runs (`recorder.capture.placing`, `recorder.capture.batch`,
`recorder.lineage.lookup`).
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import (
    JSON,
    ColumnElement,
    Table,
    Text,
    TypeDecorator,
    and_,
    bindparam,
    delete,
    exists,
    func,
    insert,
    literal_column,
    or_,
    select,
    type_coerce,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite

from recorder.store.database import now
from recorder.store.lanes import Statement
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
)

AMBIGUOUS_ISSUED: Final = "ambiguous"  # an id that was given out twice proves nothing


class _Written(TypeDecorator[Any]):
    """JSON that is text already: rows are made once, for every lane."""

    impl = JSON
    cache_ok = True

    def bind_processor(self, dialect: Any) -> None:
        """Pass the text through."""
        return


def _values(table: Table) -> dict[str, Any]:
    return {c.name: bindparam(c.name, type_=_Written() if isinstance(c.type, JSON) else c.type) for c in table.c}


def _insert(table: Table) -> Statement:
    return Statement(insert(table).values(_values(table)))


def _insert_new(table: Table) -> Statement:
    values = _values(table)
    return Statement(
        sqlite.insert(table).values(values).on_conflict_do_nothing(),
        postgresql.insert(table).values(values).on_conflict_do_nothing(),
    )


def _insert_issued(dialect: Any) -> Any:
    statement = dialect.insert(issued).values(_values(issued))
    new = statement.excluded
    return statement.on_conflict_do_update(
        index_elements=["project_id", "issued_id"],
        set_={"kind": literal_column(f"'{AMBIGUOUS_ISSUED}'")},
        where=or_(issued.c.call_id != new.call_id, issued.c.choice != new.choice),
    )


def _is(column: ColumnElement[Any], state: str) -> ColumnElement[bool]:
    # A literal: row parameters are the caller's alone.
    return column == literal_column(f"'{state}'")


def _text(column: ColumnElement[Any]) -> ColumnElement[str]:
    return type_coerce(column, Text())


NOW: Final = Statement(select(now()))
# The clock, and what projects have seen: locked together with other writers, and not with a deletion (PostgreSQL).
NOW_AND_DELETIONS: Final = Statement(
    select(now(), projects.c.id, projects.c.deletions)
    .where(projects.c.id.in_(bindparam("projects", expanding=True)))
    .with_for_update(read=True)
)
NODE_KEY: Final = Statement(
    select(projects.c.node_key, projects.c.deletions).where(projects.c.id == bindparam("project"))
)

# --- what a batch writes

INSERT_NODES: Final = _insert_new(nodes)
INSERT_BLOBS: Final = _insert_new(blobs)
INSERT_NODE_BLOBS: Final = _insert_new(node_blobs)
INSERT_CALLS: Final = _insert(calls)
INSERT_CHOICES: Final = _insert(choices)
INSERT_ISSUED: Final = Statement(_insert_issued(sqlite), _insert_issued(postgresql))
INSERT_TOOL_REQUESTS: Final = _insert(tool_requests)
INSERT_TOOL_CALLS: Final = _insert(tool_calls)
INSERT_GROUPS: Final = _insert(groups)
INSERT_TRAJECTORIES: Final = _insert(trajectories)

# The row of a call that was shown as open gives way to the ended call. The sweep may have taken it for lost meanwhile.
DELETE_OPEN_CALLS: Final = Statement(
    delete(calls).where(calls.c.id == bindparam("call"), or_(_is(calls.c.state, "open"), _is(calls.c.state, "errored")))
)

# rows: (at, leaf call or null, leaf choice or null, calls to add, version, trajectory); the first call's version pins
TOUCH_TRAJECTORIES: Final = Statement(
    update(trajectories)
    .ordered_values(
        (trajectories.c.last_call_at, bindparam("at")),
        (trajectories.c.leaf_call_id, func.coalesce(bindparam("leaf", type_=Text), trajectories.c.leaf_call_id)),
        (trajectories.c.leaf_choice, func.coalesce(bindparam("choice"), trajectories.c.leaf_choice)),
        (trajectories.c.call_count, trajectories.c.call_count + bindparam("calls")),
        (trajectories.c.version_id, func.coalesce(trajectories.c.version_id, bindparam("version", type_=Text))),
    )
    .where(trajectories.c.id == bindparam("trajectory"), _is(trajectories.c.state, "open"))
)
# A run whose tools are at work is not idle.
TOUCH_BY_TOOLS: Final = Statement(
    update(trajectories)
    .values(last_call_at=bindparam("at"))
    .where(trajectories.c.id == bindparam("trajectory"), _is(trajectories.c.state, "open"))
)
TOUCH_GROUPS: Final = Statement(
    update(groups).values(last_call_at=bindparam("at")).where(groups.c.id == bindparam("group_id"))
)
TRAJECTORY_STATES: Final = Statement(
    select(trajectories.c.id, trajectories.c.state).where(trajectories.c.id.in_(bindparam("ids", expanding=True)))
)

# Which of some trajectories that have no row had one.
DELETED: Final = Statement(
    select(ledger.c.object_id).where(
        _is(ledger.c.object_kind, "trajectory"),
        ledger.c.object_id.in_(bindparam("ids", expanding=True)),
        _is(ledger.c.code, "deleted"),
    )
)

# --- placing trajectories and groups

_PLACED = (
    trajectories.c.id,
    trajectories.c.project_id,
    trajectories.c.address_group,
    trajectories.c.external_id,
    trajectories.c.sequence,
    trajectories.c.state,
    trajectories.c.purpose,
    trajectories.c.origin,
    _text(trajectories.c.tags),
    trajectories.c.alias_id,
    trajectories.c.version_id,
    trajectories.c.group_id,
    groups.c.external_id,
    groups.c.implicit_key,
    groups.c.declared_size,
    groups.c.campaign_id,
    groups.c.version_id,
    trajectories.c.session,
)
_placed = select(*_PLACED).select_from(trajectories.outerjoin(groups, groups.c.id == trajectories.c.group_id))
# Each row: the fields of `recorder.capture.placing._Row`.
AT_ADDRESSES: Final = Statement(
    _placed.where(
        trajectories.c.project_id == bindparam("project"),
        trajectories.c.address_group.in_(bindparam("groups", expanding=True)),
        trajectories.c.external_id.in_(bindparam("ids", expanding=True)),
    )
)
BY_IDS: Final = Statement(_placed.where(trajectories.c.id.in_(bindparam("ids", expanding=True))))

_GROUP = (
    groups.c.id,
    groups.c.external_id,
    groups.c.implicit_key,
    groups.c.sequence,
    groups.c.state,
    groups.c.declared_size,
    groups.c.campaign_id,
    groups.c.version_id,
)
# Locked (PostgreSQL): two that join one group must see each other.
EXPLICIT_GROUPS: Final = Statement(
    select(*_GROUP)
    .where(groups.c.project_id == bindparam("project"), groups.c.external_id.in_(bindparam("keys", expanding=True)))
    .with_for_update()
)
# Groups are locked before their members (see `groups.lock_groups_of`): here before the batch touches a trajectory.
LOCK_GROUPS: Final = Statement(
    select(groups.c.id).where(groups.c.id.in_(bindparam("ids", expanding=True))).order_by(groups.c.id).with_for_update()
)
IMPLICIT_GROUPS: Final = Statement(
    select(*_GROUP)
    .where(
        groups.c.project_id == bindparam("project"),
        groups.c.implicit_key.in_(bindparam("keys", expanding=True)),
        _is(groups.c.state, "open"),
    )
    .with_for_update()
)
IMPLICIT_SEQUENCES: Final = Statement(
    select(groups.c.implicit_key, func.max(groups.c.sequence))
    .where(groups.c.project_id == bindparam("project"), groups.c.implicit_key.in_(bindparam("keys", expanding=True)))
    .group_by(groups.c.implicit_key)
)
# As `groups.counts_toward_size` has it: a re-run replaces an abandoned attempt, an unchosen sibling was never one.
MEMBER_COUNTS: Final = Statement(
    select(trajectories.c.group_id, func.count())
    .where(
        trajectories.c.group_id.in_(bindparam("ids", expanding=True)),
        ~_is(trajectories.c.state, "abandoned"),
        trajectories.c.selection.is_(None),
    )
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

# --- attempts at one turn

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

# --- look-ups for attribution

ISSUED: Final = Statement(
    select(
        issued.c.issued_id,
        issued.c.kind,
        issued.c.call_id,
        issued.c.choice,
        issued.c.trajectory_id,
        calls.c.attribution_confidence,
    )
    .outerjoin(calls, calls.c.id == issued.c.call_id)
    .where(issued.c.project_id == bindparam("project"), issued.c.issued_id.in_(bindparam("ids", expanding=True)))
)
_continued = exists().where(
    and_(_child.c.parent_call_id == choices.c.call_id, _child.c.parent_choice == choices.c["index"])
)
# Which of some nodes were ever sampled, by the index alone.
SAMPLED_NODES: Final = Statement(
    select(choices.c.node_id).where(choices.c.node_id.in_(bindparam("nodes", expanding=True))).distinct()
)
# The newest sampled choices at a node: where thousands of runs were equal so far, not all of them are looked at.
# The project is told and not asked for: node ids are its own, and SQLite would walk its calls instead of the node's.
MOST_EQUAL: Final = 256
SAMPLED_LEAVES: Final = Statement(
    select(
        choices.c.call_id,
        choices.c["index"],
        calls.c.trajectory_id,
        trajectories.c.state,
        _continued.label("continued"),
        calls.c.started_at,
        trajectories.c.session,
        calls.c.attribution_confidence,
        calls.c.project_id,
    )
    .join(calls, calls.c.id == choices.c.call_id)
    .join(trajectories, trajectories.c.id == calls.c.trajectory_id)
    .where(choices.c.node_id == bindparam("node"))
    .order_by(choices.c.call_id.desc())
    .limit(literal_column(str(MOST_EQUAL)))
    .offset(literal_column("0"))
)
# The sampled choices of one trajectory at some nodes. `coalesce` keeps SQLite from looking the nodes up first, at which
# thousands of other runs may have been: this one's calls are few.
LEAVES_IN: Final = Statement(
    select(
        choices.c.node_id,
        choices.c.call_id,
        choices.c["index"],
        calls.c.trajectory_id,
        literal_column("'open'"),  # one trajectory's state decides nothing
        _continued.label("continued"),
        calls.c.started_at,
    )
    .join(calls, calls.c.id == choices.c.call_id)
    .where(
        calls.c.trajectory_id == bindparam("trajectory"),
        func.coalesce(choices.c.node_id, choices.c.node_id).in_(bindparam("nodes", expanding=True)),
    )
)
# The newest runs of a session.
MOST_RUNS: Final = 64
SESSION_RUNS: Final = Statement(
    select(trajectories.c.id, trajectories.c.state)
    .where(
        trajectories.c.project_id == bindparam("project"),
        trajectories.c.session == bindparam("session"),
        trajectories.c.address_group == bindparam("address_group"),
    )
    .order_by(trajectories.c.id.desc())
    .limit(literal_column(str(MOST_RUNS + 1)))
    .offset(literal_column("0"))
)
# As LEAVES_IN, for several trajectories, whose states count.
LEAVES_AMONG: Final = Statement(
    select(
        choices.c.node_id,
        choices.c.call_id,
        choices.c["index"],
        calls.c.trajectory_id,
        trajectories.c.state,
        _continued.label("continued"),
        calls.c.started_at,
    )
    .join(calls, calls.c.id == choices.c.call_id)
    .join(trajectories, trajectories.c.id == calls.c.trajectory_id)
    .where(
        calls.c.trajectory_id.in_(bindparam("trajectories", expanding=True)),
        func.coalesce(choices.c.node_id, choices.c.node_id).in_(bindparam("nodes", expanding=True)),
    )
)
# The newest answers of some trajectories, each with what it answered.
_asked = nodes.alias("asked")
_answered = nodes.alias("answered")
MOST_ANSWERS: Final = 32
ANSWERS_AMONG: Final = Statement(
    select(
        choices.c.call_id,
        choices.c["index"],
        calls.c.trajectory_id,
        _text(_answered.c.message),
        _text(_asked.c.message),
        choices.c.finish_reason,
        calls.c.tools_blob_id,
    )
    .join(calls, calls.c.id == choices.c.call_id)
    .join(_answered, _answered.c.id == choices.c.node_id)
    .outerjoin(_asked, _asked.c.id == _answered.c.parent_id)
    .where(
        calls.c.trajectory_id.in_(bindparam("trajectories", expanding=True)),
        calls.c.superseded_by.is_(None),
        _is(calls.c.state, "complete"),
    )
    .order_by(choices.c.call_id.desc(), choices.c["index"])
    .limit(literal_column(str(MOST_ANSWERS)))
    .offset(literal_column("0"))
)
# The first messages of a call's prompt.
_bottom = (
    select(nodes.c.id, nodes.c.parent_id, nodes.c.depth, nodes.c.message)
    .join(calls, calls.c.prompt_node_id == nodes.c.id)
    .where(calls.c.id == bindparam("call"))
    .cte("up", recursive=True)
)
_prompt = _bottom.union_all(
    select(nodes.c.id, nodes.c.parent_id, nodes.c.depth, nodes.c.message).join(
        _bottom, nodes.c.id == _bottom.c.parent_id
    )
)
BEGINNING: Final = Statement(
    select(_text(_prompt.c.message)).where(_prompt.c.depth < literal_column("4")).order_by(_prompt.c.depth)
)
# What models asked of a tool with these arguments, since a call's id, in turns that count and are not gone on with, and
# that no tool call has answered. The run of a request may have moved to a continuation: it is told, not asked for.
_by_tool = tool_calls.alias("by_tool")
TOOL_REQUESTS: Final = Statement(
    select(
        tool_requests.c.call_id,
        tool_requests.c.choice,
        tool_requests.c.position,
        tool_requests.c.tool_call_id,
        tool_requests.c.trajectory_id,
    )
    .join(calls, calls.c.id == tool_requests.c.call_id)
    .where(
        tool_requests.c.match == bindparam("match"),
        tool_requests.c.call_id >= bindparam("since"),
        calls.c.superseded_by.is_(None),
        ~exists().where(
            and_(
                _child.c.parent_call_id == tool_requests.c.call_id,
                _child.c.parent_choice == tool_requests.c.choice,
            )
        ),
        ~exists().where(
            and_(
                _by_tool.c.call_id == tool_requests.c.call_id,
                _by_tool.c.choice == tool_requests.c.choice,
                _by_tool.c.position == tool_requests.c.position,
                ~_is(_by_tool.c.outcome, "input_required"),
            )
        ),
    )
    .order_by(tool_requests.c.call_id, tool_requests.c.choice, tool_requests.c.position)
    .limit(literal_column(str(MOST_EQUAL)))
    .offset(literal_column("0"))
)
CONTINUES: Final = Statement(select(trajectories.c.continues).where(trajectories.c.id == bindparam("trajectory")))

# A call's block hashes and those of the calls they continue, nearest first.
_up_call = (
    select(
        calls.c.id,
        calls.c.parent_call_id,
        calls.c.parent_choice,
        calls.c.prompt_shared,
        calls.c.prompt_hashes,
        literal_column("0").label("height"),
    )
    .where(calls.c.id == bindparam("call"))
    .cte("up", recursive=True)
)
_above = (
    select(
        calls.c.id,
        calls.c.parent_call_id,
        calls.c.parent_choice,
        calls.c.prompt_shared,
        calls.c.prompt_hashes,
        _up_call.c.height + literal_column("1"),
    )
    .join(_up_call, calls.c.id == _up_call.c.parent_call_id)
    .where(_up_call.c.prompt_shared > literal_column("0"))
)
_up = _up_call.union_all(_above)
HASHES_UP: Final = Statement(
    select(_up.c.id, _up.c.parent_call_id, _up.c.parent_choice, _up.c.prompt_shared, _up.c.prompt_hashes).order_by(
        _up.c.height
    )
)
CHOICE_HASHES: Final = Statement(
    select(choices.c.call_id, choices.c["index"], choices.c.hashes).where(
        choices.c.call_id.in_(bindparam("ids", expanding=True))
    )
)

# A call's ids and those of the calls that it shares ids with, nearest first.
_PROMPT = (calls.c.id, calls.c.parent_call_id, calls.c.parent_choice, calls.c.prompt_shared)
_ids_call = (
    select(*_PROMPT, calls.c.prompt_delta, calls.c.prompt_len, literal_column("0").label("height"))
    .where(calls.c.id == bindparam("call"))
    .cte("up", recursive=True)
)
_ids_above = (
    select(*_PROMPT, calls.c.prompt_delta, calls.c.prompt_len, _ids_call.c.height + literal_column("1"))
    .join(_ids_call, calls.c.id == _ids_call.c.parent_call_id)
    .where(_ids_call.c.prompt_shared > literal_column("0"))
)
_ids_up = _ids_call.union_all(_ids_above)
PROMPTS_UP: Final = Statement(
    select(
        _ids_up.c.id,
        _ids_up.c.parent_call_id,
        _ids_up.c.parent_choice,
        _ids_up.c.prompt_shared,
        _ids_up.c.prompt_delta,
        _ids_up.c.prompt_len,
    ).order_by(_ids_up.c.height)
)
CHOICE_IDS: Final = Statement(
    select(
        choices.c.call_id, choices.c["index"], choices.c.node_id, choices.c.token_ids, choices.c.finish_reason
    ).where(choices.c.call_id.in_(bindparam("ids", expanding=True)))
)
CALL_META: Final = Statement(
    select(calls.c.base_fingerprint, _text(calls.c.response_meta)).where(calls.c.id == bindparam("call"))
)
