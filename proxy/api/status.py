"""Status in /hone/v1: the project, the judge, tools, settings and keys; and changing settings at run time.

Owns: these routes, what only this process knows (its settings, its MCP servers), and the cache of views that are slow
on a large store: one query serves all callers, which get the previous view meanwhile. Refuses: the queries
(`recorder.views.status`), what a change is (`recorder.setting_changes`), and changing keys (pages and command line).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Generic, TypeVar

from litestar import Response, delete, get, put
from litestar.di import NamedDependency
from litestar.params import JSONBody, PathParameter
from pydantic import BaseModel, ConfigDict

from proxy.api.actions import caller_id
from proxy.api.route_parts import AnyRequest, Injected, caller_of, json_response, response_spec
from recorder.registry import keys
from recorder.registry.keys import KeyView
from recorder.setting_changes import actions as setting_actions
from recorder.setting_changes.change_rows import SettingChange, list_changes
from recorder.store.database import Project
from recorder.views.status.answers import AnsweredStatus, load_answered_status
from recorder.views.status.judging import JudgingView, load_judging
from recorder.views.status.stages import LoopSettings
from recorder.views.status.tools import ToolUsage, load_tool_usage

T = TypeVar("T")

PATIENCE_S: Final = 0.1  # a page may take 150 ms; with 100,000 trajectories the whole status takes most of a second
IN_VAIN_S: Final = 0.2  # a view that took longer the last two times is not waited for
SLOW_S: Final = 0.5  # a slower view is not loaded again at once
RESTS: Final = 10.0  # but after a pause of this many times its duration: at most a tenth of a core
STALE_S: Final = 30.0  # an older view is never returned


@dataclass(frozen=True, slots=True)
class _CachedView(Generic[T]):
    view: T
    at: float  # by the loop's clock
    took_s: float
    quicker_s: float  # of the last two loads; 0 after the first, which is slow for other reasons (imports, cold files)


class StaleWhileRevalidate(Generic[T]):
    """Caches one view, and loads it again in the background when it is requested."""

    def __init__(self, ask: Callable[[], Awaitable[T]]) -> None:
        self._ask = ask
        self._asking: asyncio.Task[_CachedView[T]] | None = None
        self._last: _CachedView[T] | None = None

    async def now(self) -> T:
        """Return the current view, or the previous one where loading is slow. Raises what loading raises."""
        loop = asyncio.get_running_loop()
        last = self._last if self._last is not None and loop.time() - self._last.at < STALE_S else None
        if last is not None and last.took_s > SLOW_S and loop.time() - last.at < RESTS * last.took_s:
            return last.view
        asking = self._asked()
        if last is not None and last.quicker_s > IN_VAIN_S:
            return last.view
        if last is not None:
            done, _ = await asyncio.wait({asking}, timeout=PATIENCE_S)
            if not done:
                return last.view
        return (await asyncio.shield(asking)).view

    def _asked(self) -> asyncio.Task[_CachedView[T]]:
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._find(), name="a cached view")
            self._asking.add_done_callback(_retrieve_error)
        return self._asking

    async def _find(self) -> _CachedView[T]:
        loop = asyncio.get_running_loop()
        began = loop.time()
        view = await self._ask()
        took_s = loop.time() - began
        quicker_s = min(took_s, self._last.took_s) if self._last is not None else 0.0
        self._last = _CachedView(view, loop.time(), took_s, quicker_s)
        return self._last


def _retrieve_error(task: asyncio.Task[_CachedView[T]]) -> None:
    """Callers that wait receive the error; without any, the next caller loads again."""
    if not task.cancelled():
        task.exception()


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting in force, secrets masked. `origin`: where its value came from; `page`: it was changed at run time.

    `change`: the change in force. `changeable`: the setting can change at run time. `file_value`: the value of
    hone.toml, variables and flags, which holds after an undo. `toml`: the lines that have the changed value in
    hone.toml; None: no change is in force, or it is that no value is set.
    """

    key: str
    value: Any
    origin: str
    about: str
    change: SettingChange | None = None
    changeable: bool = False
    file_value: Any = None
    toml: str | None = None


@dataclass(frozen=True, slots=True)
class ToolsView:
    """The configured MCP servers by name, with their addresses (secrets masked), and the usage of their tools."""

    servers: Mapping[str, str]
    usage: ToolUsage


class StatusService:
    """The status views of a process, cached. One per process."""

    def __init__(
        self,
        project: Project,
        loop: Callable[[], LoopSettings],
        settings: Callable[[], Sequence[Setting]] = tuple,
        servers: Mapping[str, str] | None = None,
    ) -> None:
        self._loop = loop
        self._settings = settings
        self._servers = dict(servers or {})
        self._status = StaleWhileRevalidate(lambda: load_answered_status(project, loop()))
        self._judging = StaleWhileRevalidate(lambda: load_judging(project))
        self._tooling = StaleWhileRevalidate(lambda: load_tool_usage(project))

    @property
    def loop(self) -> LoopSettings:
        """The settings that decide when each stage begins, as they are now."""
        return self._loop()

    @property
    def settings(self) -> Sequence[Setting]:
        """All settings in force."""
        return self._settings()

    async def status(self) -> AnsweredStatus:
        """Load the project's status, with its answers. Raises StoreError."""
        return await self._status.now()

    async def judging(self) -> JudgingView:
        """Load the judge's status. Raises StoreError."""
        return await self._judging.now()

    async def tools(self) -> ToolsView:
        """Load the MCP servers and the usage of their tools. Raises StoreError."""
        return ToolsView(self._servers, await self._tooling.now())


ForStatusService = NamedDependency[StatusService]


@get("/hone/v1/status", responses=response_spec(200, AnsweredStatus))
async def show_status(status_service: ForStatusService) -> Response[bytes]:
    """Return engines and their health, aliases and their versions, the progress of learning, and alarms.

    `answers`: is it learning, is it healthy, and what needs a person, each as lines.
    """
    return json_response(await status_service.status())


@get("/hone/v1/judge", responses=response_spec(200, JudgingView))
async def show_judge(status_service: ForStatusService) -> Response[bytes]:
    """Return groups by state, the judge's latency, tokens and cost by day and model, its agreement, and failures."""
    return json_response(await status_service.judging())


@get("/hone/v1/tools", responses=response_spec(200, ToolsView))
async def show_tools(status_service: ForStatusService) -> Response[bytes]:
    """Return the MCP servers and, by tool, the newest tool calls: outcomes, latency, and the last errors."""
    return json_response(await status_service.tools())


@get("/hone/v1/settings", responses=response_spec(200, list[Setting]))
async def show_settings(status_service: ForStatusService, hone: Injected) -> Response[bytes]:
    """Return the settings in force and where each value came from, secrets masked."""
    if hone.settings is not None:
        await hone.settings.refresh()
    return json_response(status_service.settings)


SettingKey = Annotated[str, PathParameter(description="The setting as in hone.toml: `learn.steps_per_hour`.")]


class NewValue(BaseModel):
    """A setting's new value."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    value: bool | int | float | str | None
    """As in hone.toml; null: not set."""


@get("/hone/v1/setting-changes", responses=response_spec(200, list[SettingChange]))
async def show_setting_changes(hone: Injected) -> Response[bytes]:
    """Return the last fifty changes of settings at run time, newest first: who changed what, when, before and after."""
    return json_response(await list_changes(hone.project))


@put("/hone/v1/settings/{key:path}", responses=response_spec(200, Setting))
async def change_setting(
    hone: Injected, status_service: ForStatusService, request: AnyRequest, key: SettingKey, data: JSONBody[NewValue]
) -> Response[bytes]:
    """Change a setting at run time: those of `[learn]` but `health`, and `promote`, `canary_share`, `holdback_share`
    and `sampling.override` of an alias.

    Every program follows within 250 ms. The change wins over hone.toml, variables and flags until it is undone.
    """
    named = str(key).lstrip("/")
    await setting_actions.set_value(hone.follower, named, data.value, caller_id(caller_of(request)))
    return json_response(_setting(status_service, named))


@delete("/hone/v1/settings/{key:path}", status_code=200, responses=response_spec(200, Setting))
async def undo_setting(
    hone: Injected, status_service: ForStatusService, request: AnyRequest, key: SettingKey
) -> Response[bytes]:
    """Undo the change of a setting: hone.toml, variables and flags hold again."""
    named = str(key).lstrip("/")
    await setting_actions.undo(hone.follower, named, caller_id(caller_of(request)))
    return json_response(_setting(status_service, named))


def _setting(status_service: StatusService, key: str) -> Setting | None:
    return next((one for one in status_service.settings if one.key == key), None)


@get("/hone/v1/keys", responses=response_spec(200, list[KeyView]))
async def show_keys(hone: Injected) -> Response[bytes]:
    """Return the newest keys that belong to no trajectory, revoked ones included, without their secrets."""
    return json_response(await keys.newest_keys(hone.project))
