"""What an engine says it counted.

Owns: what of it is believed. Refuses: how a format shows it, and counting.

Usage is beside the answer: whatever an engine writes there costs nobody an answer that is finished.
"""

from __future__ import annotations

from typing import Any, Final

Body = dict[str, Any]

MOST: Final = 2**53  # beyond it a number is no count, and no JSON reader keeps it
_COUNTS: Final = ("prompt_tokens", "completion_tokens", "total_tokens")
_DETAILS: Final = {
    "prompt_tokens_details": ("cached_tokens", "created_cache_tokens"),
    "completion_tokens_details": ("reasoning_tokens",),
}


def sound(usage: object) -> Body | None:
    """The usage without what are no counts; fields that are not read here stay as they are, and so do details that
    are not counted (null). None: it is no usage."""
    if not isinstance(usage, dict):
        return None
    kept = {said: n for said, n in usage.items() if said not in _COUNTS or _is_count(n)}
    for name, counts in _DETAILS.items():
        details = kept.get(name)
        if isinstance(details, dict):
            kept[name] = {said: n for said, n in details.items() if said not in counts or n is None or _is_count(n)}
        elif name in kept:
            kept[name] = None
    return kept


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < MOST
