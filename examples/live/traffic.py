"""What users ask, and when: questions about the helpdesk's orders, in their order of arrival.

Owns: the two kinds of traffic and the rate of arrivals. Pure and deterministic by seed. Refuses: asking.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from examples.helpdesk.orders import Order
from examples.helpdesk.wording import QUESTIONS, question

POOL: Final = 96  # questions that are asked again and again
IN_VOGUE: Final = 6  # of them at a time: what people ask about today
ASKED: Final = 16  # how often each is asked while it is, on average: twice the size of a group


@dataclass(frozen=True, slots=True)
class Question:
    """One question, and the right answer's facts."""

    text: str
    order: Order


def every_question(orders: Sequence[Order], chance: random.Random) -> list[Question]:
    """Every order in every wording, shuffled: no two are the same, word for word."""
    asked = [Question(wording.format(id=order.order_id), order) for order in orders for wording in QUESTIONS]
    chance.shuffle(asked)
    return asked


def repeats(orders: Sequence[Order], chance: random.Random) -> Iterator[Question]:
    """A pool of questions without end: a few are in vogue at a time and asked by several users, word for word.

    After each question one of those in vogue goes with a chance of 1 / `ASKED`, the oldest first.
    """
    pool = deque(every_question(orders, chance)[:POOL])
    while True:
        yield pool[chance.randrange(IN_VOGUE)]
        if chance.random() < 1 / ASKED:
            pool.rotate(-1)


def unique(orders: Sequence[Order], chance: random.Random) -> Iterator[Question]:
    """Every question once; then there are no more."""
    return iter(every_question(orders, chance))


def one_each(orders: Sequence[Order], chance: random.Random) -> list[Question]:
    """One question about each order."""
    return [Question(question(order.order_id, chance), order) for order in orders]


def arrivals(a_second: float, chance: random.Random) -> Iterator[float]:
    """The seconds between one user and the next, for ever: a Poisson process."""
    while True:
        yield chance.expovariate(a_second)
