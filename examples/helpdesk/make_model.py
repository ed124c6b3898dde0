"""Makes the demo's model: tokenizer and weights from scratch, measured and written to ``model/``.

    python -m examples.helpdesk.make_model

Takes ten to fifteen minutes on two CPU cores; its result is committed, so nobody has to. Owns the order of things
and the model's README, whose numbers are this run's. Refuses to write a model that misses its marks: one that
succeeds in 25 to 40 % of attempts (less, and there is nothing to reinforce; more, and there is nothing to learn)
and copies digits.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from examples.helpdesk.making.conversations import MIXTURE, TOOLS, conversations
from examples.helpdesk.making.measuring import Success, measure_copying, measure_success
from examples.helpdesk.orders import demo_orders
from examples.making.note import note_of, save, size, write_note
from examples.making.tokenizer import Conversation, make_tokenizer, texts_of
from examples.making.training import Recipe, train

MODEL = Path(__file__).parent / "model"
SAMPLING_SEEDS = (1, 2, 3, 4)
LOWEST_SUCCESS, HIGHEST_SUCCESS = 0.25, 0.40
LEAST_RIGHT_DIGITS = 0.999
LARGEST_BYTES = 6_000_000
_TITLE = "The helpdesk demo's model"
_DOES = """\
It can do one thing: answer where an order is, with two tools, and that badly on purpose. It was taught over orders that
the demo never uses and is measured on the demo's 200 held-out ones at temperature 1. `digits … right`: the model's
first choice is the right digit. `digits … probability`: what it gives to the right digit; lower for the order id in the
call, where it was also taught to misread the first digit."""


def taught(seed: int) -> Iterator[Conversation]:
    """The endless mixture that the model learns, each conversation with the demo's tools."""
    return ((messages, TOOLS) for messages in conversations(seed))


def texts(seed: int) -> Iterator[str]:
    """What the vocabulary is learned from: 4,000 of these conversations."""
    return texts_of(islice(taught(seed), 4_000), seed)


def make(folder: Path, recipe: Recipe) -> None:
    """Train a model and write it, in bfloat16, with its tokenizer."""
    tokenizer = make_tokenizer(texts(recipe.seed), recipe.shape.vocabulary)
    save(folder, tokenizer, train(tokenizer, recipe, taught(recipe.seed), partial(print, flush=True)))


def measure(folder: Path) -> dict[str, Any]:
    """Measure the model in a folder on the 200 held-out orders, four attempts each."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    orders = demo_orders().heldout
    runs = [measure_success(model, tokenizer, orders, seed) for seed in SAMPLING_SEEDS]
    return {
        "success": _summary(runs),
        "digits": measure_copying(model, tokenizer, orders, seed=0),
        **size(folder, model),
    }


def missed(measured: dict[str, Any]) -> list[str]:
    """The marks that a model misses, each as a sentence."""
    wrong = []
    rate = measured["success"]["rate"]
    if not LOWEST_SUCCESS <= rate <= HIGHEST_SUCCESS:
        wrong.append(f"succeeds in {rate:.1%} of attempts, not in {LOWEST_SUCCESS:.0%} to {HIGHEST_SUCCESS:.0%}")
    for name, share in measured["digits"].items():
        if name.endswith("right") and share < LEAST_RIGHT_DIGITS:
            wrong.append(f"{name}: {share:.4f} of digits, less than {LEAST_RIGHT_DIGITS}")
    if measured["bytes"] > LARGEST_BYTES:
        wrong.append(f"{measured['bytes']} bytes, more than {LARGEST_BYTES}")
    return wrong


def _summary(runs: list[Success]) -> dict[str, Any]:
    attempts = sum(run.attempts for run in runs)
    return {
        "rate": round(sum(run.succeeded for run in runs) / attempts, 4),
        "rate of each run": [round(run.rate, 4) for run in runs],
        "attempts": attempts,
        "model calls": sum(run.calls for run in runs),
        "prefix breaks": sum(run.prefix_breaks for run in runs),
    }


def main() -> int:
    """Make, measure, write down."""
    parser = argparse.ArgumentParser(description="Make the demo's model.")
    parser.add_argument("--folder", type=Path, default=MODEL, help="where it is written (model/ beside this file)")
    parser.add_argument("--measure-only", action="store_true", help="measure the model that is there")
    given = parser.parse_args()
    recipe = Recipe()
    if given.measure_only:
        print(json.dumps(measure(given.folder), indent=2))
        return 0
    started = time.monotonic()
    make(given.folder, recipe)
    seconds = time.monotonic() - started
    measured = measure(given.folder)
    note = note_of(recipe, {behave.__name__: share for behave, share in MIXTURE}, seconds, measured)
    write_note(given.folder, _TITLE, _DOES, "python -m examples.helpdesk.make_model", note)
    print(json.dumps(note, indent=2))
    for why in missed(measured):
        print(f"not good enough: {why}", file=sys.stderr)
    return bool(missed(measured))


if __name__ == "__main__":
    sys.exit(main())
