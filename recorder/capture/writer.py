"""The writer: one background task per process that commits queued jobs in batches.

Owns: the queue and its limit in bytes, batches, failed batches, and what is cached after a commit. Refuses: statements
(`recorder.capture.batch`), attribution, and what a caller does if its call could not be written.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.base.rate_limited_log import RateLimitedLog
from recorder.capture import batch as batches
from recorder.capture.batch import Batch, BatchCall, BatchOutcome
from recorder.capture.cache import CaptureCache
from recorder.capture.cache_updates import remember_batch, remember_ref
from recorder.capture.lookups.recorded_calls import block_hashes_of
from recorder.capture.rows import PreparedCall
from recorder.capture.trajectories import RequestedTrajectory
from recorder.errors import RolledBack, StalePreparation, StoreUnavailable
from recorder.messages.calls import ParentCall, RecordedCall, TrajectoryRef
from recorder.queue.groups.closure import TrajectoryEnd, close_trajectories
from recorder.settings import RecorderSettings
from recorder.states import CallState, TrajectoryState
from recorder.store.health_monitor import StoreHealthMonitor
from recorder.store.schema import groups, trajectories
from recorder.store.sql import refused_table
from recorder.store.write_backends import Executor, Row, WriteBackend

_LARGE_NODES: Final = 2_000  # a transaction with more, or with so many bytes, takes longer than 10 ms
_LARGE_BYTES: Final = 1 << 22
RACES = 5  # how often a commit is tried that conflicts with another process's commit

_FOUND_BEFORE_MADE: Final = (groups.name, trajectories.name)

log = logging.getLogger(__name__)


@dataclass(slots=True)
class CallJob:
    """A call to write; with state OPEN, the row of a running call."""

    prepared: PreparedCall
    place: RequestedTrajectory | None  # set if its trajectory had no row when it was queued
    done: asyncio.Future[None] | None

    @property
    def size_bytes(self) -> int:
        """Its approximate size in memory."""
        return self.prepared.size_bytes


@dataclass(slots=True)
class TrajectoryJob:
    """An addressed trajectory to find or create."""

    place: RequestedTrajectory
    done: asyncio.Future[TrajectoryRef]
    remembered: bool = True
    size_bytes: int = 1024


@dataclass(slots=True)
class ToolJob:
    """A tool call to write."""

    row: Row
    trajectory_id: str | None
    done: asyncio.Future[None]
    size_bytes: int


@dataclass(slots=True)
class CloseJob:
    """A trajectory to close after its queued calls."""

    ref: TrajectoryRef
    project_id: str
    state: TrajectoryState
    reason: str
    done: asyncio.Future[None]
    size_bytes: int = 256


Job = CallJob | TrajectoryJob | CloseJob | ToolJob


@dataclass(slots=True)
class WriterCounts:
    """Counts of the writer's work so far, and its current queue."""

    commits: int = 0
    committed_turns: int = 0
    failed_commits: int = 0
    unrecorded_turns: int = 0
    queued_turns: int = 0
    queued_bytes: int = 0


class Writer:
    """The queue and the task that empties it."""

    def __init__(
        self, backend: WriteBackend, standing: StoreHealthMonitor, settings: RecorderSettings, memory: CaptureCache
    ) -> None:
        self._backend = backend
        self._standing = standing
        self._settings = settings
        self._memory = memory
        self._queue: deque[Job] = deque()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._stopping = False
        self._shown: set[str] = set()  # calls that were written as open
        self._ended: set[str] = set()  # ended calls in the queue
        # calls with an open row that were given up: project, call, and why
        self._left_open: dict[str, tuple[str, str, str]] = {}
        self._failing, self._lost = RateLimitedLog(log), RateLimitedLog(log)
        self.counts = WriterCounts()

    def start(self) -> None:
        """Start the task."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="recorder-writer")

    async def stop(self) -> None:
        """Commit the queue, then end the task."""
        self._stopping = True
        self._wake.set()
        if self._task is not None:
            await self._task

    def submit(self, job: Job, *, reserved: bool = False) -> None:
        """Queue a job. Raises at once: StoreUnavailable if the writer is not running, RolledBack if the queue is full.

        `reserved`: the job's room was reserved.
        """
        if self._task is None or self._task.done() or self._stopping:
            raise StoreUnavailable("the recorder's writer is not running: the call is not recorded")
        if not reserved:
            self._require_room(job.size_bytes)
        self._queue.append(job)
        self.counts.queued_bytes += job.size_bytes
        if isinstance(job, CallJob):
            self.counts.queued_turns += 1
            if job.prepared.state is not CallState.OPEN:
                self._ended.add(job.prepared.call_id)
        self._wake.set()

    def reserve(self, turn: RecordedCall, size_bytes: int) -> None:
        """Count an ended call that cannot be queued yet. Raises RolledBack if the queue is full."""
        try:
            self._require_room(size_bytes)
        except RolledBack as e:
            self.give_up(turn, e)
            raise
        self.counts.queued_turns += 1
        self.counts.queued_bytes += size_bytes

    def release(self, size_bytes: int) -> None:
        """End a reservation."""
        self.counts.queued_turns -= 1
        self.counts.queued_bytes -= size_bytes

    def give_up(self, turn: RecordedCall | PreparedCall, error: Exception) -> StoreUnavailable:
        """Count and log an ended call that is not recorded, and return the error for its caller.

        If its row is open, it becomes errored with the next commit.
        """
        self.counts.unrecorded_turns += 1
        self._lost(logging.ERROR, "call %s of project %s is not recorded: %s", turn.call_id, turn.project_id, error)
        if turn.call_id in self._shown:
            why = f"the call ended, and its end could not be recorded: {error}"
            self._left_open[turn.call_id] = (turn.project_id, turn.call_id, why)
        return as_unavailable(error)

    def wake(self) -> None:
        """Note that the store is back: calls that were given up meanwhile do not stay open."""
        self._wake.set()

    def _require_room(self, size_bytes: int) -> None:
        if self.counts.queued_bytes + size_bytes > self._settings.queue_bytes:
            raise RolledBack(
                f"the recorder's queue is full ({self.counts.queued_bytes} bytes wait, recorder.queue_bytes is "
                f"{self._settings.queue_bytes}): the store commits too slowly. Check its disk and what locks it."
            )

    async def _run(self) -> None:
        while not (self._stopping and not self._queue):
            await self._wake.wait()
            self._wake.clear()
            await asyncio.sleep(0)  # calls that end in the same iteration of the event loop are committed together
            while self._queue:
                await self._write(self._take())
            if self._left_open and self._standing.why() is None:
                await self._write([])

    def _take(self) -> list[Job]:
        jobs: list[Job] = []
        while self._queue and len(jobs) < self._settings.batch_calls:
            job = self._queue.popleft()
            self.counts.queued_bytes -= job.size_bytes
            if isinstance(job, CallJob):
                self.counts.queued_turns -= 1
            jobs.append(job)
        return jobs

    async def _write(self, jobs: Sequence[Job]) -> None:
        """Commit jobs together. If that fails because of one of them, commit each alone, so that the others succeed."""
        jobs = self._still_true(jobs)
        transaction = _Transaction(jobs)
        try:
            async with self._standing.writing():
                await self._unraced(transaction)
        except StalePreparation as e:
            self._memory.forget(e.deletions)
            await self._write(jobs)
        # Any error of a batch is passed to its callers, and the writer continues.
        except Exception as e:  # noqa: BLE001
            self.counts.failed_commits += 1
            for_all = isinstance(e, StoreUnavailable) and (not transaction.began or isinstance(e, RolledBack))
            if len(jobs) == 1 or for_all:
                for job in jobs:
                    self._fail(job, e)
                return
            self._failing(logging.WARNING, "a commit of %d jobs failed (%s); trying each alone", len(jobs), e)
            for job in jobs:
                await self._write([job])

    async def _unraced(self, transaction: _Transaction) -> None:
        """Commit. If another process created the same group or trajectory meanwhile, try again, and find it.

        SQLite has one writer at a time. On PostgreSQL two proxies may both find nothing; then a unique index rejects
        the second one. A row that is invalid by itself, such as one whose id exists, would be rejected again.
        """
        left = RACES
        while True:
            try:
                await self._commit(transaction)
            except IntegrityError as e:
                left -= 1
                if not left or refused_table(e) not in _FOUND_BEFORE_MADE:
                    raise
            except _WaitEnded:
                pass  # tried again without those trajectories
            else:
                return

    def _still_true(self, jobs: Sequence[Job]) -> list[Job]:
        """Return the jobs without calls that were prepared before a deletion; those fail with StalePreparation."""
        kept: list[Job] = []
        for job in jobs:
            if not isinstance(job, CallJob) or self._prepared_now(job.prepared):
                kept.append(job)
            elif job.done is not None and not job.done.done():
                self._ended.discard(job.prepared.call_id)
                job.done.set_exception(StalePreparation(self._memory.deletions))
            elif job.prepared.state is not CallState.OPEN:  # its caller, which held the call, has stopped waiting
                self._fail(job, StalePreparation(self._memory.deletions))
        return kept

    def _prepared_now(self, turn: PreparedCall) -> bool:
        return turn.deletions == self._memory.deletions.get(turn.project_id, 0)

    def _fail(self, job: Job, error: Exception) -> None:
        if isinstance(job, CallJob):
            turn = job.prepared
            self._ended.discard(turn.call_id)
            if turn.state is not CallState.OPEN:
                error = self.give_up(turn, error)
            else:
                message = "call %s of project %s is not recorded as open: %s"
                self._lost(logging.ERROR, message, turn.call_id, turn.project_id, error)
        if job.done is not None and not job.done.done():
            job.done.set_exception(as_unavailable(error))

    async def _commit(self, transaction: _Transaction) -> None:
        turns: list[CallJob] = []
        places: list[TrajectoryJob] = []
        closing: list[CloseJob] = []
        tools: list[ToolJob] = []
        for job in transaction.jobs:
            match job:
                case CallJob() if not self._overtaken(job):
                    turns.append(job)
                case TrajectoryJob() if not job.done.cancelled():
                    places.append(job)
                case CloseJob():
                    closing.append(job)
                case ToolJob():
                    tools.append(job)
        hashes = await self._parent_hashes(turns)
        written = [self._written(job, hashes) for job in turns]
        batch = Batch(
            group_size=self._settings.group_size,
            calls=written,
            trajectories=[j.place for j in places],
            moves=self._moves(turns),
            touched=self._touched(turns),
            resettle=self._resettle(turns),
            tool_calls=[(j.row, j.trajectory_id) for j in tools] if tools else (),
            deletions={j.prepared.project_id: j.prepared.deletions for j in turns},
            ending=self._ending(turns, closing),
            left_open=tuple(self._left_open.values()),
        )

        def work(ex: Executor) -> BatchOutcome:
            transaction.began = True
            if places and any(j.done.cancelled() for j in places):
                raise _WaitEnded
            return batches.write_batch(ex, batch)

        async def close(conn: AsyncConnection, outcome: BatchOutcome) -> None:
            done = [outcome.ref(w.prepared.trajectory).id for w in written if _ends(w.prepared)]
            asked = {job.ref.id: TrajectoryEnd(job.ref.id, job.state, job.reason) for job in reversed(closing)}
            ended = {id_: TrajectoryEnd(id_, TrajectoryState.COMPLETED, "done") for id_ in done}
            await close_trajectories(conn, list((asked | ended).values()))

        ends, nodes, size_bytes = bool(closing), 0, 0
        for job in turns:
            ends = ends or _ends(job.prepared)
            nodes += len(job.prepared.nodes)
            size_bytes += job.prepared.size_bytes
        large = nodes > _LARGE_NODES or size_bytes > _LARGE_BYTES
        outcome = await self._backend.write(work, close if ends else None, large=large)
        remember_batch(self._memory, written, outcome)
        self._note_written(turns)
        for _, call_id, _ in batch.left_open:
            self._shown.discard(call_id)
            self._left_open.pop(call_id, None)
        self._answer(turns, places, closing, outcome)
        for tool in tools:
            _resolve(tool.done)

    def _overtaken(self, job: CallJob) -> bool:
        """Whether a call that should be written as open has ended meanwhile."""
        turn = job.prepared
        return turn.state is CallState.OPEN and (turn.call_id in self._ended or turn.call_id in self._shown)

    async def _parent_hashes(self, turns: Sequence[CallJob]) -> dict[ParentCall, bytes]:
        """Return the block hashes of continued choices, so that calls' prompts can be stored as differences."""
        hashes: dict[ParentCall, bytes] = {}
        for job in turns:
            parent = job.prepared.parent
            if parent is not None and job.prepared.prompt_hashes:
                known = self._memory.hashes.get(parent)
                hashes[parent] = (
                    known if known is not None else await self._backend.read(partial(block_hashes_of, parent=parent))
                )
        return hashes

    def _written(self, job: CallJob, hashes: Mapping[ParentCall, bytes]) -> BatchCall:
        turn = job.prepared
        asked, parent = turn.trajectory, turn.parent
        home = self._memory.moved.get(asked.id) or asked
        return BatchCall(
            prepared=turn,
            parent_hashes=hashes.get(parent, b"") if parent is not None else b"",
            place=job.place if asked.id in self._memory.unwritten else None,
            was_open=turn.call_id in self._shown,
            retried=turn.retry_count > 0 or (home.id, turn.body_hash) in self._memory.retried,
        )

    def _note_written(self, turns: Sequence[CallJob]) -> None:
        for job in turns:
            turn = job.prepared
            self._ended.discard(turn.call_id)
            if turn.state is CallState.OPEN:
                self._shown.add(turn.call_id)
            else:
                self._shown.discard(turn.call_id)
                self.counts.committed_turns += 1

    def _moves(self, turns: Sequence[CallJob]) -> dict[str, TrajectoryRef]:
        asked = {j.prepared.trajectory.id for j in turns}
        return {id_: ref for id_ in asked if (ref := self._memory.moved.get(id_)) is not None}

    def _touched(self, turns: Sequence[CallJob]) -> dict[str, float]:
        ids = {j.prepared.trajectory.group_id for j in turns}
        return {id_: at for id_ in ids if id_ is not None and (at := self._memory.touched.get(id_)) is not None}

    def _ending(self, turns: Sequence[CallJob], closing: Sequence[CloseJob]) -> set[str]:
        refs = [*(j.prepared.trajectory for j in turns if _ends(j.prepared)), *(j.ref for j in closing)]
        return {group for ref in refs if (group := (self._memory.moved.get(ref.id) or ref).group_id) is not None}

    def _resettle(self, turns: Sequence[CallJob]) -> set[tuple[str, bytes]]:
        found: set[tuple[str, bytes]] = set()
        for job in turns:
            parent = job.prepared.parent
            if parent is not None and (key := self._memory.superseded.get(parent.call_id)) is not None:
                found.add(key)
        return found

    def _answer(
        self,
        turns: Sequence[CallJob],
        places: Sequence[TrajectoryJob],
        closing: Sequence[CloseJob],
        outcome: BatchOutcome,
    ) -> None:
        self.counts.commits += 1
        for place, ref in zip(places, outcome.placed, strict=True):
            # a trajectory of another key may be sealed: its owner's next call continues it
            if place.remembered and place.place.access.may_name(ref.made_by):
                remember_ref(self._memory, place.place.project_id, ref)
            if not place.done.done():
                place.done.set_result(ref)
        for job in turns:
            if _ends(job.prepared):
                self._memory.forget_address(job.prepared.project_id, outcome.ref(job.prepared.trajectory))
        for close in closing:
            self._memory.forget_address(close.project_id, close.ref)
        for job in turns:
            _resolve(job.done)
        for close in closing:
            _resolve(close.done)


def _ends(prepared: PreparedCall) -> bool:
    """Whether the caller ended the trajectory with this call, and the call succeeded: SDKs retry failed calls."""
    return prepared.address.done and prepared.state is CallState.COMPLETE


def _resolve(done: asyncio.Future[None] | None) -> None:
    if done is not None and not done.done():  # its caller may have stopped waiting
        done.set_result(None)


def as_unavailable(error: Exception) -> StoreUnavailable:
    """Return the error of a write for its caller."""
    if isinstance(error, StoreUnavailable):
        return error
    refused = StoreUnavailable(f"the store refused a write: {type(error).__name__}: {error}")
    refused.__cause__ = error
    return refused


class _WaitEnded(Exception):
    """Nobody waits for a trajectory of the batch any more: its call is attributed later, with what is known then."""


class _Transaction:
    """The jobs of one commit, and whether it reached the write."""

    __slots__ = ("began", "jobs")

    def __init__(self, jobs: Sequence[Job]) -> None:
        self.jobs = jobs
        self.began = False
