"""How far a long command is, on standard error: one line that changes in a terminal, else a line at each tenth.

Refuses: what is counted, and standard output, which is for what the command found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import click
from rich.console import Console

from recorder.commands.terminal import clean, line

_LINES: Final = 10  # where nobody sees a line change

Count = Callable[[str, int, int], None]


@contextmanager
def counting(first: str) -> Iterator[Count]:
    """Until the block ends: `count(text, done, of)` says how far it is. `first`: what stands there before."""
    out = Console(stderr=True)
    if out.is_terminal:
        with out.status(line(first)) as status:
            yield lambda text, _done, _of: status.update(line(text))
        return

    def tell(text: str, done: int, of: int) -> None:
        if done == of or done % max(1, of // _LINES) == 0:
            click.echo(clean(text), err=True)

    yield tell
