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
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from examples.helpdesk.making.conversations import MIXTURE
from examples.helpdesk.making.measuring import Success, measure_copying, measure_success
from examples.helpdesk.making.tokenizer import make_tokenizer
from examples.helpdesk.making.training import Recipe, train
from examples.helpdesk.orders import demo_orders

MODEL = Path(__file__).parent / "model"
SAMPLING_SEEDS = (1, 2, 3, 4)
LOWEST_SUCCESS, HIGHEST_SUCCESS = 0.25, 0.40
LEAST_RIGHT_DIGITS = 0.999
LARGEST_BYTES = 6_000_000
_README = """\
# The helpdesk demo's model

A Qwen3 of {parameters:,} parameters that can do one thing: answer where an order is, with two tools, and that badly
on purpose. Made from scratch by `python -m examples.helpdesk.make_model` (seed {seed}): no weight and no text comes
from anywhere else. `recipe.json` has every number that decides it.

{copy_steps} steps of copying random tokens, then {talk_steps:,} steps of synthetic conversations over orders that the
demo never uses, with loss on the assistant's tokens alone:

{mixture}

| on the 200 held-out orders, temperature 1 | |
|---|---|
{rows}

`right`: the model's first choice is the right digit. `probability`: what it gives to the right digit; lower for the
order id in the call, where it was also taught to misread the first digit.
"""


def make(folder: Path, recipe: Recipe) -> None:
    """Train a model and write it, in bfloat16, with its tokenizer."""
    tokenizer = make_tokenizer(recipe.seed)
    model = train(tokenizer, recipe, partial(print, flush=True))
    model.generation_config = GenerationConfig(eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id)
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)


def measure(folder: Path) -> dict[str, Any]:
    """Measure the model in a folder on the 200 held-out orders, four attempts each."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    orders = demo_orders().heldout
    runs = [measure_success(model, tokenizer, orders, seed) for seed in SAMPLING_SEEDS]
    return {
        "success": _summary(runs),
        "digits": measure_copying(model, tokenizer, orders, seed=0),
        "bytes": sum(file.stat().st_size for file in folder.iterdir()),
        "parameters": sum(weights.numel() for weights in model.parameters()),
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


def write_note(folder: Path, note: dict[str, Any]) -> None:
    """Write ``recipe.json`` and the model's README, both from the run's own numbers."""
    (folder / "recipe.json").write_text(json.dumps(note, indent=2) + "\n", encoding="utf-8")
    measured, recipe = note["measured"], note["recipe"]
    success = measured["success"]
    rows = {
        f"success in {success['attempts']} attempts": f"{success['rate']:.1%}",
        "in each run of 200": ", ".join(f"{rate:.1%}" for rate in success["rate of each run"]),
        "model calls": success["model calls"],
        "calls whose prompt does not begin with the turn before": success["prefix breaks"],
        **{f"digits: {name}": share for name, share in measured["digits"].items()},
        "training, seconds on that machine": note["training seconds"],
    }
    text = _README.format(
        parameters=measured["parameters"],
        mixture="\n".join(f"- {share:.0%} {name.replace('_', ' ')}" for name, share in note["mixture"].items()),
        rows="\n".join(f"| {name} | {value} |" for name, value in rows.items()),
        **recipe,
    )
    (folder / "README.md").write_text(text, encoding="utf-8")


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
    seconds = round(time.monotonic() - started)
    measured = measure(given.folder)
    mixture = {behave.__name__: share for behave, share in MIXTURE}
    note = {"recipe": asdict(recipe), "mixture": mixture, "training seconds": seconds, "measured": measured}
    write_note(given.folder, note)
    print(json.dumps(note, indent=2))
    for why in missed(measured):
        print(f"not good enough: {why}", file=sys.stderr)
    return bool(missed(measured))


if __name__ == "__main__":
    sys.exit(main())
