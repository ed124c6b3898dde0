"""The filters of the templates: times, spans, numbers and texts as people read them.

Refuses: HTML. Their results are escaped like all other values.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from typing import Any

from recorder import reasons
from recorder.base.json_limits import parse_json_text
from recorder.base.terminal import clean
from recorder.search.matches import Snippet
from recorder.states import state_word
from recorder.views.lists.short_ids import ShortId, cut_id, cut_ids

_UNITS = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"))
_NONE = "–"
_ONE_LINE_CHARS = 80


def visible(text: object) -> str:
    """A text with control and format characters made visible, and line ends kept."""
    return clean(text)


def exact(at: float | None) -> str:
    """A time (unix seconds) to the second, in this machine's time zone."""
    return _NONE if at is None else time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(at))


def iso(at: float | None) -> str:
    """A time (unix seconds) in ISO 8601, UTC; "" for None."""
    return "" if at is None else time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))


def ago(at: float | None) -> str:
    """A time (unix seconds) relative to now: `5 min ago`, `in 2 h`."""
    if at is None:
        return _NONE
    since = time.time() - at
    return "now" if abs(since) < 1 else f"{span(since)} ago" if since > 0 else f"in {span(-since)}"


def span(seconds: float | None) -> str:
    """Seconds in the largest unit that fits: `450 ms`, `2.5 s`, `3 h`."""
    if seconds is None:
        return _NONE
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    size, unit = next((size, unit) for size, unit in _UNITS if seconds >= size)
    return f"{seconds / size:.0f} {unit}"


def number(value: float | None) -> str:
    """A number to three significant digits."""
    return _NONE if value is None else f"{value:.3g}"


def count(value: float | None) -> str:
    """A count, with thin spaces between thousands."""
    return _NONE if value is None else f"{value:,.0f}".replace(",", "\u202f")


def money(value: float | None) -> str:
    """US dollars; a dash if the price is unknown."""
    return _NONE if value is None else f"${value:,.4f}" if value < 1 else f"${value:,.2f}"


def percent(value: float | None) -> str:
    """A share (0 to 1) in percent."""
    return _NONE if value is None else f"{value:.0%}"


def short(text: str | None, chars: int = 80) -> str:
    """The beginning of a text on one line, of at most `chars` characters."""
    line = " ".join((text or "").split())
    return line if len(line) <= chars else line[: chars - 1] + "…"


def split_matches(snippet: Snippet) -> list[tuple[str, bool]]:
    """A snippet's text in pieces, and for each whether it matches the search."""
    pieces, at = [], 0
    for begin, end in snippet.marks:
        pieces += [(snippet.text[at:begin], False), (snippet.text[begin:end], True)]
        at = end
    return [piece for piece in [*pieces, (snippet.text[at:], False)] if piece[0]]


def state_class(state: str, reason: str | None = None) -> str:
    """The class of a state's tone; for a state with a reason, of that reason's."""
    return f"tone-{reasons.tone_with_reason(state, reason)}"


def reason_class(code: str) -> str:
    """The class of a reason's tone."""
    return f"tone-{reasons.reason_tone(code)}"


def cut_list(lines: Iterable[Any]) -> dict[str, ShortId]:
    """The ids of a list's lines, and of their groups, cut so that no two of them look equal."""
    names: list[str | None] = []
    for line in lines:
        names += [line.id, line.external_id]
        names += [getattr(line, name, None) for name in ("group_id", "group_external_id")]
    return cut_ids(name for name in names if name)


def meaning(code: str) -> str:
    """The explanation of a reason code; "" if it has none."""
    return reasons.explain_reason(code) or ""


def as_json(value: Any) -> str:
    """A value as indented JSON. A string that contains JSON is parsed first; other strings stay as they are."""
    if isinstance(value, str):
        try:
            value = parse_json_text(value)
        except (ValueError, RecursionError):
            return visible(value)
    try:
        return visible(json.dumps(value, indent=2, ensure_ascii=False, default=str))
    except RecursionError:
        return "nested too deeply to show"


def as_arguments(text: str) -> str:
    """The arguments of a tool call: on one line if they are short, else as indented JSON."""
    line = " ".join(text.split())
    return visible(line) if len(line) <= _ONE_LINE_CHARS else as_json(text)


def pluralize(number: int, one: str, more: str | None = None) -> str:
    """A count with its noun; `more` is the plural, by default with an s."""
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
    "state_label": state_word,
    "state_class": state_class,
    "reason_class": reason_class,
    "cut_id": cut_id,
    "cut_list": cut_list,
    "as_line": as_line,
}
