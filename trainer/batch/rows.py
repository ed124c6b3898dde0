"""Token rows from trajectories: what the model read and sampled, from recorded ids alone.

Owns: which choices are trained on, and the reason why a choice is not. Refuses: how choices become rows
(`trainer.batch.row_builder`), rewards, torch, and templates (nothing is ever rendered or tokenised again).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from recorder.messages.media import has_media
from recorder.messages.trainability import MIN_TEMPERATURE, Exclusion
from recorder.queue.training.drift_set import DRIFT_SET
from recorder.registry.versions import version_age
from recorder.states import CallKind, CallState, Confidence, Origin, Purpose
from recorder.views.trajectories.shapes import CallView, ChoiceView, TrajectoryView
from trainer.batch.recorded_text import TextCheck
from trainer.batch.row_builder import Row, RowBuilder, TrainedTurn, as_ids, extend_rows

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
class SkippedChoice:
    """A choice that is not trained on: context, or excluded."""

    trajectory_id: str
    call_id: str
    choice: int
    code: str  # an `Exclusion` code, ROW_TOO_LONG or IN_OWN_GROUP


def trajectory_rows(trajectory: TrajectoryView, basis: RowBasis) -> tuple[list[Row], list[SkippedChoice]]:
    """Return the rows of one trajectory, and each sampled choice in none of them with its reason."""
    rows: list[RowBuilder] = []
    skipped: list[SkippedChoice] = []
    for call, choice in _sampled(trajectory):
        reason = why_not_trained(trajectory, call, choice, basis) or _extend(rows, call, choice, basis)
        if reason is not None:
            skipped.append(SkippedChoice(trajectory.id, call.id, choice.index, reason))
    return [row.finish(trajectory.id) for row in rows], skipped


def _sampled(trajectory: TrajectoryView) -> Iterator[tuple[CallView, ChoiceView]]:
    return ((call, choice) for call in trajectory.calls for choice in call.choices)


def why_not_trained(trajectory: TrajectoryView, call: CallView, choice: ChoiceView, basis: RowBasis) -> str | None:
    """Return why a choice may not be trained on: the recorder's reason first, then repeated checks, then the age."""
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


def _of_call(trajectory: TrajectoryView, call: CallView) -> str | None:
    """Checks that the recorder has made already, so that a hit means a wrong flag; and the alias's drift set."""
    if trajectory.drift_set_at is not None:
        return DRIFT_SET
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


def _extend(rows: list[RowBuilder], call: CallView, choice: ChoiceView, basis: RowBasis) -> str | None:
    """Append one trainable choice to its row. Returns why it cannot be computed, if so."""
    turn = sampled_turn(call, choice, basis)
    if not basis.has_room(len(turn.prompt) + len(turn.answer)):
        return ROW_TOO_LONG
    extend_rows(rows, turn)
    return None


def sampled_turn(call: CallView, choice: ChoiceView, basis: RowBasis) -> TrainedTurn:
    """Return a choice that may be trained on as a turn, with the engine's logprobs."""
    assert call.prompt_token_ids is not None
    assert choice.token_ids is not None
    assert choice.logprobs is not None
    prompt, answer = as_ids(call.prompt_token_ids), as_ids(choice.token_ids)
    age = version_age(basis.ancestry, call.version_id) or 0
    logprobs = np.asarray(choice.logprobs, np.float32)
    return TrainedTurn((call.id, choice.index), prompt, answer, logprobs, call.sampling.temperature, age)
