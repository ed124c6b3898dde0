"""A view of the store shown again whenever something changed: on a terminal in its place, else one after the other.

Owns: when it is read again (at most twice a second), and where it is drawn. Refuses: what is shown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import click

from recorder.commands.support import to_json
from recorder.store.changes import Topic
from recorder.store.database import Store

if TYPE_CHECKING:
    from rich.console import RenderableType

REST_S: Final = 0.5  # between two looks, however much changes
ANYWAY_S: Final = 2.0  # figures by the second move though nothing is told of

Found = dict[str, Any]
Show = Callable[[Found], None]


async def changing(store: Store, read: Callable[[], Awaitable[Found]], show: Show) -> None:
    """Show what is read, now and after every change, until cancelled."""
    with store.watch.on(*Topic) as news:
        while True:
            await news.wait(ANYWAY_S)
            show(await read())
            await asyncio.sleep(REST_S)


@contextmanager
def shown_live(drawn: Callable[[Found], RenderableType] | None) -> Iterator[Show]:
    """How each is shown while the block lasts. None: as a line of JSON."""
    if drawn is None:
        yield lambda found: click.echo(to_json(found))
        return
    from rich.live import Live

    from recorder.commands.terminal import console

    screen = console()
    if not screen.is_terminal:
        yield lambda found: screen.print(drawn(found))
        return
    with Live(console=screen, auto_refresh=False) as live:
        yield lambda found: live.update(drawn(found), refresh=True)
