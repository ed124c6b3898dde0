"""The input and the result of every reward kind: `JudgeContext` and `KindResult`.

Owns: the judges, function processes and stored replies that a kind may use, and the signature of a kind. Refuses: the
kinds themselves (`judge.rewards.kinds`).
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
from judge.rewards.follow_ups import FollowUpJudge
from judge.rewards.functions import FunctionPool
from judge.rewards.part import RewardPart
from judge.rewards.rubrics import RubricJudge
from judge.rewards.turns import TurnJudge
from judge.settings import DEFAULT, JudgeSettings, RewardSettings
from recorder.queue.judging.records import Messages
from recorder.views.trajectories.shapes import GroupView, TrajectoryView


@dataclass(frozen=True, slots=True)
class StoredReplies:
    """Stored replies about a group, by request number, and the seed that all of them need.

    `whole`: they made a score, so missing ones are not requested.
    """

    order_seed: int
    replies: Mapping[int, StoredReply]
    whole: bool = False


class ReplyStore:
    """Replies that were paid for, under the current recipe. This base class has none and keeps none.

    `checks`: the hash of the code that decides the group's criteria, which is part of its recipe.
    """

    async def known(self, prompt_hash: str, checks: str) -> StoredReplies | None:
        """The replies to an equal prompt."""
        return None

    async def keep(self, prompt: GroupPrompt, ruling: GroupRuling, checks: str) -> None:
        """Keep a reply for reuse, even if its score is never stored."""


class RecipeOwner(Protocol):
    """Which recipe judges a group: the one that its campaign names, or its alias's."""

    @property
    def alias(self) -> str | None:
        """The alias's name."""

    @property
    def judge_recipe(self) -> str | None:
        """The name of the campaign's recipe, if it has one."""


def drawn_seed() -> int:
    """An unpredictable seed."""
    return random.SystemRandom().randrange(SEEDS)


@dataclass(frozen=True, slots=True)
class JudgeContext:
    """What scoring needs beside the group: settings, judges, function processes, stored replies.

    `judges` are asked for RULER, in the order of `settings.members`; empty: none is. `settings` are those of the recipe
    `recipe`; `others` are the contexts of further recipes, by name. `order_seed` gives the seed for the order and ids
    of a group's trajectories in RULER's prompt. `asked_of` gives this context and the others with an alias's base as
    the judge; None: no base judges. `strong`: the same with the strong judge; None: there is none.
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
    follow_ups: FollowUpJudge | None = None
    turns: TurnJudge | None = None

    def afresh(self) -> JudgeContext:
        """The same context without any stored reply."""
        asked_of = self.asked_of
        return replace(
            self,
            replies=ReplyStore(),
            rubrics=self.rubrics and self.rubrics.afresh(),
            others={name: other.afresh() for name, other in self.others.items()},
            asked_of=None if asked_of is None else lambda alias: asked_of(alias).afresh(),
            strong=self.strong and self.strong.afresh(),
            follow_ups=self.follow_ups and self.follow_ups.afresh(),
            turns=self.turns and self.turns.afresh(),
        )

    def of(self, group: RecipeOwner) -> JudgeContext:
        """The context of the recipe that judges a group: its campaign's, else its alias's, else the default one.

        If a base judges, it is that of the group's alias.

        Raises:
            RecipeUnknown: there is no such recipe, or it is empty. No other recipe replaces it.
        """
        name = self.settings.recipe_of(group.alias, group.judge_recipe)
        all_ = self if self.asked_of is None else self.asked_of(group.alias)
        found = all_ if name == all_.recipe else all_.others.get(name)
        if found is None:
            known = ", ".join(self.settings.known_recipes())
            raise RecipeUnknown(
                "recipe_unknown",
                f"{'its campaign' if group.judge_recipe else f'the alias {group.alias!r}'} names the recipe {name!r}, "
                f"which this judge's settings do not have ([judge.recipes.{name}]; known: {known}). Add it, "
                "and start the judge again",
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
    """The result of one kind: a part for each trajectory it applies to, and the judge's ruling if it was asked.

    `code`: the hash of the user's code that ran, if any. `failed`: why there is no value at all. `replies`: each reply,
    if there were several, with their `agreement`; `disputed`: why it is too low. `chosen`: human choices replaced it.
    `run_prompts`: the judge's prompts about single trajectories, by id.
    """

    parts: Mapping[str, RewardPart]
    prompt: GroupPrompt | None = None
    ruling: GroupRuling | None = None
    replies: Sequence[PanelReply] = ()
    agreement: float | None = None
    disputed: str | None = None
    chosen: bool = False
    code: str = ""
    failed: JudgeFailed | None = None
    run_prompts: Mapping[str, Messages] = field(default_factory=dict)


Kind = Callable[[RewardSettings, GroupView, Sequence[TrajectoryView], JudgeContext], Awaitable[KindResult]]
