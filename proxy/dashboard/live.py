"""Home as it moves: `/hone/live`, a stream of server-sent events, each the newest runs or the figures, whole, as HTML.

Owns: who listens (a bounded number), one look at the store for all of them, and ending with the client, the process, or
after a while, so that a browser asks again and is admitted again. Refuses: how they look (`live_rows.html`,
`live_figures.html`), which runs there are (`recorder.views.lists`), and counting (`recorder.views.status.project`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import time
from collections.abc import Sequence
from typing import Final

from proxy.admission.pages import HEADERS
from proxy.admission.replies import send_error
from proxy.dashboard.page_context import PageContext
from proxy.dashboard.renderer import template_environment
from proxy.errors import ClientDisconnected, Unavailable, WrongMethod
from proxy.http import shutdown
from proxy.http.asgi import DisconnectWatch, Receive, Scope, Send, begin_stream
from proxy.http.shutdown import Shutdown, ShuttingDown
from proxy.http.sse import KeepAliveStream
from recorder.base.rate_limited_log import RateLimitedLog
from recorder.errors import StoreError
from recorder.states import Origin
from recorder.store.changes import ChangeSignal, Topic
from recorder.views.lists.filters import TrajectoryFilter
from recorder.views.lists.trajectories import TrajectoryLine, list_trajectories

ROWS: Final = 20
# A gate asks more runs of its own at one moment than the list has rows: an agent's are not to be pushed out by them.
OF_AGENTS: Final = TrajectoryFilter(origins=tuple(origin for origin in Origin if origin is not Origin.SHADOW))
MOST_LISTENERS: Final = 32  # of one process
LEAST_S: Final = 0.25  # between two events
EVERY_S: Final = 1.0  # a call that is written wakes nobody (`recorder.store.statement`)
FIGURES_S: Final = 2.0  # between two looks at the figures, which cost more than the list
FIGURES: Final = "figures"  # the event's name; the list is an event without one
LASTS_S: Final = 600.0  # then the browser comes again, with a key or a sign-in that may have ended
AGAIN_MS: Final = 2000
_LINE_END: Final = re.compile(rb"\r\n|\r|\n")

log = logging.getLogger(__name__)


class TooManyListeners(Unavailable):
    """One more would listen than may."""

    retry_after_s = 30


class _Listener:
    """One open page."""

    def __init__(self) -> None:
        self.news = asyncio.Event()
        self.sent: dict[str, bytes] = {}  # by their names, what it was sent last


class _RecentEvents:
    """What was told of late."""

    def __init__(self) -> None:
        self.lines: Sequence[TrajectoryLine] | None = None
        self.figures_at = -FIGURES_S


class LiveStream:
    """The stream, as an ASGI app. One a process."""

    def __init__(self, shown: PageContext, stop: Shutdown) -> None:
        self._shown = shown
        self._stop = stop
        self._listeners: set[_Listener] = set()
        self._feeding: asyncio.Task[None] | None = None
        self._news: ChangeSignal | None = None  # what the look waits for
        self._events: dict[str, bytes] = {}  # by their names, the newest, as they are sent
        self._failing = RateLimitedLog(log)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one page until it is gone."""
        if scope["method"] != "GET":
            await send_error(send, scope["path"], WrongMethod(f"{scope['method']} does nothing here: use GET."))
        elif len(self._listeners) >= MOST_LISTENERS:
            many = f"{MOST_LISTENERS} pages listen already: reload this one to see what is new."
            await send_error(send, scope["path"], TooManyListeners(many))
        else:
            shutdown.mark_endless(scope)
            with contextlib.suppress(ClientDisconnected, ShuttingDown):
                async with DisconnectWatch(receive, self._stop):
                    await self._tell(send)
                    await send({"type": "http.response.body"})

    async def _tell(self, send: Send) -> None:
        listener = _Listener()
        self._listeners.add(listener)
        if self._events:
            listener.news.set()
        if self._feeding is None or self._feeding.done():
            self._feeding = asyncio.create_task(self._feed(), name="live runs")
        fed_by = self._feeding
        try:
            await begin_stream(send, [(name, value) for name, value in HEADERS if name != b"cache-control"])
            with contextlib.suppress(TimeoutError), KeepAliveStream(send) as pulse:
                await pulse.send(b"retry: %d\n\n" % AGAIN_MS)
                async with asyncio.timeout(LASTS_S):
                    while not fed_by.done():
                        await listener.news.wait()
                        listener.news.clear()
                        for name, newest_one in list(self._events.items()):
                            if listener.sent.get(name) != newest_one:
                                listener.sent[name] = newest_one
                                await pulse.send(newest_one)
        finally:
            self._listeners.discard(listener)
            if not self._listeners and self._news is not None:
                self._news.tell()  # nobody listens any more

    async def _feed(self) -> None:
        """Look while somebody listens, for all of them. If it fails, their streams end: browsers come again."""
        told = _RecentEvents()
        try:
            with self._shown.hone.project.store.watch.on(Topic.RUNS) as news:
                self._news = news
                while self._listeners:
                    try:
                        await self._look(told)
                    except StoreError as e:
                        self._failing(logging.WARNING, "the live page shows nothing new: %s", e)
                    await asyncio.sleep(LEAST_S)
                    if self._listeners:
                        await news.wait(EVERY_S)
        except Exception:
            log.exception("the live page cannot be made: whoever has it open asks again")
        finally:
            self._news, self._events = None, {}
            for listener in self._listeners:
                listener.news.set()

    async def _look(self, told: _RecentEvents) -> None:
        """What is new since what was told. Raises StoreError."""
        lines = await newest_trajectories(self._shown)
        if lines != told.lines:
            told.lines = lines
            self._publish("", "live_rows.html", lines=lines)
        if time.monotonic() - told.figures_at >= FIGURES_S:
            told.figures_at = time.monotonic()
            self._publish(FIGURES, "live_figures.html", stand=await self._shown.stands.status())

    def _publish(self, name: str, template: str, **shown: object) -> None:
        self._events[name] = encode_event(template_environment().get_template(template).render(**shown), name)
        for listener in self._listeners:
            listener.news.set()


async def newest_trajectories(shown: PageContext) -> list[TrajectoryLine]:
    """The runs of the list. Raises StoreError."""
    return list((await list_trajectories(shown.project, OF_AGENTS, limit=ROWS)).lines)


def encode_event(html: str, name: str = "") -> bytes:
    """A fragment as one event. Whatever ends a line begins a new one of data: no text of anybody's is a field."""
    named = b"event: %s\n" % name.encode() if name else b""
    return named + b"".join(b"data: " + line + b"\n" for line in _LINE_END.split(html.strip().encode())) + b"\n"
