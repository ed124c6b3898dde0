"""Makes the example's model: tokenizer and weights from scratch, measured and written to ``model/``.

    python -m examples.twenty48.make_model

Its result is committed, so nobody has to. Owns the recipe, the order of things and the model's README, whose numbers
are this run's. Refuses to pass a model that misses its marks: one that succeeds in 20 to 45 % of attempts (less, and
there is nothing to reinforce; more, and there is little to learn) and weighs 0.8 MB at most.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from examples.making.note import note_of, save, size, write_note
from examples.making.tokenizer import make_tokenizer, texts_of
from examples.making.training import Recipe, Shape, train
from examples.twenty48.measuring import of_model, of_player
from examples.twenty48.players import blind, careless, looks_ahead, merges
from examples.twenty48.scenarios import different_boards
from examples.twenty48.taught import MIXTURE, conversations, mixed

MODEL: Final = Path(__file__).parent / "model"
RECIPE: Final = Recipe(
    shape=Shape(vocabulary=320, hidden=96, layers=3, heads=4, kv_heads=2, head_dim=32, mlp=192, context=1024),
    copy_steps=0,  # nothing is copied here: an answer is one of four words
    talk_steps=720,
    talk_rows=16,
    learning_rate=4e-3,
    threads=1,
)
LOWEST_SUCCESS, HIGHEST_SUCCESS = 0.20, 0.45
LARGEST_WEIGHTS_BYTES: Final = 800_000
MEASURED_ON: Final = 100  # boards, drawn by a seed that no campaign of the example has
MEASURING_SEED: Final = 0
_TITLE = "The model of examples/twenty48"
_DOES = """\
It can do one thing: play 2048 on a small board, and that badly on purpose. It was taught attempts of players that are
no models (`examples/twenty48/players.py`): first those of one that merges where it can, then the mixture below, from
boards that no campaign uses. It is measured on 100 others at temperature 1, and players beside it on the same ones."""


def make(folder: Path, recipe: Recipe) -> None:
    """Train a model and write it, in bfloat16, with its tokenizer."""
    texts = texts_of(islice(mixed(recipe.seed), 1_000), recipe.seed)
    tokenizer = make_tokenizer(texts, recipe.shape.vocabulary)
    save(folder, tokenizer, train(tokenizer, recipe, conversations(recipe.seed), partial(print, flush=True)))


def measure(folder: Path) -> dict[str, Any]:
    """Measure the model in a folder, and players on the same boards."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    seeds = list(islice(different_boards(MEASURING_SEED), MEASURED_ON))
    players = {player.__name__: of_player(player, seeds, 1) for player in (looks_ahead, merges, careless, blind)}
    return {"model": of_model(model, tokenizer, seeds, chance=1), "player": players, **size(folder, model)}


def missed(measured: Mapping[str, Any]) -> list[str]:
    """The marks that a model misses, each as a sentence."""
    wrong = []
    rate = measured["model"]["success"]
    if not LOWEST_SUCCESS <= rate <= HIGHEST_SUCCESS:
        wrong.append(f"succeeds in {rate:.1%} of attempts, not in {LOWEST_SUCCESS:.0%} to {HIGHEST_SUCCESS:.0%}")
    if 2 * measured["parameters"] > LARGEST_WEIGHTS_BYTES:
        wrong.append(f"{measured['parameters']:,} parameters are more than {LARGEST_WEIGHTS_BYTES:,} bytes")
    return wrong


def main() -> int:
    """Make, measure, write down."""
    parser = argparse.ArgumentParser(description="Make the model of examples/twenty48.")
    parser.add_argument("--folder", type=Path, default=MODEL, help="where it is written (model/ beside this file)")
    parser.add_argument("--measure-only", action="store_true", help="measure the model that is there")
    given = parser.parse_args()
    if given.measure_only:
        print(json.dumps(measure(given.folder), indent=2))
        return 0
    started = time.monotonic()
    make(given.folder, RECIPE)
    seconds = time.monotonic() - started
    measured = measure(given.folder)
    note = note_of(RECIPE, {player.__name__: share for player, share in MIXTURE}, seconds, measured)
    write_note(given.folder, _TITLE, _DOES, "python -m examples.twenty48.make_model", note)
    print(json.dumps(note, indent=2))
    for why in missed(measured):
        print(f"not good enough: {why}", file=sys.stderr)
    return bool(missed(measured))


if __name__ == "__main__":
    sys.exit(main())
