"""The newest runs as they move: `/hone/live`, a stream of server-sent events, each the whole short list as HTML.

Owns: who listens (a bounded number), one look at the store for all of them, and ending with the client, the process, or
after a while, so that a browser asks again and is admitted again. Refuses: what a row looks like (`live_rows.html`),
and which runs there are (`recorder.listing`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import Sequence
from typing import Final

from proxy.admission.pages import HEADERS
from proxy.admission.replies import say
from proxy.dashboard.render import environment
from proxy.dashboard.shown import Shown
from proxy.errors import ClientGone, Unavailable, WrongMethod
from proxy.http import stopping
from proxy.http.asgi import Connected, Receive, Scope, Send, begin_stream
from proxy.http.keep_alive import Pulse
from proxy.http.stopping import Stop, Stopping
from recorder.errors import StoreError
from recorder.listing.trajectories import TrajectoryLine, list_trajectories
from recorder.seldom import Seldom
from recorder.store.changes import Topic
from recorder.store.watch import News

ROWS: Final = 20
MOST_LISTENERS: Final = 32  # of one process
LEAST_S: Final = 0.25  # between two events
EVERY_S: Final = 1.0  # a call that is written wakes nobody (`recorder.store.statement`)
LASTS_S: Final = 600.0  # then the browser comes again, with a key or a sign-in that may have ended
AGAIN_MS: Final = 2000
_LINE_END: Final = re.compile(rb"\r\n|\r|\n")

log = logging.getLogger(__name__)


class TooManyListen(Unavailable):
    """One more would listen than may."""

    retry_after_s = 30


class _Listener:
    """One open page."""

    def __init__(self) -> None:
        self.news = asyncio.Event()


class Live:
    """The stream, as an ASGI app. One a process."""

    def __init__(self, shown: Shown, stop: Stop) -> None:
        self._shown = shown
        self._stop = stop
        self._listeners: set[_Listener] = set()
        self._feeding: asyncio.Task[None] | None = None
        self._news: News | None = None  # what the look waits for
        self._event = b""  # the newest, as it is sent
        self._failing = Seldom(log)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one page until it is gone."""
        if scope["method"] != "GET":
            await say(send, scope["path"], WrongMethod(f"{scope['method']} does nothing here: use GET."))
        elif len(self._listeners) >= MOST_LISTENERS:
            many = f"{MOST_LISTENERS} pages listen already: reload this one to see what is new."
            await say(send, scope["path"], TooManyListen(many))
        else:
            stopping.listens(scope)
            with contextlib.suppress(ClientGone, Stopping):
                async with Connected(receive, self._stop):
                    await self._tell(send)
                    await send({"type": "http.response.body"})

    async def _tell(self, send: Send) -> None:
        listener = _Listener()
        self._listeners.add(listener)
        if self._event:
            listener.news.set()
        if self._feeding is None or self._feeding.done():
            self._feeding = asyncio.create_task(self._feed(), name="live runs")
        try:
            await begin_stream(send, [(name, value) for name, value in HEADERS if name != b"cache-control"])
            with contextlib.suppress(TimeoutError), Pulse(send) as pulse:
                await pulse.send(b"retry: %d\n\n" % AGAIN_MS)
                async with asyncio.timeout(LASTS_S):
                    while True:
                        await listener.news.wait()
                        listener.news.clear()
                        await pulse.send(self._event)
        finally:
            self._listeners.discard(listener)
            if not self._listeners and self._news is not None:
                self._news.tell()  # nobody listens any more

    async def _feed(self) -> None:
        """Look while somebody listens, for all of them."""
        told: Sequence[TrajectoryLine] | None = None
        with self._shown.hone.store.watch.on(Topic.RUNS) as news:
            self._news = news
            while self._listeners:
                try:
                    lines = await newest(self._shown)
                except StoreError as e:
                    self._failing(logging.WARNING, "the live list of runs shows nothing new: %s", e)
                else:
                    if lines != told:
                        told = lines
                        self._publish(lines)
                await asyncio.sleep(LEAST_S)
                if self._listeners:
                    await news.wait(EVERY_S)
        self._news, self._event = None, b""

    def _publish(self, lines: Sequence[TrajectoryLine]) -> None:
        self._event = event(environment().get_template("live_rows.html").render(lines=lines))
        for listener in self._listeners:
            listener.news.set()


async def newest(shown: Shown) -> list[TrajectoryLine]:
    """The runs of the list. Raises StoreError."""
    return list((await list_trajectories(shown.store, shown.project_id, limit=ROWS)).lines)


def event(html: str) -> bytes:
    """A fragment as one event. Whatever ends a line begins a new one of data: no text of anybody's is a field."""
    return b"".join(b"data: " + line + b"\n" for line in _LINE_END.split(html.strip().encode())) + b"\n"
