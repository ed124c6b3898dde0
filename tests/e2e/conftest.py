"""A real vLLM on the CPU with the demo's model, and the proxy before it, started as anybody would: `hone up`.

Two engines serve most files: to start one takes 20 to 30 CPU seconds. `stack` has the demo's settings, and no test ends
it. `killable_stack` has a template that drops thinking, slots for two adapters and an engine that may be paused, and
tests kill its programs. A file that needs other proxy settings, a campaign or a learner starts its own programs before
one of these engines (`served_beside`, `Stack.engine_settings`). With several workers (`--numprocesses 2`), one worker
runs all files of a shared engine, and each other file goes to one worker as a whole.

An engine answers sixteen requests in about the time of one: `at_once` sends many.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

import httpx
import pytest
from sqlalchemy import select

from examples.running.programs import free_ports
from recorder.base.terminal import to_json
from recorder.maintenance.export import raw_lines, tool_lines
from recorder.settings import RecorderSettings
from recorder.store.bootstrap import DEFAULT_PROJECT, open_store
from recorder.store.database import Project
from recorder.store.schema import trajectories
from tests.stores import Stores, stored_in
from tests.trainer.plain_settings import PLAIN_TOML

ROOT = Path(__file__).parent.parent.parent
MODEL = ROOT / "examples" / "helpdesk" / "model"
THINKING_TEMPLATE = ROOT / "tests" / "templates" / "thinking.jinja"
START_TIMEOUT_S = 300.0

T = TypeVar("T")
R = TypeVar("R")

CONFIG = f"""
[aliases.helpdesk]

[engine]
base = "{MODEL}"
name = "tiny-qwen3"
max_model_len = 1024
max_lora_rank = 8

[trainer]
lr = 3e-3
{PLAIN_TOML}"""
KILLABLE_CONFIG = f"""
[aliases.helpdesk]
base_model = "helpdesk"

[engine]
base = "{MODEL}"
name = "tiny-qwen3"
chat_template = "{THINKING_TEMPLATE}"
reasoning_parser = ""
max_model_len = 2048
max_lora_rank = 8
max_loras = 2
device = "cpu"
share = "sleep"
health_interval_s = 0.5
"""
# A shared engine, and the files whose tests use it. The process that hands tests to workers knows only their files.
FILES_OF = {
    "stack": {
        "test_capture.py",
        "test_equality.py",
        "test_formats_agree.py",
        "test_gate.py",
        "test_live.py",
        "test_recorded_text.py",
        "test_responses.py",
        "test_ring.py",
        "test_sft.py",
        "test_shadow.py",
    },
    "killable_stack": {"test_continuity.py", "test_engine_lora.py", "test_faults.py", "test_pauses.py"},
    # No server: they import vLLM into the tests' own process, which takes seconds.
    "vllm_classes": {"test_media_bases.py", "test_messages_translation.py", "test_reasoning_parsers.py"},
}


def engine_of(file: str) -> str:
    """What a test file shares with others (`FILES_OF`), or the file itself: it starts an engine of its own or none."""
    return next((engine for engine, files in FILES_OF.items() if file.rpartition("/")[2] in files), file)


@pytest.hookimpl(optionalhook=True)  # absent without xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> Any:
    """Keep the tests of one engine together. pytest-xdist 3.8's `loadgroup` groups nothing with pytest 9.2."""
    scheduling = importlib.import_module("xdist.scheduler").LoadScopeScheduling(config, log)
    scheduling._split_scope = lambda nodeid: engine_of(nodeid.partition("::")[0])
    return scheduling


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Raise UsageError for a test that uses a shared engine and whose file is not listed with it."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            for engine in FILES_OF.keys() & set(getattr(item, "fixturenames", ())):
                if item.path.name not in FILES_OF[engine]:
                    raise pytest.UsageError(
                        f"{item.path.name} uses {engine}: list it in FILES_OF of tests/e2e/conftest.py"
                    )


@dataclass(frozen=True)
class Stack:
    """Engine and proxy, running; `recording` says which store the data folder has."""

    data: Path
    config: Path
    proxy_url: str
    engine_url: str
    engine_key: str
    recording: RecorderSettings

    @property
    def engine_settings(self) -> dict[str, str]:
        """Variables that name this engine to other programs of Hone, which then start none."""
        return {"HONE_ENGINE__URLS": json.dumps([self.engine_url]), "HONE_ENGINE__API_KEY": self.engine_key}

    def run_file(self) -> dict[str, Any]:
        return dict(json.loads((self.data / "run.json").read_text()))

    def pid(self, name: str) -> int:
        return int(self.run_file()["pids"][name])

    def hone(self, *arguments: str, timeout_s: float = 100) -> str:
        """Run a command of the command line on this data folder and return what it prints."""
        folder = ["--data", str(self.data), "--config", str(self.config)]
        done = subprocess.run(
            [sys.executable, "-m", "proxy.cli", *arguments, *folder], capture_output=True, text=True, timeout=timeout_s,
            check=False, cwd=ROOT, env=os.environ | stored_in(self.recording),
        )  # fmt: skip
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout

    def export(self, form: Literal["raw", "tools"] = "raw") -> list[dict[str, Any]]:
        """Every recorded call, or tool call, as scripts get them from `hone export`."""
        return asyncio.run(self._exported(raw_lines if form == "raw" else tool_lines))

    async def _exported(self, lines: Callable[[Project], AsyncIterator[Any]]) -> list[dict[str, Any]]:
        store = await open_store(self.data, self.recording, migrate=False)
        try:
            return [json.loads(to_json(line)) async for line in lines(Project(store, DEFAULT_PROJECT))]
        finally:
            await store.close()

    def calls_of(self, trajectory: str) -> list[dict[str, Any]]:
        """The calls of the trajectory with this external id, oldest first: the same lines as in `export`."""
        calls = asyncio.run(self._exported(partial(_lines_of, trajectory)))
        return sorted(calls, key=lambda c: str(c["started_at"]))

    def engine(self) -> httpx.Client:
        """A client of the engine itself, past the proxy."""
        headers = {"authorization": f"Bearer {self.engine_key}"}
        return httpx.Client(base_url=self.engine_url, headers=headers, timeout=60)

    def proxy(self) -> httpx.Client:
        return httpx.Client(base_url=self.proxy_url, timeout=60)


async def _lines_of(external_id: str, project: Project) -> AsyncIterator[Any]:
    """The lines of the trajectories with one external id. Reading all takes longer with each test of a shared store."""
    t = trajectories.c
    async with project.store.read() as conn:
        query = select(t.id).where(t.project_id == project.id, t.external_id == external_id)
        ids = list((await conn.execute(query)).scalars())
    for id_ in ids:
        async for line in raw_lines(project, trajectory_id=id_):
            yield line


def at_once(ask: Callable[[T], R], of: Iterable[T], most: int = 16) -> list[R]:
    """What `ask` returns for each, in their order, with so many requests in flight. Raises the first error."""
    with ThreadPoolExecutor(most) as threads:
        return list(threads.map(ask, of))


def wait_for(what: str, check: Any, timeout_s: float = START_TIMEOUT_S) -> Any:
    """Poll until `check()` returns something true, and return that."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        with contextlib.suppress(httpx.HTTPError, OSError, KeyError, ValueError):
            if found := check():
                return found
        time.sleep(0.1)
    raise AssertionError(f"{what} did not come within {timeout_s} s")


@contextlib.contextmanager
def started(folder: Path, recording: RecorderSettings, settings: str = CONFIG) -> Iterator[Stack]:
    """`hone up` without judge and learner, on free ports, until the block ends."""
    data, config, log = folder / "data", folder / "hone.toml", folder / "up.log"
    config.write_text(settings)
    engine_port, proxy_port = free_ports(2)
    ports = {"HONE_ENGINE__PORT": str(engine_port), "HONE_PROXY__PORT": str(proxy_port)}
    environment = os.environ | ports | stored_in(recording)
    command = [sys.executable, "-m", "proxy.cli", "up", "--no-learn", "--no-judge"]
    with log.open("wb") as out:
        up = subprocess.Popen(
            [*command, "--data", str(data), "--config", str(config)], stdout=out, stderr=out, env=environment, cwd=ROOT
        )
    try:
        url = f"http://127.0.0.1:{proxy_port}"
        wait_for("engine and proxy", lambda: _answers(up, url, log))
        key = (data / "engine.key").read_text().strip()
        yield Stack(data, config, url, f"http://127.0.0.1:{engine_port}", key, recording)
    finally:
        _end(up)


@contextlib.contextmanager
def served_beside(stack: Stack, folder: Path, recording: RecorderSettings, settings: str) -> Iterator[Stack]:
    """Another proxy, `hone serve` with a store of its own, before a stack's engine, until the block ends."""
    folder.mkdir(exist_ok=True)
    data, config, log, port = folder / "data", folder / "hone.toml", folder / "serve.log", free_ports(1)[0]
    config.write_text(settings)
    environment = os.environ | stack.engine_settings | {"HONE_PROXY__PORT": str(port)} | stored_in(recording)
    command = [sys.executable, "-m", "proxy.cli", "serve", "--data", str(data), "--config", str(config)]
    with log.open("wb") as out:
        proxy = subprocess.Popen(command, stdout=out, stderr=out, env=environment, cwd=ROOT)
    try:
        url = f"http://127.0.0.1:{port}"
        wait_for("the second proxy", lambda: _answers(proxy, url, log))
        yield Stack(data, config, url, stack.engine_url, stack.engine_key, recording)
    finally:
        _end(proxy)


def _answers(program: subprocess.Popen[bytes], url: str, log: Path) -> bool:
    assert program.poll() is None, log.read_text()
    if not httpx.get(f"{url}/readyz").is_success:  # while an engine starts, it is asked hundreds of times
        return False
    body = {"model": "helpdesk", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
    # purpose none: recorded, and in no test's way
    return httpx.post(f"{url}/v1/chat/completions", json=body, headers={"x-hone-purpose": "none"}).is_success


def _end(program: subprocess.Popen[bytes]) -> None:
    program.send_signal(signal.SIGTERM)
    try:
        program.wait(60)
    except subprocess.TimeoutExpired:
        program.kill()
        program.wait()


@pytest.fixture(scope="session")
def stack(stores: Stores, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("stack")
    with stores.unmade(folder / "data") as recording, started(folder, recording) as running:
        yield running


@pytest.fixture(scope="session")
def killable_stack(stores: Stores, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A second stack. Tests kill its programs, and each such test waits until they answer again."""
    folder = tmp_path_factory.mktemp("killable")
    with stores.unmade(folder / "data") as recording, started(folder, recording, KILLABLE_CONFIG) as running:
        yield running
