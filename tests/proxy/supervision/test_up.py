"""`hone serve` and `hone up` as processes: they start, restart what dies, and leave nothing behind."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from examples.running.programs import free_ports
from recorder.processes.phase_file import LEARNER_PHASE, read_phase
from recorder.registry import replicas
from recorder.settings import RecorderSettings
from recorder.store.bootstrap import open_store
from recorder.store.database import Project
from tests.proxy.hone_command import hone
from tests.proxy.running import NO_TLS
from tests.proxy.scripted_engine import ScriptedEngine
from tests.proxy.supervision.test_supervisor import SERVER, gone
from tests.proxy.until import until

pytestmark = pytest.mark.slow  # programs and whole campaigns: left out of `make check`

ROOT = Path(__file__).parents[3]


@pytest.fixture
async def engine() -> AsyncIterator[ScriptedEngine]:
    engine = ScriptedEngine()
    await engine.start()
    yield engine
    await engine.stop()


Start = Callable[..., Any]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Run `hone` with these arguments until the block ends, with SIGTERM; gives the process."""

    @asynccontextmanager
    async def run(*arguments: str, **variables: str) -> AsyncIterator[asyncio.subprocess.Process]:
        env = {name: value for name, value in os.environ.items() if not name.upper().startswith("HONE_")}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "proxy.cli", *arguments),
            cwd=tmp_path,
            env={**env, "PYTHONPATH": str(ROOT), **variables},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)
            await process.communicate()

    return run


async def answers(url: str, path: str) -> httpx.Response | None:
    try:
        async with httpx.AsyncClient(verify=NO_TLS) as client:
            answer = await client.get(url + path)
    except httpx.HTTPError:
        return None
    return answer if answer.is_success else None


def run_file(data: Path) -> dict[str, Any] | None:
    try:
        return dict(json.loads((data / "run.json").read_text()))
    except FileNotFoundError:
        return None


async def test_serve_needs_no_file_and_takes_the_only_model_of_an_engine(
    start: Start, engine: ScriptedEngine, tmp_path: Path
) -> None:
    [port] = free_ports(1)
    arguments = ("--engine", engine.url, "--port", str(port), "--data", str(tmp_path / "d"))
    async with start("serve", *arguments) as process:
        url = f"http://127.0.0.1:{port}"

        async def one_engine() -> bool:
            health = await answers(url, "/healthz")
            return health is not None and health.json()["engines_up"] == 1

        await until(one_engine)

        async def has_version() -> bool:  # the alias is listed before its first version exists
            models = await answers(url, "/v1/models")
            return models is not None and [card["id"] for card in models.json()["data"]] == ["base", "base@0"]

        assert await until(has_version)
        assert (tmp_path / "d").stat().st_mode & 0o777 == 0o700
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0


async def test_serve_on_a_port_in_use_is_one_line(start: Start, engine: ScriptedEngine, tmp_path: Path) -> None:
    async with start("serve", "--engine", engine.url, "--model", "base", "--port", str(engine.port)) as process:
        out, _ = await process.communicate()
        assert process.returncode == 1
        assert out.decode().startswith(f"hone: port {engine.port} on 127.0.0.1 is in use")
        assert len(out.splitlines()) == 1


@pytest.mark.usefixtures("bare")
def test_serve_without_a_model_says_what_to_give() -> None:
    status, _, err = hone("serve", "--port", "0")
    assert status == 2
    assert "--model NAME" in err


async def test_up_restarts_a_killed_proxy_and_stops_cleanly(
    start: Start, engine: ScriptedEngine, tmp_path: Path
) -> None:
    data = tmp_path / "d"
    arguments = ("--no-judge", "--no-learn", "--engine", engine.url, "--model", "base", "--port", "0")
    async with start("up", *arguments, "--data", str(data)) as process:
        found = await until(lambda: run_file(data))
        url = found["proxy_url"]
        assert found["engine_url"] == engine.url
        assert found["pids"]["up"] == process.pid
        assert await answers(url, "/healthz") is not None
        os.kill(found["pids"]["proxy"], signal.SIGKILL)

        def restarted() -> dict[str, Any] | None:
            now = run_file(data)
            return now if now and now["pids"].get("proxy") not in (None, found["pids"]["proxy"]) else None

        again = await until(restarted)
        await until(lambda: answers(url, "/healthz"))
        process.send_signal(signal.SIGINT)
        out, _ = await process.communicate()
        assert process.returncode == 0, out
        assert f"{url}/v1" in out.decode()
        assert await answers(url, "/healthz") is None
        assert gone(again["pids"]["proxy"])
        assert run_file(data) is None
        assert (data / "logs" / "proxy.log").exists()


async def test_up_starts_what_a_page_asks_for_and_shows_its_log(
    start: Start, engine: ScriptedEngine, tmp_path: Path
) -> None:
    """The campaign's file of scenarios does not exist, so it ends at once."""
    data, config = tmp_path / "d", tmp_path / "hone.toml"
    config.write_text('[campaign]\nagent = "true"\nscenarios = "no-such.jsonl"\n')
    arguments = ("--no-judge", "--no-learn", "--engine", engine.url, "--model", "base", "--port", "0")
    async with start("up", *arguments, "--data", str(data), "--config", str(config)):
        url = (await until(lambda: run_file(data), within_s=60))["proxy_url"]
        async with httpx.AsyncClient(verify=NO_TLS, base_url=f"{url}/hone/v1/programs") as client:

            async def is_listening() -> bool:
                return (await client.post("/jobs", json={"job": "campaign"})).status_code == 202

            async def ended() -> dict[str, Any] | None:
                job = (await client.get("")).json()["job"]
                return dict(job) if job and job["state"] != "running" else None

            await until(is_listening)
            job = await until(ended)
            assert (job["job"], job["state"]) == ("campaign", "failed")
            log = (await client.get("/campaign/log")).json()["lines"]
            assert any("no-such.jsonl" in line for line in log)
            view = (await client.get("")).json()
            assert ([one["name"] for one in view["programs"]], view["logs"]) == (["proxy"], ["proxy", "campaign"])


async def test_up_with_a_judge_leaves_no_run_file_when_it_stops(
    start: Start, engine: ScriptedEngine, tmp_path: Path
) -> None:
    data = tmp_path / "d"
    arguments = ("--no-learn", "--engine", engine.url, "--model", "base", "--port", "0", "--data", str(data))
    async with start("up", *arguments, HONE_JUDGE__MODEL="base") as process:
        # The judge stops before the proxy does: its end must not write the file again.
        await until(lambda: (found := run_file(data)) and {"judge", "proxy"} <= found["pids"].keys(), within_s=90)
        process.send_signal(signal.SIGINT)
        out, _ = await process.communicate()
        assert process.returncode == 0, out
        assert run_file(data) is None


async def test_up_without_a_judge_in_its_settings_records_and_says_so(
    start: Start, engine: ScriptedEngine, tmp_path: Path
) -> None:
    """`hone init` writes such a file where no provider's key is set."""
    arguments = ("--no-learn", "--engine", engine.url, "--model", "base", "--port", "0", "--json")
    async with start("up", *arguments, "--data", str(tmp_path / "d")) as process:
        assert process.stdout is not None
        lines: list[dict[str, Any]] = []
        while not lines or lines[-1]["event"] != "ready":
            lines.append(json.loads(await process.stdout.readline()))
        told = {line["check"]: line for line in lines if "check" in line}
        assert "recorded and not judged" in told["judge"]["todo"]
        assert {line.get("program") for line in lines} == {None, "proxy"}


async def test_up_tells_a_program_what_it_finds_and_when_it_is_ready(
    start: Start, engine: ScriptedEngine, tmp_path: Path
) -> None:
    engine.lora = False
    arguments = ("--no-judge", "--engine", engine.url, "--model", "base", "--port", "0", "--json")
    async with start("up", *arguments, "--data", str(tmp_path / "d")) as process:
        assert process.stdout is not None
        lines: list[dict[str, Any]] = []
        while not lines or lines[-1]["event"] != "ready":
            lines.append(json.loads(await process.stdout.readline()))
        told = {line["check"]: line for line in lines if "check" in line}
        assert "never train" in told["base"]["found"]
        assert "--enable-lora" in told["adapters"]["todo"]
        assert lines[-1]["base_url"].endswith("/v1")
        url = lines[-1]["base_url"].removesuffix("/v1")
        _, pages, curl = lines[-1]["text"].splitlines()
        assert pages == f"pages     {url}/hone/"
        asked = await asyncio.to_thread(
            subprocess.run, shlex.split(curl.removeprefix("try it    ")), capture_output=True, text=True, check=True
        )
        assert "model_not_found" not in asked.stdout
        assert {"choices", "error"} & json.loads(asked.stdout).keys(), asked.stdout
        assert lines[-1]["all_well"] is False
        assert {line.get("program") for line in lines} == {None, "proxy"}  # what can never train starts no learner


@pytest.mark.long
async def test_a_learner_that_is_killed_three_times_in_one_phase_stays_down_and_agents_are_still_served(
    start: Start, engine: ScriptedEngine, tmp_path: Path
) -> None:
    base, data = ROOT / "examples" / "helpdesk" / "model", tmp_path / "d"
    engine.base_root = str(base)
    variables = {"HONE_ENGINE__BASE": str(base), "HONE_ENGINE__DTYPE": "float32", "HONE_DATA": str(data)}
    arguments = ("--no-judge", "--engine", engine.url, "--model", "base", "--port", "0", "--json")
    async with start("up", *arguments, **variables) as process:
        assert process.stdout is not None
        killed, told = list[int](), dict[str, Any]()

        def learner() -> int | None:
            """Its process id, once that of its newest start is in run.json."""
            pid = ((run_file(data) or {}).get("pids") or {}).get("learn")
            return pid if pid is not None and pid not in killed else None

        while told.get("event") != "failed":
            told = json.loads(await process.stdout.readline())
            if (told["event"], told.get("program")) == ("up", "learn"):
                await until(lambda: read_phase(data / LEARNER_PHASE).name == "waiting", within_s=60)
                killed.append(await until(learner))
                os.kill(killed[-1], signal.SIGKILL)
        assert (told["program"], len(killed)) == ("learn", 3)
        for part in ("signal 9", "3 times in the phase 'waiting'", "trainer.token_budget"):
            assert part in told["detail"]
        found = run_file(data)
        assert found is not None
        assert await answers(found["proxy_url"], "/healthz") is not None


async def test_a_second_up_on_the_folder_names_the_first(start: Start, engine: ScriptedEngine, tmp_path: Path) -> None:
    arguments = ("--no-judge", "--engine", engine.url, "--model", "base", "--port", "0", "--data", str(tmp_path / "d"))
    async with start("up", *arguments) as first:
        await until(lambda: run_file(tmp_path / "d"))
        async with start("up", *arguments) as second:
            out, _ = await second.communicate()
            assert second.returncode == 1
            assert f"process {first.pid}" in out.decode()


def fake_python(folder: Path, body: str) -> Path:
    """A program that stands where the engine's Python would, and ignores vLLM's arguments."""
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


async def test_up_starts_the_engine_and_ends_it_even_when_it_is_killed(start: Start, tmp_path: Path) -> None:
    port, data = free_ports(1)[0], tmp_path / "d"
    python = fake_python(tmp_path, f"exec {sys.executable} {SERVER} {port}")
    variables = {
        "HONE_ENGINE__BASE": "org/model",
        "HONE_ENGINE__PYTHON": str(python),
        "HONE_ENGINE__PORT": str(port),
        "HONE_DATA": str(data),
    }
    async with start("up", "--no-judge", "--no-learn", "--port", "0", **variables) as process:
        engine_url = f"http://127.0.0.1:{port}"
        await until(lambda: (found := run_file(data)) and "engine" in found["pids"])
        answer = await until(lambda: answers(engine_url, "/health"))
        found = run_file(data)
        assert found is not None
        process.kill()
        await until(lambda: gone(int(answer.text)) and gone(found["pids"]["proxy"]))


async def test_up_tells_no_fault_of_the_engine_that_it_is_starting(start: Start, tmp_path: Path) -> None:
    port, data, gate = free_ports(1)[0], tmp_path / "d", tmp_path / "gate"
    store = await open_store(data, RecorderSettings(), migrate=True, project="default")
    await replicas.report_replica(
        Project(store, "default"), f"http://127.0.0.1:{port}", state="up"
    )  # in an earlier life
    await store.close()
    waits = f"while [ ! -e {gate} ]; do sleep 0.1; done; exec {sys.executable} {SERVER} {port}"
    variables = {
        "HONE_ENGINE__BASE": "org/model",
        "HONE_ENGINE__PYTHON": str(fake_python(tmp_path, waits)),
        "HONE_ENGINE__PORT": str(port),
        "HONE_DATA": str(data),
    }
    async with start("up", "--no-judge", "--no-learn", "--port", "0", "--json", **variables) as process:
        assert process.stdout is not None
        told: list[dict[str, Any]] = []
        while not told or told[-1].get("state") != "down":
            told.append(json.loads(await process.stdout.readline()))
        assert "is not up yet" in told[-1]["text"]
        gate.touch()
        while told[-1]["event"] != "ready":
            told.append(json.loads(await process.stdout.readline()))
    assert "fault" not in {line["event"] for line in told}


async def test_up_uses_the_engine_that_runs_for_its_data_folder_and_leaves_it_running(
    start: Start, tmp_path: Path
) -> None:
    port, data = free_ports(1)[0], tmp_path / "d"
    python = fake_python(tmp_path, f"exec {sys.executable} {SERVER} {port}")
    variables = {"HONE_ENGINE__BASE": "org/model", "HONE_ENGINE__PYTHON": str(python), "HONE_DATA": str(data)}
    async with start("engine", "--port", str(port), **variables):  # another port than hone.toml's
        engine_url = f"http://127.0.0.1:{port}"
        await until(lambda: answers(engine_url, "/health"))
        async with start("up", "--no-judge", "--no-learn", "--port", "0", **variables) as process:
            found = await until(lambda: run_file(data))
            assert set(found["pids"]) == {"up", "proxy"}
            assert found["engine_url"] == engine_url
            process.send_signal(signal.SIGINT)
            await process.communicate()
        assert await answers(engine_url, "/health") is not None
    await until(lambda: not (data / "engine.json").exists())


async def test_up_ends_with_an_engine_that_turns_out_to_be_set_wrongly(start: Start, tmp_path: Path) -> None:
    port, data = free_ports(1)[0], tmp_path / "d"
    variables = {
        "HONE_ENGINE__BASE": "org/model",
        "HONE_ENGINE__PYTHON": str(fake_python(tmp_path, f"exec {sys.executable} {SERVER} {port}")),
        "HONE_ENGINE__PORT": str(port),
        "HONE_DATA": str(data),
    }
    async with start("up", "--no-judge", "--no-learn", "--port", "0", "--json", **variables) as process:
        assert process.stdout is not None
        while json.loads(await process.stdout.readline())["event"] != "ready":
            pass
        with pytest.raises(httpx.HTTPError):
            await httpx.AsyncClient(verify=NO_TLS).get(f"http://127.0.0.1:{port}/wrong")
        out, _ = await process.communicate()
        assert process.returncode == 1
        assert "its settings are wrong, so it is not restarted" in out.decode()
        assert "no such flag" in out.decode()
        assert run_file(data) is None


async def test_up_shows_the_last_lines_of_what_does_not_start(start: Start, tmp_path: Path) -> None:
    python = fake_python(tmp_path, "echo CUDA out of memory; exit 3")
    variables = {
        "HONE_ENGINE__BASE": "org/model",
        "HONE_ENGINE__PYTHON": str(python),
        "HONE_ENGINE__PORT": str(free_ports(1)[0]),
        "HONE_DATA": str(tmp_path / "d"),
    }
    async with start("up", "--no-judge", "--no-learn", "--port", "0", **variables) as process:
        out, _ = await process.communicate()
        assert process.returncode == 1
        text = out.decode()
        assert "hone: engine ended while starting (exit status 3)" in text
        assert "engine.log" in text
        assert text.rstrip().endswith("CUDA out of memory")
        assert run_file(tmp_path / "d") is None


async def test_up_names_an_engine_port_in_use_before_it_starts_anything(start: Start, tmp_path: Path) -> None:
    engine = ScriptedEngine()
    await engine.start()
    variables = {
        "HONE_ENGINE__BASE": "org/model",
        "HONE_ENGINE__PORT": str(engine.port),
        "HONE_DATA": str(tmp_path / "d"),
    }
    async with start("up", "--port", "0", **variables) as process:
        out, _ = await process.communicate()
        assert process.returncode == 1
        assert f"127.0.0.1:{engine.port}" in out.decode()
        assert "engine.port" in out.decode()
    await engine.stop()
