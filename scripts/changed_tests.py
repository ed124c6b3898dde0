"""Choose the quick tests of the changed files by folders and imports, and run them.

    python -m scripts.changed_tests [--since REVISION] -- PYTEST ARGUMENTS            (`make quick`)

Changed files: those of the working tree, new files included, that differ from the merge base with the upstream branch.
Without an upstream branch, or where nothing differs from it, from the commit before HEAD. `--since` names another
revision.

Chosen tests: a test file that changed; the test files of the folder that mirrors a changed file's folder; those that
import a changed module; those that import it through one other module or test helper, then through two, as long as they
are at most `MOST` files in all; and `ALWAYS`.

Owns: this choice. Refuses: which tests are quick (the Makefile), and completeness: imports of programs that a test
starts, and imports by a name in a string, are not seen. `make test` runs all tests.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from scripts.import_map import PACKAGES, ROOT, imported_modules

FOLDERS: Final = (*PACKAGES, "scripts", "examples", "benchmarks", "tests")
ALWAYS: Final = ("tests/test_imports.py", "tests/test_names.py")
NEVER: Final = tuple(f"tests/{name}/" for name in ("agents", "browser", "conformance", "e2e", "install"))  # never quick
MOST: Final = 40  # test files; those that import a changed module directly always run

Importers = Mapping[str, Iterable[str]]  # file → the files that import it, all as paths from the root


def changed_files(root: Path, since: str | None = None) -> tuple[str, list[str]]:
    """Return the revision compared with, and the files that differ from it in the working tree, deleted ones too."""
    if since is not None:
        return since, _differing(root, since)
    upstream = _git(root, "merge-base", "HEAD", "@{upstream}", check=False).strip()
    if upstream and (files := _differing(root, upstream)):
        return upstream, files
    before = _git(root, "rev-parse", "--verify", "--quiet", "HEAD~1", check=False).strip() or "HEAD"
    return before, _differing(root, before)


def _differing(root: Path, revision: str) -> list[str]:
    tracked = _git(root, "diff", "--name-only", "--no-renames", "-z", revision, "--")
    new = _git(root, "ls-files", "--others", "--exclude-standard", "-z")
    return sorted(filter(None, {*tracked.split("\0"), *new.split("\0")}))


def _git(root: Path, *arguments: str, check: bool = True) -> str:
    return subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=check).stdout


def read_importers(root: Path = ROOT) -> Importers:
    """Read all imports. A conftest counts as imported by every test file in and below its folder."""
    importers: dict[str, set[str]] = defaultdict(set)
    for folder in FOLDERS:
        for path in (root / folder).rglob("*.py"):
            file = path.relative_to(root).as_posix()
            for module in imported_modules(path, FOLDERS):
                importers[_file_of(root, module)].add(file)
            if is_test(file):
                for above in PurePosixPath(file).parents:
                    importers[f"{above}/conftest.py"].add(file)
    return importers


def _file_of(root: Path, module: str) -> str:
    name = module.replace(".", "/")
    return f"{name}/__init__.py" if (root / name).is_dir() else f"{name}.py"


def is_test(file: str) -> bool:
    """Whether a file holds tests that can be quick."""
    path = PurePosixPath(file)
    return file.startswith("tests/") and path.match("test_*.py") and not file.startswith(NEVER)


def mirroring_tests(root: Path, file: str) -> set[str]:
    """Return the test files of the folder in tests/ that mirrors a file's folder, or the nearest folder above it."""
    folder = PurePosixPath(file).parent
    while folder.name and not (root / "tests" / folder).is_dir():
        folder = folder.parent
    if not folder.name or folder.parts[0] == "tests":
        return set()
    return {
        file_name for path in (root / "tests" / folder).glob("test_*.py") if is_test(file_name := _name(root, path))
    }


def _name(root: Path, path: Path) -> str:
    return path.relative_to(root).as_posix()


def select_tests(root: Path, changed: Iterable[str], importers: Importers, most: int = MOST) -> dict[str, str]:
    """Return each test file to run with the reason, the most important first."""
    chosen: dict[str, str] = {}

    def add(files: Iterable[str], why: str) -> None:
        for file in sorted(files):
            if is_test(file) and (root / file).exists():
                chosen.setdefault(file, why)

    changed = set(changed)
    add(changed, "changed")
    for file in sorted(changed):
        add(mirroring_tests(root, file), f"mirrors {PurePosixPath(file).parent}")
    seen, nearest, over = set(changed), changed, 0
    while nearest := {file for one in nearest for file in importers.get(one, ())} - seen:
        seen |= nearest
        importing = {file for file in nearest if is_test(file)}
        if over and len(chosen.keys() | importing) > most:
            break
        add(importing, f"imports it through {over} more" if over else "imports it")
        over += 1
    add(ALWAYS, "always")
    return chosen


def describe(changed: Sequence[str], since: str, chosen: Mapping[str, str]) -> str:
    """Return one line with the number of changed files and of tests by reason, then one line per test file."""
    counts = ", ".join(f"{count} {why}" for why, count in Counter(chosen.values()).items())
    first = f"{len(changed)} files differ from {since[:12]}; {len(chosen)} test files: {counts}"
    return "\n".join([first, *(f"  {file}  ({why})" for file, why in chosen.items())])


def main(arguments: Sequence[str]) -> int:
    """Choose the tests, print them, and run them. Return pytest's exit status."""
    at = arguments.index("--") if "--" in arguments else len(arguments)
    parser = argparse.ArgumentParser(prog="python -m scripts.changed_tests")
    parser.add_argument("--since", metavar="REVISION", help="compare with this revision")
    since, changed = changed_files(ROOT, parser.parse_args(arguments[:at]).since)
    chosen = select_tests(ROOT, changed, read_importers())
    sys.stdout.write(describe(changed, since, chosen) + "\n")
    sys.stdout.flush()
    command = [sys.executable, "-m", "pytest", *chosen, *arguments[at + 1 :]]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
