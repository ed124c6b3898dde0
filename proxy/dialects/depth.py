"""How deeply JSON may be nested that is read, so that it can be written again.

Owns: that question. Refuses: what is told where it may not.

orjson reads 1,024 levels and writes 254. A body that was read is sent on, recorded and shown, each time inside a few
levels more: what cannot bear that is refused where it is read.
"""

from __future__ import annotations

from typing import Final

import orjson

AROUND: Final = 32  # levels that a body may come to be inside of
SHALLOW: Final = 200  # brackets: with fewer nothing is nested too deeply


def can_be_written(parsed: object, data: bytes) -> bool:
    """Whether what was parsed from `data` can be written again, with something around it. Mostly two counts."""
    if data.count(b"[") + data.count(b"{") <= SHALLOW:
        return True
    for _ in range(AROUND):
        parsed = [parsed]
    try:
        orjson.dumps(parsed)
    except orjson.JSONEncodeError:
        return False
    return True
