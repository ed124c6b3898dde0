"""Measure a tiny model in the demo's task: how often it succeeds, and how well it copies digits.

Owns the sampling (plain transformers, temperature 1, tools imitated in Python) and the counting, on the demo's held-out
orders, which are not in the training data. It needs neither an engine nor servers.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from examples.helpdesk.agent import MAX_TOKENS, MAX_TURNS, SYSTEM
from examples.helpdesk.checks import is_right
from examples.helpdesk.making.conversations import TOOLS, ideal
from examples.helpdesk.orders import Order
from examples.helpdesk.wording import found, question, tracked
from examples.making.sampling import heard, sample
from examples.making.tokenizer import Message, render
from examples.making.training import labelled

# The digits in the assistant's messages of an ideal conversation, in order.
_COPIED = ["order id in call"] * 4 + ["tracking in call"] * 5 + ["order id in answer"] * 4


@dataclass(frozen=True, slots=True)
class Success:
    """The results of some attempts, one per order."""

    attempts: int
    succeeded: int
    calls: int
    prefix_breaks: int  # turns whose prompt does not begin with the turn before, as sampled

    @property
    def rate(self) -> float:
        """Return the share of attempts whose answer is right."""
        return self.succeeded / self.attempts


class _Attempt:
    """One conversation while it is sampled."""

    def __init__(self, order: Order, rng: random.Random) -> None:
        self.order = order
        self.messages: list[Message] = [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": question(order.order_id, rng)},
        ]
        self.tokens: list[int] = []
        self.breaks = 0
        self.done = False

    def ask(self, tokenizer: Any) -> list[int]:
        """Return the ids of the next prompt."""
        prompt = render(tokenizer, self.messages, TOOLS, ask=True)
        self.breaks += prompt[: len(self.tokens)] != self.tokens
        return prompt

    def hear(self, said: Message, orders: Sequence[Order]) -> None:
        """Add the model's turn, and the results of its tool calls."""
        self.messages.append(said)
        calls = said.get("tool_calls", ())
        self.done = not calls
        self.messages += [
            {"role": "tool", "tool_call_id": call["id"], "content": _use(call["function"], orders)} for call in calls
        ]


def measure_success(model: Any, tokenizer: Any, orders: Sequence[Order], seed: int) -> Success:
    """Sample one attempt for each order at temperature 1, all in one batch."""
    torch.manual_seed(seed)
    rng = random.Random(seed)
    attempts = [_Attempt(order, rng) for order in orders]
    calls = 0
    for _ in range(MAX_TURNS):
        running = [attempt for attempt in attempts if not attempt.done]
        if not running:
            break
        calls += len(running)
        prompts = [attempt.ask(tokenizer) for attempt in running]
        for attempt, prompt, sampled in zip(
            running, prompts, sample(model, tokenizer, prompts, MAX_TOKENS), strict=True
        ):
            attempt.tokens = prompt + sampled
            attempt.hear(heard(tokenizer, sampled), orders)
    return Success(
        attempts=len(attempts),
        succeeded=sum(_succeeded(attempt) for attempt in attempts),
        calls=calls,
        prefix_breaks=sum(attempt.breaks for attempt in attempts),
    )


@torch.inference_mode()
def measure_copying(model: Any, tokenizer: Any, orders: Sequence[Order], seed: int) -> dict[str, float]:
    """Return how well the model copies digits in ideal conversations, two figures per place.

    ``right``: share of digits that are the model's first choice. ``probability``: the mean probability of the right
    digit. Places: the order id in the call (whose first digit the training data also misreads), the tracking number in
    the call, and the order id in the answer.
    """
    rng = random.Random(seed)
    digits = set(tokenizer.convert_tokens_to_ids(list("0123456789")))
    right: Counter[str] = Counter()
    probability: Counter[str] = Counter()
    count: Counter[str] = Counter()
    for order in orders:
        messages = [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": question(order.order_id, rng)},
            *ideal(order, rng),
        ]
        ids, labels = labelled(tokenizer, messages, TOOLS)
        chances = model(input_ids=torch.tensor([ids])).logits[0].float().softmax(-1)
        copied = [place for place, label in enumerate(labels) if label in digits]
        for place, name in zip(copied, _COPIED, strict=True):
            count[name] += 1
            right[name] += int(chances[place - 1].argmax() == ids[place])
            probability[name] += chances[place - 1, ids[place]].item()
    return {
        f"{name} {what}": round(total[name] / count[name], 5)
        for name in count
        for what, total in (("right", right), ("probability", probability))
    }


def _use(function: Mapping[str, Any], orders: Sequence[Order]) -> str:
    """Return the result of the demo's tools, or the server's error for an invalid call."""
    name, arguments = function["name"], function["arguments"]
    try:
        if name == "find_order":
            return found(next((order for order in orders if order.order_id == arguments["order_id"]), None))
        if name == "track_parcel":
            return tracked(next((order for order in orders if order.tracking == arguments["tracking"]), None))
    except (LookupError, TypeError):
        return json.dumps({"error": f"not what {name} takes"})
    return json.dumps({"error": f"no such tool: {name}"})


def _succeeded(attempt: _Attempt) -> bool:
    return attempt.done and is_right(attempt.messages[-1]["content"], attempt.order.order_id, attempt.order.day)
