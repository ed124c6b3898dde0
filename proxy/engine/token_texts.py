"""The text of each token, from an engine's tokenizer.

Owns: asking an engine, and decoding the two spellings of tokenizers (bytes as letters, `▁` as a blank). Refuses:
guessing: the pieces must join to the text, and the text's tokens must be the ids; otherwise there are none.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import Final

from proxy.engine.replica import Replica

_BLANK: Final = "\u2581"


async def token_texts(replica: Replica, model: str, ids: Sequence[int]) -> list[str] | None:
    """Return the text of each id; None if it cannot be determined. Raises EngineUnreachable, EngineError."""
    text = await replica.text_of(model, ids)
    tokens, spelled = await replica.spelled(model, text)
    return read_pieces(text, spelled) if tokens == list(ids) else None


def read_pieces(text: str, spelled: Sequence[str]) -> list[str] | None:
    """Return the pieces of a text from its tokens' spellings; None if they do not join to it."""
    for reading in (_letters_as_bytes, _blanks):
        pieces = reading(spelled)
        if "".join(pieces) == text:
            return pieces
    return None


def _letters_as_bytes(spelled: Sequence[str]) -> list[str]:
    """Decode byte-level BPE, in which each letter represents a byte. The last token of a character has its text."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    pieces = []
    for token in spelled:
        if all(letter in _BYTES for letter in token):
            pieces.append(decoder.decode(bytes(_BYTES[letter] for letter in token)))
        else:
            pieces.append(decoder.decode(b"", final=True) + token)  # a special token is spelled as its text
            decoder.reset()
    if pieces:
        pieces[-1] += decoder.decode(b"", final=True)
    return pieces


def _blanks(spelled: Sequence[str]) -> list[str]:
    """Decode SentencePiece, in which a mark represents a blank."""
    return [token.replace(_BLANK, " ") for token in spelled]


def _letters() -> dict[str, int]:
    """Return GPT-2's table, letter → byte: printable bytes are their own letter, the others have letters from
    256 on.
    """
    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + at): byte for at, byte in enumerate(others)}


_BYTES: Final = _letters()
