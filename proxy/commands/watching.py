"""A view of the store shown again whenever something changed: on a terminal in its place, else one after the other.

Owns: when it is read again (at most twice a second), and where it is drawn. Refuses: what is shown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from recorder.base.json_output import write_json_line
from recorder.base.live import redrawn
from recorder.base.terminal import console, show
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
        yield lambda found: write_json_line(found, compact=True)
        return
    if not console().is_terminal:
        yield lambda found: show(drawn(found))
        return
    with redrawn() as draw:
        yield lambda found: draw(drawn(found))
