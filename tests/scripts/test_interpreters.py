"""Which other Pythons are found: one that runs of each version, wherever it lies; a name alone is passed over."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from scripts.interpreters import other_interpreters, read_interpreter


def python(file: Path, *lines: str) -> Path:
    """A program that answers as a Python would, or does not."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(["#!/bin/sh", *lines]))
    file.chmod(0o755)
    return file


@pytest.fixture
def _ours_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 11, 7, "final", 0))


def test_the_one_that_runs_these_tests_answers() -> None:
    there = read_interpreter(Path(sys.executable))
    assert there is not None
    assert there.version == sys.version_info[:3]
    assert there.minor == f"3.{sys.version_info[1]}"


@pytest.mark.usefixtures("_ours_is_another")
def test_the_newest_of_each_version_is_taken_from_the_path_pyenv_and_uv(tmp_path: Path) -> None:
    path, pyenv, uv = (
        tmp_path / "bin",
        tmp_path / ".pyenv" / "versions",
        tmp_path / ".local" / "share" / "uv" / "python",
    )
    python(path / "python3.12", "echo 3.12.1")
    newer = python(pyenv / "3.12.9" / "bin" / "python3.12", "echo 3.12.9")
    of_uv = python(uv / "cpython-3.14.0" / "bin" / "python3.14", "echo 3.14.0")
    python(path / "python3.11", "echo 3.11.2")  # ours
    python(path / "python3.10", "echo 3.10.9")  # too old
    python(path / "python3.13-config", "echo 3.13.0")
    there = other_interpreters({"PATH": str(path), "HOME": str(tmp_path)})
    assert [(one.program, str(one)) for one in there] == [(newer, "3.12.9"), (of_uv, "3.14.0")]


@pytest.mark.usefixtures("_ours_is_another")
@pytest.mark.parametrize("lines", [["echo 'pyenv: command not found' >&2", "exit 127"], ["exit 0"], ["echo hello"]])
def test_a_name_behind_which_none_runs_is_passed_over(lines: list[str], tmp_path: Path) -> None:
    python(tmp_path / "python3.12", *lines)
    (tmp_path / "python3.13").write_text("no program")
    assert other_interpreters({"PATH": f"{tmp_path}:/no/such/folder", "HOME": str(tmp_path)}) == []
