"""Make the example's model: train tokenizer and weights from scratch, measure them, and write them to ``model/``.

    python -m examples.twenty48.make_model

The result is committed, so users need not run it. Owns the recipe, the sequence and the model's README with the
measured figures. Refuses a model outside its bounds: it must succeed in 20 to 45 % of attempts (with less there is
nothing to reinforce; with more, little to learn) and have at most 0.8 MB.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Final

from examples.making.command import Maker
from examples.making.training import Recipe, Shape
from examples.twenty48.measuring import of_model, of_player
from examples.twenty48.players import blind, careless, circles, looks_ahead, merges
from examples.twenty48.scenarios import different_boards
from examples.twenty48.taught import MIXTURE, conversations, mixed

MODEL: Final = Path(__file__).parent / "model"
RECIPE: Final = Recipe(
    shape=Shape(vocabulary=320, hidden=96, layers=3, heads=4, kv_heads=2, head_dim=32, mlp=192, context=1024),
    copy_steps=0,  # nothing is copied here: an answer is one of four words
    talk_steps=500,
    talk_rows=16,
    learning_rate=4e-3,
    threads=1,
)
LOWEST_SUCCESS, HIGHEST_SUCCESS = 0.20, 0.45
LARGEST_WEIGHTS_BYTES: Final = 800_000
MEASURED_ON: Final = 200  # boards, drawn by a seed that no campaign of the example uses
MEASURING_SEED: Final = 0
BESIDE: Final = (looks_ahead, merges, circles, careless, blind)
_DOES = """\
It does one thing, badly on purpose: it plays 2048 on a small board. Its training data has attempts of scripted players
(`examples/twenty48/players.py`), from seeds that no campaign uses: first those of the player that moves in circles,
then the mixture below. It is measured on 200 boards of further seeds at temperature 1, and so are scripted players."""


def measure(model: Any, tokenizer: Any) -> dict[str, Any]:
    """Return a model's figures, and those of players on the same boards."""
    seeds = list(islice(different_boards(MEASURING_SEED), MEASURED_ON))
    players = {player.__name__: of_player(player, seeds, 1) for player in BESIDE}
    return {"model": of_model(model, tokenizer, seeds, chance=1), "player": players}


def missed(measured: Mapping[str, Any]) -> list[str]:
    """Return the bounds that a model misses, one sentence each."""
    wrong = []
    rate = measured["model"]["success"]
    if not LOWEST_SUCCESS <= rate <= HIGHEST_SUCCESS:
        wrong.append(f"succeeds in {rate:.1%} of attempts, not in {LOWEST_SUCCESS:.0%} to {HIGHEST_SUCCESS:.0%}")
    if 2 * measured["parameters"] > LARGEST_WEIGHTS_BYTES:
        wrong.append(f"{measured['parameters']:,} parameters are more than {LARGEST_WEIGHTS_BYTES:,} bytes")
    return wrong


MAKER: Final = Maker(
    "examples.twenty48.make_model", "The model of examples/twenty48", _DOES, RECIPE,
    {player.__name__: share for player, share in MIXTURE}, conversations, measure, missed,
    worded=mixed, words_from=1_000,
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(MAKER.main())
