"""Generate scenarios until there are as many as requested, or the model writes nothing new.

Owns: how many are requested at once, which tools each request shows, and when a difficulty is abandoned. Refuses: the
text (`trainer.scenario_generation.prompts`), the model (`trainer.scenario_generation.writer_model`), and the checks
(`trainer.scenario_generation.drafts`).
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from trainer.errors import GeneratorFailed
from trainer.scenario_generation import drafts, prompts
from trainer.scenario_generation.difficulties import Difficulty, scenario_difficulty
from trainer.scenario_generation.drafts import DraftChecker, DropReason
from trainer.scenario_generation.tools import ServerTool
from trainer.tasks.scenarios import Scenario

AT_ONCE: Final = 10  # scenarios a request: more of them resemble each other, and are cut off
TOOLS_SHOWN: Final = 30  # of a server with more, each request shows others
REMINDED_OF: Final = 30  # tasks that are written already
FRUITLESS: Final = 3  # requests in a row without one new scenario, after which a kind is given up


class WritingModel(Protocol):
    """Who writes."""

    @property
    def spent_up(self) -> bool:
        """Whether as much was spent as may be."""

    @property
    def ask(self) -> Callable[[Sequence[dict[str, str]]], Awaitable[str]]:
        """What it says to messages."""


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """What scenarios are wanted, and for what. `absent`: tools of the server that the agent will not be offered."""

    counts: Mapping[Difficulty, int]
    tools: Sequence[ServerTool] = ()
    task: str | None = None
    absent: Sequence[str] = ()
    seed: int = 0

    @property
    def total(self) -> int:
        """How many."""
        return sum(self.counts.values())


@dataclass(slots=True)
class GenerationResult:
    """What came of it. `missing`: kinds that came short, by how many; `notes`: why, and what failed."""

    scenarios: list[Scenario] = field(default_factory=list)
    of_kind: Counter[Difficulty] = field(default_factory=Counter)
    dropped: Counter[DropReason] = field(default_factory=Counter)
    missing: Counter[Difficulty] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)


def resume_generation(begun: Iterable[Scenario] = ()) -> GenerationResult:
    """What an earlier run came to, to go on with: generated scenarios, and nothing else."""
    scenarios = list(begun)
    return GenerationResult(scenarios, Counter(_kind(one) for one in scenarios))


async def generate_scenarios(
    wanted: GenerationRequest,
    model: WritingModel,
    tell: Callable[[GenerationResult], None],
    found: GenerationResult | None = None,
) -> GenerationResult:
    """Ask for scenarios of each kind, the kinds side by side. `tell` hears after each reply how things stand.

    `found` is filled, and right at any moment, so whoever is cancelled has what was made until then; scenarios that are
    in it already are not asked for again. New ones come at its end; they are put in order once all is done.

    Raises `GeneratorFailed` where nothing usable came at all; else what failed is told in `notes`.
    """
    found = resume_generation() if found is None else found
    work = _GenerationRun(wanted, model, tell, found)
    try:
        await asyncio.gather(*(work.fill(kind, number) for kind, number in wanted.counts.items()))
    finally:
        found.missing = Counter(wanted.counts) - found.of_kind
    if not found.scenarios:
        counted = ", ".join(f"{why} {count}" for why, count in found.dropped.most_common()) or "it said nothing"
        raise GeneratorFailed(f"the model wrote no usable scenario: {'; '.join(found.notes) or counted}")
    found.scenarios.sort(key=lambda one: (list(Difficulty).index(_kind(one)), one.id))
    return found


def _kind(scenario: Scenario) -> Difficulty:
    kind = scenario_difficulty(scenario)
    assert kind is not None, f"{scenario.id} was not generated"
    return kind


class _GenerationRun:
    """One run of `generate_scenarios`."""

    def __init__(
        self,
        wanted: GenerationRequest,
        model: WritingModel,
        tell: Callable[[GenerationResult], None],
        found: GenerationResult,
    ) -> None:
        self._wanted = wanted
        self._model = model
        self._tell = tell
        self._checker = DraftChecker([tool.name for tool in wanted.tools], wanted.absent)
        self.found = found
        for scenario in found.scenarios:
            self._checker.know(scenario.input)

    async def fill(self, kind: Difficulty, number: int) -> None:
        """Ask until there are `number` of a kind, or it is given up."""
        written: list[str] = [one.input for one in self.found.scenarios if _kind(one) is kind]
        draw = random.Random(f"{self._wanted.seed}:{kind}:{len(written)}")  # who goes on shows others than at first
        fruitless, at_once = 0, AT_ONCE
        while len(written) < number and fruitless < FRUITLESS and not self._model.spent_up:
            asked = min(at_once, number - len(written))
            messages = prompts.writer_messages(
                kind, asked, self._shown(draw), self._wanted.task, written[-REMINDED_OF:]
            )
            try:
                reply = await self._model.ask(messages)
            except GeneratorFailed as e:
                self._note(str(e))
                break
            read = await asyncio.to_thread(drafts.parse_drafts, reply)  # a long reply takes a while
            new = self._take(kind, read, number - len(written))
            written += new
            fruitless = 0 if new else fruitless + 1
            at_once = at_once if new else max(1, at_once // 2)  # it may have been cut off
            self._tell(self.found)
        self._end(kind, number - len(written), fruitless)

    def _take(self, kind: Difficulty, read: drafts.ParsedDrafts, room: int) -> list[str]:
        """Keep the good drafts, as many as there is room for; what they say."""
        new: list[str] = []
        self.found.dropped[DropReason.UNREADABLE] += read.unreadable
        for draft in read.drafts:
            if len(new) == room:
                break
            checked = self._checker.check(draft, kind)
            if isinstance(checked, DropReason):
                self.found.dropped[checked] += 1
            else:
                self.found.scenarios.append(checked)
                self.found.of_kind[kind] += 1
                new.append(draft.input)
        self.found.dropped = +self.found.dropped
        return new

    def _shown(self, draw: random.Random) -> list[ServerTool]:
        tools = list(self._wanted.tools)
        return tools if len(tools) <= TOOLS_SHOWN else draw.sample(tools, TOOLS_SHOWN)

    def _end(self, kind: Difficulty, short: int, fruitless: int) -> None:
        if short <= 0:
            return
        if fruitless == FRUITLESS:
            self._note(f"{kind}: the last {FRUITLESS} replies had nothing new")
        elif self._model.spent_up:
            self._note("--max-usd is spent")

    def _note(self, text: str) -> None:
        if text not in self.found.notes:
            self.found.notes.append(text)
