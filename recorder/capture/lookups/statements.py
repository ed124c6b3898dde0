"""The SQL of attribution and of token histories, compiled once.

Refuses: deciding when a query runs (`recorder.capture.lookups.recorded_calls`,
`recorder.capture.lookups.token_history`), and writing (`recorder.capture.statements`).
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import ColumnElement, Text, and_, bindparam, case, exists, func, literal_column, or_, select

from recorder.store.schema import calls, choices, groups, issued, nodes, tool_calls, tool_requests, trajectories
from recorder.store.sql import now
from recorder.store.statement import Statement, equals_literal, json_as_text

AMBIGUOUS_ISSUED: Final = "ambiguous"  # an id that was issued twice is no evidence

_child = calls.alias("child")


def _own() -> ColumnElement[bool]:
    """The condition of `KeyAccess.owns` in a query, so that equal trajectories of other keys do not fill a limit.

    Shadow answers are never matched: no agent has seen them, so no call continues them.
    """
    key = bindparam("access", type_=Text)
    made_by = trajectories.c.made_by
    own = or_(key == literal_column("''"), made_by == literal_column("''"), made_by == key)
    return and_(own, ~equals_literal(trajectories.c.origin, "shadow"))


# --- trajectories, by address and by id

_PLACED = (
    trajectories.c.id,
    trajectories.c.project_id,
    trajectories.c.address_group,
    trajectories.c.external_id,
    trajectories.c.sequence,
    trajectories.c.state,
    trajectories.c.purpose,
    trajectories.c.origin,
    json_as_text(trajectories.c.tags),
    trajectories.c.alias_id,
    trajectories.c.version_id,
    trajectories.c.group_id,
    groups.c.external_id,
    groups.c.implicit_key,
    groups.c.declared_size,
    groups.c.campaign_id,
    groups.c.version_id,
    trajectories.c.session,
    trajectories.c.made_by,
    trajectories.c.engine_url,
)
_placed = select(*_PLACED).select_from(trajectories.outerjoin(groups, groups.c.id == trajectories.c.group_id))
# Each row: the fields of `recorder.capture.trajectories.ExistingTrajectory`.
AT_ADDRESSES: Final = Statement(
    _placed.where(
        trajectories.c.project_id == bindparam("project"),
        trajectories.c.address_group.in_(bindparam("groups", expanding=True)),
        trajectories.c.external_id.in_(bindparam("ids", expanding=True)),
    )
)
BY_IDS: Final = Statement(_placed.where(trajectories.c.id.in_(bindparam("ids", expanding=True))))

# --- issued ids and sampled choices

# A trajectory that ended only because it was idle may continue, so attribution counts it as open for a while. Otherwise
# an equal open trajectory would get its user's next message with certainty.
WARM_S: Final = 900.0
_warm_s: ColumnElement[float] = literal_column(str(WARM_S))


def _state() -> ColumnElement[str]:
    t = trajectories.c
    warm = and_(
        equals_literal(t.state, "completed"), equals_literal(t.end_reason, "idle"), t.last_call_at > now() - _warm_s
    )
    return case((warm, literal_column("'open'")), else_=t.state).label("state")


ISSUED: Final = Statement(
    select(
        issued.c.issued_id,
        issued.c.kind,
        issued.c.call_id,
        issued.c.choice,
        issued.c.trajectory_id,
        calls.c.attribution_confidence,
        trajectories.c.made_by,
    )
    .outerjoin(calls, calls.c.id == issued.c.call_id)
    .outerjoin(trajectories, trajectories.c.id == issued.c.trajectory_id)
    .where(issued.c.project_id == bindparam("project"), issued.c.issued_id.in_(bindparam("ids", expanding=True)))
)
_continued = exists().where(
    and_(_child.c.parent_call_id == choices.c.call_id, _child.c.parent_choice == choices.c["index"])
)
# Which of some nodes were ever sampled, by the index alone.
SAMPLED_NODES: Final = Statement(
    select(choices.c.node_id).where(choices.c.node_id.in_(bindparam("nodes", expanding=True))).distinct()
)
# The newest sampled choices at a node: if thousands of trajectories are equal so far, not all are read.
# The project is a column, not a condition: node ids differ by project, and SQLite would scan all calls of the project.
MOST_EQUAL: Final = 256
SAMPLED_LEAVES: Final = Statement(
    select(
        choices.c.call_id,
        choices.c["index"],
        calls.c.trajectory_id,
        _state(),
        _continued.label("continued"),
        calls.c.started_at,
        trajectories.c.session,
        calls.c.attribution_confidence,
        calls.c.project_id,
    )
    .join(calls, calls.c.id == choices.c.call_id)
    .join(trajectories, trajectories.c.id == calls.c.trajectory_id)
    .where(choices.c.node_id == bindparam("node"), _own())
    .order_by(choices.c.call_id.desc())
    .limit(literal_column(str(MOST_EQUAL)))
    .offset(literal_column("0"))
)
# The newest answers with a question and an answer, and the node of each. Few differ, because equal conversations share
# their nodes; more than these are ambiguous in any case.
MOST_SIMILAR: Final = 32
SIMILAR: Final = Statement(
    select(
        choices.c.call_id,
        choices.c["index"],
        calls.c.trajectory_id,
        _state(),
        _continued.label("continued"),
        calls.c.started_at,
        trajectories.c.session,
        calls.c.attribution_confidence,
        calls.c.project_id,
        choices.c.node_id,
    )
    .join(calls, calls.c.id == choices.c.call_id)
    .join(trajectories, trajectories.c.id == calls.c.trajectory_id)
    .where(choices.c.exchange_id == bindparam("exchange"), equals_literal(calls.c.state, "complete"), _own())
    .order_by(choices.c.call_id.desc())
    .limit(literal_column(str(MOST_SIMILAR)))
    .offset(literal_column("0"))
)
# The conversation up to a node.
_node = nodes.alias("node")
_last = (
    select(_node.c.id, _node.c.parent_id, _node.c.depth, _node.c.message)
    .where(_node.c.id == bindparam("node"))
    .cte("up", recursive=True)
)
_conversation = _last.union_all(
    select(nodes.c.id, nodes.c.parent_id, nodes.c.depth, nodes.c.message).join(_last, nodes.c.id == _last.c.parent_id)
)
CONVERSATION: Final = Statement(select(json_as_text(_conversation.c.message)).order_by(_conversation.c.depth))
# The newest answers to a prompt, each with its text and its call's stop strings. If thousands of trajectories began
# equally, not all are read: SQLite walks its index of prompts backwards, which is ordered by rowid and not by id.
_said = nodes.alias("said")
_answers_to = (
    select(
        choices.c.call_id,
        choices.c["index"],
        calls.c.trajectory_id,
        _state(),
        _continued.label("continued"),
        calls.c.started_at,
        trajectories.c.session,
        calls.c.attribution_confidence,
        calls.c.project_id,
        json_as_text(_said.c.message),
        json_as_text(calls.c.sampling),
    )
    .join(calls, calls.c.id == choices.c.call_id)
    .join(trajectories, trajectories.c.id == calls.c.trajectory_id)
    .join(_said, _said.c.id == choices.c.node_id)
    .where(
        calls.c.prompt_node_id == bindparam("prompt"),
        equals_literal(calls.c.state, "complete"),
        _own(),
    )
    .limit(literal_column(str(MOST_EQUAL)))
    .offset(literal_column("0"))
)
ANSWERS_TO: Final = Statement(
    _answers_to.order_by(literal_column("calls.rowid").desc()), elsewhere=_answers_to.order_by(calls.c.id.desc())
)
_leaves = (
    select(
        choices.c.node_id,
        choices.c.call_id,
        choices.c["index"],
        calls.c.trajectory_id,
        _state(),
        _continued.label("continued"),
        calls.c.started_at,
    )
    .join(calls, calls.c.id == choices.c.call_id)
    .join(trajectories, trajectories.c.id == calls.c.trajectory_id)
)
# The sampled choices at some nodes, of whatever trajectory: one row for each, as few conversations share a deep node.
# With more than MOST_EQUAL rows some may be missing: ask LEAVES_IN or LEAVES_AMONG.
LEAVES_AT: Final = Statement(
    _leaves.where(choices.c.node_id.in_(bindparam("nodes", expanding=True)))
    .limit(literal_column(str(MOST_EQUAL + 1)))
    .offset(literal_column("0"))
)
# The sampled choices of one trajectory at nodes that many trajectories share. `coalesce` prevents SQLite from starting
# with the nodes.
LEAVES_IN: Final = Statement(
    select(
        choices.c.node_id,
        choices.c.call_id,
        choices.c["index"],
        calls.c.trajectory_id,
        literal_column("'open'"),  # with one trajectory the state does not matter
        _continued.label("continued"),
        calls.c.started_at,
    )
    .join(calls, calls.c.id == choices.c.call_id)
    .where(
        calls.c.trajectory_id == bindparam("trajectory"),
        func.coalesce(choices.c.node_id, choices.c.node_id).in_(bindparam("nodes", expanding=True)),
    )
)
# A session's newest trajectories. `coalesce` prevents SQLite from scanning all trajectories, newest first.
MOST_RUNS: Final = 64
SESSION_RUNS: Final = Statement(
    select(trajectories.c.id, _state())
    .where(
        trajectories.c.project_id == bindparam("project"),
        trajectories.c.session == bindparam("session"),
        trajectories.c.address_group == bindparam("address_group"),
        _own(),
    )
    .order_by(func.coalesce(trajectories.c.id, trajectories.c.id).desc())
    .limit(literal_column(str(MOST_RUNS + 1)))
    .offset(literal_column("0"))
)
# As LEAVES_IN, for several trajectories with their states.
LEAVES_AMONG: Final = Statement(
    _leaves.where(
        calls.c.trajectory_id.in_(bindparam("trajectories", expanding=True)),
        func.coalesce(choices.c.node_id, choices.c.node_id).in_(bindparam("nodes", expanding=True)),
    )
)
# The newest answers of some trajectories, each with the message that it answered.
_asked = nodes.alias("asked")
_answered = nodes.alias("answered")
MOST_ANSWERS: Final = 32
ANSWERS_AMONG: Final = Statement(
    select(
        choices.c.call_id,
        choices.c["index"],
        calls.c.trajectory_id,
        json_as_text(_answered.c.message),
        json_as_text(_asked.c.message),
        choices.c.finish_reason,
        calls.c.tools_blob_id,
    )
    .join(calls, calls.c.id == choices.c.call_id)
    .join(_answered, _answered.c.id == choices.c.node_id)
    .outerjoin(_asked, _asked.c.id == _answered.c.parent_id)
    .where(
        calls.c.trajectory_id.in_(bindparam("trajectories", expanding=True)),
        calls.c.superseded_by.is_(None),
        equals_literal(calls.c.state, "complete"),
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
    select(json_as_text(_prompt.c.message)).where(_prompt.c.depth < literal_column("4")).order_by(_prompt.c.depth)
)
# Models' requests for a tool with these arguments that no tool call has answered, since a call's id, in main calls that
# are not continued, the newest first. The trajectory is a column and not a condition, because it may have moved to a
# continuation. The last column: how many equal requests the answer makes.
_by_tool = tool_calls.alias("by_tool")
_equal = tool_requests.alias("equal")
TOOL_REQUESTS: Final = Statement(
    select(
        tool_requests.c.call_id,
        tool_requests.c.choice,
        tool_requests.c.position,
        tool_requests.c.tool_call_id,
        tool_requests.c.trajectory_id,
        trajectories.c.address_group,
        trajectories.c.session,
        select(func.count())
        .where(_equal.c.call_id == tool_requests.c.call_id, _equal.c.match == tool_requests.c.match)
        .scalar_subquery(),
    )
    .join(calls, calls.c.id == tool_requests.c.call_id)
    .join(trajectories, trajectories.c.id == tool_requests.c.trajectory_id)
    .where(
        _own(),
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
                ~equals_literal(_by_tool.c.outcome, "input_required"),
            )
        ),
    )
    .order_by(tool_requests.c.call_id.desc(), tool_requests.c.choice, tool_requests.c.position)
    .limit(literal_column(str(MOST_EQUAL)))
    .offset(literal_column("0"))
)
# The requests of some answers that no tool call answers for certain, each with every tool call that may answer it.
# Locked (PostgreSQL): two model calls that bring back equal results must not get the same tool call.
_sure = tool_calls.alias("sure")
MOST_WAITING: Final = 2048
WAITING_TOOL_CALLS: Final = Statement(
    select(
        tool_requests.c.call_id,
        tool_requests.c.choice,
        tool_requests.c.position,
        tool_requests.c.tool_call_id,
        tool_requests.c.trajectory_id,
        tool_requests.c.match,
        tool_calls.c.id,
        tool_calls.c.trajectory_id,
        tool_calls.c.call_id,
        tool_calls.c.choice,
        tool_calls.c.position,
        tool_calls.c.join_source,
        tool_calls.c.join_confidence,
        tool_calls.c.started_at,
        tool_calls.c.finished_at,
        json_as_text(tool_calls.c.evidence),
    )
    .join(tool_calls, tool_calls.c.request_match == tool_requests.c.match)
    .where(
        tool_requests.c.call_id.in_(bindparam("calls", expanding=True)),
        tool_calls.c.id >= bindparam("since"),
        ~exists().where(
            and_(
                _sure.c.call_id == tool_requests.c.call_id,
                _sure.c.choice == tool_requests.c.choice,
                _sure.c.position == tool_requests.c.position,
                _sure.c.request_match.is_(None),
                ~equals_literal(_sure.c.outcome, "input_required"),
            )
        ),
    )
    .order_by(tool_calls.c.id)
    .limit(literal_column(str(MOST_WAITING)))
    .offset(literal_column("0"))
    .with_for_update(of=tool_calls)
)
TOOL_RESULTS: Final = Statement(
    select(tool_calls.c.id, json_as_text(tool_calls.c.result), tool_calls.c.error).where(
        tool_calls.c.id.in_(bindparam("ids", expanding=True))
    )
)
CONTINUES: Final = Statement(select(trajectories.c.continues).where(trajectories.c.id == bindparam("trajectory")))

# The block hashes of a call and of the calls that it continues, nearest first.
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

# The token ids of a call and of the calls that it shares ids with, nearest first.
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
    select(calls.c.base_fingerprint, json_as_text(calls.c.response_meta)).where(calls.c.id == bindparam("call"))
)
