"""Turns as rewards: the judge model reads one trajectory and gives each turn of its main path a value and a critique.

Owns: what is read of a trajectory, reuse and storage of verdicts, and the part that they make. Refuses: prompts and
replies (`judge.llm.turn_critique`), what values of turns add to an advantage (`recorder.stats.turn_credit`), and how
the part enters the reward (`judge.scoring.reward_parts`).

The critique is stored as the reason of its turn's value, where the trainer finds it as a hint
(`trainer.teachers.hint_sources`). The part itself has no explanation, which would be a hint for the last answer.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from judge.errors import JudgeFailed, JudgeUnanswered, JudgeUsage, PromptTooLong
from judge.llm.repair import Ask
from judge.llm.turn_critique import PromptTurns, TurnCritique, build_turn_prompt, content_hash, judge_turns
from judge.rewards.functions import main_path_answers
from judge.rewards.part import ModelParts, RewardPart
from judge.rewards.verdict_cache import VerdictCache
from judge.settings import JudgeSettings
from recorder.llm.rubric import rubric_text
from recorder.queue.judging.records import CachedVerdicts
from recorder.queue.judging.turn_values import turn_extra
from recorder.views.trajectories.shapes import TrajectoryView

NO_TURN: Final = "it has no turn: no answer of its main path was recorded"


@dataclass(frozen=True, slots=True)
class TurnSubject:
    """One trajectory to judge."""

    id: str
    run: PromptTurns


def read_turns(view: TrajectoryView, rubric: Any) -> TurnSubject:
    """A trajectory's main path, with the `rubric` of its scenario, if it has one."""
    calls = {call.id: call for call in view.calls}
    turns = [
        [*(calls[call_id].messages if call_id in calls else ()), {"role": "assistant", **answer}]
        for (call_id, _), answer in zip(view.main_path, main_path_answers(view), strict=True)
    ]
    return TurnSubject(view.id, PromptTurns(turns, view.tools, rubric_text(rubric)))


def turns_part(verdicts: Sequence[TurnCritique]) -> RewardPart:
    """The part that verdicts on all turns make: their mean; each value stands beside it, with its critique."""
    named = {turn_extra(number): one for number, one in enumerate(verdicts, 1)}
    return RewardPart(
        math.fsum(one.value for one in verdicts) / len(verdicts),
        None,
        {name: one.value for name, one in named.items()},
        {name: one.critique for name, one in named.items()},
    )


class TurnJudge:
    """Judges trajectories turn by turn."""

    def __init__(self, settings: JudgeSettings, ask: Ask, known: VerdictCache) -> None:
        self._settings = settings
        self._ask = ask
        self._known = known
        self._random = random.SystemRandom()

    def afresh(self) -> TurnJudge:
        """The same without any stored verdict."""
        return TurnJudge(self._settings, self._ask, self._known.afresh())

    async def judge(self, subjects: Sequence[TurnSubject]) -> ModelParts:
        """A part for each trajectory; without a value if it has no turn, or its verdicts could not be obtained.

        Equal trajectories are asked about once.

        Raises:
            JudgeDown: the judge did not answer about one of them. Its other verdicts are kept.
        """
        out = ModelParts({one.id: RewardPart(None, NO_TURN) for one in subjects if not one.run.turns})
        asked = await asyncio.to_thread(self._questions, [one for one in subjects if one.run.turns])
        out.judged = bool(asked)
        known = await self._known.find(list(asked)) if asked else {}
        answers = await asyncio.gather(
            *(self._verdicts(key, same, known.get(key), out) for key, same in asked.items()), return_exceptions=True
        )
        down: BaseException | None = None
        for same, answer in zip(asked.values(), answers, strict=True):
            if isinstance(answer, BaseException):
                out.spent += answer.spent if isinstance(answer, JudgeFailed) else JudgeUsage()
                if not isinstance(answer, JudgeUnanswered | PromptTooLong):
                    down = down or answer
                part = RewardPart(None, str(answer))
            else:
                part = turns_part(answer)
            out.parts |= {one.id: part for one in same}
        if isinstance(down, JudgeFailed):
            down.spent = out.spent
        if down is not None:
            raise down
        return out

    def _questions(self, subjects: Sequence[TurnSubject]) -> dict[str, list[TurnSubject]]:
        """The trajectories by the keys of their verdicts. Long ones take a while: not for the event loop."""
        asked: dict[str, list[TurnSubject]] = {}
        for one in subjects:
            asked.setdefault(self._known.key(["turns", content_hash(one.run)]), []).append(one)
        return asked

    async def _verdicts(
        self, key: str, same: Sequence[TurnSubject], known: CachedVerdicts | None, out: ModelParts
    ) -> list[TurnCritique]:
        """The stored verdicts on equal trajectories, else new ones."""
        prompt = await asyncio.to_thread(
            build_turn_prompt, same[0].run, max_chars=self._settings.max_context_chars, rng=self._random
        )
        if known is not None:
            verdicts, version = [TurnCritique(*one) for one in json.loads(known.verdicts)], known.judge_version
        else:
            found = await judge_turns(prompt, self._ask)
            verdicts, version = found.verdicts, found.version
            out.spent += found.spent
            out.asked += 1
            said = json.dumps([[one.value, one.critique] for one in verdicts])
            await self._known.keep(key, same[0].id, said, version)
        out.version = out.version or version
        out.prompts |= {one.id: prompt.messages for one in same}
        return verdicts
