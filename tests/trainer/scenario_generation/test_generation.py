"""Scenarios written until there are enough, by a model whose replies are scripted here and come without a network."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Callable, Sequence

import pytest

from trainer.errors import GeneratorFailed
from trainer.scenario_generation.drafts import DropReason
from trainer.scenario_generation.generation import (
    FRUITLESS,
    TOOLS_SHOWN,
    GenerationRequest,
    GenerationResult,
    generate_scenarios,
    resume_generation,
)
from trainer.scenario_generation.prompts import MEANING, Difficulty, difficulty_counts
from trainer.scenario_generation.tools import ServerTool

WORDS = "amber birch cedar delta ember fjord grove heron inlet jetty knoll larch mango nylon otter pearl quartz ridge"
CALLS = {Difficulty.ONE_TOOL: 1, Difficulty.SEVERAL_STEPS: 2, Difficulty.ERROR: 0, Difficulty.NOTHING_TO_DO: 0}
TOOLS = [ServerTool("find", "", {}, True)]


class Writer:
    """A model that writes what it is asked for, each task in other words, unless `reply` says otherwise."""

    def __init__(self, reply: Callable[[Difficulty, int], str] | None = None) -> None:
        self.asked: list[tuple[Difficulty, int]] = []
        self.shown: list[set[str]] = []
        self.spent_up = False
        self._reply = reply or self._good
        self._written = 0

    async def ask(self, messages: Sequence[dict[str, str]]) -> str:
        said = messages[1]["content"]
        kind = next(kind for kind, meaning in MEANING.items() if meaning in said)
        number = re.match(r"Write (\d+)", said)
        assert number is not None
        self.asked.append((kind, int(number[1])))
        self.shown.append(set(re.findall(r'"kind":"tool","name":"(\w+)"', said)))
        return self._reply(kind, int(number[1]))

    def _good(self, kind: Difficulty, number: int) -> str:
        return "\n".join(self.task(kind) for _ in range(number))

    def task(self, kind: Difficulty) -> str:
        self._written += 1
        words = WORDS.split()
        first, second = (words[place] for place in divmod(self._written, len(words)))
        text = f"{second} {first} {second[::-1]} {first[::-1]}"
        return json.dumps({"input": text, "tools": ["find"] * CALLS[kind]})


def untold(found: GenerationResult) -> None:
    """Nobody listens."""


async def test_there_are_as_many_of_each_kind_as_were_wanted() -> None:
    writer = Writer()
    told: list[int] = []
    wanted = GenerationRequest(difficulty_counts(40), TOOLS)
    found = await generate_scenarios(wanted, writer, lambda so_far: told.append(len(so_far.scenarios)))
    assert Counter(one.reference["difficulty"] for one in found.scenarios) == Counter(
        {str(kind): number for kind, number in wanted.counts.items()}
    )
    assert found.of_kind == wanted.counts
    assert not found.missing
    assert not found.dropped
    assert max(number for _, number in writer.asked) == 10
    assert told[-1] == 40


async def test_a_model_that_repeats_itself_is_given_up_and_what_is_missing_is_told() -> None:
    writer = Writer(lambda kind, number: '{"input": "Hello there", "tools": []}')
    found = await generate_scenarios(GenerationRequest({Difficulty.NOTHING_TO_DO: 4}), writer, untold)
    assert [one.input for one in found.scenarios] == ["Hello there"]
    assert found.missing == {Difficulty.NOTHING_TO_DO: 3}
    assert found.dropped == {DropReason.DUPLICATE: FRUITLESS}
    assert len(writer.asked) == 1 + FRUITLESS
    assert found.notes == [f"nothing_to_do: the last {FRUITLESS} replies had nothing new"]


async def test_a_reply_that_cannot_be_read_is_asked_for_again_in_smaller_pieces() -> None:
    replies = iter(["{" * 30, None, None, None])
    writer = Writer(lambda kind, number: next(replies) or writer._good(kind, number))
    found = await generate_scenarios(GenerationRequest({Difficulty.ONE_TOOL: 12}, TOOLS), writer, untold)
    assert [number for _, number in writer.asked] == [10, 5, 5, 2]
    assert len(found.scenarios) == 12
    assert found.dropped == {DropReason.UNREADABLE: 1}


async def test_more_than_was_asked_for_is_not_taken() -> None:
    writer = Writer(lambda kind, number: "\n".join(writer.task(kind) for _ in range(9)))
    found = await generate_scenarios(GenerationRequest({Difficulty.ONE_TOOL: 2}, TOOLS), writer, untold)
    assert len(found.scenarios) == 2


async def test_of_many_tools_each_request_shows_some_and_they_change() -> None:
    tools = [ServerTool(f"tool{number}", "", {}, True) for number in range(100)]
    writer = Writer(lambda kind, number: "nothing")
    with pytest.raises(GeneratorFailed, match=r"no usable scenario.*had nothing new"):
        await generate_scenarios(GenerationRequest({Difficulty.ONE_TOOL: 5}, tools), writer, untold)
    assert {len(shown) for shown in writer.shown} == {TOOLS_SHOWN}
    assert writer.shown[0] != writer.shown[1]


async def test_a_model_that_fails_halfway_leaves_what_it_wrote() -> None:
    def reply(kind: Difficulty, number: int) -> str:
        if len(writer.asked) > 1:
            raise GeneratorFailed("the model is down")
        return writer.task(kind)

    writer = Writer(reply)
    found = await generate_scenarios(GenerationRequest({Difficulty.ONE_TOOL: 5}, TOOLS), writer, untold)
    assert (len(found.scenarios), found.missing[Difficulty.ONE_TOOL]) == (1, 4)
    assert found.notes == ["the model is down"]


async def test_nothing_is_asked_once_the_money_is_spent() -> None:
    def reply(kind: Difficulty, number: int) -> str:
        writer.spent_up = True
        return writer.task(kind)

    writer = Writer(reply)
    found = await generate_scenarios(GenerationRequest({Difficulty.ONE_TOOL: 5}, TOOLS), writer, untold)
    assert len(writer.asked) == 1
    assert found.notes == ["--max-usd is spent"]


async def test_what_an_earlier_run_made_is_neither_asked_for_nor_made_again() -> None:
    writer = Writer()
    first = await generate_scenarios(
        GenerationRequest({Difficulty.ONE_TOOL: 4, Difficulty.ERROR: 2}, TOOLS), writer, untold
    )
    there = list(first.scenarios)
    repeated = json.dumps({"input": there[0].input, "tools": ["find"]})
    again = Writer(lambda kind, number: "\n".join([repeated, *(writer.task(kind) for _ in range(number))]))
    wanted = GenerationRequest({Difficulty.ONE_TOOL: 5, Difficulty.ERROR: 1}, TOOLS)
    found = await generate_scenarios(wanted, again, untold, resume_generation(there))
    assert again.asked == [(Difficulty.ONE_TOOL, 1)]
    assert found.of_kind == {Difficulty.ONE_TOOL: 5, Difficulty.ERROR: 2}
    assert found.dropped == {DropReason.DUPLICATE: 1}
    assert not found.missing
    assert {one.id for one in there} < {one.id for one in found.scenarios}


async def test_whoever_is_cancelled_has_what_was_made_until_then() -> None:
    held = asyncio.Event()

    class Holding(Writer):
        async def ask(self, messages: Sequence[dict[str, str]]) -> str:
            if len(self.asked) == 1:
                held.set()
                await asyncio.Event().wait()
            return await super().ask(messages)

    found = resume_generation()
    task = asyncio.create_task(
        generate_scenarios(GenerationRequest({Difficulty.ONE_TOOL: 15}, TOOLS), Holding(), untold, found)
    )
    await held.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(found.scenarios) == 10
    assert found.missing == {Difficulty.ONE_TOOL: 5}
