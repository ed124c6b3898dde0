"""Try a judge recipe on the adversarial set: from the settings to the outcome of each kind of trick.

Owns: which parts of a recipe are tried, their order, and a temporary store that no queue or trainer ever sees. Refuses:
the tricks (`judge.adversarial.tricks`), judging them (`judge.adversarial.part_trials`), and the output
(`judge.commands.check_view`).
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from judge.adversarial import groups, part_trials, user_tasks
from judge.adversarial.groups import GroupTrial
from judge.adversarial.tricks import KINDS, KindOutcome, RecipeContext, TrialResult
from judge.adversarial.user_tasks import UserTask
from judge.errors import JudgeDown, JudgeMisconfigured, JudgeUsage
from judge.llm.judge_model import BaseEndpoints
from judge.llm.repair import Ask
from judge.panel_settings import BASE
from judge.rewards.judge_context import JudgeContext
from judge.scoring.request_count import RequestCount
from judge.scoring.setup import open_judge_context, without_people
from judge.settings import DEFAULT, JudgeSettings
from recorder.registry.aliases import get_aliases
from recorder.settings import RecorderSettings
from recorder.store.bootstrap import open_store
from recorder.store.database import Project

VERSION: Final = 1  # counts changes of the set: shares of two versions do not compare

Tell = Callable[[TrialResult], None]


@dataclass(frozen=True, slots=True)
class CheckRequest:
    """A check to run: the recipe's name, the kinds by name (none: all), and the number of groups of each kind.

    `alias`: the alias whose base judges, if the judge is `base`; None: the only alias.
    """

    recipe: str = DEFAULT
    kinds: Sequence[str] = ()
    groups: int = groups.GROUPS
    seed: int = 0
    own: Sequence[UserTask] = ()  # the user's own tasks, for parts that code decides
    alias: str | None = None

    @property
    def names(self) -> list[str]:
        """The kinds, in the registry's order."""
        return [name for name in KINDS if name in self.kinds or not self.kinds]


@dataclass(slots=True)
class RecipeCheck:
    """The outcome of a check. `stopped`: why it ended early."""

    wanted: CheckRequest
    model: str
    by_model: list[KindOutcome] = field(default_factory=list)
    by_code: list[KindOutcome] = field(default_factory=list)
    not_tried: dict[str, str] = field(default_factory=dict)  # part → why
    versions: set[str] = field(default_factory=set)  # versions that the judge's provider reports
    stopped: str | None = None

    @property
    def spent(self) -> JudgeUsage:
        """The judge usage of the whole check."""
        return sum((one.spent for one in self.by_model), JudgeUsage())

    @property
    def requests(self) -> int:
        """The number of answers the judge gave."""
        return sum(one.requests for one in self.by_model)

    def fooled(self, at_most: float) -> list[KindOutcome]:
        """The outcomes whose share is above `at_most` with 95 % confidence."""
        return [one for one in (*self.by_model, *self.by_code) if one.over(at_most)]

    def passed(self, at_most: float) -> bool:
        """Whether no kind is above `at_most`, and every kind could be tried."""
        undecided = any(one.judged == 0 for one in self.by_model)
        return self.stopped is None and not undecided and not self.fooled(at_most)


def count_model_parts(settings: JudgeSettings, recipe: str) -> int:
    """The number of a recipe's parts that ask a judge model. Raises JudgeMisconfigured."""
    return len(part_trials.model_parts(without_people(settings, recipe)))


async def check_recipe(
    settings: JudgeSettings,
    wanted: CheckRequest,
    tell: Tell = lambda _: None,
    ask: Ask | None = None,
    bases: BaseEndpoints | None = None,
) -> RecipeCheck:
    """Check a recipe. `tell` is called for each group that a judge model judged; `ask` replaces the model.

    `bases`: where to find the judge `base`. The groups have no alias; `wanted` names the one whose base judges.

    Raises:
        JudgeMisconfigured: there is no such recipe, or none of its parts can be tried.
        FunctionsDown: its functions cannot be run.
    """
    recipe = without_people(settings, wanted.recipe)
    checked = RecipeCheck(
        wanted, recipe.of_alias(wanted.alias).model, not_tried=_not_tried(settings.by_recipe(wanted.recipe))
    )
    trials = _trials(wanted, recipe)
    async with _open_context(recipe, ask, bases) as made:
        context = made if made.asked_of is None else made.asked_of(wanted.alias)
        recipe_context = _recipe_context(recipe)
        kinds = [KINDS[name] for name in wanted.names]
        cases = [
            *part_trials.code_cases(one for of in trials for one in of),
            *user_tasks.user_cases(wanted.own, kinds, wanted.seed, recipe_context),
        ]
        for reward in part_trials.coded_parts(recipe):  # first: it costs nothing
            checked.by_code += await part_trials.try_code(reward, cases, context)

        def record(seen: TrialResult) -> None:
            if seen.version:
                checked.versions.add(seen.version)
            tell(seen)

        try:
            for reward in part_trials.model_parts(recipe):
                async for outcome in part_trials.try_part(reward, trials, context, wanted.seed, record):
                    checked.by_model.append(outcome)
        except JudgeDown as e:
            checked.stopped = str(e)
    return checked


async def count_requests(settings: JudgeSettings, wanted: CheckRequest) -> RequestCount:
    """Count the judge requests of a check without sending any. Raises as `check_recipe` does."""
    recipe = without_people(settings, wanted.recipe)
    counted = RequestCount(recipe.max_tokens)
    async with _open_context(recipe, counted.ask) as context:
        for reward in part_trials.model_parts(recipe):
            await part_trials.foresee_part(reward, (one for of in _trials(wanted, recipe) for one in of), context)
    return counted


async def check_base(project: Project, settings: JudgeSettings, wanted: CheckRequest, tell: Tell) -> RecipeCheck:
    """`check_recipe` for the judge `base`, whose proxy is looked up in the store.

    Raises as `check_recipe` does, and JudgeMisconfigured if the alias is ambiguous.
    """
    await _require_alias(project, wanted.alias)
    bases = BaseEndpoints(project)
    try:
        return await check_recipe(settings, wanted, tell, bases=bases)
    finally:
        await bases.close()


async def _require_alias(project: Project, named: str | None) -> None:
    there = sorted(one.name for one in await get_aliases(project))
    if (named is None and len(there) == 1) or named in there:
        return
    why = "name the alias with --alias" if named is None else f"there is no alias {named!r:.80} (--alias)"
    names = ", ".join(there) or "none yet"
    raise JudgeMisconfigured(f"the judge is `{BASE}`, the base model of an alias: {why}; there is: {names}")


@asynccontextmanager
async def _open_context(
    recipe: JudgeSettings, ask: Ask | None, bases: BaseEndpoints | None = None
) -> AsyncIterator[JudgeContext]:
    """The worker's judge context, on an empty store that is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="hone-check-") as folder:
        store = await open_store(Path(folder), RecorderSettings(), migrate=True, project=groups.PROJECT)
        try:
            own = {"keep": False, "again": True}
            async with open_judge_context(
                recipe, Project(store, groups.PROJECT), **own, ask=ask, bases=bases
            ) as context:
                yield context
        finally:
            await store.close()


def _not_tried(recipe: JudgeSettings) -> dict[str, str]:
    """The parts of a recipe that are skipped, with the reason."""
    tried = {reward.name for reward in (*part_trials.model_parts(recipe), *part_trials.coded_parts(recipe))}
    why = {
        reward.name: {"feedback": "it is human feedback", "follow_up": "it reads what users write next"}.get(
            reward.kind, "its weight is 0"
        )
        for reward in recipe.in_force()
    }
    return {name: why for name, why in why.items() if name not in tried}


def _recipe_context(recipe: JudgeSettings) -> RecipeContext:
    return RecipeContext(recipe.rubric, recipe.model.rpartition("/")[2])


def _trials(wanted: CheckRequest, recipe: JudgeSettings) -> list[list[GroupTrial]]:
    """The groups of each kind."""
    context = _recipe_context(recipe)
    return [list(groups.kind_trials(KINDS[name], wanted.groups, wanted.seed, context)) for name in wanted.names]
