"""Rows that are imitated: which recorded answers cross-entropy may train on, and why others are context.

Owns: these rules, and rows from recorded ids. Refuses: choosing trajectories (`trainer.demonstrations.candidates`),
rendering (`trainer.demonstrations.rows`), weights (`trainer.objectives.imitate`), torch.

Cross-entropy has no ratio to the engine that sampled an answer. So it needs no logprobs, and neither the sampling
parameters nor the age of a version matter. It teaches the answer itself: one that was cut off, or whose tool call could
not be parsed, is never imitated, however it was rewarded.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal

from recorder.messages.calls import Message
from recorder.messages.media import has_media
from recorder.messages.plain_text import message_text, tool_calls
from recorder.messages.trainability import TRAINED_FINISHES, Exclusion, contradicts_usage
from recorder.queue.training.drift_set import DRIFT_SET
from recorder.states import CallKind, CallState, Confidence, Origin, Purpose, TrajectoryState
from recorder.views.trajectories.shapes import CallView, ChoiceView, TrajectoryView
from trainer.batch.recorded_text import TextCheck
from trainer.batch.row_builder import Row, RowBuilder, TrainedTurn, as_ids, extend_rows
from trainer.batch.rows import ROW_TOO_LONG, FitsAlone, SkippedChoice

NEEDS_RENDERING: Final = frozenset({Exclusion.IDS_MISSING, Exclusion.BASE_FINGERPRINT})
# What the recorder excludes for the ratio of a policy gradient alone.
_OF_SAMPLING: Final = frozenset(
    {
        Exclusion.TEMPERATURE,
        Exclusion.TOP_P,
        Exclusion.TOP_K,
        Exclusion.MIN_P,
        Exclusion.STRUCTURED_OUTPUT,
        Exclusion.DISTORTED,
        Exclusion.LOGPROBS_MISSING,
        Exclusion.LOGPROBS_MISCOUNTED,
        Exclusion.LOGPROBS_NOT_FINITE,
        Exclusion.LOGPROBS_ABOVE_ZERO,
        Exclusion.IDS_MISSING,
    }
)


class ImitationExclusion(StrEnum):
    """Why a demonstration, or an answer in it, is not imitated, beside the recorder's `Exclusion`."""

    TOOL_CALL_UNPARSED = "tool_call_unparsed"  # what the model wrote is no tool call that a program could read
    HELD_OUT_SCENARIO = "held_out_scenario"  # it attempts a scenario that is measured
    ALREADY_USED = "already_used"  # as often as the objective's `epochs`
    CANNOT_BE_SPLIT = "cannot_be_split"  # the template's text of an answer has no boundary of its own
    HISTORY_REWRITTEN = "history_rewritten"  # the agent changed what came before the answer
    DUPLICATE = "duplicate"  # the same row stands in the file before
    NO_ANSWER = "no_answer"  # nothing in it may be imitated


@dataclass(frozen=True, slots=True)
class ImitateBasis:
    """What only the trainer knows. `tool_mark`: what a tool call begins with in the base's texts, if that is known."""

    base_fingerprint: str | None
    max_tokens: int  # of one row that shares a pass with others
    text: TextCheck | None = None  # None: the base has no tokenizer
    tool_mark: str | None = None
    fits_alone: FitsAlone | None = None  # None: no longer row does

    def has_room(self, row_tokens: int) -> bool:
        """Whether the trainer computes a row of this length, together with others or alone."""
        return row_tokens <= self.max_tokens or (self.fits_alone is not None and self.fits_alone(row_tokens))


@dataclass(frozen=True, slots=True)
class Demonstration:
    """Answers to imitate, of one trajectory or one row of a file.

    `source_id`: the trajectory, or the row by its content. `task`: demonstrations with the same one are held out
    together. `name`: where a person finds it. `code`: why nothing of it is imitated; then it has no rows.
    """

    source_id: str
    kind: Literal["trajectory", "file"]
    name: str
    task: str
    rows: Sequence[Row] = ()
    skipped: Sequence[SkippedChoice] = ()
    code: str | None = None
    is_rendered: bool = False
    note: str | None = None  # more about the code

    @property
    def trained_tokens(self) -> int:
        """How many tokens the loss sees."""
        return sum(row.trained_tokens for row in self.rows)

    @property
    def tokens(self) -> int:
        """The tokens of its rows."""
        return sum(map(len, self.rows))


def why_no_candidate(trajectory: TrajectoryView) -> str | None:
    """Return why no answer of a trajectory is imitated, as far as that does not depend on its answers."""
    if trajectory.state is not TrajectoryState.COMPLETED:
        return trajectory.state
    if trajectory.purpose is not Purpose.TRAIN:
        return Exclusion.PURPOSE
    if trajectory.selection is not None or trajectory.origin is Origin.SHADOW:
        return Exclusion.NOT_SELECTED
    if trajectory.drift_set_at is not None:
        return DRIFT_SET
    if trajectory.scenario is not None and trajectory.scenario.split != "train":
        return ImitationExclusion.HELD_OUT_SCENARIO
    return None


def exact_rows(trajectory: TrajectoryView, basis: ImitateBasis) -> tuple[list[Row], list[SkippedChoice]]:
    """Return the rows of a trajectory's recorded ids, and each answer in none of them with its reason."""
    rows: list[RowBuilder] = []
    skipped: list[SkippedChoice] = []
    for call, choice in _answers(trajectory):
        reason = why_not_imitated(call, choice, basis) or _why_not_exact(call, choice, basis)
        if reason is None:
            assert call.prompt_token_ids is not None
            assert choice.token_ids is not None
            turn = TrainedTurn((call.id, choice.index), as_ids(call.prompt_token_ids), as_ids(choice.token_ids))
            extend_rows(rows, turn)
        else:
            skipped.append(SkippedChoice(trajectory.id, call.id, choice.index, reason))
    return [row.finish(trajectory.id) for row in rows], skipped


def _answers(trajectory: TrajectoryView) -> Iterator[tuple[CallView, ChoiceView]]:
    return ((call, choice) for call in trajectory.calls for choice in call.choices)


def why_not_imitated(call: CallView, choice: ChoiceView, basis: ImitateBasis) -> str | None:
    """Return why an answer is not imitated, whether by its ids or rendered."""
    stored = None if choice.trainable else choice.untrainable_reason or Exclusion.NOT_COMPLETE
    if stored is not None and stored not in _OF_SAMPLING:
        return stored
    if (reason := _of_call(call)) is not None:
        return reason
    if choice.finish_reason not in TRAINED_FINISHES or choice.message is None:
        return Exclusion.TRUNCATED
    return ImitationExclusion.TOOL_CALL_UNPARSED if has_unparsed_call(choice.message, basis.tool_mark) else None


def why_not_corrected(call: CallView, text: str, basis: ImitateBasis) -> str | None:
    """Return why a person's better answer to a call is not imitated. How the model's own ended does not matter."""
    if (reason := _of_call(call)) is not None:
        return reason
    hidden = {Exclusion.REDACTED, Exclusion.REDACTION_TIMEOUT} & {one.untrainable_reason for one in call.choices}
    if hidden:
        return hidden.pop()
    message = {"role": "assistant", "content": text}
    return ImitationExclusion.TOOL_CALL_UNPARSED if has_unparsed_call(message, basis.tool_mark) else None


def _of_call(call: CallView) -> Exclusion | None:
    """Checks that the recorder made before it looked at the sampling: a hit means a wrong flag."""
    if call.state is not CallState.COMPLETE:
        return Exclusion.NOT_COMPLETE
    if call.superseded_by is not None:
        return Exclusion.SUPERSEDED
    if call.call_kind is CallKind.AUX:
        return Exclusion.AUXILIARY
    if call.attribution_confidence in (Confidence.HINT, Confidence.AMBIGUOUS):
        return Exclusion.AMBIGUOUS
    return Exclusion.MEDIA if has_media(call.messages) else None


def has_unparsed_call(message: Message, tool_mark: str | None) -> bool:
    """Whether an answer has a tool call that no program can read: its arguments are no JSON object, or its text has
    what a call begins with.
    """
    if tool_mark is not None and tool_mark in message_text(message):
        return True
    return any(not _is_object(call.arguments) for call in tool_calls(message))


def _is_object(arguments: object) -> bool:
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            return False
    return isinstance(arguments, dict)


def _why_not_exact(call: CallView, choice: ChoiceView, basis: ImitateBasis) -> str | None:
    prompt, sampled = call.prompt_token_ids, choice.token_ids
    if not prompt or not sampled:
        return Exclusion.IDS_MISSING
    if call.base_fingerprint is None or call.base_fingerprint != basis.base_fingerprint:
        return Exclusion.BASE_FINGERPRINT
    if contradicts_usage(call.usage, len(prompt), sum(len(one.token_ids or ()) for one in call.choices)):
        return Exclusion.IDS_DISAGREE
    assert choice.message is not None  # a rule above
    if basis.text is not None and basis.text.excludes(call.id, choice.message, sampled):
        return Exclusion.IDS_DISAGREE
    return None if basis.has_room(len(prompt) + len(sampled)) else ROW_TOO_LONG
