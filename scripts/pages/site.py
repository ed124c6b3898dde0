"""Hooks of mkdocs: the site has the repository's own pages, with README as the first.

Owns: which pages outside of docs/ the site has, and links between them, which in the repository go by its folders.
Refuses: the content of pages. mkdocs loads this file by its path (`hooks:`).
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).resolve().parents[2]
OUTSIDE: Final = (
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "examples/*/README.md",
    "examples/*/*.svg",
    "benchmarks/results/*.json",
)
_LINK: Final = re.compile(r"(\]\()([^)\s:#]+)((?:#[^)\s]*)?\))")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Return the site's files: docs/, and the pages of the repository outside of it."""
    for pattern in OUTSIDE:
        for path in sorted(ROOT.glob(pattern)):
            files.append(File.generated(config, _on_site(_in_repository(path)), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return a page with its links changed to the site's folders."""
    source = page.file.abs_src_path
    if source is None:
        return markdown
    folder = posixpath.dirname(_in_repository(Path(source)))
    start = posixpath.dirname(page.file.src_uri)

    def moved(link: re.Match[str]) -> str:
        target = _on_site(posixpath.normpath(posixpath.join(folder, link[2])))
        return link[1] + posixpath.relpath(target, start or ".") + link[3]

    return _LINK.sub(moved, markdown)


def _in_repository(path: Path) -> str:
    return path.resolve().relative_to(ROOT).as_posix()


def _on_site(path: str) -> str:
    """Return the site's path of a file of the repository."""
    return "index.md" if path == "README.md" else path.removeprefix("docs/")
