"""The container files' own steps, run in an empty folder; what they make is small, has no torch, and starts.

What is started is what a container would start: the same arguments and variables, but for addresses that are this
machine's loopback and a store in a SQLite file.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from examples.running.programs import free_ports
from tests.deploy.container_files import apt_names, build, copied, is_sent, mib, stages
from tests.deploy.reading import DEPLOY, ROOT, hone_lines, hones, tool
from tests.proxy.scripted_engine import ScriptedEngine
from tests.proxy.until import until

FILES = sorted((DEPLOY / "docker").glob("Dockerfile*"))
DOCKERFILE = DEPLOY / "docker" / "Dockerfile"
VERSION = "7.8.9"
MOST_MIB = 500  # of Python packages and their bytecode; 485 when it was last looked at, a fifth of it for charts


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_what_is_copied_is_there_and_sent(file: Path) -> None:
    from_repository = [source for stage in stages(file) for source, _ in copied(stage)]
    assert {"pyproject.toml", "proxy", "recorder", "judge", "trainer"} <= set(from_repository)
    for source in from_repository:
        assert (ROOT / source).exists(), source
        assert is_sent(source), f".dockerignore keeps {source} from the build"


def test_nothing_else_is_sent() -> None:
    for path in (
        ".git",
        ".venv",
        "tests",
        "examples/live",
        "deploy/compose/.env",
        "deploy/compose/secrets",
        ".hone",
        "build",
    ):
        assert not is_sent(path), path
    assert not is_sent("proxy/__pycache__")
    assert is_sent("recorder/store/migrations/script.py.mako")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_debian_has_what_is_installed(file: Path) -> None:
    look = tool("apt-cache", "Debian's apt")
    if not subprocess.run([look, "show", "libc6"], capture_output=True).stdout:
        if os.environ.get("CI") != "true":
            pytest.skip("this machine has no lists of packages (apt-get update)")
        subprocess.run(["apt-get", "update", "-q"], check=True)
    for name in apt_names(file):
        found = subprocess.run([look, "policy", name], capture_output=True, text=True, check=True).stdout
        assert "Candidate: " in found, f"{name} is no package of Debian"
        assert "Candidate: (none)" not in found, name


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_both_files_end_alike(file: Path) -> None:
    """Two stages, a user of a number, the same folders, nothing fetched from anywhere but the package index."""
    first, last = stages(file)
    assert first.name == "build"
    assert last.all("USER") == ["${UID}:${UID}"]
    assert last.all("COPY") == ["--from=build /opt/hone /opt/hone"]
    assert last.environment()["HONE_DATA"] == "/var/lib/hone/data"
    assert last.environment()["HOME"] == "/var/lib/hone"
    assert re.search(r"^ARG PYTHON_IMAGE=python:3\.11\.\d+-slim-\w+$", file.read_text(), re.MULTILINE)
    steps = " ".join(f"{word} {rest}" for stage in (first, last) for word, rest in stage.steps)
    assert not re.search(r"\b(curl|wget|ADD)\b", steps)


# --- what is made of it


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root folder of proxy's and judge's image, but for what the base image has."""
    made = tmp_path_factory.mktemp("image")
    build(stages(DOCKERFILE)[0], made, HONE_VERSION=VERSION)
    return made


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(1800)  # a whole environment is made
def test_the_image_is_small_and_has_no_torch(image: Path) -> None:
    packages = image / "opt" / "hone" / "lib"
    names = {path.name for path in packages.rglob("*.dist-info")}
    assert not [name for name in names if name.startswith(("torch-", "vllm", "transformers-", "pip-"))]
    assert [name for name in names if name.startswith("asyncpg-")]
    assert f"hone_proxy-{VERSION}.dist-info" in names
    assert list(packages.rglob("migrations/script.py.mako"))
    assert list(packages.rglob("shipped/examples/helpdesk/demo.py"))
    size = mib(packages)
    assert size < MOST_MIB, f"{size:.0f} MiB of packages"


class Containers:
    """Starts what containers would, in a data folder of their own."""

    def __init__(self, image: Path, home: Path, engine: ScriptedEngine) -> None:
        self._hone = str(image / "opt" / "hone" / "bin" / "hone")
        self._home = home
        home.mkdir(mode=0o700)
        (home / "tmp").mkdir()
        [self.port] = free_ports(1)
        self._env = stages(DOCKERFILE)[1].environment() | {
            "PATH": f"{image / 'opt' / 'hone' / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(home),
            "TMPDIR": str(home / "tmp"),
            "HONE_DATA": str(home / "data"),
            "HONE_CONFIG": str(DEPLOY / "compose" / "hone.cpu.toml"),
            "HONE_PROXY__PORT": str(self.port),
            "HONE_ENGINE__URLS": f'["{engine.url}"]',
            "HONE_ENGINE__BASE": str(ROOT / "examples" / "helpdesk" / "model"),
            "HONE_ENGINE__API_KEY": engine.key or "",
        }

    def run(self, *arguments: str) -> str:
        """A command to its end."""
        done = subprocess.run(
            [self._hone, *arguments], env=self._env, cwd=self._home, capture_output=True, text=True, timeout=100
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    @asynccontextmanager
    async def running(self, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
        """A program until the block ends, with SIGTERM."""
        out = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            self._hone, *arguments, env=self._env, cwd=self._home, stdout=out, stderr=asyncio.subprocess.STDOUT
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)
            said, _ = await process.communicate()
            assert process.returncode == 0, said.decode()


def argv_of(service: str) -> list[str]:
    """What compose starts as this service, listening on loopback."""
    [one] = [one for one in hones() if one.where == f"compose: {service}"]
    return ["127.0.0.1" if word == "0.0.0.0" else word for word in one.argv[1:]]


def files_in(folder: Path) -> dict[Path, int]:
    return {path: path.lstat().st_mtime_ns for path in folder.rglob("*")}


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(1800)  # a whole environment is made
async def test_setup_proxy_and_judge_start_and_the_image_stays_as_it_is(image: Path, tmp_path: Path) -> None:
    engine = ScriptedEngine(bases=("tiny-qwen3",), key="engine-key")
    await engine.start()
    try:
        before = files_in(image / "opt")
        await _start_all(Containers(image, tmp_path / "home", engine), tmp_path)
        assert files_in(image / "opt") == before, "the root file system is read-only in a container"
    finally:
        await engine.stop()


async def _start_all(containers: Containers, folder: Path) -> None:
    secrets = {name: f"hone_{name}-{'5e' * 16}" for name in ("agents-key", "metrics-key")}
    for name, secret in secrets.items():
        (folder / name).write_text(secret)
    [script] = [one.argv[2] for one in hones() if one.where == "compose: setup"]
    for _ in range(2):  # it runs at every start
        for words in hone_lines(script):
            containers.run(*(word.replace("/run/secrets", str(folder)) for word in words))
    url = f"http://127.0.0.1:{containers.port}"
    async with (
        containers.running(*argv_of("proxy")),
        containers.running(*argv_of("judge")),
        httpx.AsyncClient(base_url=url, timeout=60) as http,
    ):
        await until(lambda: _ready(http), within_s=60)
        assert (await http.get("/healthz")).json()["engines_up"] == 1
        assert (await http.get("/metrics")).status_code == 401
        key = {"authorization": f"Bearer {secrets['metrics-key']}"}
        await until(lambda: _says(http, key, 'hone_workers{kind="judge"} 1.0'), within_s=60)
        models = await http.get("/v1/models", headers={"authorization": f"Bearer {secrets['agents-key']}"})
        assert "helpdesk" in [one["id"] for one in models.json()["data"]]
        schema = await http.get("/schema/openapi.json", headers=key)  # with what was left of Faker in
        assert "/hone/v1/status" in schema.json()["paths"]
        drawn = await http.get("/hone/charts/outcomes.svg", headers=key)  # with the fonts that were left in
        assert drawn.headers["content-type"].startswith("image/svg"), drawn.text


async def _ready(http: httpx.AsyncClient) -> bool:
    try:
        return (await http.get("/readyz")).status_code == 200
    except httpx.ConnectError:
        return False


async def _says(http: httpx.AsyncClient, headers: dict[str, str], line: str) -> bool:
    return line in (await http.get("/metrics", headers=headers)).text.splitlines()
