"""Make the example's model: train tokenizer and weights from scratch, measure them, and write them to ``model/``.

    python -m examples.mcp_rl.make_model

The result is committed, so users need not run it. Owns the sequence, and the measuring: attempts at tasks about the
committed server's items, with plain transformers and the tools imitated in Python. Refuses a model outside its bounds:
it must be right in 20 to 45 % of attempts (with less there is little to reinforce).
"""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import torch

from examples.making.command import Maker
from examples.making.sampling import heard, sample
from examples.making.tokenizer import render
from examples.making.training import Recipe, Shape
from examples.mcp_rl import facts, taught, wording
from examples.mcp_rl.agent import MAX_TURNS
from examples.mcp_rl.names import IMAGINED, served
from examples.mcp_rl.taught import MIXTURE, TOOLS, Message, conversations
from examples.mcp_rl.warehouse import Item, warehouse
from examples.mcp_rl.wording import Question

MODEL: Final = Path(__file__).parent / "model"
RECIPE: Final = Recipe(
    shape=Shape(hidden=96, layers=4, heads=3, kv_heads=1, head_dim=32, mlp=192, context=1024),
    copy_steps=300,
    copy_rows=32,
    talk_steps=900,
    talk_rows=20,
    learning_rate=3e-3,
    threads=1,
)
ATTEMPTS: Final = 400
SEED: Final = 1  # of the questions, and of sampling
MAX_TOKENS: Final = 64  # of a turn: twice the longest turn in the training data
LOWEST, HIGHEST = 0.20, 0.45
LARGEST_BYTES: Final = 1_900_000
_DOES: Final = """\
It answers questions about a warehouse's items with tools, badly on purpose: it calls the wrong tool, misreads the name,
answers without a call, or invents. Its training data has none of the committed server's names."""


def measure(model: Any, tokenizer: Any) -> dict[str, Any]:
    """Measure attempts at questions about a warehouse with the committed server's names."""
    torch.manual_seed(SEED)
    rng = random.Random(SEED)
    items = warehouse(SEED)
    asked = [_asked(items, rng) for _ in range(ATTEMPTS)]
    attempts = attempted(model, tokenizer, asked, items, rng)
    right, all_ = Counter[str](), Counter[str]()
    known = {item.name: item for item in items}
    for one, messages in zip(asked, attempts, strict=True):
        kind = str(one.fact) if one.name in known else "absent"
        all_[kind] += 1
        right[kind] += facts.right(messages[1]["content"], messages, known)
    shares = {f"right of {kind}": round(right[kind] / all_[kind], 4) for kind in sorted(all_)}
    return {"success": round(right.total() / ATTEMPTS, 4), "attempts": ATTEMPTS, **shares}


def attempted(
    model: Any, tokenizer: Any, asked: Sequence[Question], items: Sequence[Item], rng: random.Random
) -> list[list[Message]]:
    """Sample one attempt at each question at temperature 1, all in one batch."""
    attempts = [taught.opening(one, rng) for one in asked]
    running = attempts
    for _ in range(MAX_TURNS):
        prompts = [render(tokenizer, messages, TOOLS, ask=True) for messages in running]
        for messages, sampled in zip(running, sample(model, tokenizer, prompts, MAX_TOKENS), strict=True):
            reply = heard(tokenizer, sampled)
            messages += [reply, *(_result(call, items) for call in reply.get("tool_calls", ()))]
        running = [messages for messages in running if messages[-1]["role"] == "tool"]
        if not running:
            break
    return attempts


def _asked(items: Sequence[Item], rng: random.Random) -> Question:
    """Return a random question; the kinds are as frequent as in a campaign."""
    case = taught.a_case(rng)
    names = [item.name for item in items] if case.item is not None else served(IMAGINED)
    return Question(case.asked.fact, rng.choice(names))


def _result(call: Message, items: Sequence[Item]) -> Message:
    """Return the server's result."""
    name, given = call["function"]["name"], call["function"]["arguments"]
    by, say = {
        "find_item": ("name", wording.found),
        "stock": ("item", wording.stocked),
        "price": ("item", wording.priced),
    }.get(name, ("", None))
    value = given.get(by) if isinstance(given, dict) else None
    found = next((item for item in items if value == (item.name if by == "name" else item.number)), None)
    content = say(found) if say is not None and value is not None else json.dumps({"error": "no such tool or argument"})
    return {"role": "tool", "tool_call_id": call["id"], "content": content}


def missed(measured: Mapping[str, Any]) -> list[str]:
    """Return the bounds that a model misses, one sentence each."""
    wrong = []
    if not LOWEST <= measured["success"] <= HIGHEST:
        wrong.append(f"right in {measured['success']:.1%} of attempts, not in {LOWEST:.0%} to {HIGHEST:.0%}")
    if measured["bytes"] > LARGEST_BYTES:
        wrong.append(f"{measured['bytes']} bytes, more than {LARGEST_BYTES}")
    return wrong


MAKER: Final = Maker(
    "examples.mcp_rl.make_model", "The warehouse's model", _DOES, RECIPE,
    {behave.__name__: share for behave, share in MIXTURE}, conversations, measure, missed,
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(MAKER.main())
