"""Which package and folder may import which, what lies at a package's root, and what is never loaded.

The tables are the rules. If you need an import that they refuse, put the code where it is allowed, or change a table
here and say why in docs/decisions.md.
"""

from __future__ import annotations

import ast
import graphlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import import_map as house

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
    "trainer.settings",
    "trainer.track_settings",
    "proxy.settings.mcp",
    "proxy.settings.notify",
    "proxy.settings.sections",
    "proxy.settings.hone",
}
# What settings models import beside one another, the standard library and pydantic.
SETTINGS_BASE = {f"recorder.base.{name}" for name in ("function_paths", "hours", "patterns", "rules", "urls")}
# Leaves of the settings without a model: the rules of a list of GPUs, which engine and trainer share, and the message
# about a wrong value, which is the same for a change at run time.
SETTINGS_LEAVES = {"proxy.settings.gpus", "proxy.settings.value_errors"}

# Files at a package's root: its base, which imports none of its folders but `base/`, and its entry points, which no
# folder imports.
ROOT_FILES: dict[str, set[str]] = {
    "recorder": {"errors", "ids", "reasons", "settings", "states"},
    "judge": {"errors", "panel_settings", "settings"},
    "trainer": {"campaign_settings", "errors", "progress", "settings", "track_settings"},
    "proxy": {"errors", "metrics", "store_metrics"},
}
ENTRY_POINTS: dict[str, set[str]] = {
    "recorder": {"commands"}, "judge": {"commands"}, "trainer": {"commands"}, "proxy": {"cli", "commands"},
}  # fmt: skip
MOST_ROOT_FILES = 5
LEAVES = {"recorder": "base"}  # what even a package's root files may import

# Bottom up: a folder imports only folders above its line here.
FOLDER_IMPORTS: dict[str, dict[str, set[str]]] = {
    "recorder": {
        "base": set(),
        "llm": {"base"},
        "processes": set(),
        "stats": set(),
        "adapters": {"base", "processes"},
        "store": {"base", "processes"},
        "messages": {"base"},
        "models": {"processes"},
        "registry": {"models", "store"},
        "queue": {"base", "messages", "registry", "stats", "store"},
        "capture": {"base", "messages", "queue", "store"},
        "search": {"messages", "queue", "store"},
        "setting_changes": {"base", "store"},
        "totals": {"messages", "queue", "store"},
        "curation": {"store"},
        "views": {
            "base", "curation", "messages", "queue", "registry", "search", "setting_changes", "stats", "store",
            "totals",
        },
        "report": {"base", "processes", "queue", "registry", "stats", "store", "views"},
        "maintenance": {
            "base", "curation", "messages", "processes", "queue", "registry", "search", "store", "totals", "views",
        },
        "commands": {
            "adapters", "base", "curation", "maintenance", "messages", "processes", "queue", "registry", "stats",
            "store", "views",
        },
    },
    "judge": {
        "llm": set(),
        "rewards": {"llm"},
        "scoring": {"llm", "rewards"},
        "calibration": {"llm", "rewards", "scoring"},
        "adversarial": {"llm", "rewards", "scoring"},
        "commands": {"adversarial", "calibration", "scoring"},
    },
    "trainer": {
        "batch": set(),
        "agents": set(),
        "lora": set(),
        "measures": set(),
        "quantization": {"lora"},
        "tasks": {"agents"},
        "objectives": {"batch"},
        "ranks": {"batch"},
        "demonstrations": {"batch", "objectives", "tasks"},
        "preferences": {"demonstrations", "objectives", "tasks"},
        "teachers": {"batch", "demonstrations", "objectives"},
        "policy": {"batch", "lora", "quantization", "ranks"},
        "artifacts": {"batch", "lora", "policy"},
        "memory": {"artifacts", "batch", "lora", "policy", "quantization"},
        "step": {
            "artifacts", "batch", "demonstrations", "lora", "measures", "memory", "objectives", "policy", "preferences",
            "quantization", "ranks", "tasks", "teachers",
        },
        "scenario_generation": {"tasks"},
        "campaign": {"agents", "measures", "step", "tasks"},
        "trackers": set(),
        "runtime": {
            "agents", "batch", "campaign", "demonstrations", "measures", "ranks", "step", "tasks", "trackers",
        },
        "evaluation": {"agents", "campaign", "measures", "runtime", "tasks"},
        "commands": {"campaign", "evaluation", "memory", "runtime", "scenario_generation", "tasks"},
    },
    "proxy": {
        "http": set(),
        "settings": set(),
        "dialects": {"http"},
        "admission": {"dialects", "http", "settings"},
        "engine": {"dialects", "http", "settings"},
        "gate": {"engine", "settings"},
        "versions": {"engine", "gate", "settings"},
        "notifications": {"settings"},
        "attribution": {"admission", "dialects", "versions"},
        "programs": {"settings"},
        "recorded_requests": {"admission", "dialects", "http"},
        "api": {"admission", "http", "notifications", "programs", "recorded_requests", "versions"},
        "dashboard": {
            "admission", "api", "attribution", "engine", "http", "notifications", "programs", "recorded_requests",
        },
        "serving": {"admission", "attribution", "dialects", "engine", "http", "settings", "versions"},
        "responses_api": {"admission", "dialects", "engine", "http", "serving", "versions"},
        "shadow": {"dialects", "engine", "serving", "settings", "versions"},
        "mcp_gateway": {"admission", "attribution", "http", "settings"},
        "doctor": {"engine", "mcp_gateway", "settings"},
        "worker_ipc": {"admission", "http", "mcp_gateway"},
        "supervision": {
            "admission", "api", "dashboard", "dialects", "doctor", "engine", "http", "mcp_gateway",
            "notifications", "programs", "recorded_requests", "responses_api", "serving", "settings", "shadow",
            "versions", "worker_ipc",
        },
        "commands": {"api", "doctor", "engine", "notifications", "programs", "settings", "supervision"},
    },
}  # fmt: skip


def refused(one: house.Import, allowed: set[str], of: str) -> str:
    return (
        f"{one.where} imports {one.module}: `{of}` may use {', '.join(sorted(allowed)) or 'no other'}. Move what both "
        "need further down, pass it in as an argument, or allow the import in tests/test_imports.py and say why in "
        "docs/decisions.md."
    )


@pytest.mark.parametrize("package", house.PACKAGES)
def test_packages_import_only_what_the_table_allows(package: str) -> None:
    allowed = PACKAGE_ARROWS[package]
    wrong = [
        refused(one, allowed, package)
        for file in house.files(package)
        for one in house.imports(file)
        if one.package not in {package, *allowed} and one.module not in SETTINGS | SETTINGS_LEAVES
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("package", house.PACKAGES)
def test_folders_import_only_what_the_table_allows(package: str) -> None:
    used = house.arrows(package)
    wrong = [
        refused(one, FOLDER_IMPORTS[package].get(of, set()), f"{package}/{of}/")
        for (of, to), found in used.items()
        if to not in FOLDER_IMPORTS[package].get(of, set())
        for one in found
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("package", house.PACKAGES)
def test_the_table_allows_nothing_that_nobody_imports(package: str) -> None:
    allowed = {(of, to) for of, folders in FOLDER_IMPORTS[package].items() for to in folders}
    unused = sorted(allowed - house.arrows(package).keys())
    assert not unused, f"take these imports of {package}/ out of tests/test_imports.py, nothing uses them: {unused}"


def test_a_folder_imports_only_folders_above_its_line() -> None:
    """The tables are ordered from the bottom up, so folders form no circle."""
    for package, allowed in FOLDER_IMPORTS.items():
        lower: set[str] = set()
        for folder, imported in allowed.items():
            assert imported <= lower, f"{package}/{folder}/ imports {sorted(imported - lower)}, which lie above it"
            lower.add(folder)


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
def test_every_folder_is_in_the_table_and_has_a_size_to_read(package: str) -> None:
    there = set(house.folders(package))
    assert there == FOLDER_IMPORTS[package].keys(), (
        f"{package}/ has the folders {sorted(there)}: tests/test_imports.py must list each of them, and no other"
    )
    for folder in {file.parent for file in house.files(package)} - {ROOT / package}:
        count = sum(file.parent == folder and file.name != "__init__.py" for file in house.files(package))
        if not count and any(folder.glob("*/__init__.py")):  # a subject of subfolders alone
            continue
        name = folder.relative_to(ROOT).as_posix()
        assert FEWEST_FILES <= count <= MOST_FILES, (
            f"{name}/ has {count} files, a folder has {FEWEST_FILES} to {MOST_FILES}: find the two subjects that it "
            "owns and give each a folder, or move the files into the folder that uses them"
        )


@pytest.mark.parametrize("package", house.PACKAGES)
def test_a_packages_root_holds_its_base_and_its_entry_points(package: str) -> None:
    there = {file.stem for file in (ROOT / package).glob("*.py")} - {"__init__"}
    wrong = sorted(there - ROOT_FILES[package] - ENTRY_POINTS[package])
    assert not wrong, (
        f"{package}/ has the files {wrong} at its root, which is for its base and its entry points: move each into the "
        "folder of its subject"
    )
    assert ROOT_FILES[package] <= there
    assert len(ROOT_FILES[package]) <= MOST_ROOT_FILES


@pytest.mark.parametrize("package", house.PACKAGES)
def test_root_files_import_no_folder_and_no_folder_imports_an_entry_point(package: str) -> None:
    wrong = []
    for file in house.files(package):
        folder = house.folder_of(file)
        for one in (i for i in house.imports(file) if i.package == package):
            if folder is None and file.stem in ROOT_FILES[package] and one.folder not in (None, LEAVES.get(package)):
                wrong.append(f"{one.where} lies at the root and imports {one.module}: it belongs in a folder")
            below = folder is not None and folder not in ENTRY_POINTS[package]
            if below and one.module.split(".")[1] in ENTRY_POINTS[package]:
                wrong.append(f"{one.where} imports the entry point {one.module}: move what it needs into a folder")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("package", house.PACKAGES)
def test_a_folders_init_is_a_docstring_and_nothing_else(package: str) -> None:
    for init in (ROOT / package).rglob("*/__init__.py"):
        if "migrations" in init.parts or init == ROOT / "proxy" / "dialects" / "__init__.py":  # a registry
            continue
        body = ast.parse(init.read_text("utf-8")).body
        assert [type(node) for node in body] == [ast.Expr], (
            f"{init.relative_to(ROOT)} holds more than a docstring: nothing is re-exported, an import says where a "
            "thing lives"
        )


@pytest.mark.parametrize("package", house.PACKAGES)
def test_a_files_name_does_not_repeat_its_folders(package: str) -> None:
    for file in house.files(package):
        folder = file.parent.name
        for said in (f"{folder}_", f"{folder.removesuffix('s')}_"):
            assert not (house.folder_of(file) and file.stem.startswith(said)), (
                f"{file.relative_to(ROOT)} repeats its folder's name: call it {file.stem.removeprefix(said)}.py"
            )


@pytest.mark.parametrize("package", house.PACKAGES)
def test_tests_mirror_the_folders_of_what_they_test(package: str) -> None:
    folders = {file.parent for file in (ROOT / "tests" / package).rglob("test_*.py")}
    wrong = [f for f in folders if not (ROOT / f.relative_to(ROOT / "tests")).is_dir()]
    assert not wrong, f"{sorted(map(str, wrong))} mirror no folder of {package}/"


def test_a_test_file_says_first_what_it_holds() -> None:
    silent = [
        file.relative_to(ROOT).as_posix()
        for file in (ROOT / "tests").rglob("test_*.py")
        if not ast.get_docstring(ast.parse(file.read_text("utf-8")))
    ]
    assert not silent, f"{silent} begin without a docstring that says what they hold"


def test_the_architecture_page_has_the_map_as_it_is() -> None:
    page = house.PAGE.read_text("utf-8")
    assert house.MARKS.begin in page
    assert page == house.page_with_map(page), (
        "the map in docs/architecture.md is not what the imports say: `make map` writes it"
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
    assert _last_line(code, tmp_path) == "[]"


def test_hone_up_loads_no_package_that_other_programs_need(tmp_path: Path) -> None:
    """Its proxy imports aiohttp and Litestar; the MCP SDK is for users of MCP servers."""
    needed = {"sqlalchemy"}
    code = f"import sys, proxy.supervision.up; print([m for m in {SLOW_TO_START!r} if m in sys.modules])"
    assert _last_line(code, tmp_path) == str([m for m in SLOW_TO_START if m in needed])


def test_a_command_whose_workers_serve_loads_no_app(tmp_path: Path) -> None:
    code = "import sys, proxy.supervision.workers; print('proxy.supervision.app' in sys.modules)"
    assert _last_line(code, tmp_path) == "False"


def _last_line(code: str, folder: Path) -> str:
    """What a new process that runs this code in a folder prints last."""
    command = [sys.executable, "-P", "-c", code]
    path = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=path, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().splitlines()[-1]


# A command that reads the store needs SQLAlchemy. It asks no proxy, so it needs none of the packages that could.
OF_SERVERS = (
    *(one for one in SLOW_TO_START if one != "sqlalchemy"),
    *("httpx", "openai", "anthropic", "uvicorn", "jinja2", "matplotlib", "numpy", "peft", "asyncpg", "tiktoken"),
)


@pytest.mark.parametrize(
    "arguments",
    [["status"], ["status", "--json"], ["versions"], ["trajectories"], ["groups"], ["ledger"], ["keys", "list"]],
    ids=" ".join,
)
def test_what_reads_the_store_starts_light(arguments: list[str], tmp_path: Path) -> None:
    _fill_store(tmp_path)
    code = (
        "import sys\n"
        "opened = []\n"
        "sys.addaudithook(lambda name, _: name == 'socket.connect' and opened.append(name))\n"
        "from proxy.cli import cli\n"
        f"cli({arguments!r}, prog_name='hone', standalone_mode=False)\n"
        f"print(opened + [m for m in {OF_SERVERS!r} if m in sys.modules])"
    )
    assert _last_line(code, tmp_path) == "[]"


QUICK = ROOT / "tests" / "quick_start"  # for each command that must be quick, the modules that it may import


@pytest.mark.parametrize("command", ["help", "status"])
def test_a_quick_command_imports_no_further_module(command: str, tmp_path: Path) -> None:
    """Every module costs some milliseconds at each start: think twice before you add one to a list."""
    _fill_store(tmp_path)
    code = (
        "import sys\n"
        "before = {*sys.modules}\n"
        "from proxy.cli import cli\n"
        f"cli({['--help' if command == 'help' else command]!r}, prog_name='hone', standalone_mode=False)\n"
        "print(*{m for m in sys.modules if m not in before})"
    )
    imported = _last_line(code, tmp_path).split()
    listed = (QUICK / f"{command}.txt").read_text("utf-8").split()
    assert listed == sorted(listed)
    ours = {name for name in imported if name.partition(".")[0] in house.PACKAGES}
    assert sorted(ours) == [name for name in listed if name.partition(".")[0] in house.PACKAGES]
    others = {name.partition(".")[0] for name in imported} - {*house.PACKAGES, *sys.stdlib_module_names}
    assert {name for name in others if not name.startswith("_")} <= {*listed}


def _fill_store(folder: Path) -> None:
    filled = "import asyncio\nfrom pathlib import Path\nfrom recorder.settings import RecorderSettings\n"
    filled += "from recorder.store.bootstrap import open_store\n"
    filled += "async def main():\n    store = await open_store(Path('.hone'), RecorderSettings(), migrate=True)\n"
    filled += "    await store.close()\nasyncio.run(main())\nprint()\nprint('filled')"
    assert _last_line(filled, folder) == "filled"


@pytest.mark.parametrize("package", house.PACKAGES)
def test_settings_import_nothing_but_pydantic(package: str) -> None:
    files = [p for p in house.files(package) if _dotted(p) in SETTINGS or p.parent.name == "settings"]
    assert files
    own = {"pydantic", "pydantic_core", "pydantic_settings", *house.PACKAGES}
    wrong = {(p.name, name) for p in files for name in _top_level(p) - own - sys.stdlib_module_names}
    assert wrong == set()


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
    assert set(done.stdout.split()) <= SETTINGS | SETTINGS_LEAVES | SETTINGS_BASE | inits
    wrong = [
        f"{one.where} imports {one.module}"
        for package in house.PACKAGES
        for file in house.files(package)
        for one in house.imports(file)
        if _dotted(file) in SETTINGS and one.module not in SETTINGS | SETTINGS_LEAVES | SETTINGS_BASE
    ]
    assert not wrong, f"settings models are leaves that every package may import: {wrong}"


def _top_level(file: Path) -> set[str]:
    """The packages that a file imports, ours and others'."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.partition(".")[0])
    return names
