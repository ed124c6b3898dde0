"""The lessons of `hindsight`: each answer with a hint, and what the model says of it after reading the hint. Pure.

Self-distillation (SDPO, arXiv 2601.20802; from users' next messages, arXiv 2603.12273). Owns: rows of the same answers
after prompts with hints. Refuses: hints' texts (`trainer.teachers.hint_text`), and what the teacher's logprobs become
(`trainer.policy.packs.lessons`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from trainer.batch.row_builder import Row
from trainer.batch.rows import RowBasis
from trainer.batch.weights import Lesson, LessonRow
from trainer.settings import HindsightSettings
from trainer.teachers.hint_text import HintPart, write_hint
from trainer.teachers.hinted_prompt import HintExclusion, HintRefused, PromptWriter, hinted_prompt
from trainer.teachers.turns import CallChoice, TrajectoryLessons, UsableTurn, join_turns, lone_row, skip, split_by_room


def hindsight_lessons(
    trajectory_id: str,
    turns: Sequence[UsableTurn],
    hints: Mapping[CallChoice, Sequence[HintPart]],
    basis: RowBasis,
    template: PromptWriter,
    settings: HindsightSettings,
    most_tokens: int | None = None,
) -> TrajectoryLessons:
    """Return the rows of the turns that have hints, and those of these turns that cannot be trained on.

    `most_tokens`: of prompt and answer, as the base has been trained; None: unknown.
    """
    fitting, too_long = split_by_room([one for one in turns if hints.get(one.key)], basis)
    skipped = [skip(trajectory_id, key) for key in too_long]
    asked: dict[CallChoice, Row] = {}
    for one in fitting:
        hint = write_hint(hints[one.key], settings.hint_chars, template.marks)
        try:
            row = _asked_row(trajectory_id, one, hint, template)
            if not basis.has_room(len(row)) or len(row) > (most_tokens or len(row)):
                raise HintRefused(HintExclusion.HINT_TOO_LONG)
            asked[one.key] = row
        except HintRefused as e:
            skipped.append(skip(trajectory_id, one.key, e.code))
    rows = join_turns(trajectory_id, [one.turn for one in fitting if one.key in asked])
    lessons = [
        LessonRow(row, Lesson(settings.teacher, settings.clip, tuple(asked[key] for key in row.calls))) for row in rows
    ]
    return TrajectoryLessons(trajectory_id, lessons, skipped)


def _asked_row(trajectory_id: str, one: UsableTurn, hint: str, template: PromptWriter) -> Row:
    """The answer after its prompt with the hint, at the temperature that it was sampled at."""
    prompt = hinted_prompt(one.call, hint, template)
    return lone_row(trajectory_id, replace(one.turn, prompt=prompt, behaviour=None, age=-1))
