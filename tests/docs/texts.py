"""Every text that names something of Hone: pages, the files of deploy/, docstrings and comments, taken apart once.

Owns: which texts there are, and what of them names something. Refuses: whether that is there (`tests.docs.rules`).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final, Literal

from tests.deploy.reading import written
from tests.docs.pages import PAGES, ROOT, WRITTEN, blocks, commands, inline
from tests.names import FOLDERS, files

Kind = Literal["page", "made", "deploy", "code"]

BESIDE: Final = (ROOT / "SECURITY.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "examples").glob("*/README.md")))
_COMMAND: Final = re.compile(r"(?:^|&& )hone ((?:--)?[a-z]\S*(?: .*)?)$")
_CODE: Final = re.compile(r"`([^`\n]+)`|^#     (.+)$", re.MULTILINE)  # of a comment in a file
_CODE_OF_A_PAGE: Final = re.compile(r"`([^`\n]+)`|^    (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Text:
    """One text. `deployed`: it is of deploy/ or about it, and is read to the last word, not in its code alone."""

    path: Path
    kind: Kind
    deployed: bool = False

    def __str__(self) -> str:
        return str(self.path.relative_to(ROOT))

    @cached_property
    def raw(self) -> str:
        """As it stands."""
        return self.path.read_text("utf-8")

    @property
    def inline(self) -> tuple[str, ...]:
        """Code within its sentences."""
        return inline(self.path)

    @property
    def code(self) -> str:
        """All code of it, the blocks' too."""
        return " ".join((*self.inline, *(block.text for block in blocks(self.path))))

    def shell(self) -> Iterator[list[str]]:
        """The simple commands of its shell blocks, as words."""
        for block in blocks(self.path):
            if block.language == "sh":
                yield from commands(block.text)

    def mentions(self) -> Iterator[list[str]]:
        """The words behind `hone` where a sentence names a command, whole or not."""
        if self.kind != "deploy":
            yield from (words[1:] for text in self.inline if text.startswith("hone ") for words in split(text))

    def calls(self) -> Iterator[list[str]]:
        """The words behind each `hone` that is written to be run."""
        if self.kind != "deploy":
            yield from (
                words for block in blocks(self.path) if block.language == "sh" for words in hone_lines(block.text)
            )
        if not self.deployed:
            return
        for found in (_CODE_OF_A_PAGE if self.path.suffix == ".md" else _CODE).findall(self.raw):
            if match := _COMMAND.search("".join(found).split(" #")[0].rstrip(" \\.")):
                yield shlex.split(match[1])


def texts() -> Iterator[Text]:
    """All of them, in a fixed order."""
    deployed = {ROOT / path for path in written()}
    for page in (*PAGES, *BESIDE):
        yield Text(page, "page" if page in (*WRITTEN, *BESIDE) else "made", deployed=page in deployed)
    yield from (Text(path, "deploy", deployed=True) for path in sorted(deployed - {*PAGES, *BESIDE}))
    yield from (Text(path, "code") for path in sorted(files(*FOLDERS)))


def split(text: str) -> Iterator[list[str]]:
    """A command within a sentence, as words."""
    try:
        yield [word for word in shlex.split(text) if word != "…"]
    except ValueError:  # a quote that is cut off
        yield text.split()


def hone_lines(text: str) -> Iterator[list[str]]:
    """The words behind each `hone` that a shell's text runs."""
    for words in commands(text):
        at = next((n for n, word in enumerate(words) if "=" not in word), len(words))
        if words[at:] and Path(words[at]).name == "hone":
            yield words[at + 1 :]
