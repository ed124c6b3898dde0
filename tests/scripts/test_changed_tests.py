"""Which tests `make quick` chooses for what changed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from scripts import changed_tests
from scripts.changed_tests import ALWAYS, changed_files, describe, read_importers, select_tests

FILES = {
    "recorder/hours.py": "",
    "recorder/store/rows.py": "from recorder import hours\n",
    "recorder/store/pages/list.html": "",
    "proxy/api/routes.py": "from recorder.store.rows import row\n",
    "tests/conftest.py": "",
    "tests/recorder/store/conftest.py": "",
    "tests/recorder/helper.py": "from recorder.store import rows\n",
    "tests/recorder/test_hours.py": "from recorder import hours\n",
    "tests/recorder/store/test_rows.py": "from recorder.store import rows\n",
    "tests/recorder/store/test_pages.py": "",
    "tests/proxy/api/test_routes.py": "from proxy.api import routes\n",
    "tests/proxy/test_talk.py": "def test() -> None:\n    from tests.recorder import helper\n",
    "tests/e2e/test_all.py": "from recorder.store import rows\n",
    "tests/test_imports.py": "",
    "tests/test_names.py": "",
}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr("scripts.import_map.ROOT", tmp_path)  # by which it tells a module from what is taken out of one
    return tmp_path


def chosen(root: Path, *changed: str, most: int = changed_tests.MOST) -> dict[str, str]:
    selected = select_tests(root, changed, read_importers(root), most)
    assert list(selected)[-2:] == list(ALWAYS)
    return {file: why for file, why in selected.items() if file not in ALWAYS}


def test_a_module_is_tested_in_its_folder_and_by_what_imports_it_nearest_first(root: Path) -> None:
    assert list(chosen(root, "recorder/store/rows.py").items()) == [
        ("tests/recorder/store/test_pages.py", "mirrors recorder/store"),
        ("tests/recorder/store/test_rows.py", "mirrors recorder/store"),
        ("tests/proxy/api/test_routes.py", "imports it through 1 more"),
        ("tests/proxy/test_talk.py", "imports it through 1 more"),
    ]


def test_beyond_the_bound_only_direct_imports_count(root: Path) -> None:
    assert chosen(root, "recorder/hours.py", most=1) == {"tests/recorder/test_hours.py": "mirrors recorder"}
    assert chosen(root, "tests/recorder/helper.py", most=0) == {"tests/proxy/test_talk.py": "imports it"}


def test_a_test_file_is_itself_unless_it_is_never_quick_or_gone(root: Path) -> None:
    assert chosen(root, "tests/proxy/test_talk.py") == {"tests/proxy/test_talk.py": "changed"}
    assert chosen(root, "tests/e2e/test_all.py", "tests/test_gone.py") == {}


def test_a_conftest_is_used_by_all_tests_below_it(root: Path) -> None:
    assert set(chosen(root, "tests/recorder/store/conftest.py")) == {
        "tests/recorder/store/test_pages.py",
        "tests/recorder/store/test_rows.py",
    }
    assert len(chosen(root, "tests/conftest.py", most=0)) == 5


def test_a_file_without_imports_or_that_is_gone_is_tested_in_the_nearest_folder(root: Path) -> None:
    folder = {"tests/recorder/store/test_pages.py", "tests/recorder/store/test_rows.py"}
    assert set(chosen(root, "recorder/store/pages/list.html")) == folder
    assert set(chosen(root, "recorder/store/gone.py")) == folder
    assert chosen(root, "pyproject.toml") == {}


def git(root: Path, *arguments: str) -> None:
    told = ["-c", "user.name=Test", "-c", "user.email=test@localhost", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *told, *arguments], cwd=root, check=True, capture_output=True)


def commit(root: Path, file: str) -> None:
    (root / file).write_text("# changed\n")
    git(root, "add", ".")
    git(root, "commit", "-m", file)


def test_what_changed_is_told_from_the_upstream_branch_and_else_from_the_last_commit(root: Path) -> None:
    git(root, "init", "-b", "main")
    commit(root, "a.py")
    (root / "new.py").write_text("")
    assert changed_files(root) == ("HEAD", ["new.py"])  # the only commit
    git(root, "checkout", "-b", "work")
    commit(root, "b.py")
    commit(root, "c.py")
    (root / "a.py").unlink()
    assert changed_files(root)[1] == ["a.py", "c.py"]
    git(root, "branch", "--set-upstream-to=main")
    assert changed_files(root)[1] == ["a.py", "b.py", "c.py", "new.py"]
    assert changed_files(root, "HEAD") == ("HEAD", ["a.py"])
    git(root, "branch", "--set-upstream-to=work", "main")
    git(root, "checkout", "-f", "main")
    git(root, "merge", "work")
    assert changed_files(root)[1] == ["c.py"]  # nothing differs from the upstream branch


def test_what_was_chosen_is_told_with_its_reasons() -> None:
    told = describe(["a.py"], "0123456789abcdef", {"tests/test_a.py": "imports it", "tests/test_b.py": "imports it"})
    assert told.splitlines() == [
        "1 files differ from 0123456789ab; 2 test files: 2 imports it",
        "  tests/test_a.py  (imports it)",
        "  tests/test_b.py  (imports it)",
    ]
