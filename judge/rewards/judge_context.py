"""What every kind of reward is given, and what it gives.

Owns: the bench (who is asked, who runs functions, replies at hand), what a kind found, and the form of a kind. Refuses:
the kinds themselves (a file each: `by_ruler`, `by_function`, …) and which there are (`judge.rewards.kinds`).
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from judge.errors import JudgeFailed, RecipeUnknown
from judge.llm.panel import PanelJudge, PanelReply, StoredReply
from judge.llm.prompt import SEEDS, GroupPrompt
from judge.llm.ruler import GroupRuling
from judge.rewards.functions import FunctionPool
from judge.rewards.part import RewardPart
from judge.rewards.rubrics import RubricJudge
from judge.settings import DEFAULT, JudgeSettings, RewardSettings
from recorder.queue.judging.records import Messages
from recorder.views.trajectories.shapes import GroupView, TrajectoryView


@dataclass(frozen=True, slots=True)
class StoredReplies:
    """Replies about a group that are at hand, by the numbers of their turns, and the seed that all of them need.

    `whole`: they made a score, so nobody is asked for those that are missing.
    """

    order_seed: int
    replies: Mapping[int, StoredReply]
    whole: bool = False


class ReplyStore:
    """Replies that were paid for, under the recipe in force. This one has none and keeps none.

    `checks`: the hash of the code that decides the group's criteria, which is of its recipe.
    """

    async def known(self, prompt_hash: str, checks: str) -> StoredReplies | None:
        """The replies to an equal prompt."""
        return None

    async def keep(self, prompt: GroupPrompt, ruling: GroupRuling, checks: str) -> None:
        """Have a reply at hand, whatever becomes of the score that is made of it."""


class RecipeOwner(Protocol):
    """What says by which recipe a group is judged: its alias, and the recipe that its campaign names."""

    @property
    def alias(self) -> str | None:
        """The alias's name."""

    @property
    def judge_recipe(self) -> str | None:
        """The recipe's name, where its campaign has one."""


def drawn_seed() -> int:
    """A seed that nobody can guess."""
    return random.SystemRandom().randrange(SEEDS)


@dataclass(frozen=True, slots=True)
class JudgeContext:
    """What scoring needs beside the group: the settings, who is asked, who runs functions, replies at hand.

    `judges` are asked for RULER, in the order of `settings.members`; empty: nobody is.
    `settings` are those of the recipe `recipe`; `others` are the benches of further recipes, by name. `order_seed`
    gives the seed by which RULER orders and names the runs of a group that it asks about. `asked_of` gives this bench
    and the others as the base of an alias judges by them; None: no base is asked. `strong`: all of it with the strong
    judge in the place of the others; None: there is none.
    """

    settings: JudgeSettings
    judges: Sequence[PanelJudge]
    functions: FunctionPool | None
    replies: ReplyStore = field(default_factory=ReplyStore)
    rubrics: RubricJudge | None = None
    recipe: str = DEFAULT
    others: Mapping[str, JudgeContext] = field(default_factory=dict)
    order_seed: Callable[[], int] = drawn_seed
    asked_of: Callable[[str | None], JudgeContext] | None = None
    strong: JudgeContext | None = None

    def afresh(self) -> JudgeContext:
        """The same bench, at which no word that a judge said before is at hand."""
        asked_of = self.asked_of
        return replace(
            self,
            replies=ReplyStore(),
            rubrics=self.rubrics and self.rubrics.afresh(),
            others={name: other.afresh() for name, other in self.others.items()},
            asked_of=None if asked_of is None else lambda alias: asked_of(alias).afresh(),
            strong=self.strong and self.strong.afresh(),
        )

    def of(self, group: RecipeOwner) -> JudgeContext:
        """The bench of the recipe that judges a group: its campaign's, else its alias's, else the default one.

        Where the base of an alias is asked, it is that of the group's.

        Raises:
            RecipeUnknown: there is no such recipe, or there is nothing in it. None is guessed in its place.
        """
        name = self.settings.recipe_of(group.alias, group.judge_recipe)
        all_ = self if self.asked_of is None else self.asked_of(group.alias)
        found = all_ if name == all_.recipe else all_.others.get(name)
        if found is None:
            known = ", ".join(self.settings.known_recipes())
            raise RecipeUnknown(
                "recipe_unknown",
                f"{'its campaign' if group.judge_recipe else f'the alias {group.alias!r}'} names the recipe {name!r}, "
                f"which this judge's settings do not have ([judge.recipes.{name}]; known: {known}). Add it, and start "
                "the judge again",
            )
        if not found.settings.in_force():
            raise RecipeUnknown(
                "recipe_unknown",
                "neither its campaign nor its alias names a recipe (judge_recipe), and the default one is empty: set "
                "judge.model or [[judge.rewards]], or name a recipe",
            )
        return found


@dataclass(frozen=True, slots=True)
class KindResult:
    """What one kind found: a part for each trajectory it applies to, and the judge's ruling if it was asked.

    `code`: the hash of the user's code that was asked, if any was. `failed`: what kept it from finding any value.
    `said`: each request, where there were several; `agreement`: of their replies; `disputed`: that it is too little.
    `chosen`: people chose where it was. `run_prompts`: what the judge was asked about single trajectories, by ids.
    """

    parts: Mapping[str, RewardPart]
    prompt: GroupPrompt | None = None
    ruling: GroupRuling | None = None
    said: Sequence[PanelReply] = ()
    agreement: float | None = None
    disputed: str | None = None
    chosen: bool = False
    code: str = ""
    failed: JudgeFailed | None = None
    run_prompts: Mapping[str, Messages] = field(default_factory=dict)


Kind = Callable[[RewardSettings, GroupView, Sequence[TrajectoryView], JudgeContext], Awaitable[KindResult]]
