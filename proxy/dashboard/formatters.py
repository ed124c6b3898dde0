"""Values as eyes read them: times, spans, numbers, ids. The filters of the templates.

Owns: their look, the same on every page. Refuses: HTML: what these give is escaped like all else.
"""

from __future__ import annotations

import json
import time
from typing import Any

from recorder import reasons
from recorder.base.terminal import clean
from recorder.search.matches import Snippet

_UNITS = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"))
_NONE = "–"
_ONE_LINE_CHARS = 80


def visible(text: object) -> str:
    """Text of somebody's: control and format characters shown, line ends kept."""
    return clean(text)


def exact(at: float | None) -> str:
    """A time (unix seconds) to the second, in this machine's zone."""
    return _NONE if at is None else time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(at))


def iso(at: float | None) -> str:
    """A time as machines read it."""
    return "" if at is None else time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))


def ago(at: float | None) -> str:
    """How long ago a time was, or how soon it comes."""
    if at is None:
        return _NONE
    since = time.time() - at
    return "now" if abs(since) < 1 else f"{span(since)} ago" if since > 0 else f"in {span(-since)}"


def span(seconds: float | None) -> str:
    """A span of time in its largest unit; below ten seconds with milliseconds' places."""
    if seconds is None:
        return _NONE
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    size, unit = next((size, unit) for size, unit in _UNITS if seconds >= size)
    return f"{seconds / size:.0f} {unit}"


def number(value: float | None) -> str:
    """A reward or a share, to three places that count."""
    return _NONE if value is None else f"{value:.3g}"


def count(value: float | None) -> str:
    """How many, with thin spaces between thousands."""
    return _NONE if value is None else f"{value:,.0f}".replace(",", "\u202f")


def money(value: float | None) -> str:
    """Dollars; a dash where no price is known."""
    return _NONE if value is None else f"${value:,.4f}" if value < 1 else f"${value:,.2f}"


def percent(value: float | None) -> str:
    """A share."""
    return _NONE if value is None else f"{value:.0%}"


def short(text: str | None, chars: int = 80) -> str:
    """The beginning of a text, on one line."""
    line = " ".join((text or "").split())
    return line if len(line) <= chars else line[: chars - 1] + "…"


def split_matches(snippet: Snippet) -> list[tuple[str, bool]]:
    """A snippet's text in pieces, and of each whether it was asked for."""
    pieces, at = [], 0
    for begin, end in snippet.marks:
        pieces += [(snippet.text[at:begin], False), (snippet.text[begin:end], True)]
        at = end
    return [piece for piece in [*pieces, (snippet.text[at:], False)] if piece[0]]


def meaning(code: str) -> str:
    """A reason's sentence; "" where the code has none."""
    return reasons.explain_reason(code) or ""


def as_json(value: Any) -> str:
    """A value as indented JSON; a string that holds JSON is read first. What is nested too deeply stays as it is."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return visible(value)
    try:
        return visible(json.dumps(value, indent=2, ensure_ascii=False, default=str))
    except RecursionError:
        return "nested too deeply to be shown"


def as_arguments(text: str) -> str:
    """What a tool is called with: on one line where it is short, else as indented JSON."""
    line = " ".join(text.split())
    return visible(line) if len(line) <= _ONE_LINE_CHARS else as_json(text)


def pluralize(number: int, one: str, more: str | None = None) -> str:
    """A count with its noun."""
    return f"{count(number)} {one if number == 1 else more or one + 's'}"


def as_line(value: Any) -> str:
    """A value as JSON on one line."""
    return json.dumps(value, ensure_ascii=False, default=str)


FILTERS = {
    "visible": visible,
    "exact": exact,
    "iso": iso,
    "ago": ago,
    "span": span,
    "number": number,
    "count": count,
    "money": money,
    "percent": percent,
    "short": short,
    "as_json": as_json,
    "as_arguments": as_arguments,
    "many": pluralize,
    "marked": split_matches,
    "meaning": meaning,
    "as_line": as_line,
}
