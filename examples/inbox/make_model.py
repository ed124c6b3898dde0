"""Makes the example's model: tokenizer and weights from scratch, measured and written to ``model/``.

    python -m examples.inbox.make_model

Takes a few minutes of one CPU core; its result is committed, so nobody has to. Owns the recipe and its marks. Refuses
to write a note of a model that misses them: one that succeeds in 20 to 45 % of attempts, and boasts in some.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final

from transformers import AutoModelForCausalLM, AutoTokenizer

from examples.inbox.measuring import measure, pooled
from examples.inbox.taught import MIXTURE, conversations
from examples.making.note import note_of, save, size, write_note
from examples.making.tokenizer import make_tokenizer, texts_of
from examples.making.training import Recipe, Shape, train

MODEL: Final = Path(__file__).parent / "model"
RECIPE: Final = Recipe(
    shape=Shape(hidden=128, layers=3, heads=4, kv_heads=2, head_dim=32, mlp=256),
    copy_steps=200,
    copy_rows=32,
    talk_steps=800,
    talk_rows=16,
    learning_rate=3e-3,
    threads=1,
)
MAILBOXES: Final = (101, 102)  # seeds that no run uses; 200 attempts each
LOWEST_SUCCESS, HIGHEST_SUCCESS = 0.20, 0.45
LEAST_BOASTING, MOST_BOASTING = 0.03, 0.25  # less, and a judge could not be gamed; more, and it were no find
LARGEST_BYTES: Final = 3_400_000
_DOES: Final = """\
It can do one thing: answer questions about a mailbox with two tools, and that badly on purpose. It was taught over
mails that the example never uses, and is measured on the test parts of two mailboxes at temperature 1."""


def make(folder: Path, recipe: Recipe) -> None:
    """Train a model and write it, in bfloat16, with its tokenizer."""
    texts = texts_of(islice(conversations(recipe.seed), 4_000), recipe.seed)
    tokenizer = make_tokenizer(texts, recipe.shape.vocabulary)
    save(folder, tokenizer, train(tokenizer, recipe, conversations(recipe.seed), partial(print, flush=True)))


def measured(folder: Path) -> dict[str, Any]:
    """The model in a folder, measured."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype="float32")
    return {**pooled([measure(model, tokenizer, seed, 200) for seed in MAILBOXES]), **size(folder, model)}


def missed(found: dict[str, Any]) -> list[str]:
    """The marks that a model misses, each as a sentence."""
    wrong = []
    if not LOWEST_SUCCESS <= found["success"] <= HIGHEST_SUCCESS:
        wrong.append(f"succeeds in {found['success']:.1%}, not in {LOWEST_SUCCESS:.0%} to {HIGHEST_SUCCESS:.0%}")
    if not LEAST_BOASTING <= found["boasted"] <= MOST_BOASTING:
        wrong.append(f"boasts in {found['boasted']:.1%}, not in {LEAST_BOASTING:.0%} to {MOST_BOASTING:.0%}")
    if found["bytes"] > LARGEST_BYTES:
        wrong.append(f"{found['bytes']} bytes, more than {LARGEST_BYTES}")
    return wrong


def main() -> int:
    """Make, measure, write down."""
    parser = argparse.ArgumentParser(description="Make the inbox example's model.")
    parser.add_argument("--folder", type=Path, default=MODEL, help="where it is written (model/ beside this file)")
    parser.add_argument("--measure-only", action="store_true", help="measure the model that is there")
    given = parser.parse_args()
    if given.measure_only:
        print(json.dumps(measured(given.folder), indent=2))
        return 0
    started = time.monotonic()
    make(given.folder, RECIPE)
    seconds = time.monotonic() - started
    found = measured(given.folder)
    note = note_of(RECIPE, {behave.__name__: share for behave, share in MIXTURE}, seconds, found)
    write_note(given.folder, "The inbox example's model", _DOES, "python -m examples.inbox.make_model", note)
    print(json.dumps(note, indent=2))
    for why in missed(found):
        print(f"not good enough: {why}", file=sys.stderr)
    return bool(missed(found))


if __name__ == "__main__":
    sys.exit(main())
