"""Makes every cache of Hone small, in each Python program that has this folder in PYTHONPATH.

A run of an hour then evicts all the time, as a proxy does after days.
"""

from __future__ import annotations

from typing import Any, Final

from recorder.base.lru import Lru

MOST: Final = 256  # entries; more than calls run at once
_as_it_is = Lru.__init__


def _small(self: Lru[Any, Any], size: int) -> None:
    _as_it_is(self, min(size, MOST))


Lru.__init__ = _small  # type: ignore[method-assign]
