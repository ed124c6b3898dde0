"""Names that no import shows: modules that are run by name, scripts that are run by path, names in backticks.

The commands of `proxy.cli.COMMANDS` are called in tests/proxy/test_cli.py, the trainer is opened by its name in
tests/trainer/programs/test_train.py, Alembic finds its steps in tests/recorder/store/test_migrate.py.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from judge.rewards.functions import HOST
from proxy.engine import cpu_server
from proxy.settings.hone import HoneSettings
from proxy.settings.showing import leaves
from trainer.agents import host

ROOT = Path(__file__).parent.parent
PACKAGES = ("proxy", "recorder", "judge", "trainer")
FOLDERS = (*PACKAGES, "benchmarks", "examples", "tests")
# The modules of ours that are run with -m: arguments that end at once, and the exit status that then shows they ran.
RUN = {
    "proxy.cli": (["--version"], 0),
    "proxy.dashboard.drawing.host": (["--help"], 1),
    "proxy.programs.watch": (["5", sys.executable, "-c", "raise SystemExit(7)"], 7),
    "trainer.tracking.child": (["--help"], 0),
}


# --- run by name, run by path


def run_by_name(tree: ast.AST) -> Iterator[str]:
    """What follows a "-m" in lists and among arguments."""
    for node in ast.walk(tree):
        words = node.elts if isinstance(node, ast.List | ast.Tuple) else node.args if isinstance(node, ast.Call) else ()
        for flag, name in pairwise(words):
            if isinstance(flag, ast.Constant) and flag.value == "-m" and isinstance(name, ast.Constant):
                yield str(name.value)


def files(*folders: str) -> list[Path]:
    return [path for folder in folders for path in (ROOT / folder).rglob("*.py") if ".venv" not in path.parts]


def test_every_module_that_is_run_by_name_is_there() -> None:
    names = {name for path in files(*FOLDERS) if '"-m"' in path.read_text() for name in run_by_name(parsed(path))}
    ours = {name for name in names if name.partition(".")[0] in FOLDERS}
    assert {name for name in ours if module(name.split(".")) is None} == set()
    assert {name for name in ours if name.partition(".")[0] in PACKAGES} == set(RUN)


@pytest.mark.parametrize("name", RUN)
def test_a_module_that_is_run_by_name_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments, status = RUN[name]
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    command = [sys.executable, "-P", "-m", name, *arguments]
    # an open standard input: its end would tell the watcher that we are gone
    with subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        assert process.wait(60) == status


@pytest.mark.parametrize("script", [HOST, Path(host.__file__), Path(cpu_server.__file__)], ids=lambda path: path.name)
def test_nothing_beside_a_script_hides_the_standard_library(script: Path) -> None:
    """The folder of a script that is run by path is searched first."""
    assert script.is_file()
    assert {path.stem for path in script.parent.iterdir()} & sys.stdlib_module_names == set()


def test_the_agents_host_runs_by_its_path(tmp_path: Path) -> None:
    """Alone, as in the user's Python. The host of reward functions is run in tests/judge/rewards."""
    done = subprocess.run([sys.executable, "-E", host.__file__, "--help"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "target" in done.stdout


# --- names in docstrings, comments and messages

DOTTED = re.compile(rf"`((?:{'|'.join(PACKAGES)})(?:\.\w+)+)")


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def module(parts: list[str]) -> Path | None:
    """The file of a module or package, without importing it."""
    path = ROOT.joinpath(*parts)
    return next((p for p in (path.with_suffix(".py"), path / "__init__.py") if p.is_file()), None)


def defined(body: list[ast.stmt]) -> dict[str, list[ast.stmt]]:
    """The names that a module or class defines, and what is inside of each."""
    found: dict[str, list[ast.stmt]] = {}
    for node in body:
        match node:
            case ast.ClassDef():
                found[node.name] = node.body
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                found[node.name] = []
            case ast.Assign():
                found |= {target.id: [] for target in node.targets if isinstance(target, ast.Name)}
            case ast.AnnAssign(target=ast.Name(id=name)):
                found[name] = []
            case _:
                pass
    return found


def is_name(dotted: str) -> bool:
    """Whether it is a module, or an attribute defined in one."""
    parts, rest = dotted.split("."), list[str]()
    while parts and module(parts) is None:
        rest.insert(0, parts.pop())
    path = module(parts) if parts else None
    body = parsed(path).body if path and rest else []
    for part in rest:
        if part not in (names := defined(body)):
            return False
        body = names[part]
    return path is not None


@cache
def settings() -> list[str]:
    return [f"{key}." for key, _ in leaves(HoneSettings())]


def is_setting(dotted: str) -> bool:
    """Whether it is a setting's key, or a section."""
    return any(key.startswith(f"{dotted}.") for key in settings())


def test_a_name_is_known_by_its_file_and_its_definition() -> None:
    assert is_name("recorder.lineage")
    assert is_name("proxy.settings.hone.HoneSettings.model_names")
    assert is_name("proxy.settings.sections.ProxySettings.port")
    assert is_setting("proxy.port")
    assert is_setting("judge.feedback")
    for stray in ("recorder.no_such_room", "proxy.settings.hone.Nothing", "proxy.cli.main.inner", "proxy.prot"):
        assert not is_name(stray)
        assert not is_setting(stray)


def test_every_name_in_backticks_is_one_of_the_code_or_a_setting() -> None:
    strays = {
        (str(path.relative_to(ROOT)), name)
        for path in files(*FOLDERS)
        for name in DOTTED.findall(path.read_text())
        if not is_name(name) and not is_setting(name)
    }
    assert strays == set()


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "README.md", "SECURITY.md"])
def test_every_path_that_a_page_names_is_there(page: str) -> None:
    folders = "|".join((*FOLDERS, "scripts"))
    named = re.findall(rf"`((?:{folders})/[\w./-]*)`", (ROOT / page).read_text("utf-8"))
    missing = sorted({path for path in named if not (ROOT / path).exists()})
    assert not missing, f"{page} names {missing}, which are not there"
