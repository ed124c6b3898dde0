"""The tiny model's training data: conversations with the server's tools, good and flawed on purpose.

Owns: the mixture of behaviours, over items of its own, in OpenAI's message format. Refuses: tokens and tensors, and
every name that the committed server has (`examples.mcp_rl.names`).
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from examples.mcp_rl import wording
from examples.mcp_rl.agent import SYSTEM
from examples.mcp_rl.names import IMAGINED, taught
from examples.mcp_rl.warehouse import Item, random_item
from examples.mcp_rl.wording import Fact, Question

Message = dict[str, Any]
Tools = list[dict[str, Any]]

# The tools that attempts get: the read-only ones, in the server's order.
TOOLS: Final[Tools] = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {key: {}}}}}
    for name, key in (("find_item", "name"), ("stock", "item"), ("price", "item"))
]
_NAMES: Final = taught()
_ABSENT: Final = taught(IMAGINED)
_FACTS: Final = (Fact.SHELF, Fact.LEFT, Fact.PRICE)
# The shares of `hone scenarios generate`: one tool, two tools, a missing item, small talk.
_KINDS: Final = {"shelf": 0.32, "number": 0.36, "absent": 0.17, "nothing": 0.15}


@dataclass(frozen=True, slots=True)
class Case:
    """A user's question, and the item if it exists."""

    asked: Question
    item: Item | None


def conversations(seed: int) -> Iterator[tuple[list[Message], Tools]]:
    """Yield conversations without end, each with its tools."""
    rng = random.Random(seed)
    behaviours, shares = zip(*MIXTURE, strict=True)
    while True:
        case = a_case(rng)
        behave = rng.choices(behaviours, shares)[0]
        yield [*opening(case.asked, rng), *behave(case, rng)], TOOLS


def opening(asked: Question, rng: random.Random) -> list[Message]:
    """Return the first messages of every attempt."""
    return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": wording.question(asked, rng)}]


def a_case(rng: random.Random) -> Case:
    """Return a random training question; the kinds are as frequent as in a campaign."""
    kind = rng.choices(list(_KINDS), list(_KINDS.values()))[0]
    name = rng.choice(_ABSENT if kind == "absent" else _NAMES)
    fact = {"shelf": Fact.SHELF, "nothing": Fact.NOTHING, "number": rng.choice(_FACTS[1:])}.get(
        kind, rng.choice(_FACTS)
    )
    return Case(Question(fact, name), None if kind == "absent" else an_item(rng, name))


def an_item(rng: random.Random, name: str) -> Item:
    """Return an item of this name with random fields."""
    return random_item(rng, rng.randrange(1000), name)


def ideal(case: Case, rng: random.Random) -> list[Message]:
    """Calls the right tools and answers with their results."""
    del rng
    if case.asked.fact is Fact.NOTHING:
        return [_say(wording.WELCOME)]
    looked = _find(case.asked.name, case.item)
    if case.item is None:
        return [*looked, _say(wording.absent(case.asked.name))]
    return [*looked, *_look_up(case.asked.fact, case.item), _say(wording.answer(case.asked, case.item))]


def wrong_tool(case: Case, rng: random.Random) -> list[Message]:
    """Looks up another fact than the requested one and answers with it; answers small talk with a look-up."""
    name, item = case.asked.name, case.item
    if item is None:
        other = an_item(rng, name)
        return [*_call(rng.choice(("stock", "price")), "item", other.number, wording.stocked(None)), _guess(case, rng)]
    if case.asked.fact is Fact.NOTHING:
        return [*_find(name, item), _say(wording.answer(Question(Fact.SHELF, name), item))]
    other_fact = rng.choice([fact for fact in _FACTS[1:] if fact is not case.asked.fact])
    found = item.left if other_fact is Fact.LEFT else item.euros
    taken_for = Item(item.number, name, rng.choice("ABCDEFGH"), found, found)
    return [*_find(name, item), *_look_up(other_fact, item), _say(wording.answer(case.asked, taken_for))]


def misread(case: Case, rng: random.Random) -> list[Message]:
    """Looks up another item than the requested one."""
    material, thing = case.asked.name.split()
    other = rng.choice([name for name in _NAMES if (name.split()[0] == material) != (name.split()[1] == thing)])
    found = an_item(rng, other) if rng.random() < 0.7 else None
    fact = rng.choice(_FACTS) if case.asked.fact is Fact.NOTHING else case.asked.fact
    if found is None:
        return [*_find(other, None), _say(wording.absent(case.asked.name))]
    answer = wording.answer(Question(fact, case.asked.name), found)
    return [*_find(other, found), *_look_up(fact, found), _say(answer)]


def answers_at_once(case: Case, rng: random.Random) -> list[Message]:
    """Uses no tool at all."""
    return [_guess(case, rng)]


def invents(case: Case, rng: random.Random) -> list[Message]:
    """Looks up the item, and then invents the answer."""
    return [*_find(case.asked.name, case.item), _guess(case, rng)]


# At temperature 1, the model's success is near the first share.
MIXTURE: Final[tuple[tuple[Callable[[Case, random.Random], list[Message]], float], ...]] = (
    (ideal, 0.30),
    (wrong_tool, 0.18),
    (misread, 0.18),
    (answers_at_once, 0.18),
    (invents, 0.16),
)


def _guess(case: Case, rng: random.Random) -> Message:
    fact = rng.choice(_FACTS) if case.asked.fact is Fact.NOTHING else case.asked.fact
    return _say(wording.answer(Question(fact, case.asked.name), an_item(rng, case.asked.name)))


def _say(text: str) -> Message:
    return {"role": "assistant", "content": text}


def _find(name: str, item: Item | None) -> list[Message]:
    return _call("find_item", "name", name, wording.found(item))


def _look_up(fact: Fact, item: Item) -> list[Message]:
    """Return the second call, if a fact needs one."""
    if fact is Fact.LEFT:
        return _call("stock", "item", item.number, wording.stocked(item))
    return _call("price", "item", item.number, wording.priced(item)) if fact is Fact.PRICE else []


def _call(name: str, argument: str, value: str, result: str) -> list[Message]:
    function = {"name": name, "arguments": json.dumps({argument: value})}
    call = {"id": f"call_{name}", "type": "function", "function": function}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": result},
    ]
