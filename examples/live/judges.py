"""The judge's address. The scripted judge behind it can be replaced while Hone runs.

Owns: which judge answers. Refuses: the rules (`examples.helpdesk.scripted_judge`, `examples.live.wrong_judge`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rich.console import Console

from examples.helpdesk.surroundings import scripted
from examples.running.programs import free_ports, program

RIGHT: Final = "examples.helpdesk.scripted_judge"
WRONG: Final = "examples.live.wrong_judge"


class Seat:
    """A judge's address. `taken` is the `judge` of `examples.helpdesk.surroundings`."""

    def __init__(self) -> None:
        [self._port] = free_ports(1)
        self._sitting = contextlib.ExitStack()
        self._data = Path()

    @contextlib.contextmanager
    def taken(self, data: Path, console: Console) -> Iterator[dict[str, str]]:
        """Yield the settings of this judge, first the right one, until the block ends."""
        console.print("Judge: [bold]a scripted stand-in[/bold], which another one replaces for a while.")
        self._data = data
        with self._sitting:
            self.give_to(RIGHT)
            yield scripted(self._port)

    def give_to(self, judge: str) -> None:
        """Stop the current judge and start another one, a module. Meanwhile no judge answers."""
        self._sitting.close()
        arguments = ["-m", judge, "--port", str(self._port)]
        self._sitting.enter_context(program(arguments, self._port, self._data))
