"""Imports without the garbage collector.

Owns: pausing it. An import makes hundreds of thousands of objects that all stay, and the collector walks them again and
again: without it, the proxy's modules take 0.3 of 1.9 CPU seconds less to import, and LiteLLM 0.9 of 3.7.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def pause_gc() -> Iterator[None]:
    """Import inside: nothing is collected until the end. Where the collector is off already, it stays off."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
