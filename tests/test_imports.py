"""The arrows between packages, and what the light packages must never load."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("proxy", "recorder", "judge", "trainer")
ALLOWED = {"recorder": set(), "judge": {"recorder"}, "trainer": {"recorder"}, "proxy": {"recorder"}}
EXEMPT = {ROOT / "proxy" / "cli.py", ROOT / "proxy" / "settings" / "hone.py"}
HEAVY = ("torch", "vllm", "transformers")


def imported_packages(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module.split(".")[0])
    return names


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_import_only_along_the_arrows(package: str) -> None:
    files = [p for p in (ROOT / package).rglob("*.py") if p not in EXEMPT]
    assert files
    strays = {
        (str(p.relative_to(ROOT)), name)
        for p in files
        for name in imported_packages(p) & set(PACKAGES) - {package} - ALLOWED[package]
    }
    assert strays == set()


@pytest.mark.parametrize("package", ["proxy", "recorder"])
def test_light_packages_load_nothing_heavy(package: str) -> None:
    modules = [
        ".".join(p.relative_to(ROOT).with_suffix("").parts)
        for p in (ROOT / package).rglob("*.py")
        if "migrations" not in p.parts and p.name != "__init__.py"
    ]
    code = (
        "import importlib, sys\n"
        f"for name in {modules!r}: importlib.import_module(name)\n"
        f"print([m for m in {HEAVY!r} if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


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


@pytest.mark.parametrize("package", PACKAGES)
def test_settings_import_nothing_but_pydantic(package: str) -> None:
    files = [p for p in (ROOT / package).rglob("*.py") if "settings" in p.stem or p.parent.name == "settings"]
    assert files
    own = {"pydantic", "pydantic_core", "pydantic_settings", *PACKAGES}
    strays = {(p.name, name) for p in files for name in imported_packages(p) - own - sys.stdlib_module_names}
    assert strays == set()
