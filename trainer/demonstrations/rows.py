"""Demonstrations as rows: by recorded ids where all of its answers have them, else rendered.

Owns: the choice between the two, the rows of a rendered conversation, and the task of a demonstration. Refuses: which
answers are imitated (`trainer.objectives.imitate_rows`), and the text of a conversation
(`trainer.demonstrations.chat_template`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from recorder.messages.calls import Message
from recorder.messages.plain_text import message_text
from recorder.messages.trainability import Exclusion
from recorder.views.trajectories.shapes import CallView, TrajectoryView
from trainer.batch.row_builder import Row, RowBuilder, TrainedTurn, as_ids, extend_rows
from trainer.batch.rows import ROW_TOO_LONG, SkippedChoice
from trainer.demonstrations.chat_template import CannotSplit, ChatTemplate
from trainer.demonstrations.conversations import Conversation
from trainer.objectives.corrections import corrections_by_call
from trainer.objectives.imitate_rows import (
    NEEDS_RENDERING,
    Demonstration,
    ImitateBasis,
    ImitationExclusion,
    exact_rows,
    has_unparsed_call,
    why_not_corrected,
    why_not_imitated,
)
from trainer.tasks.selection import comparison_form

FILE_CALL = "file"  # stands for the call of an answer in a file


def demonstrate_trajectory(view: TrajectoryView, basis: ImitateBasis, template: ChatTemplate | None) -> Demonstration:
    """Return the rows of a recorded trajectory. Without a template nothing is rendered.

    If people corrected answers of it, their corrections are imitated, and its recorded answers are context.
    """
    if corrections := corrections_by_call(view):
        return _demonstrate_corrections(view, corrections, basis, template)
    rows, skipped = exact_rows(view, basis)
    made = _RenderedRows(rows, skipped)
    is_rendered = template is not None and any(one.code in NEEDS_RENDERING for one in skipped)
    if is_rendered and template is not None:
        made = _render_trajectory(view, basis, template)
    code = _why_nothing(made.rows, made.skipped)
    return Demonstration(
        view.id, "trajectory", view.id, _task(view), made.rows, made.skipped, code, is_rendered, made.note
    )


def _demonstrate_corrections(
    view: TrajectoryView, corrections: Mapping[str, str], basis: ImitateBasis, template: ChatTemplate | None
) -> Demonstration:
    """The rows of what people said that the answers of some calls should have been."""
    rows: list[RowBuilder] = []
    skipped = []
    note: str | None = None
    for call in view.calls:
        if (text := corrections.get(call.id)) is None:
            continue
        code, turn = why_not_corrected(call, text, basis), None
        if code is None and template is None:
            code = ImitationExclusion.CANNOT_BE_SPLIT
        elif code is None:
            assert template is not None
            try:
                turn = _corrected_turn(call, text, basis, template)
            except CannotSplit as e:
                code, note = ImitationExclusion.CANNOT_BE_SPLIT, note or str(e)
        if turn is not None and not basis.has_room(len(turn.prompt) + len(turn.answer)):
            code, turn = ROW_TOO_LONG, None
        if turn is not None:
            extend_rows(rows, turn)
        else:
            skipped.append(SkippedChoice(view.id, call.id, 0, str(code)))
    made = [row.finish(view.id) for row in rows]
    code = _why_nothing(made, skipped)
    return Demonstration(view.id, "trajectory", view.id, _task(view), made, skipped, code, is_rendered=True, note=note)


def _corrected_turn(call: CallView, text: str, basis: ImitateBasis, template: ChatTemplate) -> TrainedTurn:
    """The correction after the prompt as the engine had it, or else as the template writes it. Raises `CannotSplit`."""
    messages = [*call.messages, {"role": "assistant", "content": text}]
    prompt, answer = template.split(messages, len(call.messages), call.tools)
    if call.prompt_token_ids and call.base_fingerprint == basis.base_fingerprint is not None:
        prompt = as_ids(call.prompt_token_ids)
    return TrainedTurn((call.id, 0), prompt, answer)


def demonstrate_conversation(given: Conversation, basis: ImitateBasis, template: ChatTemplate) -> Demonstration:
    """Return the rows of a conversation from a file."""
    task = comparison_form(_first_user_text(given.messages))
    if given.has_media:
        return Demonstration(given.source_id, "file", given.name, task, code=Exclusion.MEDIA)
    answers: list[_Answer] = []
    skipped = []
    for number, index in enumerate(given.answers):
        if has_unparsed_call(given.messages[index], basis.tool_mark):
            skipped.append(SkippedChoice(given.source_id, FILE_CALL, number, ImitationExclusion.TOOL_CALL_UNPARSED))
        else:
            answers.append(_Answer(FILE_CALL, number, index, given.tools))
    made = _render(given.source_id, given.messages, answers, basis, template)
    skipped += made.skipped
    return Demonstration(
        given.source_id, "file", given.name, task, made.rows, skipped, _why_nothing(made.rows, skipped),
        is_rendered=True, note=made.note,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Answer:
    """The answer to imitate at an index of a conversation's messages."""

    call_id: str
    choice: int
    index: int
    tools: Sequence[Mapping[str, Any]] | None


@dataclass(frozen=True, slots=True)
class _RenderedRows:
    """`note`: why the first answer that cannot be split cannot."""

    rows: Sequence[Row]
    skipped: Sequence[SkippedChoice]
    note: str | None = None


def _render_trajectory(view: TrajectoryView, basis: ImitateBasis, template: ChatTemplate) -> _RenderedRows:
    """The rows of a trajectory's conversation, in which the answers of its main path are imitated."""
    calls = {call.id: call for call in view.calls}
    answers, skipped = [], []
    for call_id, number in view.main_path:
        call = calls[call_id]
        index, choice = len(call.messages), next(one for one in call.choices if one.index == number)
        reason = why_not_imitated(call, choice, basis)
        if reason is None and list(view.messages[:index]) != list(call.messages):
            reason = ImitationExclusion.HISTORY_REWRITTEN
        if reason is None:
            answers.append(_Answer(call_id, number, index, call.tools))
        else:
            skipped.append(SkippedChoice(view.id, call_id, number, reason))
    made = _render(view.id, view.messages, answers, basis, template)
    return replace(made, skipped=[*skipped, *made.skipped])


def _render(
    source_id: str,
    messages: Sequence[Message],
    answers: Sequence[_Answer],
    basis: ImitateBasis,
    template: ChatTemplate,
) -> _RenderedRows:
    rows: list[RowBuilder] = []
    skipped = []
    note: str | None = None
    for one in answers:
        code: str | None = None
        try:
            prompt, answer = template.split(messages, one.index, one.tools)
        except CannotSplit as e:
            code, note = ImitationExclusion.CANNOT_BE_SPLIT, note or str(e)
        else:
            code = None if basis.has_room(len(prompt) + len(answer)) else ROW_TOO_LONG
        if code is None:
            extend_rows(rows, TrainedTurn((one.call_id, one.choice), prompt, answer))
        else:
            skipped.append(SkippedChoice(source_id, one.call_id, one.choice, code))
    return _RenderedRows([row.finish(source_id) for row in rows], skipped, note)


def _why_nothing(rows: Sequence[Row], skipped: Sequence[SkippedChoice]) -> str | None:
    """The most frequent reason, where nothing of a demonstration is imitated."""
    if rows:
        return None
    codes = Counter(one.code for one in skipped).most_common(1)
    return codes[0][0] if codes else ImitationExclusion.NO_ANSWER


def _task(view: TrajectoryView) -> str:
    return view.scenario.id if view.scenario is not None else comparison_form(_first_user_text(view.messages))


def _first_user_text(messages: Sequence[Message]) -> str:
    return next((message_text(message) for message in messages if message.get("role") == "user"), "")
