"""What `recorder.redact` may name: patterns of text that must not be stored.

Owns: the built-in patterns, reading an entry of the setting, where a text matches. Refuses: walking messages
(`recorder.messages.redaction`). At import it needs the standard library alone, since settings are read with it.

Every built-in pattern takes linear time, whatever the text: at most 50 ms a MB, where a megabyte of prose costs 10 ms.
Each begins with a character or a word that the interpreter finds fast. A repetition without an upper bound is
possessive, so that a text is never scanned twice from within. Long texts are searched in pieces, because the
interpreter runs nothing else during one search. An operator's own expression has a time limit instead.
"""

from __future__ import annotations

import difflib
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

Span = tuple[int, int]

_NAME: Final = re.compile(r"[a-z_]+")
_PIECE: Final = 1 << 18  # characters searched at once: about 5 ms
_OVERLAP: Final = 1 << 15  # longer than any credential
_REST: Final = re.compile(r"[^\s\"'<>]*")
_TRY_S: Final = 1.0  # for an own expression and the empty text, when settings are read


@dataclass(frozen=True, slots=True)
class Pattern:
    """One kind of text: `find(text, deadline)` returns the ranges that match."""

    name: str
    find: Callable[[str, float | None], Iterable[Span]]
    is_linear: bool = True  # False: an own expression, which needs a deadline

    def spans(self, text: str, deadline: float | None = None) -> Iterable[Span]:
        """Return the ranges of `text` that match.

        Raises TimeoutError past `deadline`, a time of `time.monotonic`; None: no limit.
        """
        return self.find(text, deadline)


def _remaining_s(deadline: float | None) -> float | None:
    if deadline is None:
        return None
    remaining_s = deadline - time.monotonic()
    if remaining_s <= 0:
        raise TimeoutError("the time for redaction is over")
    return remaining_s


def _spans(expression: re.Pattern[str], text: str, deadline: float | None, group: int = 0) -> Iterator[Span]:
    """Yield the matches of an expression (of one of its groups), searching long texts in pieces.

    A match that fills the overlap of two pieces was cut off, and takes the rest of its word with it.
    """
    at, size = 0, len(text)
    while at < size:
        _remaining_s(deadline)
        end = min(at + _PIECE, size)
        found = [m.span(group) for m in expression.finditer(text, at, min(end + _OVERLAP, size))]
        while found and found[-1][0] >= end and end < size:
            found.pop()
        at = end
        if found:
            start, last = found[-1]
            if last - start >= _OVERLAP and (rest := _REST.match(text, last)) is not None:
                last = rest.end()
                found[-1] = start, last
            at = max(end, last)
        yield from found


# --- e-mail addresses

# From the first character of a word alone, so that a long word is read once.
_EMAIL: Final = re.compile(r"(?<![\w.%+'-])[\w.%+'-]++@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}")


def _find_emails(text: str, deadline: float | None) -> Iterable[Span]:
    return _spans(_EMAIL, text, deadline) if "@" in text else ()


# --- payment cards

# Between the digits of a card: spaces of all widths, dashes, dots, underscores, and what has no width.
_BETWEEN: Final = "- \t\r\n._\u00a0\u00ad\u00b7\u2000-\u2015\u202f\u205f\u2060\u2212\u3000\ufeff"
_DIGITS: Final = re.compile(rf"[0-9](?<![0-9][0-9])(?:[{_BETWEEN}\ue000]{{0,18}}+[0-9]){{12}}")
_ESCAPED: Final = re.compile(r"\\u(?:00[aA][0dD]|20[0-6][0-9a-fA-F]|2212|3000)")  # the same, in JSON's spelling
_FILLED: Final = " " + 5 * "\ue000"  # as long as the escape, so that positions stay
_WIDEST: Final = 3  # characters between two groups: " - "
_GROUPS: Final = 5  # of one card: 4-4-4-4-3
_MARGIN: Final = 128  # longer than a card in its longest form


def is_luhn_valid(text: str) -> bool:
    """Return whether the digits of `text` end with the correct check digit (ISO/IEC 7812-1, annex B)."""
    digits = [int(c) for c in text if c.isascii() and c.isdigit()]
    doubled = (d * 2 - 9 if d > 4 else d * 2 for d in digits[-2::-2])
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0


def _find_cards(text: str, deadline: float | None) -> Iterator[Span]:
    if "\\u" in text:
        text = _ESCAPED.sub(_FILLED, text)
    if _DIGITS.search(text) is None:
        return
    for begin in range(0, len(text), _PIECE):
        _remaining_s(deadline)
        first = max(0, begin - _MARGIN)
        for start, end in _cards_in(text[first : begin + _PIECE + _MARGIN]):
            if begin <= first + start < begin + _PIECE:
                yield first + start, first + end


def _cards_in(text: str) -> list[Span]:
    """Return the cards of a text: 13 to 19 digits with a valid check digit, between other digits or not.

    A number that stands alone may be of any issuer, in any groups. Among other numbers (an expiry date, a security
    code, another card) it begins as cards do, has as many digits as its issuer's cards, and at most `_GROUPS` groups,
    the first of four digits or more. All starts are checked at once, so that a text of digits costs little more than
    another.
    """
    import numpy as np  # here: reading settings needs no arrays

    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    at = np.flatnonzero(codes - 48 < 10).astype(np.int32)
    count = len(at)
    if count < 13:
        return []
    digits = (codes[at] - 48).astype(np.int8)
    starts, run_starts = _group_starts(np, codes, at)
    group, run = np.cumsum(starts, dtype=np.int32), np.cumsum(run_starts, dtype=np.int32)
    sums = _luhn_sums(np, digits)
    is_first = starts[:count].copy()
    for following in (1, 2, 3):  # a group of four digits or more
        is_first[:-following] &= ~starts[following:count]
        is_first[-following:] = False
    inside = np.flatnonzero(is_first)
    issuers = _lengths(np, digits[inside].astype(np.int32) * 10 + digits[inside + 1])
    whole = np.flatnonzero(run_starts[:count])
    found: list[Span] = []
    for length in range(13, 20):
        among = inside[issuers[length]]
        among = among[among + length <= count]
        among = among[starts[among + length]]
        last = among + length - 1
        among = among[(run[last] == run[among]) & (group[last] - group[among] < _GROUPS)]
        alone = whole[whole + length <= count]
        alone = alone[run_starts[alone + length] & (run[alone + length - 1] == run[alone])]
        begins = np.union1d(among, alone)
        doubled = sums[(begins + length) & 1, begins + length] - sums[(begins + length) & 1, begins]
        begins = begins[doubled % 10 == 0]
        sure = np.isin(begins, among)
        found += [
            (start, end)
            for start, end, known in zip(at[begins], at[begins + length - 1] + 1, sure, strict=True)
            if known or "." not in text[start:end]  # a number with a fraction
        ]
    return [(int(start), int(end)) for start, end in found]


def _group_starts(np: Any, codes: Any, at: Any) -> tuple[Any, Any]:
    """Return at which digits a group begins, and at which a run of groups; both end with the text's end."""
    count = len(at)
    starts, run_starts = np.ones(count + 1, dtype=bool), np.ones(count + 1, dtype=bool)
    starts[1:count] = np.diff(at) > 1
    kinds = _separators(np)[np.minimum(codes, 0xFFFF)]
    breaks, widths = np.cumsum(kinds == _OTHER, dtype=np.int32), np.cumsum(kinds == _SEPARATOR, dtype=np.int32)
    run_starts[1:count] = (np.diff(breaks[at]) > 0) | (np.diff(widths[at]) > _WIDEST)
    return starts, run_starts


def _luhn_sums(np: Any, digits: Any) -> Any:
    """Return Luhn's sums up to each digit, in two rows: with every even position doubled, and with every odd one."""
    twice = np.array([0, 2, 4, 6, 8, 1, 3, 5, 7, 9], dtype=np.int8)[digits]
    sums = np.zeros((2, len(digits) + 1), dtype=np.int32)
    for parity in (0, 1):
        mixed = digits.copy()
        mixed[parity::2] = twice[parity::2]
        np.cumsum(mixed, dtype=np.int32, out=sums[parity, 1:])
    return sums


_DIGIT, _SEPARATOR, _FILLER, _OTHER = range(4)
_TABLES: dict[str, Any] = {}


def _separators(np: Any) -> Any:
    """Return a table by code point: a digit, what may stand between digits, the rest of an escape, or another."""
    if "separators" not in _TABLES:
        table = np.full(0x10000, _OTHER, dtype=np.uint8)
        allowed = re.compile(f"[{_BETWEEN}]")
        table[[code for code in range(len(table)) if allowed.match(chr(code))]] = _SEPARATOR
        table[48:58], table[0xE000] = _DIGIT, _FILLER
        _TABLES["separators"] = table
    return _TABLES["separators"]


def _lengths(np: Any, two: Any) -> Mapping[int, Any]:
    """Return for each number of digits which cards have so many, by their first two digits."""
    visa, amex = two // 10 == 4, (two == 34) | (two == 37)
    master = ((two >= 51) & (two <= 55)) | ((two >= 22) & (two <= 27))
    diners = np.isin(two, (30, 36, 38, 39))
    several = (two // 10 == 6) | np.isin(two, (35, 50, 56, 57, 58, 81, 82))
    return {
        13: visa | several,
        14: diners | several,
        15: amex | several,
        16: visa | master | diners | several,
        17: several,
        18: several,
        19: visa | several | diners,
    }


# --- keys of APIs

# What a key begins with → what follows. A key begins at the edge of a word, or after an escaped character.
_KEYS: Final[Mapping[str, str]] = {
    "sk-": r"[A-Za-z0-9_-]{16,}+",  # OpenAI, Anthropic, OpenRouter, Langfuse …
    "sk_": r"[A-Za-z0-9_-]{16,}+",  # Stripe, Clerk, ElevenLabs
    "pk-": r"[A-Za-z0-9_-]{16,}+",
    "pk_": r"[A-Za-z0-9_-]{16,}+",
    "rk-": r"[A-Za-z0-9_-]{16,}+",
    "rk_": r"[A-Za-z0-9_-]{16,}+",
    "whsec_": r"[A-Za-z0-9+/=]{16,}+",
    "hone_": r"[A-Za-z0-9_-]{20,}+",
    "ghp_": r"[A-Za-z0-9]{20,}+",
    "gho_": r"[A-Za-z0-9]{20,}+",
    "ghu_": r"[A-Za-z0-9]{20,}+",
    "ghs_": r"[A-Za-z0-9]{20,}+",
    "ghr_": r"[A-Za-z0-9]{20,}+",
    "github_pat_": r"[A-Za-z0-9_]{20,}+",
    "gl": r"(?:pat|rt|dt|ptt|cbt|ft|soat|agent|imt|oas|ffct)-[A-Za-z0-9_.-]{20,}+",  # GitLab
    "glsa_": r"[A-Za-z0-9_]{32,}+",  # Grafana
    "glc_": r"[A-Za-z0-9+/=]{32,}+",
    "hf_": r"[A-Za-z0-9]{20,}+",
    "api_org_": r"[A-Za-z0-9]{20,}+",
    "xox": r"[abeoprs](?:\.xox[a-z])?-[A-Za-z0-9-]{10,}+",  # Slack
    "xapp-": r"[A-Za-z0-9-]{10,}+",
    "hooks.slack.com/": r"(?:services|workflows|triggers)/[A-Za-z0-9+/]{20,}+",
    "AKIA": r"[0-9A-Z]{16}(?![0-9A-Za-z])",  # AWS
    "ASIA": r"[0-9A-Z]{16}(?![0-9A-Za-z])",
    "ABIA": r"[0-9A-Z]{16}(?![0-9A-Za-z])",
    "ACCA": r"[0-9A-Z]{16}(?![0-9A-Za-z])",
    "LTAI": r"[0-9A-Za-z]{12,30}+(?![0-9A-Za-z])",  # Alibaba
    "AKID": r"[0-9A-Za-z]{32,}+",  # Tencent
    "AIza": r"[0-9A-Za-z_-]{35}",  # Google
    "GOCSPX-": r"[0-9A-Za-z_-]{20,}+",
    "ya29.": r"[0-9A-Za-z_.-]{20,}+",
    "1//0": r"[0-9A-Za-z_-]{30,}+",
    "SG.": r"[0-9A-Za-z_-]{16,}+\.[0-9A-Za-z_-]{16,}+",  # SendGrid
    "SK": r"[0-9a-f]{32}(?![0-9A-Za-z])",  # Twilio
    "key-": r"[0-9a-f]{32}(?![0-9A-Za-z])",  # Mailgun
    "npm_": r"[A-Za-z0-9]{30,}+",
    "pypi-": r"[A-Za-z0-9_-]{30,}+",
    "rubygems_": r"[0-9a-f]{40,}+",
    "dckr_": r"(?:pat|oat)_[A-Za-z0-9_-]{20,}+",
    "do": r"[opr]_v1_[0-9a-f]{40,}+",  # DigitalOcean
    "dapi": r"[0-9a-f]{32}(?:-[0-9])?(?![0-9A-Za-z])",  # Databricks
    "gsk_": r"[A-Za-z0-9]{20,}+",  # Groq
    "xai-": r"[A-Za-z0-9_-]{20,}+",
    "pplx-": r"[A-Za-z0-9]{20,}+",
    "nvapi-": r"[A-Za-z0-9_-]{20,}+",
    "r8_": r"[A-Za-z0-9]{20,}+",  # Replicate
    "fw_": r"[A-Za-z0-9]{20,}+",  # Fireworks
    "tgp_v1_": r"[A-Za-z0-9_-]{20,}+",  # Together
    "tvly-": r"[A-Za-z0-9_-]{16,}+",
    "jina_": r"[A-Za-z0-9_-]{20,}+",
    "pa-": r"[A-Za-z0-9_-]{40,}+",  # Voyage
    "pcsk_": r"[A-Za-z0-9_-]{20,}+",  # Pinecone
    "lsv2_": r"[A-Za-z0-9_-]{20,}+",  # LangSmith
    "ls__": r"[A-Za-z0-9]{20,}+",
    "wandb_v1_": r"[A-Za-z0-9_-]{20,}+",
    "lin_": r"(?:api|oauth)_[A-Za-z0-9]{20,}+",  # Linear
    "ntn_": r"[A-Za-z0-9]{30,}+",  # Notion
    "secret_": r"[A-Za-z0-9]{32,}+",
    "figd_": r"[A-Za-z0-9_-]{30,}+",
    "shp": r"(?:at|ca|pa|ss|tka)_[A-Za-z0-9]{20,}+",  # Shopify
    "sq0": r"[a-z]{3}-[A-Za-z0-9_-]{20,}+",  # Square
    "EAAA": r"[A-Za-z0-9_-]{40,}+",
    "hv": r"[bsr]\.[A-Za-z0-9_-]{20,}+",  # Vault
    "sntry": r"[su]_[A-Za-z0-9_+/=-]{30,}+",
    "sb": r"(?:p_|_secret_)[A-Za-z0-9_-]{20,}+",  # Supabase
    "dp.": r"(?:pt|st|ct|sa|scim|audit)\.[A-Za-z0-9_.-]{30,}+",  # Doppler
    "PMAK-": r"[A-Za-z0-9-]{30,}+",
    "NRAK-": r"[A-Z0-9]{20,}+",
    "ATATT": r"[A-Za-z0-9_=-]{40,}+",  # Atlassian
    "ATCTT": r"[A-Za-z0-9_=-]{40,}+",
    "sl.": r"[A-Za-z0-9_-]{100,}+",  # Dropbox
    "pscale_": r"(?:tkn|oauth|pw)_[A-Za-z0-9_.-]{30,}+",
    "HRKU-": r"[A-Za-z0-9_-]{30,}+",
    "nfp_": r"[A-Za-z0-9]{30,}+",
    "rnd_": r"[A-Za-z0-9]{20,}+",
    "CFPAT-": r"[A-Za-z0-9_-]{30,}+",
    "FLWSECK": r"(?:_TEST)?-[A-Za-z0-9-]{12,}+",
    "AGE-SECRET-KEY-1": r"[A-Z0-9]{50,}+",
    "AccountKey=": r"[A-Za-z0-9+/=]{40,}+",  # Azure storage
}
_TOKEN: Final = r"[A-Za-z0-9._~+/=-]{16,}+"  # noqa: S105 - a shape, not a token
_PEM: Final = (
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
    r"(?:(?:\s|\\[nr])*+(?:Proc-Type|DEK-Info|Version|Comment|Hash): ?[^\n\\]{0,200}){0,4}"
    r"[A-Za-z0-9+/=\s\\]{0,20000}(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----)?"
)


def _any_key() -> str:
    """Return an expression for all kinds of keys, by their first character, so that few are tried at a place."""
    by_first: dict[str, list[str]] = {}
    for beginning, rest in _KEYS.items():
        by_first.setdefault(beginning[0], []).append(re.escape(beginning[1:]) + rest)
    return "|".join(f"{re.escape(first)}(?:{'|'.join(kinds)})" for first, kinds in by_first.items())


_ESCAPE: Final = r"(?:\\(?:[nrtbfv0]|u[0-9A-Fa-f]{4}|x[0-9A-Fa-f]{2})|%[0-9A-Fa-f]{2}|\x1b\[[0-9;]{1,5}m)"
# At the edge of a word, and behind an escape (of JSON, Python, an address, a terminal), which ends in a letter.
_KEY: Final = re.compile(f"(?<![A-Za-z0-9])({_any_key()})")
_ESCAPED_KEY: Final = re.compile(f"{_ESCAPE}({_any_key()})")
# What stands before a secret: a scheme, a number.
_AFTER: Final = (
    ("earer", re.compile(rf"(?:B|b)earer\s{{1,4}}{_TOKEN}")),
    ("EARER", re.compile(rf"BEARER\s{{1,4}}{_TOKEN}")),
    ("uthorization", re.compile(r"uthorization[\"'\\]{0,3}\s?[:=]\s?[\"'\\]{0,3}[Bb]asic\s([A-Za-z0-9+/=]{8,}+)")),
    ("-----BEGIN ", re.compile(_PEM)),
    (":AA", re.compile(r":AA(?<=[0-9]{8}:AA)[A-Za-z0-9_-]{30,}+")),  # Telegram
)
# Three words with dots: a JSON web token begins with {" in base64, at the edge of the first word or within.
_WEB_TOKEN: Final = re.compile(r"(?<![A-Za-z0-9_-])[A-Za-z0-9_-]{11,}+\.[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]*+")
_WEB_TOKEN_START: Final = re.compile(rf"(?:(?<![A-Za-z0-9])|{_ESCAPE})(eyJ)")
_LONGEST_ESCAPE: Final = 8


def _find_keys(text: str, deadline: float | None) -> Iterator[Span]:
    yield from _spans(_KEY, text, deadline, 1)
    if "\\" in text or "%" in text or "\x1b" in text:
        yield from _spans(_ESCAPED_KEY, text, deadline, 1)
    for needle, expression in _AFTER:
        if needle in text:
            yield from _spans(expression, text, deadline, expression.groups)
    if "eyJ" in text:
        for start, end in _spans(_WEB_TOKEN, text, deadline):
            begin = _WEB_TOKEN_START.search(text, max(0, start - _LONGEST_ESCAPE), end)
            if begin is not None:
                yield begin.start(1), end


# --- telephone numbers: with a country code, or in groups as in North America

_PHONES: Final = (
    ("+", re.compile(r"\+(?<![\w+]\+)[0-9](?:[ .()/-]{0,2}[0-9]){6,14}(?![0-9])")),
    ("", re.compile(r"\((?<![\w-]\()[0-9]{3}\) ?[0-9]{3}[ .-][0-9]{4}(?![\w-])")),
    ("", re.compile(r"[0-9]{3}[ .-](?<![\w-][0-9]{3}[ .-])[0-9]{3}[ .-][0-9]{4}(?![\w-])")),
)


def _find_phones(text: str, deadline: float | None) -> Iterator[Span]:
    for needle, expression in _PHONES:
        if needle in text:
            yield from _spans(expression, text, deadline)


BUILT_IN: Final[Mapping[str, Pattern]] = {
    name: Pattern(name, find)
    for name, find in (
        ("email", _find_emails),
        ("credit_card", _find_cards),
        ("api_key", _find_keys),
        ("phone", _find_phones),
    )
}


def parse_pattern(entry: str) -> Pattern:
    """An entry of `recorder.redact`: the name of a built-in pattern, else a regular expression. Raises ValueError."""
    if entry in BUILT_IN:
        return BUILT_IN[entry]
    if _NAME.fullmatch(entry):
        near = difflib.get_close_matches(entry, BUILT_IN, 1)
        meant = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(BUILT_IN)}."
        raise ValueError(f"{entry!r} is not a built-in pattern: {meant} To match that word itself, write (?:{entry})")
    import regex  # here: most settings have no own expression. It has a time limit and lets other threads run

    try:
        expression = regex.compile(entry)
    except (regex.error, RecursionError) as e:
        raise ValueError(f"{entry!r} is not a regular expression: {e}") from e
    if expression.search("", timeout=_TRY_S):
        raise ValueError(f"{entry!r} matches the empty text, and so everywhere: let it match at least one character")

    def find(text: str, deadline: float | None) -> Iterator[Span]:
        for match in expression.finditer(text, concurrent=True, timeout=_remaining_s(deadline)):
            yield match.span()

    return Pattern("pattern", find, is_linear=False)
