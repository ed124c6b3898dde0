"""What `recorder.redact` may name: patterns of text that must not be stored.

Owns: the built-in patterns, reading an entry of the setting, where a text matches. Refuses: walking messages
(`recorder.messages.redaction`). It imports the standard library alone, since settings are read with it.

Every built-in pattern is bounded, so that a megabyte of base64 costs no more than a megabyte of prose.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

_NAME: Final = re.compile(r"[a-z_]+")


@dataclass(frozen=True, slots=True)
class Pattern:
    """One kind of text. `needs`: a character that every match contains. `holds`: a final check of each match."""

    name: str
    regex: re.Pattern[str]
    needs: str = ""
    holds: Callable[[str], bool] | None = None

    def spans(self, text: str) -> Iterable[tuple[int, int]]:
        """Return the ranges of `text` that match."""
        if self.needs not in text:
            return ()
        return [m.span() for m in self.regex.finditer(text) if self.holds is None or self.holds(m.group())]


def is_luhn_valid(text: str) -> bool:
    """Return whether the digits of `text` end with the correct check digit (ISO/IEC 7812-1, annex B)."""
    digits = [int(c) for c in text if c.isascii() and c.isdigit()]
    doubled = (d * 2 - 9 if d > 4 else d * 2 for d in digits[-2::-2])
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0


_KEYS: Final = (
    r"(?:sk|pk|rk)[-_][A-Za-z0-9_-]{16,200}",
    r"hone_[A-Za-z0-9_-]{20,100}",
    r"gh[pousr]_[A-Za-z0-9]{20,255}",
    r"github_pat_[A-Za-z0-9_]{20,255}",
    r"glpat-[A-Za-z0-9_-]{20,100}",
    r"hf_[A-Za-z0-9]{20,100}",
    r"xox[abeprs]-[A-Za-z0-9-]{10,200}",
    r"(?:AKIA|ASIA)[0-9A-Z]{16}",
    r"AIza[0-9A-Za-z_-]{35}",
    r"eyJ[A-Za-z0-9_-]{8,4000}\.[A-Za-z0-9_-]{8,8000}\.[A-Za-z0-9_-]{0,2000}",  # a JSON web token
    r"(?i:bearer)\s{1,4}[A-Za-z0-9._~+/=-]{16,4000}",
    r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----[A-Za-z0-9+/=\s\\]{0,20000}(?:-----END [A-Z ]{0,40}PRIVATE KEY-----)?",
)

BUILT_IN: Final[Mapping[str, Pattern]] = {
    p.name: p
    for p in (
        Pattern("email", re.compile(r"[\w.%+'-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}"), needs="@"),
        Pattern("credit_card", re.compile(r"(?<![0-9])[0-9](?:[ -]?[0-9]){12,18}(?![0-9])"), holds=is_luhn_valid),
        Pattern("api_key", re.compile(r"(?<![A-Za-z0-9])(?:" + "|".join(_KEYS) + ")")),
        Pattern(
            "phone",  # with a country code, or in groups as in North America
            re.compile(
                r"(?<![\w+])\+[0-9](?:[ .()/-]{0,2}[0-9]){6,14}(?![0-9])"
                r"|(?<![\w-])(?:\([0-9]{3}\) ?|[0-9]{3}[ .-])[0-9]{3}[ .-][0-9]{4}(?![\w-])"
            ),
        ),
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
    try:
        regex = re.compile(entry)
    except re.error as e:
        raise ValueError(f"{entry!r} is not a regular expression: {e}") from e
    if regex.search(""):
        raise ValueError(f"{entry!r} matches the empty text, and so everywhere: let it match at least one character")
    return Pattern("pattern", regex)
