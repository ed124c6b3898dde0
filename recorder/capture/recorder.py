"""The recorder of a proxy process: opens trajectories at their addresses and commits calls in batches.

Owns: the writer's life cycle, opening and closing trajectories, a call from its beginning to its commit, and the token
histories cached for the next call. Refuses: attribution (`recorder.capture.resolver`), wire formats, routing, and what
happens if a commit fails (the caller decides).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from recorder.base.beside_loop import run_beside_loop
from recorder.base.rate_limited_log import RateLimitedLog
from recorder.capture import batch as batches
from recorder.capture import rows
from recorder.capture import statements as sql
from recorder.capture.backlog import Attribute, Backlog
from recorder.capture.cache import CaptureCache, RetryCandidate, UnwrittenTrajectory
from recorder.capture.cache_updates import remember_attempt, remember_engine, remember_ref, remember_token_history
from recorder.capture.lookups import recorded_calls
from recorder.capture.lookups import token_history as pasts
from recorder.capture.lookups.token_history import RecentTokenHistories, TokenHistory
from recorder.capture.open_calls import OpenCalls
from recorder.capture.resolver import TrajectoryResolver
from recorder.capture.tool_calls import ToolCalls
from recorder.capture.trajectories import RequestedTrajectory, require_owner
from recorder.capture.writer import CallJob, CloseJob, TrajectoryJob, Writer
from recorder.errors import NotFound, RecorderError, StalePreparation, StoreUnavailable
from recorder.ids import new_id
from recorder.messages import content_hashes
from recorder.messages.calls import Address, Message, ParentCall, RecordedCall, RecordedRequest, TrajectoryRef
from recorder.messages.redaction import Redactor
from recorder.settings import RecorderSettings
from recorder.states import Purpose, TrajectoryState
from recorder.store.database import Store
from recorder.store.health_monitor import StoreHealthMonitor
from recorder.store.wal_checkpoint import Checkpointer
from recorder.store.write_backends import WriteBackend, choose_backend

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RecorderStats:
    """Counts since the start, and the current queue."""

    queued_turns: int
    queued_bytes: int
    commits: int
    committed_turns: int
    failed_commits: int
    unrecorded_turns: int  # calls that could not be written
    alarms: int  # how often recording stopped
    redaction_timeouts: int  # texts that were not stored, because redaction did not finish


class Recorder:
    """One per proxy process. Call `start()` before the first call; `stop()` drains.

    `backend`: the write backend; by default the fastest for the database. `process`: this process's name, if a lease
    shows that it is running (`recorder.queue.leases`), so that the sweep closes its open calls after its death.
    """

    def __init__(
        self, store: Store, settings: RecorderSettings, backend: WriteBackend | None = None, process: str | None = None
    ) -> None:
        self.settings = settings
        self.redaction = Redactor(settings.redact)
        self._masked = settings.same_task == "normalised"
        self._similar = settings.same_conversation == "masked_system"
        self._memory = CaptureCache(process)
        self._pasts = RecentTokenHistories()
        self._backend = backend if backend is not None else choose_backend(store, settings.durability)
        self._standing = StoreHealthMonitor(self._backend, settings.commit_timeout_s)
        self._writer = Writer(self._backend, self._standing, settings, self._memory)
        self._standing.on_return = self._writer.wake
        self._backlog = Backlog(self._writer, self._commit_reserved)
        self._running = OpenCalls(settings.open_row_after_s, self._show)
        database = store.url.database if store.is_sqlite else None
        self._checkpoints = Checkpointer(database) if database and database != ":memory:" else None
        self._keys: dict[str, bytes] = {}
        self._unseen = RateLimitedLog(log)
        self.find = TrajectoryResolver(
            self._backend, self._memory, self._key, self._running, self.redaction, similar=self._similar
        )
        self.tools = ToolCalls(self._backend, self._writer, self._memory, self._key, self.redaction)

    async def start(self) -> None:
        """Start the writer and its background tasks."""
        await self._backend.start()
        self._writer.start()
        self._running.start()
        self._standing.start()
        if self._checkpoints is not None:
            self._checkpoints.start()

    async def stop(self) -> None:
        """Commit the queue, then stop. Calls that still run stay open in the store."""
        await self._running.stop()
        await self._backlog.stop()
        await self._writer.stop()
        await self._standing.stop()
        if self._checkpoints is not None:
            await self._checkpoints.stop()
        await self._backend.stop()

    def stats(self) -> RecorderStats:
        """Return the figures for /metrics."""
        counts = self._writer.counts
        return RecorderStats(
            queued_turns=counts.queued_turns,
            queued_bytes=counts.queued_bytes,
            commits=counts.commits,
            committed_turns=counts.committed_turns,
            failed_commits=counts.failed_commits,
            unrecorded_turns=counts.unrecorded_turns,
            alarms=self._standing.alarms,
            redaction_timeouts=self.redaction.timeouts,
        )

    def trouble(self) -> str | None:
        """Why nothing can be recorded now; None if no problem is known."""
        return self._standing.why()

    # --- trajectories

    async def trajectory_at(
        self,
        project_id: str,
        alias_id: str | None,
        address: Address,
        request: RecordedRequest,
        offered_version: str | None,
        session: str | None = None,
        *,
        own_version: str | None = None,
    ) -> TrajectoryRef:
        """Find or create the trajectory that `address` names: by trajectory id, or a new member of a named group.

        A sealed trajectory is continued by a new one. The ref's `version_id` is the pinned version: of a declared
        group, else of the trajectory. `offered_version` is pinned if there is none yet. `own_version` pins the
        trajectory if it has no pin yet, whatever its group is pinned to: the caller named that version. Raises
        StoreUnavailable, and NotOwner if the trajectory belongs to another key.
        """
        if address.trajectory is not None:
            known = self._memory.addresses.get((project_id, address.group or "", address.trajectory))
            if known is not None:
                return require_owner(known, address)
        key = await self._key(project_id)
        await self.redaction.prepare(request)
        redacted = self.redaction.request(request)
        implicit_key, continued_key = await run_beside_loop(
            lambda: tuple(
                self._implicit_key(key, alias_id, address, redacted, continued=continued) for continued in (False, True)
            ),
            large=request.is_large,
        )
        place = RequestedTrajectory(
            trajectory_id=new_id("traj"),
            project_id=project_id,
            alias_id=alias_id,
            address_group=address.group or "",
            external_id=address.trajectory,
            implicit_key=implicit_key,
            continued_key=continued_key,
            group_size=address.group_size,
            purpose=address.purpose.value,
            origin=address.origin.value,
            tags=rows.json_text(await self.redaction.redact_value(dict(address.tags))),
            offered_version=offered_version,
            started_at=0.0,  # the store's clock
            own_version=own_version,
            session=session,
            access=address.access,
            made_by=address.access.key,
            groups_of=address.access.groups_of,
        )
        return require_owner(await self._placed(place), address)

    def forget_issued(self, project_id: str, issued_id: str) -> None:
        """Remove a deleted id from the cache of issued ids."""
        self._memory.issued.drop((project_id, issued_id))

    def new_trajectory(
        self, address: Address, offered_version: str | None, session: str | None = None
    ) -> TrajectoryRef:
        """Make a new trajectory without an external id, pinned to `offered_version`. Its first call writes the row."""
        ref = TrajectoryRef(
            new_id("traj"), None, None, address.group, offered_version, address.purpose, session, address.access.key
        )
        self._memory.unwritten.put(ref.id, UnwrittenTrajectory())
        return ref

    def update_pin(self, trajectory_id: str, version_id: str | None) -> None:
        """Update the cached version of a trajectory that was repinned in the store (`versions.repin_trajectory`)."""
        known = self._memory.refs.get(trajectory_id)
        if known is not None:
            project_id, ref = known
            remember_ref(self._memory, project_id, replace(ref, version_id=version_id))

    def keep_engine(self, trajectory_id: str, engine_url: str) -> None:
        """Cache the engine of a trajectory before its first call has an answer, for calls that run beside that one.

        The call's commit stores the engine that answered (`RecordedCall.engine_url`).
        """
        remember_engine(self._memory, trajectory_id, engine_url)

    # --- token histories

    def keep_token_histories(self, max_bytes: int) -> None:
        """Cache the token histories of choices sampled from now on, so that `past` rarely queries the store."""
        self._pasts.max_bytes = max_bytes

    async def past(
        self, project_id: str, parent: ParentCall, messages: Sequence[Message]
    ) -> tuple[TokenHistory, int | None] | None:
        """Return the exact tokens up to and including a sampled choice, and the index of its message in `messages`.

        The index is None if the conversation up to the choice was edited since it was sampled. Returns None if no such
        choice is stored. Raises StoreUnavailable, CorruptRecord.
        """
        past = self._pasts.get(parent) or await self._backend.read(lambda ex: pasts.load_token_history(ex, parent))
        if past is None:
            return None
        chain = self._memory.known_chain(await self._key(project_id), self.redaction.messages(messages))
        return past, chain.index(past.node) if past.node in chain else None

    async def prepare(self, project_id: str, request: RecordedRequest) -> None:
        """Redact and hash a request, so that the other methods need little time for it. Raises StoreUnavailable."""
        await self.redaction.prepare(request)
        messages = self.redaction.messages(request.messages)
        if request.is_large:
            key = self._keys.get(project_id) or await self._key(project_id)
            chain = await run_beside_loop(lambda: content_hashes.chain_node_ids(key, messages))
            self._memory.keep_chain(key, messages, chain)

    # --- calls

    def begin(self, turn: RecordedCall) -> None:
        """Note a running call (state OPEN). It is written if it still runs after `open_row_after_s`."""
        self._running.begin(turn)
        body, where = self.redaction.request(turn.request).body_hash, turn.attribution
        count, confidence = turn.request.retry_count, where.confidence
        attempt = RetryCandidate(turn.call_id, where.trajectory, where.parent, count, False, confidence)
        remember_attempt(self._memory, turn.project_id, body, attempt)

    async def commit(self, turn: RecordedCall) -> None:
        """Write an ended call. Returns when it is durable; raises StoreUnavailable if it is not.

        The caller decides how long to wait (`asyncio.timeout`); after a timeout the writer continues and may still
        commit. `address.done` closes the trajectory in the same transaction, unless the call failed, because the client
        may retry it.
        """
        self._running.end(turn.call_id)
        while not await self._committed(turn):
            pass

    async def _commit_reserved(self, turn: RecordedCall) -> None:
        while not await self._committed(turn, reserved=True):
            pass

    async def commit_later(self, turn: RecordedCall, attribute: Attribute) -> None:
        """Attribute and write an ended call that began while the store was away; its attribution is replaced.

        It is written after all calls that were answered before it. Raises StoreUnavailable: at once if the writer's
        queue is full, else if the store stays away. The caller decides how long to wait, as for `commit`.
        """
        await self._backlog.commit(turn, attribute)

    def answered_early(self, committing: asyncio.Future[None]) -> None:
        """Note that a client received its answer before the end of `committing`, its commit."""
        self._backlog.follow(committing)

    async def caught_up(self) -> None:
        """Wait until every call that was answered is recorded or given up: a call may be attributed only then."""
        await self._backlog.caught_up()

    async def require_caught_up(self) -> None:
        """As `caught_up`. Raises StoreUnavailable after `commit_timeout_s`."""
        try:
            async with asyncio.timeout(self.settings.commit_timeout_s):
                await self._backlog.caught_up()
        except TimeoutError as e:
            raise StoreUnavailable(
                "calls that ended are not recorded yet, because the store was away: try again in a moment"
            ) from e

    def is_away(self) -> bool:
        """Whether the store could not be written when that was last checked (once a second)."""
        return self._standing.away

    async def _committed(self, turn: RecordedCall, *, reserved: bool = False) -> bool:
        """Write an ended call; False if something was deleted meanwhile and the call must be prepared again."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        try:
            job = await self._job(turn, done)
            self._writer.submit(job, reserved=reserved)
        except RecorderError as e:
            raise self._writer.give_up(turn, e) from e
        if not await _unless_stale(done):
            self._pasts.forget()
            return False
        remember_token_history(self._pasts, job.prepared)
        return True

    async def show(self, turn: RecordedCall) -> None:
        """Write a running call (state OPEN) now and not only after it has run long. Raises StoreUnavailable.

        `commit` writes how it ends, as for every call.
        """
        while not await self._shown(turn):
            pass

    async def _shown(self, turn: RecordedCall) -> bool:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        try:
            self._writer.submit(await self._job(turn, done))
        except RecorderError as e:
            raise StoreUnavailable(str(e)) from e
        return await _unless_stale(done)

    async def close(
        self,
        project_id: str,
        trajectory_id: str,
        state: TrajectoryState = TrajectoryState.COMPLETED,
        reason: str = "closed",
    ) -> None:
        """Close a trajectory after its queued calls. Does nothing if it is closed. Raises NotFound."""
        await self.require_caught_up()
        ref = TrajectoryRef(trajectory_id, None)
        if trajectory_id not in self._memory.unwritten:
            known = await self._backend.read(lambda ex: recorded_calls.find_trajectory(ex, trajectory_id))
            if known is None or known.project_id != project_id:
                raise NotFound(f"no trajectory {trajectory_id!r} in project {project_id!r}")
            if known.state is not TrajectoryState.OPEN:
                self._memory.forget_address(project_id, known.ref)
                return
            ref = known.ref
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._writer.submit(CloseJob(ref, project_id, state, await self.redaction.redact_value(reason), done))
        await done

    async def _job(self, turn: RecordedCall, done: asyncio.Future[None] | None) -> CallJob:
        key = self._keys.get(turn.project_id) or await self._key(turn.project_id)
        turn = await self.redaction.redact_call(turn)
        fresh = self._memory.unwritten.get(turn.attribution.trajectory.id)

        def prepare() -> tuple[rows.PreparedCall, str | None]:
            prepared = rows.prepare_call(turn, key, self._memory, exchange_ids=self._similar)
            if fresh is None:
                return prepared, None
            continued = fresh.continues is not None
            return prepared, self._implicit_key(key, turn.alias_id, turn.address, turn.request, continued=continued)

        prepared, implicit = await run_beside_loop(prepare, large=turn.request.is_large)
        place = None
        if fresh is not None and prepared.trajectory.id in self._memory.unwritten:  # not written meanwhile
            place = batches.requested_trajectory_of(prepared, implicit, fresh.continues)
        return CallJob(prepared, place, done)

    async def _show(self, turn: RecordedCall) -> None:
        try:
            job = await self._job(turn, None)
            if turn.call_id in self._running:
                self._writer.submit(job)
        # The task must survive any error of one call; otherwise no long call would be written as open again.
        except Exception as e:  # noqa: BLE001
            self._unseen(logging.WARNING, "call %s is running but could not be written as open: %s", turn.call_id, e)

    # --- lookups

    async def _key(self, project_id: str) -> bytes:
        key = self._keys.get(project_id)
        if key is None:
            found = await self._backend.read(lambda ex: ex.all(sql.NODE_KEY, project=project_id))
            if not found:
                raise NotFound(f"no project {project_id!r} in the store")
            key = self._keys[project_id] = bytes(found[0][0])
            self._memory.deletions.setdefault(project_id, found[0][1])
        return key

    def _implicit_key(
        self, key: bytes, alias_id: str | None, address: Address, request: RecordedRequest, *, continued: bool = False
    ) -> str | None:
        if address.group is not None or address.purpose is Purpose.NONE or not request.redaction_finished:
            return None
        # another provider's model has no alias; its trajectories are compared with each other
        access = alias_id or f"model:{request.model}"
        return content_hashes.implicit_group_key(
            key,
            access,
            request.messages,
            request.tools,
            str(address.purpose),
            continued=continued,
            masked=self._masked,
        )

    async def _placed(self, place: RequestedTrajectory) -> TrajectoryRef:
        done: asyncio.Future[TrajectoryRef] = asyncio.get_running_loop().create_future()
        self._writer.submit(TrajectoryJob(place, done))
        return await done


async def _unless_stale(done: asyncio.Future[None]) -> bool:
    """Wait for a write; False if something was deleted meanwhile and it must be prepared again."""
    try:
        await done
    except StalePreparation:
        return False
    return True
