"""Encode untrusted data for a prompt as one line of JSON that cannot end the line, close the fence or hide characters.

Pure. Refuses: what the data means.
"""

from __future__ import annotations

import functools
import json
import re
from typing import Any

from recorder.base.json_limits import MAX_DEPTH, limit_nesting

_FENCE = {mark: "".join(f"\\u{ord(c):04x}" for c in mark) for mark in ("<<<", ">>>")}
_NOT_ASCII = re.compile(r"[^\x20-\x7e]+")
# Invisible characters that Unicode classifies as letters, marks or symbols: fillers, joiners, variation selectors.
_UNSEEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)


def fence_json(value: Any) -> str:
    """Return JSON on one line, without a fence and without invisible characters.

    Letters of any script stay readable (and cheap in tokens); controls, line and paragraph separators, direction marks,
    tag characters, variation selectors, fillers, private use and lone surrogates are escaped. What is nested too deeply
    to be written is left out, with a mark in its place.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except RecursionError:
        text = json.dumps(limit_nesting(value, MAX_DEPTH), ensure_ascii=False, separators=(",", ":"))
    for mark, escaped in _FENCE.items():
        text = text.replace(mark, escaped)
    return _NOT_ASCII.sub(lambda found: found[0] if _seen(found[0]) else "".join(map(_visible, found[0])), text)


@functools.lru_cache(maxsize=4096)
def _visible(character: str) -> str:
    return character if _seen(character) else json.dumps(character)[1:-1]


def _seen(text: str) -> bool:
    return text.isprintable() and not _UNSEEN.search(text)
