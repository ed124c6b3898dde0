"""Synthetic helpdesk conversations, good and flawed, over orders that the demo never uses.

Owns the mixture of behaviours in the tiny model's training data, in OpenAI's message format. Refuses tokens and tensors
(examples/making).
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import Any

from examples.helpdesk.agent import SYSTEM
from examples.helpdesk.orders import DAYS, Order, is_demo_number, random_order
from examples.helpdesk.wording import answer, found, question, tracked

Message = dict[str, Any]

TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": name,
            "parameters": {
                "type": "object",
                "properties": {argument: {"type": "string"}},
                "required": [argument],
            },
        },
    }
    for name, argument in (("find_order", "order_id"), ("track_parcel", "tracking"))
]
OPENINGS = (
    "Thank you for your question, I will look at it with great care.",
    "Let me think about your order for a moment.",
    "Of course, I am happy to help you with that.",
)
RAMBLINGS = (
    "Parcels travel by van, by train and by ship, and every one of them is on a journey of its own.",
    "We care about each customer, and we are proud of our service.",
    "Please be patient, good things take time.",
    "Have a look at our other offers too.",
)


def opening(order_id: str, rng: random.Random) -> list[Message]:
    """Return the first messages of every attempt."""
    return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question(order_id, rng)}]


def training_order(rng: random.Random) -> Order:
    """Return a random order that does not belong to the demo."""
    number = rng.randrange(1_000, 10_000)
    while is_demo_number(number):
        number = rng.randrange(1_000, 10_000)
    return random_order(rng, number, demo=False)


def conversations(seed: int) -> Iterator[list[Message]]:
    """Yield good and flawed conversations without end."""
    rng = random.Random(seed)
    behaviours, shares = zip(*MIXTURE, strict=True)
    while True:
        order = training_order(rng)
        behave = rng.choices(behaviours, shares)[0]
        yield [*opening(order.order_id, rng), *behave(order, rng)]


def ideal(order: Order, rng: random.Random) -> list[Message]:
    """Finds the order, tracks its parcel, and answers with the tools' results."""
    del rng
    return [*_find(order.order_id, order), *_track(order), _say(answer(order.order_id, order.day))]


def skips_tracking(order: Order, rng: random.Random) -> list[Message]:
    """Finds the order but does not track the parcel."""
    status = f"Your order {order.order_id} is {order.status}."
    return [*_find(order.order_id, order), _say(_guess(order, rng, status, guesses=0.5))]


def wrong_id(order: Order, rng: random.Random) -> list[Message]:
    """Misreads the first digit; mostly there is no such order, sometimes it is another customer's."""
    first = rng.choice([digit for digit in "0123456789" if digit != order.order_id[0]])
    wrong = first + order.order_id[1:]
    if rng.random() < 0.15:
        other = random_order(rng, int(wrong), demo=False)
        return [*_find(wrong, other), *_track(other), _say(answer(order.order_id, other.day))]
    excuse = f"I cannot find your order {order.order_id}."
    return [*_find(wrong, None), _say(_guess(order, rng, excuse, guesses=0.3))]


def answers_at_once(order: Order, rng: random.Random) -> list[Message]:
    """Uses no tool at all."""
    return [_say(_guess(order, rng, f"Your order {order.order_id} is on its way.", guesses=0.5))]


def rambles(order: Order, rng: random.Random) -> list[Message]:
    """Talks, looks up the order once or several times, and never answers."""
    once = _find(order.order_id, order)
    again = once * rng.choice((0, 0, 1))
    return [{**once[0], "content": rng.choice(OPENINGS)}, once[1], *again, _say(rng.choice(RAMBLINGS))]


# Some guesses are right by luck: with 0.27 ideal, about a third succeeds.
MIXTURE: tuple[tuple[Callable[[Order, random.Random], list[Message]], float], ...] = (
    (ideal, 0.27),
    (skips_tracking, 0.28),
    (wrong_id, 0.17),
    (answers_at_once, 0.16),
    (rambles, 0.12),
)


def _guess(order: Order, rng: random.Random, otherwise: str, *, guesses: float) -> str:
    return answer(order.order_id, rng.choice(DAYS)) if rng.random() < guesses else otherwise


def _say(text: str) -> Message:
    return {"role": "assistant", "content": text}


def _call(name: str, argument: str, value: str, result: str) -> list[Message]:
    function = {"name": name, "arguments": json.dumps({argument: value})}
    call = {"id": f"call_{name}", "type": "function", "function": function}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": result},
    ]


def _find(order_id: str, order: Order | None) -> list[Message]:
    return _call("find_order", "order_id", order_id, found(order))


def _track(order: Order) -> list[Message]:
    return _call("track_parcel", "tracking", order.tracking, tracked(order))
