"""`make setup` says what it does while it installs. Nothing is installed here: a program stands in for Python."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# In place of Python: it makes "environments" of itself, and its pip takes two seconds for the package `hone`.
PYTHON = f"""#!/bin/bash
case "$*" in
    "-c import venv"*) exit 0 ;;
    --version) echo "Python 3.99.0" ;;
    "-m venv "*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" && cp "$0" "$3/bin/hone" ;;
    *"pip "*"index-url"*) echo "from the other index" >>calls; exit 0 ;;
    *"pip "*--no-deps*) echo "ERROR: no torch here" && exit "${{NO_TORCH:-0}}" ;;
    *"pip "*--editable*)
        echo "$*" >>installed
        echo "Collecting hone (from x)"; printf '  Downloading hone-1.whl \\033[31m(9 MB)\\n'; echo x >installing
        exec {sys.executable} -c "import time; time.sleep(${{PIP_S:-2.3}}); exit(${{BROKEN:-0}})" ;;
    *"pip "*) exit 0 ;;
    *compileall*) echo "$*" >>compiled ;;
    *torch*) exit 1 ;;
esac
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A copy of what the script reads."""
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "setup.sh", tmp_path / "scripts")
    for name in ("pyproject.toml", "constraints.txt"):
        (tmp_path / name).touch()
    (tmp_path / "python").write_text(PYTHON)
    (tmp_path / "python").chmod(0o755)
    return tmp_path


def setup(root: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": os.environ["PATH"], "PYTHON": str(root / "python"), "SETUP_EVERY_S": "1", **variables}
    command = ["bash", str(root / "scripts" / "setup.sh")]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False, cwd=root, timeout=60)


def test_it_says_each_step_and_how_long_it_takes(root: Path) -> None:
    done = setup(root)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    steps = [line for line in lines if line.startswith("== [")]
    assert steps == [
        "== [1/4] environment and pip",
        "== [2/4] torch",
        "== [3/4] Hone and what it needs",
        "== [4/4] bytecode",
    ]
    assert re.search(r"^   \[3/4\] Hone and what it needs: [1-3] s, Downloading hone-1.whl", done.stdout, re.MULTILINE)
    assert re.match(r"== set up in \d+ s: Python 3.99.0, torch==", lines[-1])
    assert not re.search(r"[\x00-\x09\x0b-\x1f]", done.stdout)
    assert setup(root).stdout == ""  # it is up to date


def test_all_cores_compile_what_was_installed(root: Path) -> None:
    assert setup(root, PIP_S="0").returncode == 0
    assert " --no-compile " in (root / "installed").read_text()
    ours, packages = (root / "compiled").read_text().splitlines()
    assert ours.endswith(" -j 0 proxy recorder judge trainer examples")
    assert packages.endswith("/site-packages")
    assert " -j 0 " in packages


def test_without_a_terminal_and_in_ci_lines_are_rare(root: Path) -> None:
    done = setup(root, SETUP_EVERY_S="", CI="true")
    assert done.returncode == 0, done.stderr
    assert "   [" not in done.stdout


def test_torch_comes_from_the_other_index_where_the_first_has_none(root: Path) -> None:
    done = setup(root, NO_TORCH="1", PIP_S="0")
    assert done.returncode == 0, done.stderr
    assert "== [2/4] torch from https://download.pytorch.org/whl/cpu" in done.stdout
    assert (root / "calls").exists()
    assert "no torch here" not in done.stdout + done.stderr


def test_a_failure_shows_what_pip_said_and_is_tried_again(root: Path) -> None:
    done = setup(root, BROKEN="3", PIP_S="0")
    assert done.returncode == 3
    assert "Hone and what it needs failed with status 3. The end of .venv/setup.log:" in done.stderr
    assert "Collecting hone" in done.stderr
    assert "[3/4]" in setup(root, PIP_S="0").stdout


def test_a_signal_ends_what_it_runs(root: Path) -> None:
    env = {"PATH": os.environ["PATH"], "PYTHON": str(root / "python"), "PIP_S": "30.125"}
    command = ["bash", str(root / "scripts" / "setup.sh")]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=root) as process:
        deadline = time.monotonic() + 20
        while not (root / "installing").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 143
