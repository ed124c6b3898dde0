"""That each defect still has its place, and that a tree is copied, broken, looked at and mended as is said."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from scripts.mutations import ROOT, Mutation, Outcome, copied_tree, load_mutations, main, row, run_tests, try_mutation

NEGATED = Mutation("sign", "a sign", "rule.py", "tests/test_rule.py", "return n", "return -n")
BEHIND = Mutation("unseen", "a comment", "rule.py", "tests/test_rule.py", "# fast", "# slow")
RULE = "def rule(n: int) -> int:\n    return n  # fast\n"
TESTS = """
import os

import pytest

from rule import rule


@pytest.mark.parametrize("n", [0, 1, 2])
def test_rule(n):
    assert rule(n) == n


def test_that_fails_whatever_the_rule():
    assert "HONE_NEVER_SET" in os.environ
"""


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # loading ours takes longer than these tests
    (tmp_path / "tests").mkdir()
    (tmp_path / "build").mkdir()
    (tmp_path / "rule.py").write_text(RULE)
    (tmp_path / "tests" / "test_rule.py").write_text(TESTS)
    return tmp_path


@pytest.mark.parametrize("mutation", load_mutations(), ids=lambda mutation: mutation.name)
def test_a_mutation_changes_its_file_and_names_tests_that_are_there(mutation: Mutation) -> None:
    text = (ROOT / mutation.file).read_text("utf-8")
    assert mutation.apply(text) != text
    paths = [word for word in shlex.split(mutation.tests) if word.startswith("tests/")]
    assert paths
    assert all((ROOT / path).exists() for path in paths)


@pytest.mark.parametrize(("text", "count"), [("return m", 0), ("return n\nreturn n", 2)])
def test_a_place_that_is_gone_or_not_the_only_one_is_an_error(text: str, count: int) -> None:
    with pytest.raises(ValueError, match=rf"sign: rule.py has 'return n' {count} times, not once"):
        NEGATED.apply(text)


def test_only_tests_that_pass_without_the_defect_catch_it(tree: Path) -> None:
    outcome = try_mutation(NEGATED, tree, [])
    assert outcome.catchers == ("tests/test_rule.py::test_rule",)
    assert (tree / "rule.py").read_text() == RULE


def test_what_no_test_looks_at_is_not_caught(tree: Path) -> None:
    outcome = try_mutation(BEHIND, tree, ["-k", "test_rule"])
    assert outcome.catchers == ()
    assert "NOT CAUGHT" in row(outcome)


def test_a_run_without_tests_is_no_result(tree: Path) -> None:
    with pytest.raises(RuntimeError, match="pytest ended with 4"):
        run_tests(tree, ["tests/test_gone.py"])


def test_a_copy_has_tracked_and_new_files_and_no_ignored_ones(tree: Path) -> None:
    for command in (["init", "-q"], ["add", "rule.py"]):
        subprocess.run(["git", *command], cwd=tree, check=True)
    (tree / ".gitignore").write_text("build/\n")
    (tree / "build" / "made.txt").write_text("made")
    with copied_tree(tree) as copy:
        there = {path.relative_to(copy).as_posix() for path in copy.rglob("*") if path.is_file()}
    assert there == {".gitignore", "rule.py", "tests/test_rule.py"}


def test_a_row_counts_those_that_catch_it_and_names_the_first() -> None:
    assert row(Outcome(NEGATED, ("tests/a.py::test_a", "tests/a.py::test_b"))).split() == [
        *("sign", "caught", "by", "2", "tests/a.py::test_a")
    ]


def test_an_unknown_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["clip-bound", "no-such"])
    assert "unknown: no-such" in capsys.readouterr().err
