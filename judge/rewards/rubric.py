"""Rubrics as rewards: each run by itself, by the criteria of its scenario.

Owns: which criteria the judge model is asked about and which code decides, verdicts at hand, and the reward that they
make. Refuses: prompts and replies (`judge.llm.rubric`), what a rubric may hold (`recorder.rubric`), and how the part
enters the reward (`judge.scoring.combine`).

A run whose verdicts cannot be had has no reward, whatever the others have. What a judge said is kept as soon as it is
said: a group of which one run could not be judged is tried again at the cost of that run.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from hashlib import blake2b
from typing import Any, Final

from judge.errors import JudgeFailed, JudgeUnanswered, PromptTooLong, Spent
from judge.llm.rubric import Checked, check
from judge.llm.rubric_prompt import build_rubric_prompt, content_hash
from judge.llm.rubric_reader import Met
from judge.llm.ruler import Ask
from judge.llm.shown import Run
from judge.rewards.functions import FunctionPool, Result
from judge.rewards.part import Part
from judge.settings import JudgeSettings
from recorder import rubric
from recorder.errors import RubricInvalid, StoreError
from recorder.rubric import Criterion
from recorder.store.database import Store
from recorder.work import verdicts as kept

BY_CHECK: Final = "__main__:by_check"  # the function host's own, which calls the one that a criterion names
MET_FROM: Final = 0.5  # a check's value from which on its criterion is met
# What a verdict depends on beside the response and the criteria. `extra` is there where further parameters are.
_ASKED_BY: Final = {"model", "api_base", "temperature", "max_context_chars", "extra"}


def reward_of(criteria: Sequence[Criterion], met: Sequence[bool]) -> float:
    """The weights of what is met, over the sum of those above 0, within 0..1.

    At least one weight is above 0 (`recorder.rubric` sees to it). Exact until the end, so no sum of weights overflows.
    """
    earned = sum((Fraction(one.weight) for one, is_met in zip(criteria, met, strict=True) if is_met), Fraction(0))
    whole = sum(Fraction(one.weight) for one in criteria if one.weight > 0)
    return float(min(max(earned / whole, Fraction(0)), Fraction(1)))


@dataclass(frozen=True, slots=True)
class Subject:
    """One run as it is judged. `rubric` is its scenario's, None where it has none; `as_json` is what a check sees."""

    id: str
    run: Run
    rubric: Any
    as_json: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Rubricated:
    """What came of a group's runs. `judged`: whether any criterion was one for the judge model."""

    parts: dict[str, Part] = field(default_factory=dict)
    judged: bool = False
    asked: int = 0  # of the judge, repairs not counted
    version: str | None = None
    spent: Spent = field(default_factory=Spent)


class RubricJudge:
    """Judges runs by their criteria. `asks`: who is asked, by whether quotes are asked for.

    `checks` runs what criteria name (`BY_CHECK`). With `keep` false nothing is written; with `again` the judge is asked
    in spite of what it said before.
    """

    def __init__(
        self,
        settings: JudgeSettings,
        asks: Mapping[bool, Ask],
        checks: FunctionPool,
        store: Store,
        project_id: str,
        *,
        keep: bool = True,
        again: bool = False,
    ) -> None:
        self._settings = settings
        self._asks = asks
        self._checks = checks
        self._store = store
        self._project_id = project_id
        self._keep = keep
        self._again = again
        self._random = random.SystemRandom()

    async def judge(self, runs: Sequence[Subject], *, evidence: bool) -> Rubricated:
        """A part for each run; without a value where its verdicts could not be had.

        Raises:
            JudgeDown: the judge did not answer about one of them. What it said about the others is kept.
            FunctionsDown: no check can be run.
        """
        out = Rubricated()
        usable: dict[str, tuple[Subject, list[Criterion]]] = {}
        for run in runs:
            try:
                usable[run.id] = run, criteria_of(run)
            except RubricInvalid as e:
                out.parts[run.id] = Part(None, str(e))
        by_model = await self._by_model(list(usable.values()), evidence, out)
        for run, criteria in usable.values():
            said = by_model.get(run.id, {})
            out.parts[run.id] = said if isinstance(said, Part) else await self._part(run, criteria, said)
        return out

    async def _part(self, run: Subject, criteria: Sequence[Criterion], said: Mapping[str, Met]) -> Part:
        """The part of one run, of what the judge said and of what code decides."""
        coded = [one for one in criteria if one.check is not None]
        results = await asyncio.gather(
            *(self._checks.call(BY_CHECK, {**run.as_json, "check": one.check}) for one in coded)
        )
        found = dict(said)
        for one, result in zip(coded, results, strict=True):
            if result.score is None or not 0 <= result.score <= 1:
                return Part(None, f"criterion {one.id}: {_no_verdict(one, result)}")
            found[one.id] = Met(result.score >= MET_FROM, result.explanation or f"decided by {one.check}")
        return part_of(criteria, found)

    async def _by_model(
        self, runs: Sequence[tuple[Subject, Sequence[Criterion]]], evidence: bool, out: Rubricated
    ) -> dict[str, dict[str, Met] | Part]:
        """What the judge says of each run's criteria that no code decides; equal responses are asked about once."""
        asked: dict[str, _Question] = {}
        for run, criteria in runs:
            mine = [one for one in criteria if one.check is None]
            if mine:
                key = await asyncio.to_thread(self._key, run, mine, evidence)
                asked.setdefault(key, _Question(key, run, [one.text for one in mine])).runs.append((run.id, mine))
        out.judged = bool(asked)
        answers = await asyncio.gather(*(self._answer(one, evidence) for one in asked.values()), return_exceptions=True)
        found: dict[str, dict[str, Met] | Part] = {}
        down: BaseException | None = None
        for question, answer in zip(asked.values(), answers, strict=True):
            if isinstance(answer, BaseException):
                out.spent += answer.spent if isinstance(answer, JudgeFailed) else Spent()
                if not isinstance(answer, JudgeUnanswered | PromptTooLong):
                    down = down or answer
                found |= {id_: Part(None, str(answer)) for id_, _ in question.runs}
            else:
                out.spent += answer.spent
                out.asked += answer.spent != Spent()
                out.version = out.version or answer.version
                found |= {id_: _by_id(mine, answer.verdicts) for id_, mine in question.runs}
        if isinstance(down, JudgeFailed):
            down.spent = out.spent
        if down is not None:
            raise down
        return found

    async def _answer(self, question: _Question, evidence: bool) -> Checked:
        """The verdicts that are at hand, else the judge's."""
        run = question.run
        known = None if self._again else await kept.find(self._store, self._project_id, question.key)
        if known is not None:
            return Checked([Met(*one) for one in json.loads(known.verdicts)], known.judge_version, Spent())
        prompt = await asyncio.to_thread(
            build_rubric_prompt, run.run, question.texts, evidence=evidence,
            max_chars=self._settings.max_context_chars, rng=self._random,
        )  # fmt: skip
        checked = await check(prompt, self._asks[evidence])
        if self._keep:
            said = json.dumps([[one.met, one.reason, one.quote] for one in checked.verdicts])
            with contextlib.suppress(StoreError):  # then it is asked again, if it has to be
                await kept.keep(self._store, self._project_id, question.key, run.id, said, checked.version)
        return checked

    def _key(self, run: Subject, criteria: Sequence[Criterion], evidence: bool) -> str:
        content = content_hash(run.run, [one.text for one in criteria], evidence=evidence)
        by = self._settings.model_dump(mode="json", include=_ASKED_BY)
        return blake2b(json.dumps([by, content], sort_keys=True).encode(), digest_size=16).hexdigest()


@dataclass(slots=True)
class _Question:
    """One response and the criteria that the judge is asked about, for all runs that are alike in both."""

    key: str
    run: Subject
    texts: Sequence[str]
    runs: list[tuple[str, Sequence[Criterion]]] = field(default_factory=list)


def criteria_of(run: Subject) -> list[Criterion]:
    """The criteria of a run's scenario. Raises `RubricInvalid`."""
    if not isinstance(run.rubric, list):
        raise RubricInvalid("its scenario has no criteria: a rubric of kind list is needed (`rubric = […]`)")
    try:
        return rubric.criteria(run.rubric)
    except RubricInvalid as e:
        raise RubricInvalid(f"its scenario's rubric cannot be used: {e}") from e


def part_of(criteria: Sequence[Criterion], found: Mapping[str, Met]) -> Part:
    """The part that verdicts on all criteria make; each verdict stands beside it, with its reason."""
    met = [found[one.id].met for one in criteria]
    return Part(
        reward_of(criteria, met),
        _told(criteria, met),
        {one.id: float(is_met) for one, is_met in zip(criteria, met, strict=True)},
        {one.id: _why(found[one.id]) for one in criteria},
    )


def _told(criteria: Sequence[Criterion], met: Sequence[bool]) -> str:
    wanted = [(one.id, is_met) for one, is_met in zip(criteria, met, strict=True) if one.weight > 0]
    pitfalls = [one.id for one, is_met in zip(criteria, met, strict=True) if is_met and one.weight < 0]
    lacking = [id_ for id_, is_met in wanted if not is_met]
    told = f"{len(wanted) - len(lacking)} of {len(wanted)} criteria met"
    told += f"; not {', '.join(lacking)}" if lacking else ""
    return told + (f"; pitfalls: {', '.join(pitfalls)}" if pitfalls else "")


def _why(verdict: Met) -> str:
    return f"{verdict.reason} (“{verdict.quote}”)" if verdict.quote else verdict.reason


def _by_id(criteria: Sequence[Criterion], verdicts: Sequence[Met]) -> dict[str, Met]:
    return {one.id: verdict for one, verdict in zip(criteria, verdicts, strict=True)}


def _no_verdict(criterion: Criterion, result: Result) -> str:
    if result.score is None:
        return f"{criterion.check}: {result.explanation}"
    return f"{criterion.check} gave {result.score:g}, outside 0 to 1"
