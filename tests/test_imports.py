"""The house: which package and which room may import which, what lies at a package's root, and what is never loaded.

The tables are the rules. Whoever needs an import that they refuse either puts the code where it is allowed, or changes
a table here and says in CONTRIBUTING.md why.
"""

from __future__ import annotations

import ast
import graphlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import rooms as house

ROOT = house.ROOT
HEAVY = ("torch", "vllm", "transformers")
MOST_FILES, FEWEST_FILES = 14, 3

PACKAGE_ARROWS: dict[str, set[str]] = {
    "recorder": set(),
    "judge": {"recorder"},
    "trainer": {"recorder"},
    "proxy": {"recorder"},
}
# Settings models are leaf modules that every package may import. `proxy/cli.py` names all packages' commands in strings
# (tests/test_names.py opens them).
SETTINGS = {
    "recorder.settings",
    "judge.panel_settings",
    "judge.settings",
    "trainer.campaign_settings",
    "trainer.health_settings",
    "trainer.settings",
    "trainer.track_settings",
    "proxy.settings.mcp",
    "proxy.settings.sections",
    "proxy.settings.hone",
}
# What settings models import beside one another, the standard library and pydantic.
SETTINGS_BASE = {f"recorder.base.{name}" for name in ("hours", "patterns", "rules", "urls")}

GROUND: dict[str, set[str]] = {
    "recorder": {
        "agreement",
        "asking",
        "charts",
        "documents",
        "errors",
        "fence",
        "findings",
        "ids",
        "litellm_edge",
        "pace",
        "reasons",
        "rubric",
        "settings",
        "states",
    },
    "judge": {"errors", "panel_settings", "settings"},
    "trainer": {
        "campaign_settings",
        "curves",
        "errors",
        "health",
        "health_settings",
        "progress",
        "settings",
        "track_settings",
    },
    "proxy": {"errors", "metrics", "store_metrics"},
}
# The room that lies below the ground of its package.
BASE = {"recorder": "base"}
# Files at a package's root that no room imports; the rooms named here are roofs too.
ROOF: dict[str, set[str]] = {
    "recorder": {"commands"},
    "judge": {"calibration_view", "check_view", "commands", "rescore_view", "score_view"},
    "trainer": {"commands"},
    "proxy": {"cli", "commands"},
}

ROOM_ARROWS: dict[str, dict[str, set[str]]] = {
    "recorder": {
        "base": set(),
        "processes": set(),
        "content": {"base"},
        "sqlite": set(),
        "store": {"base", "processes", "sqlite"},
        "lineage": {"base", "content", "store"},
        "registry": {"store"},
        "holding": {"store"},
        "search": {"base", "content", "holding", "store"},
        "moving": {"base", "holding", "processes", "search", "sqlite", "store"},
        "judged": {"store"},
        "groups": {"content", "judged", "lineage", "store"},
        "work": {"base", "groups", "holding", "judged", "registry", "store"},
        "capture": {"base", "content", "groups", "lineage", "store"},
        "reading": {"content", "lineage", "store", "work"},
        "listing": {"base", "content", "reading", "registry", "search", "store", "work"},
        "comparing": {"content", "judged", "listing", "reading", "store", "work"},
        "checking": {"base", "content", "holding", "registry", "store"},
        "retelling": {"comparing", "content", "reading", "store", "work"},
        "learned": {"listing", "reading", "registry", "store", "work"},
        "upkeep": {
            "content", "groups", "holding", "learned", "reading", "registry", "search", "store", "work",
        },
        "telling": {
            "base", "content", "groups", "holding", "judged", "learned", "reading", "registry", "store", "upkeep",
            "work",
        },
        "reviewing": {"comparing", "judged", "learned", "reading", "registry", "store", "work"},
        "commands": {
            "base", "checking", "comparing", "content", "groups", "listing", "moving", "reading", "registry",
            "reviewing", "store", "telling", "upkeep", "work",
        },
    },
    "judge": {
        "llm": set(),
        "panel": {"llm"},
        "rewards": {"llm", "panel"},
        "scoring": {"llm", "panel", "rewards"},
        "calibration": {"llm", "rewards", "scoring"},
        "tricks": {"llm", "rewards", "scoring"},
        "commands": {"calibration", "scoring", "tricks"},
    },
    "trainer": {
        "batch": set(),
        "agents": set(),
        "policy": {"batch"},
        "artifacts": {"batch", "policy"},
        "step": {"artifacts", "batch", "policy"},
        "tasks": set(),
        "generating": {"tasks"},
        "measuring": set(),
        "campaign": {"agents", "measuring", "step", "tasks"},
        "report": {"campaign"},
        "tracking": set(),
        "programs": {"agents", "campaign", "generating", "measuring", "report", "step", "tasks", "tracking"},
        "evaluating": {"agents", "campaign", "measuring", "programs", "tasks"},
        "commands": {"campaign", "evaluating", "generating", "programs", "report", "tasks"},
    },
    "proxy": {
        "http": set(),
        "settings": set(),
        "dialects": {"http"},
        "admission": {"dialects", "http"},
        "engine": {"dialects", "http", "settings"},
        "gate": {"engine", "settings"},
        "versions": {"engine", "gate", "settings"},
        "attribution": {"admission", "dialects", "versions"},
        "api": {"admission", "http", "versions"},
        "dashboard": {"admission", "api", "engine", "http"},
        "serving": {"admission", "attribution", "dialects", "engine", "http", "settings", "versions"},
        "responses": {"admission", "dialects", "engine", "http", "serving", "versions"},
        "shadow": {"dialects", "engine", "serving", "settings", "versions"},
        "mcp_gateway": {"admission", "attribution", "http", "settings"},
        "doctor": {"engine", "settings"},
        "programs": {
            "admission", "api", "dashboard", "dialects", "doctor", "engine", "http", "mcp_gateway", "responses",
            "serving", "settings", "shadow", "versions", "workers",
        },
        "workers": {"admission", "http", "mcp_gateway"},
        "commands": {"api", "doctor", "engine", "programs", "settings"},
    },
}  # fmt: skip


def refused(one: house.Import, allowed: set[str], of: str) -> str:
    return (
        f"{one.where} imports {one.module}: `{of}` may use {', '.join(sorted(allowed)) or 'no other'}. Move what both "
        "need further down, hand it in as an argument, or draw the arrow in tests/test_imports.py and say why."
    )


@pytest.mark.parametrize("package", house.PACKAGES)
def test_packages_import_only_along_the_arrows(package: str) -> None:
    allowed = PACKAGE_ARROWS[package]
    strays = [
        refused(one, allowed, package)
        for file in house.files(package)
        for one in house.imports(file)
        if one.package not in {package, *allowed} and one.module not in SETTINGS
    ]
    assert not strays, "\n".join(strays)


@pytest.mark.parametrize("package", house.PACKAGES)
def test_rooms_import_only_along_the_arrows(package: str) -> None:
    used = house.arrows(package)
    strays = [
        refused(one, ROOM_ARROWS[package].get(of, set()), f"{package}/{of}/")
        for (of, to), found in used.items()
        if to not in ROOM_ARROWS[package].get(of, set())
        for one in found
    ]
    assert not strays, "\n".join(strays)


@pytest.mark.parametrize("package", house.PACKAGES)
def test_no_arrow_is_drawn_that_nobody_needs(package: str) -> None:
    drawn = {(of, to) for of, rooms in ROOM_ARROWS[package].items() for to in rooms}
    idle = sorted(drawn - house.arrows(package).keys())
    assert not idle, f"take these arrows of {package}/ out of tests/test_imports.py, nothing uses them: {idle}"


def test_the_arrows_form_no_circle() -> None:
    for package, arrows in ROOM_ARROWS.items():
        below: set[str] = set()
        while left := arrows.keys() - below:
            free = {room for room in left if arrows[room] <= below}
            assert free, f"{package}/: the arrows between {sorted(left)} form a circle"
            below |= free


def test_files_import_one_another_in_no_circle() -> None:
    """Imports for types and inside functions count too: they hide a circle, they do not end it."""
    uses = {
        _dotted(file): {one.module for one in house.imports(file)} - {_dotted(file)}
        for package in house.PACKAGES
        for file in house.files(package)
    }
    try:
        graphlib.TopologicalSorter(uses).prepare()
    except graphlib.CycleError as e:
        circle = " <- ".join(e.args[1])
        pytest.fail(f"{circle}: these files import one another. Move what two of them need into a file below both.")


@pytest.mark.parametrize("package", house.PACKAGES)
def test_every_room_has_its_arrows_and_its_size(package: str) -> None:
    there = set(house.rooms(package))
    assert there == ROOM_ARROWS[package].keys(), (
        f"{package}/ has the rooms {sorted(there)}: draw the arrows of each in tests/test_imports.py, and take out "
        "those of rooms that are gone"
    )
    for folder in {file.parent for file in house.files(package)} - {ROOT / package}:
        count = sum(file.parent == folder and file.name != "__init__.py" for file in house.files(package))
        name = folder.relative_to(ROOT).as_posix()
        assert FEWEST_FILES <= count <= MOST_FILES, (
            f"{name}/ has {count} files, a room has {FEWEST_FILES} to {MOST_FILES}: find the two things that it owns "
            "and give each a room, or put the files into the room that uses them"
        )


@pytest.mark.parametrize("package", house.PACKAGES)
def test_a_packages_root_is_its_ground_and_its_roof(package: str) -> None:
    there = {file.stem for file in (ROOT / package).glob("*.py")} - {"__init__"}
    strays = sorted(there - GROUND[package] - ROOF[package])
    assert not strays, (
        f"{package}/ has the files {strays} at its root, where only ground (imports no room) and roof (no room imports "
        "it) belong: put each into the room that it is about (CONTRIBUTING.md, 'Where a change goes')"
    )
    assert GROUND[package] <= there


@pytest.mark.parametrize("package", house.PACKAGES)
def test_ground_imports_no_room_and_no_room_imports_a_roof(package: str) -> None:
    strays = []
    for file in house.files(package):
        room = house.room_of(file)
        for one in (i for i in house.imports(file) if i.package == package):
            if room is None and file.stem in GROUND[package] and one.room not in (None, BASE.get(package)):
                strays.append(f"{one.where} is ground and imports {one.module}: it belongs into a room")
            below = room is not None and room not in ROOF[package]
            if below and one.module.split(".")[1] in ROOF[package]:
                strays.append(f"{one.where} imports the roof, {one.module}: move what it needs into a room")
    assert not strays, "\n".join(strays)


@pytest.mark.parametrize("package", house.PACKAGES)
def test_a_rooms_init_says_what_it_owns_and_nothing_else(package: str) -> None:
    for init in (ROOT / package).rglob("*/__init__.py"):
        if "migrations" in init.parts or init == ROOT / "proxy" / "dialects" / "__init__.py":  # a registry
            continue
        body = ast.parse(init.read_text("utf-8")).body
        assert [type(node) for node in body] == [ast.Expr], (
            f"{init.relative_to(ROOT)} holds more than a docstring: nothing is re-exported, an import says where a "
            "thing lives"
        )


@pytest.mark.parametrize("package", house.PACKAGES)
def test_a_files_name_does_not_repeat_its_rooms(package: str) -> None:
    for file in house.files(package):
        folder = file.parent.name
        for said in (f"{folder}_", f"{folder.removesuffix('s')}_"):
            assert not (house.room_of(file) and file.stem.startswith(said)), (
                f"{file.relative_to(ROOT)} says its room twice: call it {file.stem.removeprefix(said)}.py"
            )


@pytest.mark.parametrize("package", house.PACKAGES)
def test_tests_lie_in_the_rooms_of_what_they_test(package: str) -> None:
    folders = {file.parent for file in (ROOT / "tests" / package).rglob("test_*.py")}
    strays = [f for f in folders if not (ROOT / f.relative_to(ROOT / "tests")).is_dir()]
    assert not strays, f"{sorted(map(str, strays))} mirror no room of {package}/"


def test_a_test_file_says_first_what_it_holds() -> None:
    silent = [
        file.relative_to(ROOT).as_posix()
        for file in (ROOT / "tests").rglob("test_*.py")
        if not ast.get_docstring(ast.parse(file.read_text("utf-8")))
    ]
    assert not silent, f"{silent} begin without a docstring that says what they hold"


def test_contributing_has_the_map_as_it_is() -> None:
    page = house.PAGE.read_text("utf-8")
    assert house.MARKS.begin in page
    assert page == house.page_with_map(page), (
        "the map in CONTRIBUTING.md is not what the imports say: `make map` writes it"
    )


@pytest.mark.parametrize("package", ["proxy", "recorder"])
def test_light_packages_load_nothing_heavy(package: str) -> None:
    assert loaded([_dotted(f) for f in house.files(package) if f.name != "__init__.py"]) == []


def test_batches_are_made_without_torch() -> None:
    assert loaded([_dotted(f) for f in (ROOT / "trainer" / "batch").glob("*.py")]) == []


def _dotted(file: Path) -> str:
    return ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def loaded(modules: list[str]) -> list[str]:
    """The heavy packages that a process has loaded once it imported these modules."""
    code = (
        "import importlib, sys\n"
        f"for name in {modules!r}: importlib.import_module(name)\n"
        f"print(*[m for m in {HEAVY!r} if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


SLOW_TO_START = ("litestar", "sqlalchemy", "aiohttp", "litellm", "torch", "vllm", "transformers", "mcp", "alembic")


@pytest.mark.parametrize("arguments", [["--help"], ["config"], ["config", "--json"]], ids=" ".join)
def test_what_only_reads_settings_starts_light(arguments: list[str], tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from proxy.cli import cli\n"
        f"cli({arguments!r}, prog_name='hone', standalone_mode=False)\n"
        f"print([m for m in {SLOW_TO_START!r} if m in sys.modules])"
    )
    command = [sys.executable, "-P", "-c", code]
    path = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=path, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().splitlines()[-1] == "[]"


@pytest.mark.parametrize("package", house.PACKAGES)
def test_settings_import_nothing_but_pydantic(package: str) -> None:
    files = [p for p in house.files(package) if "settings" in p.stem or p.parent.name == "settings"]
    assert files
    own = {"pydantic", "pydantic_core", "pydantic_settings", *house.PACKAGES}
    strays = {(p.name, name) for p in files for name in _top_level(p) - own - sys.stdlib_module_names}
    assert strays == set()


def test_every_settings_model_is_in_a_leaf_module() -> None:
    found = {
        _dotted(file)
        for package in house.PACKAGES
        for file in house.files(package)
        for node in ast.parse(file.read_text("utf-8")).body
        if isinstance(node, ast.ClassDef) and node.name.endswith("Settings") and node.bases
    }
    assert found == SETTINGS


def test_settings_models_load_nothing_of_ours_but_one_another_and_their_base() -> None:
    code = (
        "import importlib, sys\n"
        f"for name in {sorted(SETTINGS)!r}: importlib.import_module(name)\n"
        f"print(*[m for m in sys.modules if m.partition('.')[0] in {(*house.PACKAGES, *SLOW_TO_START)!r}])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    inits = {*house.PACKAGES, "proxy.settings", "recorder.base"}
    assert set(done.stdout.split()) <= SETTINGS | SETTINGS_BASE | inits
    strays = [
        f"{one.where} imports {one.module}"
        for package in house.PACKAGES
        for file in house.files(package)
        for one in house.imports(file)
        if _dotted(file) in SETTINGS and one.module not in SETTINGS | SETTINGS_BASE
    ]
    assert not strays, f"settings models are leaves that every package may import: {strays}"


def _top_level(file: Path) -> set[str]:
    """The packages that a file imports, ours and others'."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.partition(".")[0])
    return names
