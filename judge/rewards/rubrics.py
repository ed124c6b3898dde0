"""Rubrics as rewards: each trajectory is judged alone, by the criteria of its scenario.

Owns: which criteria the judge model is asked about, reuse and storage of its verdicts, and the reward that verdicts
make. Refuses: prompts and replies (`judge.llm.rubric`), criteria that code decides (`judge.rewards.code_checks`), the
stored rows (`recorder.queue.judging.records`), the form of a rubric (`recorder.llm.rubric`), and how the part enters
the reward (`judge.scoring.reward_parts`).

A trajectory without verdicts has no reward, whatever the others have. Verdicts are stored as soon as they arrive: if
one trajectory of a group could not be judged, the next try pays for that trajectory only. Code runs first, so that no
judge is paid for a trajectory whose coded criteria cannot be decided.
"""

from __future__ import annotations

import asyncio
import copy
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final

from judge.errors import JudgeFailed, JudgeUnanswered, JudgeUsage, PromptTooLong
from judge.llm.group_text import PromptTrajectory
from judge.llm.repair import Ask
from judge.llm.rubric import CriterionVerdict, RubricVerdicts, judge_rubric
from judge.llm.rubric_prompt import build_rubric_prompt, content_hash
from judge.rewards.code_checks import CodeJudge, CodeJudges, UndecidedCheck
from judge.rewards.part import ModelParts, RewardPart
from judge.rewards.verdict_cache import VerdictCache
from judge.settings import JudgeSettings
from recorder.errors import RubricInvalid
from recorder.llm import rubric
from recorder.llm.rubric import Criterion
from recorder.queue.judging.records import CachedVerdicts
from recorder.store.database import Project
from recorder.views.trajectories.shapes import TrajectoryView


class StoredVerdicts:
    """Verdicts on criteria that were paid for; `keep` and `again` as in `VerdictCache`."""

    def __init__(self, settings: JudgeSettings, project: Project, *, keep: bool = True, again: bool = False) -> None:
        self._cache = VerdictCache(settings, project, keep=keep, again=again)

    def afresh(self) -> StoredVerdicts:
        """The same without reuse: new verdicts replace the old."""
        made = copy.copy(self)
        made._cache = self._cache.afresh()
        return made

    def key(self, run: PromptTrajectory, texts: Sequence[str], *, evidence: bool) -> str:
        """A key that is equal for equal questions to the same judge. It may take a while: not for the event loop."""
        return self._cache.key(content_hash(run, texts, evidence=evidence))

    async def find(self, keys: Sequence[str]) -> dict[str, RubricVerdicts]:
        """The stored verdicts, by key."""
        return {key: _checked(kept) for key, kept in (await self._cache.find(keys)).items()}

    async def keep(self, key: str, run_id: str, checked: RubricVerdicts) -> None:
        """Store verdicts before returning. If the store refuses, they are requested again when needed."""
        verdicts = json.dumps([[one.met, one.reason, one.quote] for one in checked.verdicts])
        await self._cache.keep(key, run_id, verdicts, checked.version)


def _checked(kept: CachedVerdicts) -> RubricVerdicts:
    return RubricVerdicts(
        [CriterionVerdict(*one) for one in json.loads(kept.verdicts)], kept.judge_version, JudgeUsage()
    )


NO_MODEL: Final = (
    "its scenario has criteria for a judge model, and none is set: set judge.model, or give each criterion a `check`"
)


def rubric_reward(criteria: Sequence[Criterion], met: Sequence[bool]) -> float:
    """The weights of the criteria that are met, over the sum of the positive weights, in 0..1.

    At least one weight is positive (`recorder.llm.rubric` ensures it). Exact until the end, so no sum of weights
    overflows.
    """
    earned = sum((Fraction(one.weight) for one, is_met in zip(criteria, met, strict=True) if is_met), Fraction(0))
    whole = sum(Fraction(one.weight) for one in criteria if one.weight > 0)
    return float(min(max(earned / whole, Fraction(0)), Fraction(1)))


@dataclass(frozen=True, slots=True)
class RubricSubject:
    """One trajectory to judge. `rubric` is its scenario's, None if it has none; `view` is the input of code."""

    id: str
    run: PromptTrajectory
    rubric: Any
    view: TrajectoryView


@dataclass(slots=True)
class RubricResult(ModelParts):
    """The result for a group's trajectories. `code`: the hash of the functions that decided criteria, if any."""

    code: str = ""


class RubricJudge:
    """Judges trajectories by criteria. `asks`: the judge, by whether quotes are required; empty: no model judges."""

    def __init__(
        self, settings: JudgeSettings, asks: Mapping[bool, Ask], code: CodeJudges, known: StoredVerdicts
    ) -> None:
        self._settings = settings
        self._asks = asks
        self._code = code
        self._known = known
        self._random = random.SystemRandom()

    def afresh(self) -> RubricJudge:
        """The same without any stored verdict."""
        return RubricJudge(self._settings, self._asks, self._code, self._known.afresh())

    async def code(self, functions: frozenset[str]) -> str:
        """The hash of the code of these functions now. Raises FunctionsDown."""
        return await self._code.code(functions)

    async def judge(self, runs: Sequence[RubricSubject], functions: frozenset[str], *, evidence: bool) -> RubricResult:
        """A part for each trajectory; without a value if its verdicts could not be obtained.

        Raises:
            JudgeDown: the judge did not answer about one of them. Its other verdicts are kept.
            JudgeFailed: there is no judge model, and some criterion needs one.
            FunctionsDown: no check can be run.
        """
        out = RubricResult()
        async with self._code.deciding(functions) as (code, out.code):
            decided = await self._by_code(code, _usable(runs, out), out)
        by_model = await self._by_model([one for one, _ in decided], evidence, out)
        for one, verdicts in decided:
            judged = by_model.get(one.run.id, {})
            out.parts[one.run.id] = (
                judged if isinstance(judged, RewardPart) else rubric_part(one.criteria, {**verdicts, **judged})
            )
        return out

    async def _by_code(
        self, code: CodeJudge, runs: Sequence[_JudgeableSubject], out: RubricResult
    ) -> list[tuple[_JudgeableSubject, dict[str, CriterionVerdict]]]:
        """The trajectories whose coded criteria are all decided, with the verdicts; the others have their part."""
        given = await asyncio.gather(*(code.verdicts(one.run.view, one.criteria) for one in runs))
        decided: list[tuple[_JudgeableSubject, dict[str, CriterionVerdict]]] = []
        for one, verdicts in zip(runs, given, strict=True):
            if isinstance(verdicts, UndecidedCheck):
                out.parts[one.run.id] = RewardPart(None, verdicts.why, undecided=True)
            else:
                decided.append((one, verdicts))
        return decided

    async def _by_model(
        self, runs: Sequence[_JudgeableSubject], evidence: bool, out: RubricResult
    ) -> dict[str, dict[str, CriterionVerdict] | RewardPart]:
        """The judge's verdicts on each trajectory's remaining criteria; equal responses are asked about once."""
        asked = await asyncio.to_thread(self._questions, runs, evidence)
        out.judged = bool(asked)
        known = await self._known.find(list(asked)) if asked else {}
        asking = (self._answer(one, known.get(one.key), evidence) for one in asked.values())
        answers = await asyncio.gather(*asking, return_exceptions=True)
        found: dict[str, dict[str, CriterionVerdict] | RewardPart] = {}
        down: BaseException | None = None
        for question, answer in zip(asked.values(), answers, strict=True):
            if isinstance(answer, BaseException):
                out.spent += answer.spent if isinstance(answer, JudgeFailed) else JudgeUsage()
                if not isinstance(answer, JudgeUnanswered | PromptTooLong):
                    down = down or answer
                found |= {id_: RewardPart(None, str(answer)) for id_, _ in question.runs}
            else:
                checked = answer.checked
                out.spent += checked.spent
                out.asked += checked.spent != JudgeUsage()
                out.version = out.version or checked.version
                out.prompts |= {id_: answer.prompt for id_, _ in question.runs}
                found |= {id_: _by_id(mine, checked.verdicts) for id_, mine in question.runs}
        if isinstance(down, JudgeFailed):
            down.spent = out.spent
        if down is not None:
            raise down
        return found

    def _questions(self, runs: Sequence[_JudgeableSubject], evidence: bool) -> dict[str, _RubricQuestion]:
        """The questions by the keys of their answers. Long trajectories take a while: not for the event loop."""
        asked: dict[str, _RubricQuestion] = {}
        for one in runs:
            mine = [criterion for criterion in one.criteria if criterion.check is None]
            if mine:
                texts = [criterion.text for criterion in mine]
                key = self._known.key(one.run.run, texts, evidence=evidence)
                asked.setdefault(key, _RubricQuestion(key, one.run, texts)).runs.append((one.run.id, mine))
        return asked

    async def _answer(self, question: _RubricQuestion, known: RubricVerdicts | None, evidence: bool) -> _RubricAnswer:
        """The stored verdicts, else the judge's."""
        if known is None and evidence not in self._asks:
            raise JudgeFailed("no_judge_model", NO_MODEL)
        prompt = await asyncio.to_thread(
            build_rubric_prompt, question.run.run, question.texts, evidence=evidence,
            max_chars=self._settings.max_context_chars, rng=self._random,
        )  # fmt: skip
        if known is not None:
            return _RubricAnswer(known, prompt.messages)
        checked = await judge_rubric(prompt, self._asks[evidence])
        await self._known.keep(question.key, question.run.id, checked)
        return _RubricAnswer(checked, prompt.messages)


@dataclass(frozen=True, slots=True)
class _JudgeableSubject:
    """A trajectory and its criteria."""

    run: RubricSubject
    criteria: Sequence[Criterion]


@dataclass(frozen=True, slots=True)
class _RubricAnswer:
    """The judge's verdicts on one response, and its prompt."""

    checked: RubricVerdicts
    prompt: list[dict[str, str]]


@dataclass(slots=True)
class _RubricQuestion:
    """One response and the criteria for the judge, for all trajectories that are equal in both."""

    key: str
    run: RubricSubject
    texts: Sequence[str]
    runs: list[tuple[str, Sequence[Criterion]]] = field(default_factory=list)


def _usable(runs: Sequence[RubricSubject], out: RubricResult) -> list[_JudgeableSubject]:
    """The trajectories whose scenarios have criteria; the others have their part."""
    found: list[_JudgeableSubject] = []
    for run in runs:
        try:
            found.append(_JudgeableSubject(run, scenario_criteria(run)))
        except RubricInvalid as e:
            out.parts[run.id] = RewardPart(None, str(e), undecided=True)
    return found


def scenario_criteria(run: RubricSubject) -> list[Criterion]:
    """The criteria of a trajectory's scenario. Raises `RubricInvalid`."""
    if not isinstance(run.rubric, list):
        raise RubricInvalid("its scenario has no criteria: a rubric of kind list is needed (`rubric = […]`)")
    try:
        return rubric.parse_criteria(run.rubric)
    except RubricInvalid as e:
        raise RubricInvalid(f"its scenario's rubric cannot be used: {e}") from e


def rubric_part(criteria: Sequence[Criterion], found: Mapping[str, CriterionVerdict]) -> RewardPart:
    """The part that verdicts on all criteria make; each verdict is kept beside it, with its reason."""
    met = [found[one.id].met for one in criteria]
    return RewardPart(
        rubric_reward(criteria, met),
        _summary(criteria, met),
        {one.id: float(is_met) for one, is_met in zip(criteria, met, strict=True)},
        {one.id: _why(found[one.id]) for one in criteria},
    )


def _summary(criteria: Sequence[Criterion], met: Sequence[bool]) -> str:
    wanted = [(one.id, is_met) for one, is_met in zip(criteria, met, strict=True) if one.weight > 0]
    pitfalls = [one.id for one, is_met in zip(criteria, met, strict=True) if is_met and one.weight < 0]
    lacking = [id_ for id_, is_met in wanted if not is_met]
    summary = f"{len(wanted) - len(lacking)} of {len(wanted)} criteria met"
    summary += f"; not {', '.join(lacking)}" if lacking else ""
    return summary + (f"; pitfalls: {', '.join(pitfalls)}" if pitfalls else "")


def _why(verdict: CriterionVerdict) -> str:
    return f"{verdict.reason} (“{verdict.quote}”)" if verdict.quote else verdict.reason


def _by_id(criteria: Sequence[Criterion], verdicts: Sequence[CriterionVerdict]) -> dict[str, CriterionVerdict]:
    return {one.id: verdict for one, verdict in zip(criteria, verdicts, strict=True)}
