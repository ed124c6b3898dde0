"""The report of `make gpu`, out of what pytest really writes, and what it says where there is no GPU."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from scripts import gpu
from scripts.junit_report import read

TESTS = """
import pytest
def test_passes(): pass
def test_fails(): assert 0
@pytest.mark.skip
def test_is_skipped(): pass
@pytest.fixture
def broken(): raise OSError
def test_has_no_fixture(broken): pass
"""


def test_the_report_tells_each_test_and_its_end(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    report = tmp_path / "report.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", str(tmp_path)]
    subprocess.run([*command, "--rootdir", str(tmp_path)], cwd=tmp_path, capture_output=True, check=False)
    ended = {one.name.rpartition(".")[2]: one.outcome for one in read(report)}
    assert ended == {
        "test_passes": "passed",
        "test_fails": "failed",
        "test_is_skipped": "skipped",
        "test_has_no_fixture": "failed",
    }
    told = gpu.format_report(read(report), "a device")
    assert told.startswith("GPU: a device\n")
    assert "2 failed, 1 passed, 1 skipped" in told


def test_nothing_that_ran_is_said_too() -> None:
    assert "no test ran" in gpu.format_report([], "a device")


def test_without_a_gpu_it_says_so_and_runs_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu.main() == 1
    assert "finds none, so no test ran" in capsys.readouterr().out


def test_every_test_that_needs_a_gpu_has_the_mark() -> None:
    files = [
        file for file in (gpu.ROOT / "tests").rglob("test_gpu.py") if "cuda.is_available" in file.read_text("utf-8")
    ]
    needing = [file for file in files if "pytest.mark.skipif" in file.read_text("utf-8")]
    assert needing
    assert [file for file in needing if "pytest.mark.gpu" not in file.read_text("utf-8")] == []
