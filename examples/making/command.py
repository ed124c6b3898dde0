"""The command that makes an example's model: train, measure, check its bounds, and write it.

    python -m examples.NAME.make_model [--folder FOLDER] [--measure-only]

Owns: this sequence. Refuses: the training data, the measure, and the bounds (a `Maker` in each example's
make_model.py). The models are committed, so users need not make them.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from examples.making.note import note_of, save, size, write_note
from examples.making.tokenizer import Conversation, make_tokenizer, texts_of
from examples.making.training import Recipe, train

ROOT: Final = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Maker:
    """The parts of one example's make_model.

    `module`: the example's make_model; the model is written beside its file. `does`: a paragraph of the model's README.
    `mixture`: the shares of the training data, by name. `taught`: training conversations of a seed, without end.
    `worded`, if set: other conversations for the vocabulary, `words_from` of them. `measure`: figures of a model with
    its tokenizer. `missed`: the bounds that such figures (with `bytes` and `parameters`) miss, one sentence each.
    """

    module: str
    title: str
    does: str
    recipe: Recipe
    mixture: Mapping[str, float]
    taught: Callable[[int], Iterator[Conversation]]
    measure: Callable[[Any, Any], dict[str, Any]]
    missed: Callable[[Mapping[str, Any]], list[str]]
    worded: Callable[[int], Iterator[Conversation]] | None = None
    words_from: int = 4_000

    def texts(self, seed: int) -> Iterator[str]:
        """Return the texts for the vocabulary."""
        return texts_of(islice((self.worded or self.taught)(seed), self.words_from), seed)

    def make(self, folder: Path) -> None:
        """Train a model, and write it in bfloat16 with its tokenizer."""
        tokenizer = make_tokenizer(self.texts(self.recipe.seed), self.recipe.shape.vocabulary)
        model = train(tokenizer, self.recipe, self.taught(self.recipe.seed), partial(print, flush=True))
        save(folder, tokenizer, model)

    def measured(self, folder: Path) -> dict[str, Any]:
        """Return the figures of the model in a folder."""
        tokenizer = AutoTokenizer.from_pretrained(folder)
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        return {**self.measure(model, tokenizer), **size(folder, model)}

    def main(self) -> int:
        """Make, measure and write a model. The exit status is 1 if the model misses a bound."""
        beside = ROOT.joinpath(*self.module.split(".")).with_name("model")
        parser = argparse.ArgumentParser(prog=f"python -m {self.module}", description=f"Make: {self.title}.")
        parser.add_argument("--folder", type=Path, default=beside, help="folder for the model (default: %(default)s)")
        parser.add_argument("--measure-only", action="store_true", help="only measure the existing model")
        given = parser.parse_args()
        if given.measure_only:
            print(json.dumps(self.measured(given.folder), indent=2))
            return 0
        started = time.monotonic()
        self.make(given.folder)
        seconds = time.monotonic() - started
        found = self.measured(given.folder)
        note = note_of(self.recipe, self.mixture, seconds, found)
        write_note(given.folder, self.title, self.does, f"python -m {self.module}", note)
        print(json.dumps(note, indent=2))
        missed = self.missed(found)
        for why in missed:
            print(f"not good enough: {why}", file=sys.stderr)
        return bool(missed)
