"""The users' questions about the helpdesk's orders, and their times of arrival.

Owns: the two kinds of traffic and the rate of arrivals. Pure and deterministic by seed. Refuses: sending questions.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from examples.helpdesk.orders import Order
from examples.helpdesk.wording import QUESTIONS, question

POOL: Final = 96  # questions that are repeated
IN_VOGUE: Final = 6  # questions that are popular at a time
ASKED: Final = 16  # how often each is asked while it is popular, on average: twice the size of a group


@dataclass(frozen=True, slots=True)
class Question:
    """One question, with the facts of the right answer."""

    text: str
    order: Order


def every_question(orders: Sequence[Order], chance: random.Random) -> list[Question]:
    """Return every order in every wording, shuffled; no two questions are equal."""
    asked = [Question(wording.format(id=order.order_id), order) for order in orders for wording in QUESTIONS]
    chance.shuffle(asked)
    return asked


def repeats(orders: Sequence[Order], chance: random.Random) -> Iterator[Question]:
    """Yield questions without end. A few are popular at a time: several users ask them, word for word.

    After each question, the oldest popular one is replaced with probability 1 / `ASKED`.
    """
    pool = deque(every_question(orders, chance)[:POOL])
    while True:
        yield pool[chance.randrange(IN_VOGUE)]
        if chance.random() < 1 / ASKED:
            pool.rotate(-1)


def unique(orders: Sequence[Order], chance: random.Random) -> Iterator[Question]:
    """Yield every question once."""
    return iter(every_question(orders, chance))


def one_each(orders: Sequence[Order], chance: random.Random) -> list[Question]:
    """Return one question about each order."""
    return [Question(question(order.order_id, chance), order) for order in orders]


def arrivals(a_second: float, chance: random.Random) -> Iterator[float]:
    """Yield the seconds between users without end: a Poisson process."""
    while True:
        yield chance.expovariate(a_second)
