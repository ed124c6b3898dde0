"""The text of each token: read from a tokenizer's own spelling, and none where it does not add up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.engine.replica import _BYTES, read_pieces

LETTERS = {byte: letter for letter, byte in _BYTES.items()}


def spelled(pieces: list[bytes]) -> list[str]:
    return ["".join(LETTERS[byte] for byte in piece) for piece in pieces]


@pytest.mark.parametrize(
    ("text", "tokens", "pieces"),
    [
        ("It is on\n", ["It", "Ġis", "Ġon", "Ċ"], ["It", " is", " on", "\n"]),
        ("hi<|im_end|>", ["hi", "<|im_end|>"], ["hi", "<|im_end|>"]),
        ("a b", ["▁a", "▁b"], None),  # the first blank is not in the text
        ("a b", ["a", "▁b"], ["a", " b"]),
        ("other", ["It"], None),
        ("", [], []),
    ],
)
def test_a_spelling_is_read(text: str, tokens: list[str], pieces: list[str] | None) -> None:
    assert read_pieces(text, tokens) == pieces


def test_a_character_in_two_tokens_stands_with_the_second() -> None:
    euro = "€".encode()
    assert read_pieces("€!", spelled([euro[:2], euro[2:], b"!"])) == ["", "€", "!"]


@given(st.text(), st.data())
def test_however_a_text_is_cut_into_tokens_the_pieces_are_the_text(text: str, data: st.DataObject) -> None:
    raw = text.encode("utf-8", "replace")
    cuts = sorted(data.draw(st.sets(st.integers(0, len(raw)), max_size=8)))
    pieces = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    assert "".join(read_pieces(raw.decode(), spelled(pieces)) or "") == raw.decode()
