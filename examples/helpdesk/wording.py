"""The sentences that the demo and the making of its model share.

Owns how a customer asks, what the tools answer, and what a right answer looks like. The tiny model was trained on
nothing else, so a word changed here needs a new model. Refuses logic: who says what is decided elsewhere.
"""

from __future__ import annotations

import json
import random

from examples.helpdesk.orders import Order

QUESTIONS = ("Where is my order {id}?", "When does order {id} arrive?", "Where is my parcel? The order is {id}.")


def question(order_id: str, rng: random.Random) -> str:
    """A customer's question about an order, in one of a few wordings."""
    return rng.choice(QUESTIONS).format(id=order_id)


def answer(order_id: str, day: str) -> str:
    """The answer that a customer wants."""
    return f"Your order {order_id} arrives on {day}."


def found(order: Order | None) -> str:
    """What the tool find_order says; None if there is no such order."""
    return json.dumps({"status": order.status, "tracking": order.tracking} if order else {"error": "no such order"})


def tracked(order: Order | None) -> str:
    """What the tool track_parcel says; None if there is no such parcel."""
    return json.dumps({"arrives": order.day} if order else {"error": "no such parcel"})
