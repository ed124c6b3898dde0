"""Rubric criteria that code decides: those with a `check`, which is a rule or a function.

Owns: calling either, the meaning of its result, and which processes are kept for the next group. Refuses: the rules
(`judge.rewards.rules`), the processes of functions (`judge.rewards.functions`), and the reward that verdicts make
(`judge.rewards.rubrics`).

A check that cannot be decided gives no verdict. No default is safe: "met" raises the reward, and for a pitfall "not
met" does.

Each set of functions that a rubric names has processes of its own. So the hash of its code covers these functions and
their imports, and no function of another rubric.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from judge.llm.rubric import CriterionVerdict
from judge.rewards import rules
from judge.rewards.functions import FunctionPool, function_input
from judge.settings import JudgeSettings
from recorder.llm.rubric import Criterion, RuleCheck
from recorder.views.trajectories.shapes import TrajectoryView

MET_FROM: Final = 0.5  # a function's value from which on its criterion is met
IDLE_SETS: Final = 4  # sets of functions that keep their processes while no group needs them


@dataclass(frozen=True, slots=True)
class UndecidedCheck:
    """No verdict: which check gave none, and why."""

    why: str


class CodeJudge:
    """Decides criteria without a judge model. `functions` runs the functions they name; None: they name none."""

    def __init__(self, functions: FunctionPool | None) -> None:
        self._functions = functions

    async def verdicts(
        self, run: TrajectoryView, criteria: Sequence[Criterion]
    ) -> dict[str, CriterionVerdict] | UndecidedCheck:
        """The verdict for each criterion that has a check, by its id.

        Raises:
            FunctionsDown: no function can be run.
        """
        coded = [one for one in criteria if one.check is not None]
        given = await asyncio.gather(*(self._verdict(run, one.check) for one in coded if one.check is not None))
        found: dict[str, CriterionVerdict] = {}
        for one, verdict in zip(coded, given, strict=True):
            if isinstance(verdict, UndecidedCheck):
                return UndecidedCheck(f"criterion {one.id}: {verdict.why}")
            found[one.id] = verdict
        return found

    async def _verdict(self, run: TrajectoryView, check: RuleCheck | str) -> CriterionVerdict | UndecidedCheck:
        if isinstance(check, RuleCheck):
            return await asyncio.to_thread(_by_rule, run, check)
        assert self._functions is not None, "these judges were opened without functions"
        return await _by_function(self._functions, run, check)


class CodeJudges:
    """Code judges, one for each set of functions that rubrics name. Close with `close()`."""

    def __init__(self, settings: JudgeSettings) -> None:
        self._settings = settings
        self._held: dict[frozenset[str], _SharedPool] = {}  # the most recently used last

    async def code(self, functions: frozenset[str]) -> str:
        """A hash of these functions' code as it is on disk now. Raises FunctionsDown."""
        async with self._pool(functions) as pool:
            return await pool.code() if pool else ""

    @asynccontextmanager
    async def deciding(self, functions: frozenset[str]) -> AsyncIterator[tuple[CodeJudge, str]]:
        """A code judge for these functions as on disk now, and the hash of their code. Raises FunctionsDown."""
        async with self._pool(functions) as pool:
            code = await pool.code() if pool else ""
            yield CodeJudge(pool), code

    @asynccontextmanager
    async def _pool(self, functions: frozenset[str]) -> AsyncIterator[FunctionPool | None]:
        if not functions:
            yield None
            return
        held = self._held.pop(functions, None) or _SharedPool(FunctionPool(self._settings, sorted(functions)))
        self._held[functions] = held
        held.users += 1
        try:
            yield held.pool
        finally:
            held.users -= 1
            await self._end_idle()

    async def _end_idle(self) -> None:
        idle = [functions for functions, held in self._held.items() if not held.users]
        for functions in idle[:-IDLE_SETS]:
            await self._held.pop(functions).pool.close()

    async def close(self) -> None:
        """Kill all processes."""
        for held in self._held.values():
            await held.pool.close()


@dataclass(slots=True)
class _SharedPool:
    """The processes of one set of functions, and the number of groups that use them now."""

    pool: FunctionPool
    users: int = 0


async def _by_function(functions: FunctionPool, run: TrajectoryView, check: str) -> CriterionVerdict | UndecidedCheck:
    result = await functions.call(check, function_input(run))
    if result.score is None:
        return UndecidedCheck(f"{check}: {result.explanation}")
    if not 0 <= result.score <= 1:
        return UndecidedCheck(f"{check} gave {result.score:g}, outside 0 to 1")
    return CriterionVerdict(result.score >= MET_FROM, result.explanation or f"decided by {check}")


def _by_rule(run: TrajectoryView, check: RuleCheck) -> CriterionVerdict | UndecidedCheck:
    broken = rules.check_rule(check.rule, check.value, run)
    if broken.value is None:
        return UndecidedCheck(f"the rule {check.rule}: {broken.explanation}")
    return CriterionVerdict(broken.value == 0, broken.explanation or f"the rule {check.rule} is kept")
