"""What the ranks of a trainer send each other, over torch's process groups.

Owns: one rank alone (`Ranks`) and one among several (`RankGroup`): agreeing on errors, sums of gradients, the first
rank's weights and jobs, and telling a lost rank from an error. Refuses: starting processes (`trainer.ranks.launch`).

All ranks call the same methods in the same order. An error that one rank meets between two passes is agreed on: every
rank raises it, and the group goes on. An error in the middle of a pass in which ranks wait for each other ends the
group. Its rank leaves a note, and the others, whose connection breaks, find it.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar

import torch
import torch.distributed as dist
from torch import nn

from trainer.batch.packing import Pack
from trainer.errors import RankLost
from trainer.ranks.rounds import DealtPack, deal_rounds

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

T = TypeVar("T")

_IDLE: Final = timedelta(days=3650)  # between two steps the other ranks wait for as long as it takes
_NOTE: Final = "failure"  # the key of a failing rank's note in the group's store
_NOTE_WAIT: Final = timedelta(seconds=5)  # the note is written before the connection breaks; another machine is slower
_FINE, _FALSE, _ERROR = 0, 1, 2
_FOREIGN: Final = ("gloo", "NCCL", "Connection", "timed out", "Timed out", "process group")


class Ranks:
    """One process alone: nothing is sent, and errors are raised as they come."""

    index = 0
    count = 1
    is_sharded = False  # each rank holds a share of the base: ranks wait for each other inside of a pass
    is_lost = False  # the group cannot be used any more

    @property
    def is_first(self) -> bool:
        """Whether this rank has the store, the files and the optimizer."""
        return self.index == 0

    def describe(self, device: str) -> str:
        """The devices of all ranks, in words."""
        return device

    def open_base(self, *, sharded: bool) -> None:
        """From now on, each rank holds the base, or a share of it."""

    def deal(self, packs: Sequence[Pack]) -> Iterator[DealtPack | None]:
        """Yield this rank's passes over the packs; None where it has nothing to do while others do."""
        yield from map(DealtPack, packs)

    def agree(self, error: Exception | None) -> None:
        """Raise an error of any rank in all of them."""
        if error is not None:
            raise error

    def all(self, is_true: bool) -> bool:
        """Whether it is true on every rank."""
        return is_true

    def together(self, work: Callable[[], T]) -> T:
        """Return what this rank computes while all do. Raises any rank's error."""
        return work()

    def in_turn(self, work: Callable[[], T]) -> T:
        """The same, the ranks of a machine one after another, so that its memory holds a base once."""
        return work()

    def from_first(self, work: Callable[[], T]) -> T:
        """Return on all ranks what the first one computes, or raise its error."""
        return work()

    def gather(self, value: T) -> list[T]:
        """Return every rank's value, in the order of ranks."""
        return [value]

    def sum_gradients(self, parameters: Mapping[str, nn.Parameter]) -> None:
        """Add up the gradients of all ranks, in one message."""

    def share_weights(self, parameters: Mapping[str, nn.Parameter]) -> None:
        """Give all ranks the first one's weights."""

    @contextmanager
    def job(self, job: object = None) -> Iterator[None]:
        """Within: what all ranks compute. The first one sends the `job` to the others."""
        yield

    def leave(self) -> None:
        """Let the other ranks free the base."""


ONE_RANK: Final = Ranks()


class RankGroup(Ranks):
    """One process among several."""

    def __init__(self, *, local: tuple[int, int], timeout_s: float, store: Store) -> None:
        """`local`: this rank's number on its machine, and how many there are at most."""
        self.index, self.count = dist.get_rank(), dist.get_world_size()
        self._local_index, self._local_count = local
        self._store = store
        self._agreed: Exception | None = None
        self._control = dist.new_group(backend="gloo", timeout=timedelta(seconds=timeout_s))
        self._jobs = dist.new_group(backend="gloo", timeout=_IDLE)

    def describe(self, device: str) -> str:
        """As `4 processes on NVIDIA H100 80GB HBM3 (79 GiB), each with a share of the base`."""
        return f"{self.count} processes on {device}" + (", each with a share of the base" if self.is_sharded else "")

    def open_base(self, *, sharded: bool) -> None:
        """As `Ranks.open_base`."""
        self.is_sharded = sharded

    @property
    def is_on_one_machine(self) -> bool:
        """Whether all ranks are on this machine."""
        return self._local_count == self.count

    def deal(self, packs: Sequence[Pack]) -> Iterator[DealtPack | None]:
        """As `Ranks.deal`: in every round one pass, which weighs nothing where others alone have packs left."""
        for dealt in deal_rounds(packs, self.count):
            own = dealt[self.index]
            yield own if own.counts or self.is_sharded else None

    def agree(self, error: Exception | None) -> None:
        """As `Ranks.agree`."""
        self._flag(_FINE if error is None else _ERROR, error)

    def all(self, is_true: bool) -> bool:
        """As `Ranks.all`."""
        return self._flag(_FINE if is_true else _FALSE) == _FINE

    def together(self, work: Callable[[], T]) -> T:
        """As `Ranks.together`. With shares of the base an error ends the group: others wait inside of a pass."""
        if self.is_sharded:
            return work()
        result, error = _attempt(work)
        self.agree(error)
        return result

    def in_turn(self, work: Callable[[], T]) -> T:
        """As `Ranks.in_turn`."""
        found: list[T] = []
        for turn in range(self._local_count):
            error = None
            if turn == self._local_index:
                result, error = _attempt(work)
                found.append(result)
            self.agree(error)
        return found[0]

    def from_first(self, work: Callable[[], T]) -> T:
        """As `Ranks.from_first`."""
        box: list[Any] = [(None, None)]
        error: Exception | None = None
        if self.is_first:
            result, error = _attempt(work)
            box = [(result, _portable(error))]
        with self._sending():
            dist.broadcast_object_list(box, src=0, group=self._control)
        result, theirs = box[0]
        if theirs is not None:
            self._raise_agreed(error or theirs)
        shared: T = result
        return shared

    def gather(self, value: T) -> list[T]:
        """As `Ranks.gather`."""
        values: list[Any] = [None] * self.count
        with self._sending():
            dist.all_gather_object(values, value, group=self._control)
        return values

    def sum_gradients(self, parameters: Mapping[str, nn.Parameter]) -> None:
        """As `Ranks.sum_gradients`. A parameter that got none on any rank has none afterwards."""
        own = list(parameters.values())
        missing = [torch.zeros_like(one) if one.grad is None else one.grad for one in own]
        there = torch.tensor([float(one.grad is not None) for one in own], device=own[0].device)
        flat = torch.cat([*(one.flatten() for one in missing), there])
        with self._sending():
            dist.all_reduce(flat)
        *sums, there = torch.split(flat, [*(one.numel() for one in own), len(own)])
        for parameter, total, count in zip(own, sums, there.tolist(), strict=True):
            parameter.grad = total.view_as(parameter) if count else None

    @torch.no_grad()
    def share_weights(self, parameters: Mapping[str, nn.Parameter]) -> None:
        """As `Ranks.share_weights`."""
        own = list(parameters.values())
        flat = torch.cat([one.flatten() for one in own])
        with self._sending():
            dist.broadcast(flat, src=0)
        if not self.is_first:
            for parameter, weights in zip(own, torch.split(flat, [one.numel() for one in own]), strict=True):
                parameter.copy_(weights.view_as(parameter))

    @contextmanager
    def job(self, job: object = None) -> Iterator[None]:
        """As `Ranks.job`. An error that is not agreed on ends the group: it is raised as `RankLost`, or as it is."""
        self.require_usable()
        if self.is_first:
            self._broadcast_job(job)
        self._agreed = None
        try:
            yield
        except Exception as e:
            if self.is_agreed(e):
                raise
            if (reason := self._end(e)) is e:
                raise
            raise reason from e

    def leave(self) -> None:
        """As `Ranks.leave`."""
        if not self.is_lost:
            with self.job():
                pass

    def receive(self) -> Any:
        """Return the next job of the first rank; None: free the base. Raises `RankLost` if that rank has ended."""
        return self._broadcast_job(None)

    def is_agreed(self, error: Exception) -> bool:
        """Whether all ranks raised this error, so that the group goes on."""
        return self._agreed is not None and self._agreed in (error, error.__cause__)

    def require_usable(self) -> None:
        """Raise `RankLost` if a rank was lost before."""
        if self.is_lost:
            raise RankLost("a process of the trainer was lost before: start it again.")

    def _broadcast_job(self, job: object) -> Any:
        box = [job]
        with self._sending():
            dist.broadcast_object_list(box, src=0, group=self._jobs)
        return box[0]

    def _flag(self, value: int, error: Exception | None = None) -> int:
        flag = torch.tensor(value)
        with self._sending():
            dist.all_reduce(flag, dist.ReduceOp.MAX, group=self._control)
        if int(flag) == _ERROR:
            theirs = next(one for one in self.gather(_portable(error)) if one is not None)
            self._raise_agreed(error or theirs)
        return int(flag)

    def _raise_agreed(self, error: Exception) -> None:
        self._agreed = error
        raise error

    @contextmanager
    def _sending(self) -> Iterator[None]:
        self.require_usable()
        try:
            yield
        except RuntimeError as e:
            if isinstance(e, torch.OutOfMemoryError):
                raise
            raise self._end(e) from e

    def _end(self, error: Exception) -> Exception:
        """End the group after an error that other ranks do not share. Returns what to raise."""
        if self.is_lost:
            return error
        self.is_lost = True
        if not _is_of_the_connection(error):
            self._leave_note(error)
            return error
        note = self._read_note()
        if isinstance(note.error, MemoryError):
            return note.error
        return RankLost(f"a process of the trainer was lost: {note.text or _first_line(error)}. Start it again.")

    def _leave_note(self, error: Exception) -> None:
        kept = error if isinstance(error, MemoryError) else None
        note = _Note(_portable(kept), f"rank {self.index} failed with {type(error).__name__}: {_first_line(error)}")
        self._store.set(_NOTE, pickle.dumps(note).hex())

    def _read_note(self) -> _Note:
        try:
            self._store.wait([_NOTE], _NOTE_WAIT)
            note: _Note = pickle.loads(bytes.fromhex(self._store.get(_NOTE).decode()))  # noqa: S301 - a rank's
        except (RuntimeError, OSError):  # it was killed, or the store was on its machine
            return _Note(None, "")
        return note


@dataclass(frozen=True, slots=True)
class _Note:
    """Why a rank ended. `error`: what the first rank can act on."""

    error: Exception | None
    text: str


def _attempt(work: Callable[[], T]) -> tuple[T, Exception | None]:
    try:
        return work(), None
    except Exception as e:  # noqa: BLE001 - raised by `agree`, in every rank
        return None, e  # type: ignore[return-value]  # not used then


def _portable(error: Exception | None) -> Exception | None:
    """An error that another process can read: itself, or its words."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - its own
    except Exception:  # noqa: BLE001 - a foreign error's own reading may raise anything
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def _is_of_the_connection(error: Exception) -> bool:
    """Whether an error says that another rank does not answer. Torch raises plain RuntimeErrors for some."""
    return isinstance(error, RuntimeError) and any(word in str(error) for word in _FOREIGN)


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), "").rstrip(".")
