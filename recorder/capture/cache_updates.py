"""Update the recorder's caches after a batch is committed. No other module fills them from calls.

Owns: which facts are cached, exact token histories included. Refuses: caching uncommitted facts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from recorder.capture.batch import BatchCall, BatchOutcome
from recorder.capture.cache import CaptureCache, RetryCandidate
from recorder.capture.lookups.token_history import RecentTokenHistories, parse_response_meta, token_history
from recorder.capture.rows import PreparedCall
from recorder.messages.calls import ParentCall, TrajectoryRef
from recorder.states import CallState, Confidence, Origin

KEPT_ATTEMPTS = 32  # equal requests among which a retry is matched; with more, no retry is matched
_BASE, _META = 4, -1  # indexes into `PreparedCall.row_middle`


def remember_batch(memory: CaptureCache, written: Sequence[BatchCall], outcome: BatchOutcome) -> None:
    """Cache the facts of a committed batch."""
    for w in written:
        _remember_turn(memory, w.prepared, outcome)
    for sealed, ref in outcome.moved.items():
        memory.moved.put(sealed, ref)
    for call_id, key in outcome.superseded.items():
        memory.superseded.put(call_id, key)
    for group_id in outcome.touched:
        memory.touched.put(group_id, outcome.at)


def remember_ref(memory: CaptureCache, project_id: str, ref: TrajectoryRef) -> None:
    """Cache a trajectory by its id and its address."""
    memory.refs.put(ref.id, (project_id, ref))
    if ref.external_id is not None:
        memory.addresses.put((project_id, ref.group_external_id or "", ref.external_id), ref)


def remember_engine(memory: CaptureCache, trajectory_id: str, engine_url: str) -> None:
    """Cache the engine of a trajectory that is cached."""
    known = memory.refs.get(trajectory_id)
    if known is not None and known[1].engine_url != engine_url:
        remember_ref(memory, known[0], replace(known[1], engine_url=engine_url))


def remember_attempt(memory: CaptureCache, project_id: str, body_hash: bytes, attempt: RetryCandidate) -> None:
    """Cache a request by the hash of its body: a retry of it belongs to the same trajectory."""
    key = (project_id, attempt.trajectory.made_by, body_hash)
    known = memory.attempts.get(key)
    others = [e for e in known if e.call_id != attempt.call_id] if known else ()
    memory.attempts.put(key, (*others, attempt)[-KEPT_ATTEMPTS:])


def remember_token_history(recent: RecentTokenHistories, prepared: PreparedCall) -> None:
    """Cache the token history that a committed call sampled."""
    if not recent.max_bytes or prepared.prompt is None or prepared.leaf_choice is None:
        return
    if prepared.address.origin is Origin.SHADOW:  # no call continues a shadow answer
        return
    nodes = [row[2] for row in prepared.choices]
    meta = parse_response_meta(prepared.row_middle[_META])
    for row in prepared.choices:
        _, index, node, ids, _, _, finish, *_ = row
        past = token_history(prepared.prompt, ids, node, finish, prepared.row_middle[_BASE], meta, index, nodes)
        recent.put(ParentCall(prepared.call_id, index), past)


def _remember_turn(memory: CaptureCache, prepared: PreparedCall, outcome: BatchOutcome) -> None:
    ref = outcome.ref(prepared.trajectory)
    for row in prepared.nodes:
        memory.nodes.put(row[0], True)
    for row in prepared.blobs:
        memory.blobs.put(row[0], True)
    for leaf in prepared.leaves:
        if leaf.node is not None:
            memory.leaves.put((ref.id, leaf.node), leaf.parent)
        if prepared.prompt is not None:
            memory.hashes.put(leaf.parent, prepared.prompt_hashes + leaf.hashes)
    for issued_id, _, choice in prepared.issued_ids if prepared.confidence is not Confidence.HINT else ():
        what = (ParentCall(prepared.call_id, choice), ref.id, ref.made_by)
        _remember_issued(memory, prepared.project_id, issued_id, what)
    memory.unwritten.drop(prepared.trajectory.id)
    if ref.id not in memory.refs:  # a cached one may have been repinned since this call began
        remember_ref(memory, prepared.project_id, ref)
    if prepared.engine_url is not None:
        remember_engine(memory, ref.id, prepared.engine_url)
    complete = prepared.state is CallState.COMPLETE
    attempt = RetryCandidate(
        prepared.call_id, ref, prepared.parent, prepared.retry_count, complete, prepared.confidence
    )
    remember_attempt(memory, prepared.project_id, prepared.body_hash, attempt)
    if prepared.retry_count > 0:
        memory.retried.put((ref.id, prepared.body_hash), True)


def _remember_issued(memory: CaptureCache, project_id: str, issued_id: str, what: tuple[ParentCall, str, str]) -> None:
    key = (project_id, issued_id)
    known = memory.issued.get(key)
    if known is None:
        memory.issued.put(key, what)
    elif known != what:
        memory.issued.drop(key)  # issued twice, so it is no evidence; the store knows
