"""The programs: two proxies, two judges, two learners, one real engine and two stand-ins, on one PostgreSQL."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import random
import zlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import psutil
from aiohttp import web

from benchmarks.faults.processes import FaultyProcess, command, function
from benchmarks.faults.ring import DATABASE, listens
from benchmarks.several import learner
from benchmarks.several.clients import ALIASES
from examples.running.programs import free_ports
from recorder.settings import RecorderSettings
from recorder.store.bootstrap import open_store
from recorder.store.database import Store
from tests.e2e.conftest import MODEL
from tests.judge.judge_server import last_text, verdicts
from tests.judge.judge_server import serve as serve_judge
from tests.postgres import Postgres
from tests.proxy.fake_engine import completion_of, words
from tests.proxy.scripted_engine import ScriptedEngine
from tests.proxy.until import until

PROJECT: Final = "default"
BASE: Final = "base"
START_S: Final = 300.0
GROUPS_A_STEP: Final = 4
LEASE_S: Final = 10.0
CONTEXT: Final = 1024  # tokens
_ANSWER_S: Final = 0.05
ENGINE: Final = "engine"  # the real one
# The mean seconds between two kills of a kind of program: a real engine takes most of a minute to start.
LIVES_S: Final = {ENGINE: 150.0, "stand-in": 45.0, "proxy": 30.0, "judge": 30.0, "learner": 30.0}


@dataclass
class Programs:
    """All of them. `at`: the proxies' URLs, without /v1."""

    folder: Path
    server: Postgres
    at: Sequence[str]
    programs: Sequence[FaultyProcess]

    @property
    def data(self) -> Path:
        """Return the data folder."""
        return self.folder / "data"

    def of_kind(self, kind: str) -> list[FaultyProcess]:
        """Return the programs whose names begin with this word."""
        return [one for one in self.programs if one.name.split()[0] == kind]

    async def open_store(self) -> Store:
        """Open the store beside them."""
        settings = RecorderSettings(url=self.server.url(DATABASE))
        return await open_store(self.data, settings, migrate=True, project=PROJECT)

    async def kill_one(self, kind: str, chance: random.Random) -> None:
        """Kill one of a kind, and start it again. The real engine is started again by its parent, `hone engine`."""
        one = chance.choice(self.of_kind(kind))
        if kind == ENGINE:
            for child in psutil.Process(one.pid).children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()
            return
        await one.kill()
        await one.start()


@contextlib.asynccontextmanager
async def running(folder: Path) -> AsyncIterator[Programs]:
    """Run everything in an empty folder until the block ends."""
    data, ports = folder / "data", free_ports(5)
    data.mkdir(mode=0o700)
    async with contextlib.AsyncExitStack() as stack:
        server = Postgres(synchronous_commit="on")  # as users run it
        stack.callback(server.stop)
        server.create(DATABASE)
        judge = await stack.enter_async_context(serve_judge())
        judge.behave(verdicts(_worth))
        config = folder / "hone.toml"
        engines = [f"http://127.0.0.1:{port}" for port in ports[:3]]
        config.write_text(_settings(server.url(DATABASE), engines, judge.url))
        own = folder / "engine.toml"
        own.write_text(
            f'[engine]\nbase = "{MODEL}"\nname = "{BASE}"\nport = {ports[0]}\n'
            f"max_model_len = {CONTEXT}\nmax_loras = 6\n"
        )

        def program(
            name: str, *argv: str, file: Path = config, ready: Callable[[], Any] | None = None
        ) -> FaultyProcess:
            options = ["--config", str(file), "--data", str(data)]
            return command(name, [*argv, *options], {}, folder / f"{name}.log", ready or _at_once)

        proxies = [
            program(f"proxy {n}", "serve", "--port", str(port), ready=_answering(f"http://127.0.0.1:{port}/healthz"))
            for n, port in enumerate(ports[3:], 1)
        ]
        judges = [program(f"judge {n}", "judge") for n in (1, 2)]
        learners = [
            function(
                f"learner {name}",
                learner.run,
                (str(config), str(data), name, str(MODEL)),
                folder / f"{name}.log",
                _at_once,
            )
            for name in ALIASES
        ]
        real = program(ENGINE, "engine", file=own, ready=_answering(f"{engines[0]}/health"))
        stack.push_async_callback(real.stop)
        await real.start()
        version = await _version_of(engines[0])
        stand_ins = [
            function(
                f"stand-in {port}", run_stand_in, (port, version), folder / f"stand-in-{port}.log", _listening(port)
            )
            for port in ports[1:3]
        ]
        every = [real, *stand_ins, *proxies, *judges, *learners]
        programs = Programs(folder, server, [f"http://127.0.0.1:{port}" for port in ports[3:]], every)
        await (await programs.open_store()).close()
        for one in every[1:]:
            stack.push_async_callback(one.stop)
        await asyncio.gather(*(one.start() for one in stand_ins))
        await asyncio.gather(*(one.start() for one in proxies))
        await until(lambda: _ready(programs.at), within_s=START_S)
        await asyncio.gather(*(one.start() for one in [*judges, *learners]))
        yield programs


def _worth(document: dict[str, Any]) -> float:
    """Score a text by its hash: answers differ, and the same one has the same score."""
    return zlib.crc32(last_text(document).encode()) % 101 / 100


async def _version_of(engine: str) -> str:
    async with httpx.AsyncClient() as http:
        return str((await http.get(f"{engine}/version")).json()["version"])


async def _at_once() -> bool:
    return True


async def _ready(at: Sequence[str]) -> bool:
    async with httpx.AsyncClient() as http:
        return all([(await http.get(f"{url}/readyz")).is_success for url in at])


def _answering(url: str) -> Callable[[], Any]:
    async def answers() -> bool:
        with contextlib.suppress(httpx.HTTPError):
            async with httpx.AsyncClient() as http:
                return (await http.get(url)).is_success
        return False

    return answers


def _listening(port: int) -> Callable[[], Any]:
    async def listening() -> bool:
        return await listens(port)

    return listening


def _settings(url: str, engines: Sequence[str], judge: str) -> str:
    aliases = "\n".join(
        f'[aliases.{name}]\nbase_model = "{BASE}"\npromote = "auto"\nholdback_share = 0.0\n' for name in ALIASES
    )
    return f"""
[recorder]
url = {json.dumps(url)}
commit_timeout_s = 60.0
answered_idle_s = 120.0
idle_timeout_s = 120.0
group_window_s = 1.0
group_timeout_s = 180.0
lease_s = {LEASE_S}

[engine]
urls = {json.dumps(list(engines))}
max_loras = 6

[judge]
model = "openai/judge"
api_base = "{judge}"

[trainer]
base = "{MODEL}"
min_groups = {GROUPS_A_STEP}
lease_s = {LEASE_S}

{aliases}"""


def run_stand_in(port: int, version: str) -> None:
    """Serve a stand-in until killed (the target of a process)."""
    asyncio.run(_stand_in(port, version))


async def _stand_in(port: int, version: str) -> None:
    """Answer as the real engine's model, if the version is loaded."""
    numbers, engine = itertools.count(port), ScriptedEngine()

    async def answer(request: web.Request) -> web.Response:
        body = await request.json()
        if body["model"] not in (*engine.bases, *engine.adapters):
            return web.json_response({"error": {"message": f"no model {body['model']}", "code": 404}}, status=404)
        await asyncio.sleep(_ANSWER_S)
        number = next(numbers)
        return web.json_response(completion_of(body, [words(f"Order {number} arrives on Monday")]))

    engine.port = port
    # What an engine says of itself is its fingerprint: with another one, its answers would be of another base.
    engine.base_root, engine.max_model_len, engine.version = str(MODEL), CONTEXT, version
    engine.more = {"/v1/chat/completions": answer}
    await engine.start()
    await asyncio.Event().wait()
