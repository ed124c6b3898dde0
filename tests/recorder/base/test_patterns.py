"""The built-in patterns find what they are for, and leave alone what only looks like it."""

# ruff: noqa: E501 - tables
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
        ("credit_card", "1234 5678 9012 3456 7890 1234"),
        ("credit_card", "2024-01-02 10:11:12, 1763640000122 and 1763640000.123"),
        ("credit_card", "1111 1111 1111 1111 1111 1111 1111 1111"),  # a row of numbers, and no issuer's
        ("api_key", "the task-manager-of-this-company, a sky-blue_background_image_file, desk-lamp-with-a-long-name"),
        ("api_key", "basic internationalization"),
        ("phone", "1763640000 seconds, 12-10-2026, tracking 5551234567"),
        *((name, "A" * 100_000) for name in BUILT_IN),
    ],
)
def test_a_pattern_leaves_alone_what_only_looks_like_it(name: str, text: str) -> None:
    assert list(BUILT_IN[name].spans(text)) == []


# As people write a card: alone, in groups, and beside its date, its code and other numbers.
CARDS = [
    "4111111111111111",
    "4111 1111 1111 1111",
    "4111-1111-1111-1111",
    "4111\u00a01111\u00a01111\u00a01111",
    "4111\u202f1111\u202f1111\u202f1111",
    "4111\u20111111\u20111111\u20111111",
    "4111\u20131111\u20131111\u20131111",
    "4111 - 1111 - 1111 - 1111",
    "4111.1111.1111.1111",
    "4111_1111_1111_1111",
    "4111  1111  1111  1111",
    "4111\n1111\n1111\n1111",
    "4 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1",
    "41111111 11111111",
    r"4111\u00a01111\u00a01111\u00a01111",
    "3782 822463 10005",
    "378282246310005",
    "3056 930902 5904",
    "5555 5555 5555 4444",
    "2223 0031 2200 3222",
    "6011 1111 1111 1117",
    "3530 1113 3330 0000",
    "6200 0000 0000 0005",
    "6304 0000 0000 0000",
    "4000 0000 0000 0000 006",
]
BESIDE = [
    "{}", "card {}.", "{} 12/27", "{} 12/27 123", "{} 1227 123", "{}, 123", "{}/123", "{} 123", "{}|12|2027|123", "{};12;27;123",
    "{} exp 12/27 cvc 123", "12/27 {}", "123 {}", "3 x {}", "order 48213 {} 99", "2024-01-02 {} 10:11", "{}-123", "{} - 12/27",
    "12345 {} 67890 1", "{}\t12\t2027", "+49 30 901820 {}", "{}\\n12/27", '{{"n": "{}", "m": 12}}', "tel 2125550142 {} 123",
]  # fmt: skip


@pytest.mark.parametrize("beside", BESIDE)
@pytest.mark.parametrize("card", CARDS)
def test_a_card_is_found_however_it_is_written(card: str, beside: str) -> None:
    if card.startswith("4 1 1") and beside not in (
        "{}",
        "card {}.",
        "{}, 123",
        "{}/123",
        "{}|12|2027|123",
        "{};12;27;123",
    ):
        return  # single digits beside others are a row of numbers
    text = beside.format(card)
    start = text.index(card)
    spans = list(BUILT_IN["credit_card"].spans(text))
    assert any(a <= start and start + len(card) <= b for a, b in spans), (text, [text[a:b] for a, b in spans])


def test_several_cards_side_by_side_are_found() -> None:
    text = "4111 1111 1111 1111 5555 5555 5555 4444 3782 822463 10005, 4012888888881881 4222222222222"
    found = [text[a:b] for a, b in sorted(BUILT_IN["credit_card"].spans(text))]
    for card in (
        "4111 1111 1111 1111",
        "5555 5555 5555 4444",
        "3782 822463 10005",
        "4012888888881881",
        "4222222222222",
    ):
        assert card in found


@pytest.mark.parametrize("size", [1 << 18, (1 << 18) - 7, (1 << 18) - 30])
@pytest.mark.parametrize(
    ("name", "secret"),
    [("credit_card", "4111 1111 1111 1111"), ("api_key", "sk-proj-abcdefghij0123456789"), ("email", "anna@example.org"),
     ("phone", "+49 (0)30 901820")],
)  # fmt: skip
def test_a_match_across_two_pieces_of_a_long_text_is_found_once(name: str, secret: str, size: int) -> None:
    text = "x " * (size // 2) + secret + " y" * size
    assert [text[a:b] for a, b in BUILT_IN[name].spans(text)] == [secret]


def test_a_key_that_is_longer_than_a_piece_goes_as_a_whole() -> None:
    text = "sk-" + "a" * 1_000_000 + " end"
    covered = sorted(BUILT_IN["api_key"].spans(text))
    assert covered[0][0] == 0
    assert max(b for _, b in covered) == len(text) - 4


ALNUM = "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC1eF3hJ5kL7nP9rS1uV3xY"
HEX = "0123456789abcdef" * 4
API_KEYS = [
    "sk-proj-" + ALNUM, "sk-ant-api03-" + ALNUM + "-_AA", "sk-or-v1-" + HEX, "sk_live_" + ALNUM[:24], "rk_test_" + ALNUM[:24],
    "whsec_" + ALNUM[:32], "ghp_" + ALNUM[:36], "ghs_" + ALNUM[:36], "github_pat_" + ALNUM[:22] + "_" + ALNUM, "glpat-" + ALNUM[:20],
    "glrt-" + ALNUM[:20], "hf_" + ALNUM[:34], "xoxb-123456789012-1234567890123-" + ALNUM[:24], "xapp-1-A0123-1234-" + HEX,
    "AKIAIOSFODNN7EXAMPLE", "ASIAIOSFODNN7EXAMPLE", "AIza" + ALNUM[:35], "GOCSPX-" + ALNUM[:28], "ya29." + ALNUM,
    "SG." + ALNUM[:22] + "." + ALNUM[:43], "SK" + HEX[:32], "key-" + HEX[:32], "npm_" + ALNUM[:36], "pypi-AgEIcHlwaS5vcmc" + ALNUM,
    "dop_v1_" + HEX, "dapi" + HEX[:32], "gsk_" + ALNUM, "xai-" + ALNUM, "pplx-" + ALNUM, "nvapi-" + ALNUM, "r8_" + ALNUM[:37],
    "tvly-" + ALNUM[:32], "pcsk_" + ALNUM, "lsv2_pt_" + HEX[:32] + "_0123456789", "lin_api_" + ALNUM[:40], "ntn_" + ALNUM[:46],
    "shpat_" + HEX[:32], "sq0csp-" + ALNUM[:43], "hvs." + ALNUM, "sntrys_" + ALNUM, "sbp_" + HEX[:40], "dckr_pat_" + ALNUM[:27],
    "glsa_" + ALNUM[:32] + "_0123abcd", "PMAK-" + HEX[:24] + "-" + HEX[:34], "123456789:AAE" + ALNUM[:32],
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJlLXNpZw",
    "https://hooks.slack.com/services/T00000000/B00000000/" + ALNUM[:24],
]  # fmt: skip
PLACES = [
    "{}", "OPENAI_API_KEY={}", "'{}'", '{{"key":"{}"}}', "x: {},", r"A=1\n{}\nB=2", r'{{"env": "A=1\n{}"', r"a\t{}", r"\u003d{}",
    r"a\r\n{}", "%20{}", "\x1b[32m{}\x1b[0m", "https://x.example/?k={}", "({})", "a\n{}",
]  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("key", API_KEYS)
def test_a_key_is_found_wherever_it_stands(key: str, place: str) -> None:
    text = place.format(key)
    secret = key.rpartition("/")[2] if "hooks" in key else key[10:] if ":AA" in key else key
    start = text.index(secret)
    spans = list(BUILT_IN["api_key"].spans(text))
    assert any(a <= start and start + len(secret) <= b for a, b in spans), (text, [text[a:b] for a, b in spans])


@pytest.mark.parametrize("header", ["Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,0123\n\n", "", r"\n"])
@pytest.mark.parametrize("kind", ["RSA PRIVATE KEY", "PRIVATE KEY", "OPENSSH PRIVATE KEY", "PGP PRIVATE KEY BLOCK"])
def test_a_private_key_is_found_with_its_body(kind: str, header: str) -> None:
    text = f"key:\n-----BEGIN {kind}-----\n{header}{ALNUM}\n{ALNUM}=\n-----END {kind}-----\nend"
    [(start, end)] = BUILT_IN["api_key"].spans(text)
    assert (text[:start], text[end:]) == ("key:\n", "\nend")


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
