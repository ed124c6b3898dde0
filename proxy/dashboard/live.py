"""Live updates of Home: `/hone/live` streams server-sent events with the newest trajectories or the figures as HTML.

Owns: the listeners (a bounded number), one query loop for all of them, and the end of a stream: with the client, with
the process, or after `LASTS_S`, so that the browser reconnects and is admitted again. Refuses: the HTML
(`live_rows.html`, `live_figures.html`), the list (`recorder.views.lists`) and the figures
(`recorder.views.status.project`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import time
from collections.abc import Sequence
from typing import Any, Final

from proxy.admission.pages import HEADERS
from proxy.admission.replies import send_error
from proxy.dashboard.progress_curve import draw_progress
from proxy.dashboard.renderer import PageContext, template_environment
from proxy.errors import ClientDisconnected, Unavailable, WrongMethod
from proxy.http import shutdown
from proxy.http.asgi import DisconnectWatch, Receive, Scope, Send, begin_stream
from proxy.http.shutdown import Shutdown, ShuttingDown
from proxy.http.sse import KeepAliveStream
from recorder.base.rate_limited_log import RateLimitedLog
from recorder.errors import StoreError
from recorder.store.changes import ChangeSignal, Topic
from recorder.views.lists.filters import TrajectoryFilter
from recorder.views.lists.trajectories import TrajectoryLine, list_trajectories
from recorder.views.status.answers import AnsweredStatus

ROWS: Final = 20
OF_AGENTS: Final = TrajectoryFilter(agents=True)
CURVES: Final = 4  # aliases with a curve; every alias has its sentences and its table
MAX_LISTENERS: Final = 32  # of one process
MIN_INTERVAL_S: Final = 0.25  # between two events
EVERY_S: Final = 1.0  # between two queries: written calls send no signal (`recorder.store.statement`)
FIGURES_S: Final = 2.0  # between two queries of the figures, which cost more than the list
FIGURES: Final = "figures"  # the name of that event; the list's event has no name
LASTS_S: Final = 600.0  # then the browser reconnects, and its key or sign-in is checked again
AGAIN_MS: Final = 2000
_LINE_END: Final = re.compile(rb"\r\n|\r|\n")

log = logging.getLogger(__name__)


class TooManyListeners(Unavailable):
    """There are `MAX_LISTENERS` open streams already."""

    retry_after_s = 30


class _Listener:
    """One open stream."""

    def __init__(self) -> None:
        self.news = asyncio.Event()
        self.sent: dict[str, bytes] = {}  # the last event of each name


class _LastPublished:
    """What was published last."""

    def __init__(self) -> None:
        self.lines: Sequence[TrajectoryLine] | None = None
        self.figures_at = -FIGURES_S


class LiveStream:
    """The stream, as an ASGI app. One a process."""

    def __init__(self, context: PageContext, stop: Shutdown) -> None:
        self._context = context
        self._stop = stop
        self._listeners: set[_Listener] = set()
        self._feeding: asyncio.Task[None] | None = None
        self._news: ChangeSignal | None = None  # what the loop waits for
        self._events: dict[str, bytes] = {}  # the newest event of each name, encoded
        self._failing = RateLimitedLog(log)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one stream until it ends."""
        if scope["method"] != "GET":
            await send_error(send, scope["path"], WrongMethod(f"{scope['method']} is not allowed here: use GET."))
        elif len(self._listeners) >= MAX_LISTENERS:
            many = f"{MAX_LISTENERS} pages get live updates already: reload this page to see changes."
            await send_error(send, scope["path"], TooManyListeners(many))
        else:
            shutdown.mark_endless(scope)
            with contextlib.suppress(ClientDisconnected, ShuttingDown):
                async with DisconnectWatch(receive, self._stop):
                    await self._stream(send)
                    await send({"type": "http.response.body"})

    async def _stream(self, send: Send) -> None:
        listener = _Listener()
        self._listeners.add(listener)
        if self._events:
            listener.news.set()
        if self._feeding is None or self._feeding.done():
            self._feeding = asyncio.create_task(self._feed(), name="live updates")
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
                self._news.tell()  # wakes the loop, which ends

    async def _feed(self) -> None:
        """Query the store while there are listeners. If this fails, their streams end, and browsers reconnect."""
        published = _LastPublished()
        try:
            with self._context.hone.project.store.watch.on(Topic.RUNS) as news:
                self._news = news
                while self._listeners:
                    try:
                        await self._query(published)
                    except StoreError as e:
                        self._failing(logging.WARNING, "live updates of Home failed: %s", e)
                    await asyncio.sleep(MIN_INTERVAL_S)
                    if self._listeners:
                        await news.wait(EVERY_S)
        except Exception:
            log.exception("live updates of Home stopped: browsers reconnect")
        finally:
            self._news, self._events = None, {}
            for listener in self._listeners:
                listener.news.set()

    async def _query(self, published: _LastPublished) -> None:
        """Publish what changed since the last time. Raises StoreError."""
        lines = await newest_trajectories(self._context)
        if lines != published.lines:
            published.lines = lines
            self._publish("", "live_rows.html", lines=lines)
        if time.monotonic() - published.figures_at >= FIGURES_S:
            published.figures_at = time.monotonic()
            status = await self._context.status_service.status()
            self._publish(FIGURES, "live_figures.html", **figures_of_home(status))

    def _publish(self, name: str, template: str, **values: object) -> None:
        self._events[name] = encode_event(template_environment().get_template(template).render(**values), name)
        for listener in self._listeners:
            listener.news.set()


def figures_of_home(status: AnsweredStatus) -> dict[str, Any]:
    """The values that the templates of Home's figures take."""
    return {"overview": status, "curves": {one.alias: draw_progress(one) for one in status.progress[:CURVES]}}


async def newest_trajectories(context: PageContext) -> list[TrajectoryLine]:
    """The trajectories on Home, newest first. Raises StoreError."""
    return list((await list_trajectories(context.project, OF_AGENTS, limit=ROWS)).lines)


def encode_event(html: str, name: str = "") -> bytes:
    """An HTML fragment as one event. Each line gets a `data:` prefix, so that no recorded text becomes a field."""
    named = b"event: %s\n" % name.encode() if name else b""
    return named + b"".join(b"data: " + line + b"\n" for line in _LINE_END.split(html.strip().encode())) + b"\n"
