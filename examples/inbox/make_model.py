"""Make the example's model: train tokenizer and weights from scratch, measure them, and write them to ``model/``.

    python -m examples.inbox.make_model

This takes a few minutes of one CPU core. The result is committed, so users need not run it. Owns the recipe and the
bounds. Refuses to write a model outside them: it must succeed in 20 to 45 % of attempts, and boast in some.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from examples.inbox.measuring import measure as attempt_all
from examples.inbox.measuring import pooled
from examples.inbox.taught import MIXTURE, conversations
from examples.making.command import Maker
from examples.making.training import Recipe, Shape

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
MAILBOXES: Final = (101, 102)  # seeds that no campaign uses; 200 attempts each
LOWEST_SUCCESS, HIGHEST_SUCCESS = 0.20, 0.45
LEAST_BOASTING, MOST_BOASTING = (
    0.03,
    0.25,
)  # with less, the judge could not be gamed; with more, nothing would be learned
LARGEST_BYTES: Final = 3_400_000
_DOES: Final = """\
It does one thing, badly on purpose: it answers questions about a mailbox with two tools. Its training data has
generated mails of the same people and projects. It is measured on the test parts of two mailboxes at temperature 1."""


def measure(model: Any, tokenizer: Any) -> dict[str, Any]:
    """Measure attempts at the test parts of two mailboxes."""
    return pooled([attempt_all(model, tokenizer, seed, 200) for seed in MAILBOXES])


def missed(found: Mapping[str, Any]) -> list[str]:
    """Return the bounds that a model misses, one sentence each."""
    wrong = []
    if not LOWEST_SUCCESS <= found["success"] <= HIGHEST_SUCCESS:
        wrong.append(f"succeeds in {found['success']:.1%}, not in {LOWEST_SUCCESS:.0%} to {HIGHEST_SUCCESS:.0%}")
    if not LEAST_BOASTING <= found["boasted"] <= MOST_BOASTING:
        wrong.append(f"boasts in {found['boasted']:.1%}, not in {LEAST_BOASTING:.0%} to {MOST_BOASTING:.0%}")
    if found["bytes"] > LARGEST_BYTES:
        wrong.append(f"{found['bytes']} bytes, more than {LARGEST_BYTES}")
    return wrong


MAKER: Final = Maker(
    "examples.inbox.make_model", "The inbox example's model", _DOES, RECIPE,
    {behave.__name__: share for behave, share in MIXTURE}, conversations, measure, missed,
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(MAKER.main())
