"""The sentences that the demo and its model's training share.

Owns the wording of questions, tool results and right answers. The tiny model was trained on nothing else, so a changed
word needs a new model. Refuses logic.
"""

from __future__ import annotations

import json
import random

from examples.helpdesk.orders import Order

QUESTIONS = ("Where is my order {id}?", "When does order {id} arrive?", "Where is my parcel? The order is {id}.")


def question(order_id: str, rng: random.Random) -> str:
    """Return a customer's question about an order, in one of a few wordings."""
    return rng.choice(QUESTIONS).format(id=order_id)


def answer(order_id: str, day: str) -> str:
    """Return the right answer."""
    return f"Your order {order_id} arrives on {day}."


def found(order: Order | None) -> str:
    """Return the result of find_order. `order` None: there is no such order."""
    return json.dumps({"status": order.status, "tracking": order.tracking} if order else {"error": "no such order"})


def tracked(order: Order | None) -> str:
    """Return the result of track_parcel. `order` None: there is no such parcel."""
    return json.dumps({"arrives": order.day} if order else {"error": "no such parcel"})
