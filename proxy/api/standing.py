"""How everything stands, over /hone/v1: status, the judge, tools, the settings in force, keys.

Owns: these routes, and what a process knows of itself that the store does not (its settings, its MCP servers). Refuses:
the questions (`recorder.telling`), and changing anything: keys are made and revoked on the pages and the command line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from litestar import Response, get
from litestar.di import NamedDependency

from proxy.api.kept import Kept
from proxy.api.route_parts import Injected, answers, as_json
from recorder.registry import keys
from recorder.registry.keys import KeyView
from recorder.store.project import Project
from recorder.telling.judging import Judging, judging
from recorder.telling.stages import LoopSettings
from recorder.telling.status import Status, status
from recorder.telling.tooling import Tooling, tooling


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting in force, secrets masked; `origin`: where its value came from."""

    key: str
    value: Any
    origin: str
    about: str


@dataclass(frozen=True, slots=True)
class Tools:
    """The MCP servers that are configured, with where they are (secrets masked), and what became of tool calls."""

    servers: Mapping[str, str]
    used: Tooling


class Stands:
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
        self._status = Kept(lambda: status(project, loop))
        self._judging = Kept(lambda: judging(project))
        self._tooling = Kept(lambda: tooling(project))

    async def status(self) -> Status:
        """Who is there, what is in service, how learning goes. Raises StoreError."""
        return await self._status.now()

    async def judging(self) -> Judging:
        """What the judge does. Raises StoreError."""
        return await self._judging.now()

    async def tools(self) -> Tools:
        """Tools, and the servers that have them. Raises StoreError."""
        return Tools(self._servers, await self._tooling.now())


ForStanding = NamedDependency[Stands]


@get("/hone/v1/status", responses=answers(200, Status))
async def show_status(stands: ForStanding) -> Response[bytes]:
    """Engines and their health, aliases and what they serve, how learning goes, alarms."""
    return as_json(await stands.status())


@get("/hone/v1/judge", responses=answers(200, Judging))
async def show_judge(stands: ForStanding) -> Response[bytes]:
    """Groups by what became of them, the judge's latency, tokens and money by day and model, agreement, what fails."""
    return as_json(await stands.judging())


@get("/hone/v1/tools", responses=answers(200, Tools))
async def show_tools(stands: ForStanding) -> Response[bytes]:
    """MCP servers, and the newest tool calls by tool: how they ended, how long they took, the last errors."""
    return as_json(await stands.tools())


@get("/hone/v1/settings", responses=answers(200, list[Setting]))
async def show_settings(stands: ForStanding) -> Response[bytes]:
    """The settings in force and where each value came from, secrets masked."""
    return as_json(stands.settings)


@get("/hone/v1/keys", responses=answers(200, list[KeyView]))
async def show_keys(hone: Injected) -> Response[bytes]:
    """The newest keys that were made for no single run, revoked ones too, without their secrets."""
    return as_json(await keys.newest_keys(hone.project))
