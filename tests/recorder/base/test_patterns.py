"""The built-in patterns find what they are for, and leave alone what only looks like it."""

from __future__ import annotations

import pytest

from recorder.base.patterns import BUILT_IN, is_luhn_valid, parse_pattern
from recorder.settings import RecorderSettings


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("email", "write to anna.b+c@mail.example.org!", "anna.b+c@mail.example.org"),
        ("email", "jürgen@münchen.de", "jürgen@münchen.de"),
        ("credit_card", "pay 4111 1111 1111 1111.", "4111 1111 1111 1111"),
        ("credit_card", "5500-0000-0000-0004", "5500-0000-0000-0004"),
        ("credit_card", "card378282246310005", "378282246310005"),
        ("api_key", "sk-proj-abcdefghij0123456789", "sk-proj-abcdefghij0123456789"),
        ("api_key", "Authorization: Bearer abcdef.0123456789_xyz", "Bearer abcdef.0123456789_xyz"),
        ("api_key", "AKIAIOSFODNN7EXAMPLE", "AKIAIOSFODNN7EXAMPLE"),
        ("api_key", "eyJhbGciOiJI.eyJzdWIiOiIx.c2lnbmF0dXJl", "eyJhbGciOiJI.eyJzdWIiOiIx.c2lnbmF0dXJl"),
        ("phone", "call +49 (0)30 901820 now", "+49 (0)30 901820"),
        ("phone", "(212) 555-0142", "(212) 555-0142"),
    ],
)
def test_a_pattern_finds_what_it_is_for(name: str, text: str, found: str) -> None:
    assert [text[a:b] for a, b in BUILT_IN[name].spans(text)] == [found]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("email", "@decorator and a@b"),
        ("credit_card", "4111 1111 1111 1112"),  # a wrong check digit
        ("credit_card", "order 482112345678"),  # too short
        ("credit_card", "41111111111111110000000"),  # a part of a longer number
        ("api_key", "a task-list, an sk-8 and bearer of news"),
        ("phone", "1763640000 seconds, 12-10-2026, tracking 5551234567"),
        *((name, "A" * 100_000) for name in BUILT_IN),
    ],
)
def test_a_pattern_leaves_alone_what_only_looks_like_it(name: str, text: str) -> None:
    assert list(BUILT_IN[name].spans(text)) == []


def test_the_check_digit_is_luhns() -> None:
    assert is_luhn_valid("79927398713")
    assert not any(is_luhn_valid(f"7992739871{d}") for d in "012456789")


@pytest.mark.parametrize(
    ("entry", "told"),
    [("emial", "did you mean 'email'"), ("(", "not a regular expression"), ("[0-9]*", "matches the empty text")],
)
def test_an_entry_that_would_not_do_what_was_meant_is_refused(entry: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        RecorderSettings(redact=[entry])


def test_an_entry_is_a_name_or_a_regular_expression() -> None:
    assert parse_pattern("email") is BUILT_IN["email"]
    assert list(parse_pattern("order-[0-9]+").spans("my order-12!")) == [(3, 11)]
