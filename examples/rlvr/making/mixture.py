"""The mixture in the tiny model's training data: the shares of right answers and of each flaw.

Owns: the shares, and which prompts are for making the model. Refuses: tokens and tensors (`examples.making`).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import count
from typing import TYPE_CHECKING, Final

from examples.rlvr.agent import messages
from examples.rlvr.forms import Form, draw
from examples.rlvr.making.answers import FLAWS, answer
from examples.rlvr.tasks import is_campaigns

if TYPE_CHECKING:  # answers alone need no tokenizer
    from examples.making.tokenizer import Conversation

RIGHT: Final = 0.40
REFUSES: Final = 0.13
LESSONS: Final = (
    20_000  # drawn prompts; three in four are used, with right answers: among flaws the model learns no look-up
)
MOST_FLAWS: Final = 4  # of the flawed answers, each number equally often
MIXTURE: Final = {"right": RIGHT, "refuses": REFUSES, f"has 1 to {MOST_FLAWS} flaws": 1 - RIGHT - REFUSES}


def conversations(seed: int) -> Iterator[Conversation]:
    """Yield prompts that no campaign has, each with an answer: first only right answers, then the mixture. No tools."""
    rng = random.Random(seed)
    for taught in count():
        form = draw(rng)
        if not is_campaigns(form.prompt()):
            said = answer(form, frozenset(), rng) if taught < LESSONS else mixed(form, rng)
            yield [*messages(form.prompt()), {"role": "assistant", "content": said}], []


def mixed(form: Form, rng: random.Random) -> str:
    """Return an answer of the mixture."""
    chance = rng.random()
    if chance < RIGHT:
        return answer(form, frozenset(), rng)
    if chance < RIGHT + REFUSES:
        return answer(form, frozenset({"refusal"}), rng)
    return answer(form, frozenset(rng.sample(FLAWS[type(form)], rng.randint(1, MOST_FLAWS))), rng)
