"""What attempts need: proxy, engine and judge, found running or started; the user's agent and the success function.

Owns: finding a running proxy (`run.json` in the data folder, its heartbeat in the store, or a given URL), starting
`hone up --no-learn` or a missing judge, waiting until store, proxy, engine and judge are ready, the child processes of
agent and success function, and an API key for the agent if the proxy requires keys. Refuses: supervising engine and
proxy (`hone up` does, and it uses the engine of a running `hone engine`), migrating the store, and attempts
(`trainer.agents.attempts`).

Services run under `proxy.supervision.watchdog`, which ends them when this process ends, even by `kill -9`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import ssl
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from recorder.base.function_paths import is_function_path
from recorder.errors import SchemaMismatch, StoreError
from recorder.processes import file_modes
from recorder.queue import leases
from recorder.queue.campaigns import CampaignView
from recorder.registry import aliases, keys, replicas
from recorder.registry.aliases import AliasView
from recorder.settings import RecorderSettings
from recorder.store import sql
from recorder.store.bootstrap import open_store
from recorder.store.changes import ChangeSignal, Topic
from recorder.store.database import Project, Store
from trainer.agents import answer, replay
from trainer.agents.attempts import Endpoint
from trainer.agents.user_agent import AgentSpec, UserAgent
from trainer.campaign_settings import CampaignSettings
from trainer.errors import ServiceUnavailable
from trainer.ranks.launch import outside_torchrun

RUN_FILE = "run.json"
POLL_S = 0.2  # for changes that send no signal: files, and whether a proxy answers
GRACE_S = 20.0
HEALTH_TIMEOUT_S = 2.0
# Proxies and engines report every ten seconds; one that is silent for this long counts as gone.
RECENT_S = 20.0
_LOG_LINES = 20

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class ServiceRequest:
    """The services to find, and how to start them."""

    data: Path
    project: str
    recorder: RecorderSettings
    proxy_url: str | None = None  # if given, it must run: nothing is started instead
    options: Sequence[str] = ()  # `--config` and `--data` for started programs
    env: Mapping[str, str] = field(default_factory=dict)  # variables for them, beside this process's
    start_timeout_s: float = 420.0  # an engine may take minutes to load its model
    found_timeout_s: float = 20.0  # for services that run already, or start fast
    judge: bool = True  # whether a judge is needed
    judge_is_set: bool = True  # whether `hone up` starts one with these settings


class CampaignServices:
    """Proxy, engine and judge while a campaign runs: ``async with CampaignServices(wanted, say) as services``."""

    def __init__(self, wanted: ServiceRequest, say: Say) -> None:
        self.wanted = wanted
        self._say = say
        self._url = wanted.proxy_url
        self._without_judge = False  # no judge was started: one ran already, or none is needed
        self._store: Store | None = None
        self._children: list[_Child] = []

    async def __aenter__(self) -> CampaignServices:
        """Find a running proxy, or begin to start one. Returns at once; `store()` and `ready()` wait."""
        self._url = await self._running()
        if self._url is None and self.wanted.proxy_url is not None:
            raise ServiceUnavailable(
                f"no proxy answers at {self.wanted.proxy_url}/healthz. Start one with `hone up` or `hone serve`, "
                "or omit --proxy: Hone then starts one."
            )
        if self._url is None:
            await self._start_up()
        return self

    async def _running(self) -> str | None:
        """The proxy of `--proxy`, of `run.json`, or one that reports to this store."""
        if self.wanted.proxy_url is not None:
            return self.wanted.proxy_url if await is_healthy(self.wanted.proxy_url) else None
        try:
            store = await self._open()
        except StoreError:  # not this program's schema: no proxy has reported to it
            store = None
        return await find_proxy(store, self.wanted.data, self.wanted.project)

    async def _start_up(self) -> None:
        there = self._store is not None and await self.judge_runs()
        self._without_judge = there or not (self.wanted.judge and self.wanted.judge_is_set)
        what = "engine and proxy" if self._without_judge else "engine, proxy and judge"
        self._say(f"starting {what}; their logs are in {self.wanted.data / 'logs'}")
        await self._start("up", "--no-learn", *(["--no-judge"] if self._without_judge else []))

    async def __aexit__(self, *error: object) -> None:
        """Close the store, and stop only the services that were started here."""
        if self._store is not None:
            await self._store.close()
        await asyncio.gather(*(child.stop() for child in self._children))

    async def store(self) -> Store:
        """The store, once it exists and has this program's schema."""
        deadline = self._deadline()
        while True:
            try:
                return await self._open()
            except StoreError as e:
                # a service started here creates or migrates the store; one that ran before has done so
                if not self._children or time.monotonic() > deadline or not _may_come(e):
                    raise
                await self._wait()

    async def _open(self) -> Store:
        if self._store is None:
            self._store = await open_store(
                self.wanted.data, self.wanted.recorder, migrate=False, project=self.wanted.project
            )
        return self._store

    async def alias(self, name: str | None) -> AliasView:
        """The alias of that name, or the only one, once the proxy has declared it."""
        store, deadline = await self.store(), self._deadline()
        with store.watch.on(Topic.SERVICE) as news:
            while True:
                await self._wait(news)
                found = await aliases.get_aliases(Project(store, self.wanted.project))
                chosen = [a for a in found if a.name == name] if name else found
                if len(chosen) == 1:
                    return chosen[0]
                if len(chosen) > 1:
                    names = ", ".join(a.name for a in found)
                    raise ServiceUnavailable(f"there are several aliases ({names}): name the one to train with --alias")
                if time.monotonic() > deadline:
                    there = ", ".join(a.name for a in found) or "none"
                    raise ServiceUnavailable(f"the proxy serves no alias {name or ''!r}; there is: {there}")

    async def ready(self) -> str:
        """Wait until proxy, engine and, if wanted, judge are ready; return the proxy's URL."""
        url = await self._until(self._proxy, "a proxy that serves this store")
        await self._until(self._engine, "an engine behind the proxy")
        if not self.wanted.judge:
            return str(url)
        if not await self._judge() and (not self._children or self._without_judge):
            self._say("no judge runs: starting one")
            await self._start("judge")
        await self._until(self._judge, "a judge")
        return str(url)

    async def judge_runs(self) -> bool:
        """Whether a judge runs: without one, no group is scored."""
        return bool(await self._judge())

    async def _proxy(self) -> str | None:
        url = self._url or running_proxy(self.wanted.data)
        if url is None or not await is_healthy(url):
            return None
        seen = await replicas.list_live_proxies(Project(await self.store(), self.wanted.project), RECENT_S)
        return url if seen else None

    async def _engine(self) -> str | None:
        found = await replicas.list_replicas(Project(await self.store(), self.wanted.project), RECENT_S)
        return next((r.url for r in found if r.state == "up"), None)

    async def _judge(self) -> str | None:
        found = await leases.list_holders(Project(await self.store(), self.wanted.project), leases.JUDGE)
        return found[0].name if found else None

    async def _until(self, look: Callable[[], Any], what: str) -> Any:
        deadline = self._deadline()
        with (await self.store()).watch.on(Topic.ENGINES, Topic.PROXIES, Topic.LEASES) as news:
            while (found := await look()) is None:
                if time.monotonic() > deadline:
                    raise ServiceUnavailable(
                        f"{what} did not become ready; the store is in {self.wanted.data}, the project is "
                        f"{self.wanted.project!r}. Check `hone status` and {self.wanted.data / 'logs'}."
                    )
                await self._wait(news)
        return found

    def _deadline(self) -> float:
        return time.monotonic() + (self.wanted.start_timeout_s if self._children else self.wanted.found_timeout_s)

    async def _wait(self, news: ChangeSignal | None = None) -> None:
        """Wait briefly for a change in the store: started programs may end, or begin to answer."""
        for child in self._children:
            child.check()
        await (news.wait(POLL_S) if news is not None else asyncio.sleep(POLL_S))

    async def _start(self, *command: str) -> None:
        log = self.wanted.data / "logs" / f"{command[0]}.log"
        argv = [sys.executable, "-P", "-m", "proxy.cli", *command, *self.wanted.options]
        self._children.append(await _Child.start(argv, log, self.wanted.env))


class _Child:
    """One started program under `proxy.supervision.watchdog`, which ends it when its standard input closes."""

    def __init__(self, process: asyncio.subprocess.Process, name: str, log: Path) -> None:
        self._process = process
        self._name = name
        self._log = log

    @classmethod
    async def start(cls, argv: Sequence[str], log: Path, env: Mapping[str, str]) -> _Child:
        file_modes.make_folder(log.parent)
        with file_modes.open_log(log) as out:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-P", "-m", "proxy.supervision.watchdog", str(GRACE_S), *argv,
                env={**outside_torchrun(os.environ), **env},
                stdin=asyncio.subprocess.PIPE,
                stdout=out,
                stderr=out,
                start_new_session=True,  # Ctrl-C reaches this process only, which stops its children at its end
            )  # fmt: skip
        return cls(process, argv[4], log)

    def check(self) -> None:
        """Raise `ServiceUnavailable` if it has ended."""
        if self._process.returncode is not None:
            raise ServiceUnavailable(
                f"`hone {self._name}` ended with status {self._process.returncode}. The last lines of {self._log}:\n"
                + last_lines(self._log, _LOG_LINES)
            )

    async def stop(self) -> None:
        """Ask it to end, and wait: the watchdog kills what does not end in time."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()
        await self._process.wait()


async def find_proxy(store: Store | None, data: Path, project: str) -> str | None:
    """The URL of a proxy that answers: the one in `run.json`, else one that reported to the store."""
    noted = running_proxy(data)
    seen = (
        await replicas.list_live_proxies(Project(store, project), RECENT_S) if store is not None and not noted else []
    )
    for url in [noted] if noted else [proxy.url for proxy in seen]:
        if await is_healthy(url):
            return url
    return None


def running_proxy(data: Path) -> str | None:
    """The URL of the proxy in `run.json`, if there is one."""
    try:
        noted = json.loads((data / RUN_FILE).read_text())
    except (OSError, ValueError):
        return None
    url = noted.get("proxy_url") if isinstance(noted, dict) else None
    return url.rstrip("/") if isinstance(url, str) else None


async def is_healthy(url: str) -> bool:
    """Whether a proxy answers its health check."""
    # reading all certificates takes longer than any answer, so only where they are needed
    tls = ssl.create_default_context() if url.startswith("https://") else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # not through the environment's HTTP proxies: Hone's own services are on this machine
    async with httpx.AsyncClient(trust_env=False, timeout=HEALTH_TIMEOUT_S, verify=tls) as client:
        try:
            return (await client.get(f"{url}/healthz")).status_code == httpx.codes.OK
        except httpx.HTTPError:
            return False


def last_lines(path: Path, count: int) -> str:
    """The last lines of a log."""
    try:
        with path.open("rb") as f:
            f.seek(max(0, os.fstat(f.fileno()).st_size - 64 * 1024))
            return "\n".join(f.read().decode(errors="replace").splitlines()[-count:])
    except OSError:
        return "(it has no log)"


def _may_come(error: StoreError) -> bool:
    return type(error) is StoreError or isinstance(error, SchemaMismatch)


_KEY_LIFE_S = 7 * 86400.0


async def start_agents(settings: CampaignSettings, data: Path, stack: AsyncExitStack) -> list[UserAgent]:
    """Start the agent's host, and the success function's if there is one."""
    agents = [UserAgent(spec) for spec in _specs(settings, data / "logs")]
    for agent in agents:
        stack.push_async_callback(agent.stop)
        await agent.start()
    return agents


def _specs(settings: CampaignSettings, logs: Path) -> list[AgentSpec]:
    python, cwd = settings.python or Path(sys.executable), settings.cwd or Path.cwd()
    named = tuple(settings.agent_env)
    own = replay if settings.replay else answer if settings.agent == answer.NAME else None
    if own is not None:  # in Hone's own Python and folder
        specs = [AgentSpec(f"{own.__name__}:run", logs / "agent.log", cwd=Path(str(own.__file__)).parents[2])]
    else:
        assert settings.agent is not None
        specs = [AgentSpec(settings.agent, logs / "agent.log", python, cwd, named)]
    if settings.success is not None and is_function_path(settings.success):
        specs.append(AgentSpec(settings.success, logs / "success.log", python, cwd, named, "measure"))
    return specs


async def endpoint_of(
    store: Store,
    url: str,
    alias: AliasView,
    campaign: CampaignView,
    scopes: Sequence[keys.Scope],
    stack: AsyncExitStack,
) -> Endpoint:
    """The endpoint of the alias for agents, with an API key of their own if the proxy requires keys."""
    if not await keys.has_keys(Project(store, alias.project_id)):
        return Endpoint(url, "none", alias.name)
    async with store.read() as conn:
        expires_at = await sql.current_time(conn) + _KEY_LIFE_S
    key, secret = await keys.create_key(
        Project(store, alias.project_id),
        f"campaign {campaign.id}",
        scopes,
        expires_at=expires_at,
        family=campaign.id,  # one owner of the attempts across the campaign's restarts
    )
    stack.push_async_callback(keys.revoke_key, Project(store, alias.project_id), key.id)
    return Endpoint(url, secret, alias.name)
