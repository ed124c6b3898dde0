"""Write one batch of calls in one transaction: new trajectories and open calls, with one statement per table.

Owns: the order in which a batch is written, continuations of sealed trajectories, and retries that supersede a call.
Runs synchronously on an `Executor`. Refuses: queueing (`recorder.capture.writer`), reading back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from recorder.capture import statements as sql
from recorder.capture.lookups.waiting_tool_calls import join_brought_results
from recorder.capture.resolve_trajectory import continue_sealed, resolve_trajectories
from recorder.capture.rows import PreparedCall, call_row, json_text
from recorder.capture.trajectories import RequestedTrajectory
from recorder.errors import StalePreparation
from recorder.ids import new_id
from recorder.messages.call_tree import RetryAttempt, find_superseded
from recorder.messages.calls import TrajectoryRef
from recorder.states import CallState, TrajectoryState
from recorder.store.write_backends import Executor, Row

GROUP_TOUCH_S = 1.0  # how exact `groups.last_call_at` is

AttemptKey = tuple[str, bytes]  # trajectory, hash of the body


@dataclass(frozen=True, slots=True)
class BatchCall:
    """A call of the batch, with the facts that the writer knows about it."""

    prepared: PreparedCall
    parent_hashes: bytes
    place: RequestedTrajectory | None  # its trajectory has no row yet
    was_open: bool  # its row as an open call may exist
    retried: bool  # it may be one of several retries of one call


@dataclass(frozen=True, slots=True)
class Batch:
    """The rows of one transaction. `group_size` as in `assign_groups`."""

    group_size: int
    calls: Sequence[BatchCall] = ()
    trajectories: Sequence[RequestedTrajectory] = ()  # addressed trajectories that calls will use
    moves: Mapping[str, TrajectoryRef] = field(default_factory=dict)  # known continuations of sealed trajectories
    touched: Mapping[str, float] = field(default_factory=dict)  # group → last_call_at as written, if cached
    resettle: Iterable[AttemptKey] = ()  # calls whose superseded retry was continued
    tool_calls: Sequence[tuple[Row, str | None]] = ()  # each with its trajectory
    # by project, the number of deletions when the calls were prepared
    deletions: Mapping[str, int] = field(default_factory=dict)
    ending: Collection[str] = ()  # known groups whose members end in this transaction
    # calls that were given up while their row was open: project, call, and why
    left_open: Sequence[tuple[str, str, str]] = ()


@dataclass(slots=True)
class BatchOutcome:
    """The result of a written batch."""

    at: float
    placed: list[TrajectoryRef]
    refs: dict[str, TrajectoryRef]  # requested trajectory id → the trajectory of the call, if another
    moved: dict[str, TrajectoryRef]  # sealed → its continuation
    superseded: dict[str, AttemptKey] = field(default_factory=dict)
    touched: list[str] = field(default_factory=list)  # groups whose last_call_at is now `at`

    def ref(self, asked: TrajectoryRef) -> TrajectoryRef:
        """Return the trajectory that a call got which requested `asked`."""
        ref = self.refs.get(asked.id, asked)
        return self.moved.get(ref.id, ref)


def write_batch(ex: Executor, batch: Batch) -> BatchOutcome:
    """Write a batch.

    Raises StalePreparation, and writes nothing, if something was deleted after the calls of the batch were prepared.
    """
    at = _clock(ex, batch)
    if batch.ending:
        ex.all(sql.LOCK_GROUPS, ids=sorted(batch.ending))
    wanted = {w.prepared.trajectory.id: w.place for w in batch.calls if w.place is not None}
    refs = resolve_trajectories(ex, at, [*batch.trajectories, *wanted.values()], batch.group_size)
    made = dict(zip(wanted, refs[len(batch.trajectories) :], strict=True))
    outcome = BatchOutcome(at, refs[: len(batch.trajectories)], {**batch.moves, **made}, {})
    _touch_groups(ex, batch, outcome, joined={ref.group_id for ref in refs})  # groups are locked before their members
    _touch(ex, batch, outcome)
    _insert(ex, batch.calls, outcome)
    if batch.tool_calls:
        _insert_tool_calls(ex, batch, outcome)
    if brought := [w.prepared.brought for w in batch.calls if w.prepared.brought is not None]:
        joins = join_brought_results(ex, brought)
        ex.many(sql.JOIN_TOOL_CALLS, joins.joined)
        ex.many(sql.TIE_TOOL_CALLS, joins.tied)
    outcome.superseded = _settle(ex, batch, outcome)
    if batch.left_open:
        ex.many(sql.ERROR_OPEN_CALLS, [(why, at, call_id) for _, call_id, why in batch.left_open])
        ex.many(sql.INSERT_UNINDEXED, [(project_id, call_id) for project_id, call_id, _ in batch.left_open])
    return outcome


def _clock(ex: Executor, batch: Batch) -> float:
    """Return the database's time, and check in the same statement that nothing was deleted since the preparation."""
    if not batch.deletions:
        return float(ex.all(sql.NOW)[0][0])
    rows = ex.all(sql.NOW_AND_DELETIONS, projects=sorted(batch.deletions))
    found = {row[1]: row[2] for row in rows}
    if found != batch.deletions:
        raise StalePreparation(found)
    return float(rows[0][0])


def requested_trajectory_of(
    prepared: PreparedCall, implicit_key: str | None, continues: str | None = None
) -> RequestedTrajectory:
    """Return the values of a trajectory that was created without a row, from its first call."""
    address, ref = prepared.address, prepared.trajectory
    return RequestedTrajectory(
        trajectory_id=ref.id,
        project_id=prepared.project_id,
        alias_id=prepared.alias_id,
        address_group=address.group or "",
        external_id=ref.external_id,
        implicit_key=implicit_key,
        group_size=address.group_size,
        purpose=str(address.purpose),  # not .value: two calls of Python functions
        origin=str(address.origin),
        tags=json_text(dict(address.tags)),
        offered_version=ref.version_id or prepared.version_id,
        started_at=prepared.started_at,
        own_version=prepared.version_id,
        continues=continues,
        session=ref.session,
        access=address.access,
        made_by=ref.made_by,
        groups_of=address.access.groups_of,
        engine_url=ref.engine_url,
    )


def _touch(ex: Executor, batch: Batch, outcome: BatchOutcome) -> None:
    """Update open trajectories only: a call whose trajectory was sealed meanwhile goes to a continuation."""
    calls = batch.calls
    rows = [_touch_row(w, outcome) for w in calls]
    if ex.many(sql.TOUCH_TRAJECTORIES, rows) == len(rows):
        return
    asked = {row[-1]: w for row, w in zip(rows, calls, strict=True)}
    states = dict(map(tuple, ex.all(sql.TRAJECTORY_STATES, ids=list(asked))))
    sealed = [id_ for id_ in asked if states.get(id_) != TrajectoryState.OPEN]
    if not sealed:
        return  # all rows were updated, or the driver cannot count them
    deleted = {row[0] for row in ex.all(sql.DELETED, ids=sealed)} if any(id_ not in states for id_ in sealed) else set()

    def place_asked(id_: str) -> RequestedTrajectory:
        made = requested_trajectory_of(asked[id_].prepared, None)
        return replace(made, trajectory_id=new_id("traj")) if id_ in deleted else made

    outcome.moved |= continue_sealed(
        ex,
        outcome.at,
        sealed,
        asked=place_asked,
        version_of=lambda id_: asked[id_].prepared.version_id,
        group_size=batch.group_size,
    )
    ex.many(
        sql.TOUCH_TRAJECTORIES,
        [_touch_row(w, outcome) for row, w in zip(rows, calls, strict=True) if row[-1] in outcome.moved],
    )


def _touch_row(written: BatchCall, outcome: BatchOutcome) -> Row:
    prepared = written.prepared
    leaf = prepared.call_id if prepared.leaf_choice is not None else None
    counted = 0 if prepared.state is CallState.OPEN else 1
    home = outcome.ref(prepared.trajectory).id
    return outcome.at, leaf, prepared.leaf_choice, counted, prepared.version_id, prepared.engine_url, home


def _touch_groups(ex: Executor, batch: Batch, outcome: BatchOutcome, joined: Set[str | None]) -> None:
    # Group timeouts are minutes, so the row that all members share is not updated at every call.
    ids = {outcome.ref(w.prepared.trajectory).group_id for w in batch.calls} - joined
    outcome.touched = sorted(
        id_ for id_ in ids if id_ is not None and outcome.at - batch.touched.get(id_, 0.0) >= GROUP_TOUCH_S
    )
    if outcome.touched:
        ex.many(sql.TOUCH_GROUPS, [(outcome.at, id_) for id_ in outcome.touched])


def _insert(ex: Executor, turns: Sequence[BatchCall], outcome: BatchOutcome) -> None:
    # One loop that fills every table's rows, in the order of writing: 20 function calls less for each commit than a
    # comprehension for each table.
    nodes: list[Row] = []
    blobs: list[Row] = []
    node_blobs: list[Row] = []
    were_open: list[Row] = []
    calls: list[Row] = []
    choices: list[Row] = []
    unindexed: list[Row] = []
    issued: list[Row] = []
    requests: list[Row] = []
    for w in turns:
        prepared = w.prepared
        project_id, call_id, home = prepared.project_id, prepared.call_id, outcome.ref(prepared.trajectory).id
        nodes += prepared.nodes
        blobs += prepared.blobs
        node_blobs += prepared.node_blobs
        if w.was_open:
            were_open += ((call_id,),)
        calls += (call_row(prepared, home, w.parent_hashes),)
        choices += prepared.choices
        if prepared.state is not CallState.OPEN:
            unindexed += ((project_id, call_id),)
        for issued_id, kind, choice in prepared.issued_ids:
            issued += ((project_id, issued_id, kind, call_id, choice, home),)
        for choice, position, id_, match in prepared.tool_requests:
            requests += ((project_id, call_id, choice, position, id_, home, match),)
    for statement, rows in (
        (sql.INSERT_NODES, nodes),
        (sql.INSERT_BLOBS, blobs),
        (sql.INSERT_NODE_BLOBS, node_blobs),
        (sql.DELETE_OPEN_CALLS, were_open),
        (sql.INSERT_CALLS, calls),
        (sql.INSERT_CHOICES, choices),
        (sql.INSERT_UNINDEXED, unindexed),
        (sql.INSERT_ISSUED, issued),
        (sql.INSERT_TOOL_REQUESTS, requests),
    ):
        if rows:
            ex.many(statement, rows)


def _insert_tool_calls(ex: Executor, batch: Batch, outcome: BatchOutcome) -> None:
    touched = {home for _, home in batch.tool_calls if home is not None}
    ex.many(sql.TOUCH_BY_TOOLS, [(outcome.at, home) for home in sorted(touched)])
    ex.many(sql.INSERT_TOOL_CALLS, [row for row, _ in batch.tool_calls])


def _settle(ex: Executor, batch: Batch, outcome: BatchOutcome) -> dict[str, AttemptKey]:
    """Of several retries of one call, keep one and mark the others as superseded by it."""
    keys = set(batch.resettle)
    for w in batch.calls:
        if w.retried:
            keys.add((outcome.ref(w.prepared.trajectory).id, w.prepared.body_hash))
    superseded: dict[str, AttemptKey] = {}
    for trajectory_id, body in sorted(keys):
        rows = ex.all(sql.ATTEMPTS, trajectory=trajectory_id, body=body)
        winners = find_superseded(
            [RetryAttempt(row[0], row[1], CallState(row[2]), row[3], bool(row[5])) for row in rows]
        )
        changed = [(winners.get(row[0]), row[0]) for row in rows if row[4] != winners.get(row[0])]
        ex.many(sql.SUPERSEDE, changed)
        ex.many(sql.MOVE_LEAF, [(winner, trajectory_id, loser) for loser, winner in winners.items()])
        superseded |= dict.fromkeys(winners, (trajectory_id, body))
    return superseded
