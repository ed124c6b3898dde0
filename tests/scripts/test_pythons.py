"""What `make pythons` tells of its runs, what is left out without torch, and that the classifiers say no more."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from scripts import pythons, without_torch
from scripts.interpreters import Interpreter
from scripts.junit_report import CaseResult, read
from scripts.pythons import PythonResult, table

ROOT = pythons.ROOT
NEEDS_TORCH = CaseResult(
    "tests.trainer.test_step", "skipped", 0.0, f"collection skipped {without_torch.SKIPPED_WITHOUT} torch"
)
PASSES = CaseResult("tests.test_it.test_passes", "passed", 0.1)
FAILS = CaseResult("tests.test_it.test_fails", "failed", 0.1, "assert 0")


def python(minor: int) -> Interpreter:
    return Interpreter(Path(f"/python3.{minor}"), (3, minor, 1))


def test_a_row_says_what_ran_and_what_was_left_out() -> None:
    told = table(
        [
            PythonResult(python(12), "2.13.0+cpu", (PASSES, PASSES)),
            PythonResult(python(13), None, (PASSES, NEEDS_TORCH)),
        ]
    )
    assert told.splitlines() == [
        "Python 3.12.1  passed: 2 passed (torch 2.13.0+cpu)",
        "Python 3.13.1  passed: 1 passed, 1 skipped without torch (no CPU build of torch)",
        "Skipped without torch:",
        "  tests.trainer.test_step",
    ]


def test_what_failed_is_named_and_is_no_pass() -> None:
    one = PythonResult(python(12), None, (PASSES, FAILS), status=1)
    assert not one.passed
    assert "FAILED: 1 passed, 1 failed" in table([one])
    assert "failed under 3.12.1: tests.test_it.test_fails" in table([one])


@pytest.mark.parametrize(
    "one",
    [
        PythonResult(python(12), broken="its environment could not be made"),
        PythonResult(python(12), None, ()),
        PythonResult(python(12), None, (NEEDS_TORCH,)),
        PythonResult(python(12), None, (PASSES,), status=3),
    ],
)
def test_a_run_without_a_pass_is_none(one: PythonResult) -> None:
    assert not one.passed
    assert "NOT RUN" in table([one]) or "FAILED" in table([one])


def test_without_another_python_it_says_so_and_runs_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pythons, "other_interpreters", list)
    assert pythons.main(["--", "-q"]) == 1
    assert "no test ran" in capsys.readouterr().out
    monkeypatch.setattr(pythons, "other_interpreters", lambda: [python(12)])
    assert pythons.main(["3.99", "--", "-q"]) == 1
    assert "No 3.99 works on this machine" in capsys.readouterr().out


IN_A_TEST = "def test_it():\n    import {0}\n"
AT_THE_TOP = "import {0}\ndef test_it(): pass\n"
MISSING = "not_there_at_all"


@pytest.mark.parametrize(
    ("files", "outcome"),
    [
        ({"tests/test_it.py": AT_THE_TOP}, "skipped"),
        ({"tests/test_it.py": IN_A_TEST}, "skipped"),
        ({"tests/step/conftest.py": "import {0}\n", "tests/step/test_it.py": "def test_it(): pass\n"}, "skipped"),
        (
            {"trainer/step.py": "import {0}\n", "tests/test_it.py": "import trainer.step\ndef test_it(): pass\n"},
            "skipped",
        ),
        ({"proxy/app.py": "import {0}\n", "tests/test_it.py": "import proxy.app\ndef test_it(): pass\n"}, "failed"),
        ({"tests/test_it.py": "import another_that_is_not_there\n"}, "failed"),
        ({"tests/test_it.py": "def test_it(): assert 0\n"}, "failed"),
    ],
)
def test_only_what_may_need_torch_is_left_out_for_want_of_it(
    files: dict[str, str], outcome: str, tmp_path: Path
) -> None:
    for name, text in files.items():
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True, parents=True)
        file.with_name("__init__.py").touch()
        file.write_text(text.format(MISSING))
    # The plugin as it is, for a tree of its own and a package that no environment has.
    (tmp_path / "plugged.py").write_text(
        f"from scripts import without_torch\nfrom pathlib import Path\nwithout_torch.ROOT = Path({str(tmp_path)!r})\n"
        f"without_torch.NEEDED_TO_TRAIN = ({MISSING!r},)\n"
    )
    paths = {"PYTHONPATH": f"{tmp_path}:{ROOT}", "PATH": "/usr/bin:/bin"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "plugged"]
    command += ["-p", "scripts.without_torch", "--junitxml=report.xml", "--rootdir", str(tmp_path)]
    subprocess.run(command, cwd=tmp_path, env=paths, capture_output=True, check=False)
    [one] = read(tmp_path / "report.xml")
    assert one.outcome == outcome
    assert (without_torch.SKIPPED_WITHOUT in one.why) == (outcome == "skipped")


def test_the_classifiers_name_the_pythons_that_the_page_says_were_run() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    named = re.findall(r"Python :: (3\.\d+)$", "\n".join(project["classifiers"]), re.MULTILINE)
    page = (ROOT / "docs" / "install.md").read_text("utf-8")
    assert named == re.findall(r"^\| (3\.\d+)[.\d]* \|", page, re.MULTILINE)
