"""What code decides of a rubric: the criteria with a `check`, which is a rule or a function.

Owns: asking either, and what its answer means. Refuses: the rules (`judge.rewards.rule`), the processes that functions
run in (`judge.rewards.functions`), and what verdicts earn (`judge.rewards.rubric`).

A check that cannot be decided is no verdict. Neither met nor not met is safe to take it for: one of them pays, the
other does where the criterion is a pitfall.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from judge.llm.rubric_reader import Met
from judge.rewards import rule
from judge.rewards.functions import FunctionPool, for_function
from recorder.reading.views import TrajectoryView
from recorder.rubric import Criterion, RuleCheck

BY_CHECK: Final = "__main__:by_check"  # the function host's own, which calls the one that a criterion names
MET_FROM: Final = 0.5  # a function's value from which on its criterion is met


@dataclass(frozen=True, slots=True)
class Undecided:
    """No verdict, and which check gave none, and why."""

    why: str


class CodeJudge:
    """Decides criteria without a judge model. `functions` runs the functions that criteria name (`BY_CHECK`)."""

    def __init__(self, functions: FunctionPool) -> None:
        self._functions = functions

    async def verdicts(self, run: TrajectoryView, criteria: Sequence[Criterion]) -> dict[str, Met] | Undecided:
        """A verdict for each criterion that has a check, by its id.

        Raises:
            FunctionsDown: no function can be run.
        """
        coded = [one for one in criteria if one.check is not None]
        given = await asyncio.gather(*(self._verdict(run, one.check) for one in coded if one.check is not None))
        found: dict[str, Met] = {}
        for one, verdict in zip(coded, given, strict=True):
            if isinstance(verdict, Undecided):
                return Undecided(f"criterion {one.id}: {verdict.why}")
            found[one.id] = verdict
        return found

    async def _verdict(self, run: TrajectoryView, check: RuleCheck | str) -> Met | Undecided:
        if isinstance(check, RuleCheck):
            return await asyncio.to_thread(_by_rule, run, check)
        return await self._by_function(run, check)

    async def _by_function(self, run: TrajectoryView, function: str) -> Met | Undecided:
        result = await self._functions.call(BY_CHECK, {**for_function(run), "check": function})
        if result.score is None:
            return Undecided(f"{function}: {result.explanation}")
        if not 0 <= result.score <= 1:
            return Undecided(f"{function} gave {result.score:g}, outside 0 to 1")
        return Met(result.score >= MET_FROM, result.explanation or f"decided by {function}")


def _by_rule(run: TrajectoryView, check: RuleCheck) -> Met | Undecided:
    broken = rule.check(check.rule, check.value, run)
    if broken.value is None:
        return Undecided(f"the rule {check.rule}: {broken.explanation}")
    return Met(broken.value == 0, broken.explanation or f"the rule {check.rule} is kept")
