"""Commands, routes and pages say on fixed stores what the files below tests/golden/files hold.

After a change that was meant: `python -m tests.golden --write`, and read the difference.
"""

from __future__ import annotations

import os
import subprocess
import sys
from difflib import unified_diff
from importlib import import_module
from pathlib import Path

import pytest

from tests.golden.__main__ import FILES

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
ROOT = Path(__file__).parents[2]
NEED_TORCH = {"commands/dpo-alias-helpdesk-dry-run.txt"}
NAMES = sorted(str(path.relative_to(FILES)) for path in FILES.rglob("*.txt"))


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what is said now, written by a process of its own in another time zone."""
    to = tmp_path_factory.mktemp("golden") / "files"
    environment = os.environ | {"PYTHONPATH": str(ROOT), "TZ": "Asia/Tokyo"}
    command = [sys.executable, "-m", "tests.golden.__main__", str(to)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return to


@pytest.mark.parametrize("name", NAMES)
def test_it_says_what_the_file_holds(said: Path, name: str) -> None:
    if name in NEED_TORCH:
        import_module("torch")  # an environment without it skips this one alone
    there = said / name
    now = there.read_text("utf-8").splitlines(keepends=True) if there.exists() else []
    held = (FILES / name).read_text("utf-8").splitlines(keepends=True)
    difference = "".join(unified_diff(held, now, f"tests/golden/files/{name}", "now"))
    assert not difference, f"`python -m tests.golden --write` writes it anew:\n{difference}"


def test_nothing_is_said_that_no_file_holds(said: Path) -> None:
    assert sorted(str(path.relative_to(said)) for path in said.rglob("*.txt")) == NAMES
