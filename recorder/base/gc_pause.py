"""Imports without the garbage collector, and the end of a short command.

Owns: the pause, the collector's rest in short commands, its end with the process, and that end without teardown. An
import makes hundreds of thousands of objects that all stay, and the collector walks them again and again. Without it,
importing the proxy's modules takes 1.6 CPU seconds instead of 1.9, and LiteLLM 2.8 instead of 3.7.
"""

from __future__ import annotations

import atexit
import gc
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_REST: Final = 100_000  # objects more than before, until the collector looks at them


@contextmanager
def pause_gc() -> Iterator[None]:
    """Collect nothing until the end of the block, which imports. A collector that was off stays off."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def leave_gc() -> None:
    """Leave all objects to the end of the process, which follows: the collector would walk them a last time.

    That takes a fifth of the CPU time of a short command. Functions of `atexit` run as always. A program with torch
    ends as usual: torch's libraries report every object that is left as a leak, on the user's terminal. (`QuickEnd`
    ends it before they look.)
    """
    if "torch" not in sys.modules:
        gc.freeze()


class QuickEnd(SystemExit):
    """Raised by a command that has printed its answer and holds nothing else: no object need be taken apart.

    With torch and transformers that takes a CPU second. `code` is an exit status. It is for a command that has no file
    open for writing: only standard output and error are flushed.
    """


@contextmanager
def quick_ends() -> Iterator[None]:
    """Around a whole program: `QuickEnd` ends the process without taking objects apart.

    Threads are waited for and functions of `atexit` run as always, but for those that are registered before this block:
    what comes first there runs last, and here the process ends.
    """
    asked: list[int] = []

    def end() -> None:
        if not asked:
            return
        logging.shutdown()  # registered with the first import of logging
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        except (OSError, ValueError):
            return  # Python reports it, as at every other end
        os._exit(asked[0])

    atexit.register(end)
    try:
        yield
    except QuickEnd as e:
        asked.append(int(e.code or 0))
        raise


@contextmanager
def rest_gc() -> Iterator[None]:
    """Collect seldom until the end of the block, which imports what it needs as it goes, and does little else.

    The memory of cycles stays bounded, so the block may also last.
    """
    before = gc.get_threshold()
    gc.set_threshold(_REST, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
