"""Make the example's model: train tokenizer and weights from scratch, measure them, and write them to ``model/``.

    OMP_NUM_THREADS=1 python -m examples.rlvr.make_model

This takes ten minutes of one CPU core. The result is committed, so users need not run it. Owns the sequence and the
bounds. A model is within its bounds if 20 to 45 % of its answers are right (with less there is nothing to reinforce;
with more, nothing to learn) and it has at most 1.8 MB.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final

import torch

from examples.making.command import Maker
from examples.making.sampling import sample
from examples.making.tokenizer import END, render
from examples.making.training import Recipe, Shape
from examples.rlvr.agent import MAX_TOKENS, messages
from examples.rlvr.checks import share_met
from examples.rlvr.forms import Form
from examples.rlvr.making.mixture import MIXTURE, conversations
from examples.rlvr.tasks import TEST, forms

MODEL: Final = Path(__file__).parent / "model"
# What did not work: no or little copying first (0.0 and 0.3 % of answers succeeded), the mixture from the beginning
# (10.0 %), and words with other tokens in a prompt than in an answer, " coin" and "coin" (JSON: 1 %).
RECIPE: Final = Recipe(
    shape=Shape(hidden=128, layers=4, heads=4, kv_heads=2, head_dim=32, mlp=352),
    copy_steps=400,
    talk_steps=1_000,
    threads=1,
)
MEASURED: Final = 300  # prompts of the campaign's kind, one answer each
LOWEST_SUCCESS, HIGHEST_SUCCESS = 0.20, 0.45
LARGEST_BYTES: Final = 1_900_000  # the tokenizer's files are in it
_DOES: Final = """\
It does one thing, badly on purpose: it writes a note, a numbered list or a JSON object as a prompt asks. Its words are
the 40 of `words.py`. Its training data has first only right answers, to 15,000 prompts, then the mixture below."""


def measure(model: Any, tokenizer: Any) -> dict[str, Any]:
    """Measure a model on prompts of the campaign's kind, with plain transformers at temperature 1."""
    torch.manual_seed(1)
    asked = list(islice(forms(seed=TEST), MEASURED))
    prompts = [render(tokenizer, messages(form.prompt()), [], ask=True) for form in asked]
    answers = [tokenizer.decode(ids).removesuffix(END) for ids in sample(model, tokenizer, prompts, MAX_TOKENS)]
    return {"answers": MEASURED, **figures(asked, answers)}


def figures(asked: list[Form], answers: list[str]) -> dict[str, Any]:
    """Return the share of right answers, in all and by form, and the mean share of criteria met."""
    done = [form.fulfilled_by(answer) for form, answer in zip(asked, answers, strict=True)]
    met = [share_met(form.criteria(), answer) for form, answer in zip(asked, answers, strict=True)]
    by_form = {
        kind.__name__.lower(): _mean([right for form, right in zip(asked, done, strict=True) if type(form) is kind])
        for kind in sorted({type(form) for form in asked}, key=lambda kind: kind.__name__)
    }
    return {"success": _mean(done), "success of a": by_form, "criteria met": _mean(met)}


def missed(measured: Mapping[str, Any]) -> list[str]:
    """Return the bounds that a model misses, one sentence each."""
    wrong, rate = [], measured["success"]
    if not LOWEST_SUCCESS <= rate <= HIGHEST_SUCCESS:
        wrong.append(f"succeeds in {rate:.1%} of answers, not in {LOWEST_SUCCESS:.0%} to {HIGHEST_SUCCESS:.0%}")
    if measured["bytes"] > LARGEST_BYTES:
        wrong.append(f"{measured['bytes']} bytes, more than {LARGEST_BYTES}")
    return wrong


def _mean(values: Sequence[float]) -> float:
    return round(sum(values) / len(values), 4)


MAKER: Final = Maker(
    "examples.rlvr.make_model", "The model of examples/rlvr", _DOES, RECIPE, MIXTURE, conversations, measure, missed
)

if __name__ == "__main__":
    sys.exit(MAKER.main())
