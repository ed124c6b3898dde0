"""Token rows from trajectories: what the model read and sampled, from recorded ids alone.

Owns: which choice extends which row, the loss mask, and the reason why a choice is not trained on. Refuses: rewards,
torch, and templates (nothing is ever rendered or tokenised again).

A row is one sequence that the model saw. A call whose prompt begins with exactly a row's ids continues that row. Any
other call (a rewritten history, a sub-agent, a branch) begins a new row, in which everything before its own sample is
context. So each sampled token is trained in exactly one row.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recorder.messages.media import has_media
from recorder.messages.trainability import MIN_TEMPERATURE, Exclusion
from recorder.registry.versions import version_age
from recorder.states import CallKind, CallState, Confidence, Origin, Purpose
from recorder.views.trajectories.shapes import CallView, ChoiceView, TrajectoryView
from trainer.batch.recorded_text import TextCheck

ROW_TOO_LONG = "row_too_long"  # the only code that depends on the trainer's memory
FitsAlone = Callable[[int], bool]  # whether a row of so many tokens fits into memory in a pass of its own
IN_OWN_GROUP = "in_own_group"  # a call in a shadow group that counts in its trajectory's group


@dataclass(frozen=True, slots=True)
class RowBasis:
    """What only the trainer knows: the base in its memory, and the ancestry of the version being trained."""

    base_fingerprint: str | None
    ancestry: Sequence[str]  # version ids, the parent of the new version first
    max_age: int  # steps
    max_tokens: int  # of one row that shares a pass with others
    in_own: frozenset[str] = frozenset()  # ids of live calls in shadow groups that count in their trajectories' groups
    text: TextCheck | None = None  # None: the base has no tokenizer
    fits_alone: FitsAlone | None = None  # None: no longer row does

    def has_room(self, row_tokens: int) -> bool:
        """Whether the trainer computes a row of this length, together with others or alone."""
        return row_tokens <= self.max_tokens or (self.fits_alone is not None and self.fits_alone(row_tokens))


@dataclass(frozen=True, slots=True)
class Row:
    """One sequence of ids; every array has shape (tokens,). The first token is never trained."""

    trajectory_id: str
    token_ids: NDArray[np.int32]
    trained: NDArray[np.bool_]
    behaviour: NDArray[np.float32]  # the engine's logprobs; NaN where not trained
    temperature: NDArray[np.float32]  # NaN where not trained
    age: NDArray[np.int32]  # steps since the version that sampled the token; −1 where not trained
    calls: tuple[tuple[str, int], ...]  # (call id, choice) of the trained calls, in order

    def __len__(self) -> int:
        return len(self.token_ids)

    @property
    def trained_tokens(self) -> int:
        """How many tokens the loss sees."""
        return int(self.trained.sum())


@dataclass(frozen=True, slots=True)
class SkippedChoice:
    """A choice that is not trained on: context, or excluded."""

    trajectory_id: str
    call_id: str
    choice: int
    code: str  # an `Exclusion` code, ROW_TOO_LONG or IN_OWN_GROUP


def trajectory_rows(trajectory: TrajectoryView, basis: RowBasis) -> tuple[list[Row], list[SkippedChoice]]:
    """Return the rows of one trajectory, and each sampled choice in none of them with its reason."""
    rows: list[_RowBuilder] = []
    skipped: list[SkippedChoice] = []
    for call, choice in _sampled(trajectory):
        reason = _reason(trajectory, call, choice, basis) or _extend(rows, call, choice, basis)
        if reason is not None:
            skipped.append(SkippedChoice(trajectory.id, call.id, choice.index, reason))
    return [row.finish(trajectory.id) for row in rows], skipped


def _sampled(trajectory: TrajectoryView) -> Iterator[tuple[CallView, ChoiceView]]:
    return ((call, choice) for call in trajectory.calls for choice in call.choices)


def _reason(trajectory: TrajectoryView, call: CallView, choice: ChoiceView, basis: RowBasis) -> str | None:
    """Why a choice may not be trained on: the recorder's reason first, then repeated checks, then the age."""
    if not choice.trainable:
        return choice.untrainable_reason or Exclusion.NOT_COMPLETE
    if trajectory.origin is Origin.SHADOW and call.id in basis.in_own:
        return IN_OWN_GROUP
    return (
        _of_call(trajectory, call)
        or _of_tokens(call, choice)
        or _of_version(trajectory, call, basis)
        or _of_text(call, choice, basis)
    )


def _of_call(trajectory: TrajectoryView, call: CallView) -> Exclusion | None:
    """Checks that the recorder has made already: a hit here means a wrong flag, and nothing is trained."""
    if trajectory.purpose is not Purpose.TRAIN:
        return Exclusion.PURPOSE
    if trajectory.selection is not None:
        return Exclusion.NOT_SELECTED
    if call.state is not CallState.COMPLETE:
        return Exclusion.NOT_COMPLETE
    if call.superseded_by is not None:
        return Exclusion.SUPERSEDED
    if call.call_kind is CallKind.AUX:
        return Exclusion.AUXILIARY
    if has_media(call.messages):
        return Exclusion.MEDIA
    if call.attribution_confidence in (Confidence.HINT, Confidence.AMBIGUOUS):
        return Exclusion.AMBIGUOUS
    return Exclusion.TEMPERATURE if call.sampling.temperature < MIN_TEMPERATURE else None


def _of_tokens(call: CallView, choice: ChoiceView) -> Exclusion | None:
    if not call.prompt_token_ids or not choice.token_ids:
        return Exclusion.IDS_MISSING
    if choice.logprobs is None:
        return Exclusion.LOGPROBS_MISSING
    if len(choice.logprobs) != len(choice.token_ids):
        return Exclusion.LOGPROBS_MISCOUNTED
    return None if np.isfinite(choice.logprobs).all() else Exclusion.LOGPROBS_NOT_FINITE


def _of_version(trajectory: TrajectoryView, call: CallView, basis: RowBasis) -> Exclusion | None:
    if call.base_fingerprint is None or call.base_fingerprint != basis.base_fingerprint:
        return Exclusion.BASE_FINGERPRINT
    if trajectory.mixed and call.version_id != trajectory.version_id:
        return Exclusion.OTHER_VERSION
    steps = version_age(basis.ancestry, call.version_id)
    if steps is None:
        return Exclusion.FOREIGN_VERSION
    return Exclusion.OVER_AGE if steps > basis.max_age else None


def _of_text(call: CallView, choice: ChoiceView, basis: RowBasis) -> Exclusion | None:
    """The ids that the engine returned are those of the text that it returned."""
    if basis.text is None or choice.message is None or choice.token_ids is None:
        return None
    return Exclusion.IDS_DISAGREE if basis.text.excludes(call.id, choice.message, choice.token_ids) else None


def _extend(rows: list[_RowBuilder], call: CallView, choice: ChoiceView, basis: RowBasis) -> str | None:
    """Append one trainable choice to the longest row that its prompt begins with, or to a new one."""
    assert call.prompt_token_ids is not None
    assert choice.token_ids is not None
    prompt = _array(call.prompt_token_ids)
    if not basis.has_room(len(prompt) + len(choice.token_ids)):
        return ROW_TOO_LONG
    row = max((row for row in rows if row.begins(prompt)), key=lambda row: len(row.ids), default=None)
    if row is None:
        rows.append(row := _RowBuilder())
    row.add(prompt, call, choice, version_age(basis.ancestry, call.version_id) or 0)
    return None


class _RowBuilder:
    """A row under construction."""

    def __init__(self) -> None:
        self.ids: NDArray[np.int32] = np.empty(0, np.int32)
        self._turns: list[tuple[int, CallView, ChoiceView, int]] = []  # first sampled position, call, choice, age

    def begins(self, prompt: NDArray[np.int32]) -> bool:
        return len(self.ids) <= len(prompt) and np.array_equal(self.ids, prompt[: len(self.ids)])

    def add(self, prompt: NDArray[np.int32], call: CallView, choice: ChoiceView, steps: int) -> None:
        assert choice.token_ids is not None
        self.ids = np.concatenate([prompt, _array(choice.token_ids)])
        self._turns.append((len(prompt), call, choice, steps))

    def finish(self, trajectory_id: str) -> Row:
        length = len(self.ids)
        trained = np.zeros(length, np.bool_)
        behaviour = np.full(length, np.nan, np.float32)
        temperature = np.full(length, np.nan, np.float32)
        ages = np.full(length, -1, np.int32)
        for start, call, choice, steps in self._turns:
            assert choice.logprobs is not None
            span = slice(start, start + len(choice.logprobs))
            trained[span], ages[span] = True, steps
            behaviour[span], temperature[span] = choice.logprobs, call.sampling.temperature
        calls = tuple((call.id, choice.index) for _, call, choice, _ in self._turns)
        return Row(trajectory_id, self.ids, trained, behaviour, temperature, ages, calls)


def _array(ids: array[int] | Iterable[Any]) -> NDArray[np.int32]:
    return np.frombuffer(ids, np.int32) if isinstance(ids, array) else np.fromiter(ids, np.int32)
