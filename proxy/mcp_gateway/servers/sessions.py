"""Callers' sessions at one server, each with a connection of its own: a browser, a shell, a login.

Owns: how many there may be, and when one ends. Refuses: opening connections, and who gets one
(`proxy.mcp_gateway.servers.upstream`).

A session ends with its caller. The end of a caller of the handshake era is known (`end`). A caller of the current era
has no end: its session ends when it was unused for as long as a trajectory may be idle, or, if others need the room,
when its trajectory has ended. A broken session ends as soon as it is unused.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass

from proxy.errors import TooManySessions
from proxy.mcp_gateway.exchange import CallerIdentity, TrajectoryAddress
from proxy.mcp_gateway.servers.handshake import AgreedProtocol
from proxy.mcp_gateway.servers.link import Link
from proxy.mcp_gateway.servers.lists import ServerLists

Ended = Callable[[Collection[TrajectoryAddress]], Awaitable[Collection[TrajectoryAddress]]]


@dataclass(frozen=True, slots=True)
class SessionKey:
    """The owner of a session. A server of the handshake era learns its client's capabilities once, so they belong to
    the key.
    """

    who: CallerIdentity
    capabilities: bytes = b""


@dataclass(slots=True, eq=False)
class Session:
    """One caller's connection, and the server's lists on it."""

    key: SessionKey
    link: Link
    lists: ServerLists
    task: asyncio.Task[None]
    used_at: float  # by the event loop's clock
    expiry: asyncio.TimerHandle | None = None
    begun: AgreedProtocol | None = None  # the agreement at its last request; another one is another session there


class Sessions:
    """The sessions at one server. `ended` returns which trajectories have ended; `counted` gets their number."""

    def __init__(
        self, server: str, most: int, idle_s: float, ended: Ended, counted: Callable[[str, int], None]
    ) -> None:
        self._server = server
        self._most = most
        self._idle_s = idle_s
        self._ended = ended
        self._counted = counted
        self._open: dict[SessionKey, Session] = {}
        self._by_who: dict[CallerIdentity, list[Session]] = {}
        self._by_link: dict[Link, Session] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._counted(server, 0)

    def __contains__(self, key: SessionKey) -> bool:
        return key in self._open

    def of(self, who: CallerIdentity) -> list[Session]:
        """Return a caller's sessions, the last used first. There are several if its clients differ in capabilities."""
        return sorted(self._by_who.get(who, ()), key=lambda session: -session.used_at)

    def over(self, link: Link) -> Session | None:
        """Return the session of a connection."""
        return self._by_link.get(link)

    async def open(self, key: SessionKey, make: Callable[[], tuple[Link, ServerLists]]) -> Session:
        """Return a caller's session, opened if there is none. Raises TooManySessions."""
        if key not in self._open and len(self._open) >= self._most:
            await self._end_ended()
        session = self._open.get(key)
        if session is not None:
            return session
        if len(self._open) >= self._most:
            raise TooManySessions(
                f"the MCP server {self._server!r} has {self._most} open sessions, the limit of `max_sessions` in "
                f"[mcp.{self._server}]: retry when a caller has ended its session, or raise the limit"
            )
        return self._started(key, *make())

    def used(self, session: Session) -> None:
        """Note the end of a request."""
        session.used_at = asyncio.get_running_loop().time()
        self.moved(session.link)

    def moved(self, link: Link) -> None:
        """A connection came up or broke."""
        session = self._by_link.get(link)
        if session is not None and link.state == "down" and not session.link.busy:
            self._end(session)

    def end(self, who: CallerIdentity) -> None:
        """End a caller's sessions."""
        for session in self.of(who):
            self._end(session)

    async def close(self) -> None:
        """End all sessions."""
        for session in list(self._open.values()):
            self._end(session)
        await asyncio.gather(*self._ending, return_exceptions=True)

    def _started(self, key: SessionKey, link: Link, lists: ServerLists) -> Session:
        loop = asyncio.get_running_loop()
        # A separate context: with a caller's context, later messages would be taken for that caller's.
        task = loop.create_task(link.run(), name=f"mcp-{self._server}-session", context=contextvars.Context())
        session = self._open[key] = self._by_link[link] = Session(key, link, lists, task, loop.time())
        self._by_who.setdefault(key.who, []).append(session)
        self._counted(self._server, len(self._open))
        if key.who.session is None:
            self._expire(session, self._idle_s)
        return session

    def _end(self, session: Session) -> None:
        who = session.key.who
        del self._open[session.key], self._by_link[session.link]
        self._by_who[who].remove(session)
        if not self._by_who[who]:
            del self._by_who[who]
        self._counted(self._server, len(self._open))
        if session.expiry is not None:
            session.expiry.cancel()
        session.link.close()
        session.task.cancel()
        ending = asyncio.ensure_future(_ended(session))
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)

    def _expire(self, session: Session, after_s: float) -> None:
        session.expiry = asyncio.get_running_loop().call_later(after_s, self._expired, session)

    def _expired(self, session: Session) -> None:
        left_s = session.used_at + self._idle_s - asyncio.get_running_loop().time()
        if session.link.busy:
            self._expire(session, self._idle_s)
        elif left_s > 0:
            self._expire(session, left_s)
        else:
            self._end(session)

    async def _end_ended(self) -> None:
        """Make room: end unused sessions of trajectories that have ended."""
        runs = {s.key.who.run for s in self._open.values() if s.key.who.run is not None and not s.link.busy}
        for run in await self._ended(runs) if runs else ():
            for session in self.of(CallerIdentity(run=run)):
                if not session.link.busy:
                    self._end(session)


async def _ended(session: Session) -> None:
    await asyncio.gather(session.task, session.lists.stop(), return_exceptions=True)
