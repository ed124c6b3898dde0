"""Whether a stronger model's tokenizer is the base's: compared on texts, not assumed from a name.

Owns: the fixed texts, and the comparison of the ids. Refuses: requests (`trainer.teachers.remote_model`).

A logprob of a token says nothing about another tokenizer's token with the same id. The texts are fixed ones, the marks
of the base's chat template, and the texts of the turns that are scored.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, Protocol

from trainer.batch.packing import Ids

MOST_CHARS: Final = 20_000  # of one text
_FIXED: Final = (
    "The parcel 4821 was sent on 2026-03-09 at 07:45; it weighs 12.50 kg.",
    '{"name": "track_parcel", "arguments": {"id": 4821, "deep": [null, true, -0.5e3]}}',
    "def f(x):\n    return x**2 if x > 0 else  None\t# twice\n\n\n",
    "Grüße, naïve café: 東京は寒い。 Привет! مرحبا 👩‍🚀 ½ ≠ ∞",
    "  leading spaces, trailing ones   and\r\nboth kinds of lines",
)


class Tokenizer(Protocol):
    """The base's tokenizer (`trainer.demonstrations.chat_template.ChatTemplate`)."""

    @property
    def marks(self) -> Sequence[str]:
        """The texts that are single tokens of their own."""

    def encode(self, text: str) -> Ids:
        """Return the ids of a text."""

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids."""


async def find_difference(
    own: Tokenizer, tokenize: Callable[[str], Awaitable[Sequence[int]]], turns: Iterable[Sequence[int]]
) -> str | None:
    """Return the beginning of the first text whose ids differ; None: the tokenizers agree.

    `tokenize`: the stronger model's. `turns`: ids of recorded turns, whose texts are compared too.
    """
    for text in (*_FIXED, "\n".join(own.marks), *map(own.decode, turns)):
        cut = text[:MOST_CHARS]
        if list(await tokenize(cut)) != own.encode(cut).tolist():
            return cut[:60]
    return None
