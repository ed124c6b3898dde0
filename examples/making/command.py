"""The command that makes an example's model: train, measure, check against its bounds, and write it down.

    python -m examples.NAME.make_model [--folder FOLDER] [--measure-only]

Owns: this order. Refuses: the training data, the measure, and the bounds (a `Maker`, in each example's make_model.py).
A model is committed, so nobody has to make one.
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
    """How one example's model is made.

    `module`: the example's make_model, beside whose file the model lies. `does`: what the model is for, a paragraph of
    its README. `mixture`: shares of what it is taught, by name. `taught`: endless conversations by a seed, and
    `worded`, if set, others that the vocabulary is learned from, `words_from` of them. `measure`: figures of a model
    with its tokenizer. `missed`: the marks that such figures (with `bytes` and `parameters`) miss, each as a sentence.
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
        """What the vocabulary is learned from."""
        return texts_of(islice((self.worded or self.taught)(seed), self.words_from), seed)

    def make(self, folder: Path) -> None:
        """Train a model and write it, in bfloat16, with its tokenizer."""
        tokenizer = make_tokenizer(self.texts(self.recipe.seed), self.recipe.shape.vocabulary)
        model = train(tokenizer, self.recipe, self.taught(self.recipe.seed), partial(print, flush=True))
        save(folder, tokenizer, model)

    def measured(self, folder: Path) -> dict[str, Any]:
        """The figures of the model in a folder."""
        tokenizer = AutoTokenizer.from_pretrained(folder)
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        return {**self.measure(model, tokenizer), **size(folder, model)}

    def main(self) -> int:
        """Make, measure, write down; the exit status is 1 where the model misses a mark."""
        beside = ROOT.joinpath(*self.module.split(".")).with_name("model")
        parser = argparse.ArgumentParser(prog=f"python -m {self.module}", description=f"Make: {self.title}.")
        parser.add_argument("--folder", type=Path, default=beside, help="where it is written (default: %(default)s)")
        parser.add_argument("--measure-only", action="store_true", help="measure the model that is there")
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
