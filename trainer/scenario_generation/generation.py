"""Generate scenarios until there are as many as requested, or the model writes nothing new.

Owns: how many are requested at once, which tools each request shows, and when a difficulty is abandoned. Refuses: the
text (`trainer.scenario_generation.prompts`), the model (`trainer.scenario_generation.program`), and the checks
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
from trainer.scenario_generation.drafts import DraftChecker, DropReason
from trainer.scenario_generation.prompts import Difficulty, scenario_difficulty
from trainer.scenario_generation.tools import ServerTool
from trainer.tasks.scenarios import Scenario

AT_ONCE: Final = 10  # scenarios in a request: with more, they resemble each other, or the reply is cut off
TOOLS_SHOWN: Final = 30  # tools in a request: if a server has more, each request draws others
REMINDED_OF: Final = 30  # existing tasks in a request
FRUITLESS: Final = 3  # requests in a row without one new scenario, after which a difficulty is abandoned


class WritingModel(Protocol):
    """The model that writes."""

    @property
    def spent_up(self) -> bool:
        """Whether the cost limit is reached."""

    @property
    def ask(self) -> Callable[[Sequence[dict[str, str]]], Awaitable[str]]:
        """A function from messages to the model's answer."""


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """The scenarios to generate. `absent`: tools of the server that the agent will not be offered."""

    counts: Mapping[Difficulty, int]
    tools: Sequence[ServerTool] = ()
    task: str | None = None
    absent: Sequence[str] = ()
    seed: int = 0

    @property
    def total(self) -> int:
        """The number of scenarios."""
        return sum(self.counts.values())


@dataclass(slots=True)
class GenerationResult:
    """The result. `missing`: how many scenarios of a difficulty are missing; `notes`: why, and what failed."""

    scenarios: list[Scenario] = field(default_factory=list)
    of_kind: Counter[Difficulty] = field(default_factory=Counter)
    dropped: Counter[DropReason] = field(default_factory=Counter)
    missing: Counter[Difficulty] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)


def resume_generation(begun: Iterable[Scenario] = ()) -> GenerationResult:
    """The result to continue from: the scenarios of an earlier process, without its counts of dropped drafts."""
    scenarios = list(begun)
    return GenerationResult(scenarios, Counter(_kind(one) for one in scenarios))


async def generate_scenarios(
    wanted: GenerationRequest,
    model: WritingModel,
    tell: Callable[[GenerationResult], None],
    found: GenerationResult | None = None,
) -> GenerationResult:
    """Request scenarios of each difficulty, concurrently. `tell` receives the state after each reply.

    `found` is filled and consistent at any moment, so a cancelled caller keeps its scenarios; those that it holds
    already are not requested again. New ones are appended, and sorted once all is done.

    Raises `GeneratorFailed` if there is no usable scenario at all; other failures are in `notes`.
    """
    found = resume_generation() if found is None else found
    work = _GenerationRun(wanted, model, tell, found)
    try:
        await asyncio.gather(*(work.fill(kind, number) for kind, number in wanted.counts.items()))
    finally:
        found.missing = Counter(wanted.counts) - found.of_kind
    if not found.scenarios:
        counted = ", ".join(f"{why} {count}" for why, count in found.dropped.most_common()) or "its replies were empty"
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
        """Send requests until there are `number` scenarios of a difficulty, or it is abandoned."""
        written: list[str] = [one.input for one in self.found.scenarios if _kind(one) is kind]
        # The count is in the seed, so that a resumed run draws other tools than the first.
        draw = random.Random(f"{self._wanted.seed}:{kind}:{len(written)}")
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
            read = await asyncio.to_thread(
                drafts.parse_drafts, reply
            )  # reading a long reply takes a while: off the loop
            new = self._take(kind, read, number - len(written))
            written += new
            fruitless = 0 if new else fruitless + 1
            at_once = at_once if new else max(1, at_once // 2)  # the reply may have been cut off
            self._tell(self.found)
        self._end(kind, number - len(written), fruitless)

    def _take(self, kind: Difficulty, read: drafts.ParsedDrafts, room: int) -> list[str]:
        """Keep the good drafts, as many as there is room for; return their tasks."""
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
