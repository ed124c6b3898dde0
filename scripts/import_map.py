"""The folders of each package and what they import, read from the source: the map in docs/architecture.md.

Owns: reading packages, folders, files and imports, and printing the map. Refuses: which imports are allowed
(`tests/test_imports.py` has the tables).

    python -m scripts.import_map            print the map
    python -m scripts.import_map --write    write it into docs/architecture.md, between its marks
"""

from __future__ import annotations

import ast
import functools
import sys
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from scripts.pages.marks import Marks

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("recorder", "judge", "trainer", "proxy")
PAGE = ROOT / "docs" / "architecture.md"
MARKS: Final = Marks("make map")


@dataclass(frozen=True, slots=True)
class Import:
    """One file of a package that imports one module of a package of ours."""

    file: Path
    module: str  # dotted, down to the module, without a name imported from it

    @property
    def where(self) -> str:
        """Return the file's path from the root."""
        return self.file.relative_to(ROOT).as_posix()

    @property
    def package(self) -> str:
        """Return the imported package."""
        return self.module.partition(".")[0]

    @property
    def folder(self) -> str | None:
        """Return the imported folder; None for a file at the package's root."""
        return _folder_of(ROOT.joinpath(*self.module.split(".")), self.package)


def files(package: str) -> list[Path]:
    """Return every module of a package. Alembic's migrations are data, not modules of it."""
    return sorted(p for p in (ROOT / package).rglob("*.py") if "migrations" not in p.parts)


def folders(package: str) -> list[str]:
    """Return the package's folders, by name."""
    return sorted(p.parent.name for p in (ROOT / package).glob("*/__init__.py"))


def folder_of(file: Path) -> str | None:
    """Return the folder of a file; None at a package's root."""
    return _folder_of(file, file.relative_to(ROOT).parts[0])


def _folder_of(path: Path, package: str) -> str | None:
    first = path.relative_to(ROOT / package).parts[:1]
    return first[0] if first and (ROOT / package / first[0]).is_dir() else None


@functools.cache
def imports(file: Path) -> tuple[Import, ...]:
    """Return a file's imports from our packages, at its top and inside functions."""
    return tuple(_imports(file))


def _imports(file: Path) -> Iterator[Import]:
    return (Import(file, module) for module in imported_modules(file, PACKAGES))


def imported_modules(file: Path, packages: Collection[str]) -> Iterator[str]:
    """Yield the modules that a file imports from some top-level packages, dotted, one for each imported name."""
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from (_module(name) for name in names if name.partition(".")[0] in packages)


def _module(name: str) -> str:
    """Return the module in a dotted name that may end in a name imported from it."""
    at = ROOT.joinpath(*name.split("."))
    if at.is_dir() or at.with_suffix(".py").exists():
        return name
    return name.rpartition(".")[0]


def arrows(package: str) -> Mapping[tuple[str, str], list[Import]]:
    """Return the imports from one folder of the package into another, by (from, to)."""
    imports_between: dict[tuple[str, str], list[Import]] = defaultdict(list)
    for file in files(package):
        source = folder_of(file)
        for one in imports(file):
            if source and one.package == package and one.folder not in (None, source):
                imports_between[source, str(one.folder)].append(one)
    return imports_between


def purpose(folder: Path) -> str:
    """Return the first sentence of a folder's docstring."""
    text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text("utf-8"))) or ""
    return " ".join(text.split("\n\n")[0].split())


def drawn(package: str) -> str:
    """Return a package's folders as a table: what each owns, and which others it imports."""
    used = arrows(package)
    lines = [f"**{package}/**", "", "| folder | what it owns | imports |", "|---|---|---|"]
    for folder in folders(package):
        uses = ", ".join(sorted(to for of, to in used if of == folder)) or "none"
        lines.append(f"| `{folder}/` | {purpose(ROOT / package / folder)} | {uses} |")
    return "\n".join(lines)


def page_with_map(page: str) -> str:
    """Return the page with the current map between its marks."""
    return MARKS.put(page, the_map())


def the_map() -> str:
    """Return the tables of all packages."""
    return "\n\n".join(drawn(package) for package in PACKAGES)


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        MARKS.write(PAGE, the_map())
    else:
        sys.stdout.write(the_map() + "\n")
