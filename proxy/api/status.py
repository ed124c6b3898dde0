"""Views of a whole store that take long on a large one: asked for once however many want them, the last one meanwhile.

Owns: when one is asked for anew, and how long anybody waits for it. Refuses: what is asked.

How everything stands, over /hone/v1: status, the judge, tools, the settings in force, keys.

Owns: these routes, and what a process knows of itself that the store does not (its settings, its MCP servers). Refuses:
the questions (`recorder.views.status`), and changing anything: keys are made and revoked on the pages and the command
line.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from litestar import Response, get
from litestar.di import NamedDependency

from proxy.api.route_parts import Injected, json_response, response_spec
from recorder.registry import keys
from recorder.registry.keys import KeyView
from recorder.store.database import Project
from recorder.views.status.judging import JudgingView, load_judging
from recorder.views.status.project import Status, load_status
from recorder.views.status.stages import LoopSettings
from recorder.views.status.tools import ToolUsage, load_tool_usage

T = TypeVar("T")

PATIENCE_S: Final = 0.1  # a page may take 150 ms; of 100,000 runs the whole status takes most of a second
SLOW_S: Final = 0.5  # what takes longer is not asked for at once again
RESTS: Final = 10.0  # but when it has rested for so many times as long, so that it takes a tenth of a core at most
STALE_S: Final = 30.0  # what was found longer ago is shown to nobody


@dataclass(frozen=True, slots=True)
class _CachedView(Generic[T]):
    view: T
    at: float  # by the loop's clock
    took_s: float


class StaleWhileRevalidate(Generic[T]):
    """One view."""

    def __init__(self, ask: Callable[[], Awaitable[T]]) -> None:
        self._ask = ask
        self._asking: asyncio.Task[_CachedView[T]] | None = None
        self._last: _CachedView[T] | None = None

    async def now(self) -> T:
        """The view as it is, or where that takes long as it was shortly before. Raises what asking raises."""
        loop = asyncio.get_running_loop()
        last = self._last if self._last is not None and loop.time() - self._last.at < STALE_S else None
        if last is not None and last.took_s > SLOW_S and loop.time() - last.at < RESTS * last.took_s:
            return last.view
        asking = self._asked()
        if last is not None:
            done, _ = await asyncio.wait({asking}, timeout=PATIENCE_S)
            if not done:
                return last.view
        return (await asyncio.shield(asking)).view

    def _asked(self) -> asyncio.Task[_CachedView[T]]:
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._find(), name="a kept view")
            self._asking.add_done_callback(_heard)
        return self._asking

    async def _find(self) -> _CachedView[T]:
        loop = asyncio.get_running_loop()
        began = loop.time()
        view = await self._ask()
        self._last = _CachedView(view, loop.time(), loop.time() - began)
        return self._last


def _heard(asked: asyncio.Task[_CachedView[T]]) -> None:
    """An error is told to who waits; where nobody does, the next one asks again."""
    if not asked.cancelled():
        asked.exception()


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting in force, secrets masked; `origin`: where its value came from."""

    key: str
    value: Any
    origin: str
    about: str


@dataclass(frozen=True, slots=True)
class ToolsView:
    """The MCP servers that are configured, with where they are (secrets masked), and what became of tool calls."""

    servers: Mapping[str, str]
    used: ToolUsage


class StatusService:
    """How everything stands, as a process tells it. One a process."""

    def __init__(
        self,
        project: Project,
        loop: LoopSettings,
        settings: Sequence[Setting] = (),
        servers: Mapping[str, str] | None = None,
    ) -> None:
        self.loop = loop
        self.settings = tuple(settings)
        self._servers = dict(servers or {})
        self._status = StaleWhileRevalidate(lambda: load_status(project, loop))
        self._judging = StaleWhileRevalidate(lambda: load_judging(project))
        self._tooling = StaleWhileRevalidate(lambda: load_tool_usage(project))

    async def status(self) -> Status:
        """Who is there, what is in service, how learning goes. Raises StoreError."""
        return await self._status.now()

    async def judging(self) -> JudgingView:
        """What the judge does. Raises StoreError."""
        return await self._judging.now()

    async def tools(self) -> ToolsView:
        """Tools, and the servers that have them. Raises StoreError."""
        return ToolsView(self._servers, await self._tooling.now())


ForStanding = NamedDependency[StatusService]


@get("/hone/v1/status", responses=response_spec(200, Status))
async def show_status(stands: ForStanding) -> Response[bytes]:
    """Engines and their health, aliases and what they serve, how learning goes, alarms."""
    return json_response(await stands.status())


@get("/hone/v1/judge", responses=response_spec(200, JudgingView))
async def show_judge(stands: ForStanding) -> Response[bytes]:
    """Groups by what became of them, the judge's latency, tokens and money by day and model, agreement, what fails."""
    return json_response(await stands.judging())


@get("/hone/v1/tools", responses=response_spec(200, ToolsView))
async def show_tools(stands: ForStanding) -> Response[bytes]:
    """MCP servers, and the newest tool calls by tool: how they ended, how long they took, the last errors."""
    return json_response(await stands.tools())


@get("/hone/v1/settings", responses=response_spec(200, list[Setting]))
async def show_settings(stands: ForStanding) -> Response[bytes]:
    """The settings in force and where each value came from, secrets masked."""
    return json_response(stands.settings)


@get("/hone/v1/keys", responses=response_spec(200, list[KeyView]))
async def show_keys(hone: Injected) -> Response[bytes]:
    """The newest keys that were made for no single run, revoked ones too, without their secrets."""
    return json_response(await keys.newest_keys(hone.project))
