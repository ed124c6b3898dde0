"""The stand-ins' rules: the judge pays for what the transcript shows; the generator writes from its prompt alone."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from examples.mcp_rl import generating, stand_ins, taught
from examples.mcp_rl.judging import score
from examples.mcp_rl.names import served
from examples.mcp_rl.taught import Case
from examples.mcp_rl.warehouse import random_item
from examples.mcp_rl.wording import Fact, Question, understood
from trainer.scenario_generation import drafts as reading
from trainer.scenario_generation import prompts
from trainer.scenario_generation.drafts import DraftChecker, DropReason
from trainer.scenario_generation.prompts import Difficulty
from trainer.scenario_generation.tools import ServerTool

RNG = random.Random(3)
ITEM = random_item(RNG, 417, "brass hinge")
TOOLS = [
    ServerTool("find_item", f"By its name. Items: {', '.join(served())}.", {}, only_reads=True),
    ServerTool("stock", "", {}, only_reads=True),
    ServerTool("price", "", {}, only_reads=True),
]


def of(behave: Any, fact: Fact, *, known: bool = True, seed: int = 1) -> float:
    rng = random.Random(seed)
    case = Case(Question(fact, ITEM.name), ITEM if known else None)
    return score([*taught.opening(case.asked, rng), *behave(case, rng)])[0]


@pytest.mark.parametrize("fact", list(Fact))
def test_an_ideal_conversation_gets_everything(fact: Fact) -> None:
    assert of(taught.ideal, fact) == 1.0


def test_to_find_out_that_there_is_no_such_item_gets_everything() -> None:
    assert of(taught.ideal, Fact.PRICE, known=False) == 1.0


@pytest.mark.parametrize("flawed", [taught.wrong_tool, taught.misread, taught.answers_at_once, taught.invents])
@pytest.mark.parametrize("fact", [Fact.LEFT, Fact.PRICE])
def test_each_flaw_costs_at_least_half(flawed: Any, fact: Fact) -> None:
    for seed in range(20):
        assert of(flawed, fact, seed=seed) <= 0.5


def test_who_looked_up_and_invents_is_above_who_only_invents() -> None:
    assert of(taught.invents, Fact.LEFT) > of(taught.answers_at_once, Fact.LEFT)


def test_an_honest_nothing_is_above_an_invention() -> None:
    opening = taught.opening(Question(Fact.PRICE, "brass hinge"), RNG)
    looked = taught.ideal(Case(Question(Fact.PRICE, "brass hinge"), ITEM), RNG)[:2]
    honest, _ = score([*opening, *looked, {"role": "assistant", "content": "I cannot tell."}])
    invented, why = score([*opening, *looked, {"role": "assistant", "content": "The brass hinge costs 1 euros."}])
    assert honest > invented
    assert "invents" in why


def asked(kind: Difficulty, number: int, tools: list[ServerTool] = TOOLS, written: tuple[str, ...] = ()) -> list[Any]:
    return prompts.writer_messages(kind, number, tools, None, written)


ORDINARY = [kind for kind in Difficulty if kind is not Difficulty.ADVERSARIAL]


@pytest.mark.parametrize("kind", ORDINARY)
def test_what_it_writes_passes_the_checks_of_generated_scenarios(kind: Difficulty) -> None:
    drafts = reading.parse_drafts(generating.reply(asked(kind, 10), seed=7))
    checker = DraftChecker([tool.name for tool in TOOLS], ["reserve"])
    checked = [checker.check(draft, kind) for draft in drafts.drafts]
    assert (len(checked), drafts.unreadable) == (10, 0)
    assert sum(isinstance(one, DropReason) for one in checked) <= 1  # a near duplicate now and then
    assert all(understood(draft.input) for draft in drafts.drafts)


def test_the_same_prompt_is_answered_alike_whatever_its_nonce_and_another_seed_is_not() -> None:
    one, other = asked(Difficulty.ONE_TOOL, 10), asked(Difficulty.ONE_TOOL, 10)
    assert one != other
    assert generating.reply(one, 7) == generating.reply(other, 7) != generating.reply(one, 8)


def test_what_is_written_is_not_written_again() -> None:
    first = [json.loads(line)["input"] for line in generating.reply(asked(Difficulty.ONE_TOOL, 10)).splitlines()]
    again = generating.reply(asked(Difficulty.ONE_TOOL, 100, written=tuple(first)))
    assert not set(first) & {json.loads(line)["input"] for line in again.splitlines()}


def test_tools_that_are_not_offered_are_not_needed() -> None:
    without = [tool for tool in TOOLS if tool.name != "price"]
    lines = generating.reply(asked(Difficulty.SEVERAL_STEPS, 20, without)).splitlines()
    assert {tuple(json.loads(line)["tools"]) for line in lines} == {("find_item", "stock")}


def test_another_servers_tools_are_refused_with_what_to_do() -> None:
    with pytest.raises(generating.PromptError, match="HONE_JUDGE__MODEL"):
        generating.reply(asked(Difficulty.ONE_TOOL, 1, [ServerTool("send", "Sends.", {}, only_reads=True)]))


def test_each_answers_under_its_own_name() -> None:
    written = stand_ins.answered({"model": stand_ins.GENERATOR, "messages": asked(Difficulty.ERROR, 2)})
    assert written["model"] == stand_ins.GENERATOR
    assert len(written["choices"][0]["message"]["content"].splitlines()) == 2
    with pytest.raises(ValueError, match="scripted judge"):
        stand_ins.answered({"model": "scripted-judge", "messages": asked(Difficulty.ERROR, 2)})
