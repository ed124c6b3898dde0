"""The lessons of `distill`: sampled answers, scored by a stronger model at a URL.

On-policy distillation. Owns: which logprobs of a scored row are a teacher's, a step's bound of time, and what is said
if the model is away. Refuses: the requests (`trainer.teachers.remote_model`), and what the logprobs become
(`trainer.policy.packs.lessons`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from trainer.batch.row_builder import Row
from trainer.batch.rows import SkippedChoice
from trainer.batch.weights import Lesson, LessonRow
from trainer.settings import DistillSettings
from trainer.teachers.hinted_prompt import HintExclusion
from trainer.teachers.remote_model import RemoteModel, TeacherRefusal, TeacherUnavailable
from trainer.teachers.tokenizer_check import Tokenizer, find_difference
from trainer.teachers.turns import skip

MOST_COMPARED: Final = 4  # rows of a step whose texts are compared with the model's tokenizer


@dataclass(frozen=True, slots=True)
class ScoredRows:
    """The rows that the stronger model scored. `away`: why it scored none of this step's.

    `differs`: its tokenizer is not the base's, so that it can score none ever.
    """

    rows: Sequence[LessonRow] = ()
    skipped: Sequence[SkippedChoice] = field(default_factory=tuple)
    away: str | None = None
    differs: bool = False


class StrongerModel:
    """The model of `trainer.distill`, for the steps of one trainer."""

    def __init__(
        self, settings: DistillSettings, connect: Callable[[DistillSettings], RemoteModel] = RemoteModel
    ) -> None:
        """`connect`: makes the connection of one step."""
        self._settings = settings
        self._connect = connect
        self._differs: str | None = None  # how the tokenizers differ, once it is known

    async def score(self, rows: Sequence[Row], tokenizer: Tokenizer) -> ScoredRows:
        """Return the rows with what the model says of their trained tokens."""
        if self._differs is not None:
            return ScoredRows(away=self._differs, differs=True)
        async with self._connect(self._settings) as model:
            try:
                async with asyncio.timeout(self._settings.timeout_s):
                    text = await find_difference(
                        tokenizer, model.tokenize, [row.token_ids.tolist() for row in rows[:MOST_COMPARED]]
                    )
                    if text is not None:
                        self._differs = (
                            f"the tokenizer of {model.name} is not the base's (it divides {text!r} in another way), so "
                            "nothing is distilled from it: take a model of the same family."
                        )
                        return ScoredRows(away=self._differs, differs=True)
                    return await self._score(rows, model)
            except TimeoutError:
                return _away(f"{model.name} took longer than trainer.distill.timeout_s")
            except (TeacherUnavailable, TeacherRefusal) as e:
                return _away(str(e))

    async def _score(self, rows: Sequence[Row], model: RemoteModel) -> ScoredRows:
        scored: list[LessonRow] = []
        skipped: list[SkippedChoice] = []
        for row in rows:
            end = int(np.flatnonzero(row.trained)[-1]) + 1
            try:
                logprobs = await model.score(row.token_ids[:end].tolist())
            except TeacherRefusal:
                skipped += [skip(row.trajectory_id, key, HintExclusion.TEACHER_REFUSED) for key in row.calls]
                continue
            known = np.array([np.nan, *logprobs])[row.trained[:end]]
            scored.append(LessonRow(row, Lesson("remote", self._settings.clip, known=known)))
        return ScoredRows(scored, skipped)


def _away(why: str) -> ScoredRows:
    return ScoredRows(away=f"{why}: the step was made without distill.")
