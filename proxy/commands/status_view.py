"""The data of `hone status`, and live views of the store.

Owns: adding run.json to the status of the store, and when a live view is drawn (at most twice a second). Refuses: the
status of the store (`recorder.views.status.project`), and how it looks (`proxy.commands.status`, `proxy.commands.top`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from proxy.programs.run_file import find_stale_run, read_run_file
from recorder.base.terminal import console, redrawn, show, write_json_line
from recorder.store.changes import Topic
from recorder.store.database import Project, Store
from recorder.views.status.answers import load_answered_status
from recorder.views.status.stages import LoopSettings

if TYPE_CHECKING:
    from rich.console import RenderableType

Json = dict[str, Any]
KILLED: Final = "`hone up` was killed: run.json exists, but its process does not. Start it again."


async def status_json(project: Project, data: Path, settings: LoopSettings) -> Json:
    """Return the whole output of `hone status --json`."""
    view = asdict(await load_answered_status(project, settings))
    killed = find_stale_run(data)
    here = {"data": str(data), "run": read_run_file(data), "killed": killed}
    return here | view | {"alarms": [*([KILLED] if killed else []), *view["alarms"]]}


REST_S: Final = 0.5  # between two reads, however much changes
ANYWAY_S: Final = 2.0  # figures per second change without any signal of a change

Found = dict[str, Any]
Show = Callable[[Found], None]


async def watch_view(store: Store, read: Callable[[], Awaitable[Found]], show: Show) -> None:
    """Show what `read` returns, now and after every change, until cancelled."""
    with store.watch.on(*Topic) as news:
        while True:
            await news.wait(ANYWAY_S)
            show(await read())
            await asyncio.sleep(REST_S)


@contextmanager
def open_live_view(drawn: Callable[[Found], RenderableType] | None) -> Iterator[Show]:
    """Yield a function that shows one status. `drawn` None: it prints a line of JSON."""
    if drawn is None:
        yield lambda view: write_json_line(view, compact=True)
        return
    if not console().is_terminal:
        yield lambda view: show(drawn(view))
        return
    with redrawn() as draw:
        yield lambda view: draw(drawn(view))
