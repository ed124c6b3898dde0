"""README and docs/ taken apart: code blocks, inline code, links, headings.

Owns: which pages there are, and reading Markdown as far as these tests need it. Refuses: judging what stands there.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from scripts.pages.__main__ import MADE

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
WRITTEN = tuple(page for page in PAGES if page not in MADE)  # by people
_FENCE = re.compile(r"^(\s*)(`{3,}|~{3,})\s*([\w-]*)")
_LIST = re.compile(r"^\s*([-*+]|\d+\.)\s")


@dataclass(frozen=True, slots=True)
class Block:
    """A block of code: its page's name, the line on which it begins, its language, its text."""

    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


@cache
def blocks(page: Path) -> tuple[Block, ...]:
    """The code blocks of a page, fenced or indented by four spaces."""
    return tuple(_blocks(page))


def _blocks(page: Path) -> Iterator[Block]:
    lines = page.read_text("utf-8").splitlines()
    at, in_list = 0, False
    while at < len(lines):
        line = lines[at]
        if fence := _FENCE.match(line):
            end = next(n for n in range(at + 1, len(lines)) if lines[n].strip() == fence[2])
            text = "\n".join(one.removeprefix(fence[1]) for one in lines[at + 1 : end]) + "\n"
            yield Block(page.name, at + 2, fence[3] or guessed(text), text)
            at = end
        elif line.startswith("    ") and not in_list:
            end = next(
                (n for n in range(at, len(lines)) if lines[n].strip() and not lines[n].startswith("    ")), len(lines)
            )
            text = "\n".join(one[4:] for one in lines[at:end]).rstrip() + "\n"
            yield Block(page.name, at + 1, guessed(text), text)
            at = end - 1
        elif line.strip():
            in_list = bool(_LIST.match(line)) or (in_list and line.startswith(" "))
        at += 1


def guessed(text: str) -> str:
    """The language of a block that names none."""
    first = text.lstrip().split("\n")[0]
    if first.startswith("{"):
        return "json"
    return "toml" if re.match(r"\[\[?[\w.]+\]\]?\s*(#|$)", first) else "sh"


def without_blocks(page: Path) -> str:
    """A page's text without its code blocks."""
    lines = page.read_text("utf-8").splitlines()
    for block in blocks(page):
        for n in range(block.line - 1, block.line - 1 + block.text.count("\n")):
            lines[n] = ""
    return "\n".join("" if _FENCE.match(line) else line for line in lines)


@cache
def inline(page: Path) -> tuple[str, ...]:
    """The inline code of a page, on one line each."""
    found = re.findall(r"(?<!`)(`{1,2})(?!`)(.+?)(?<!`)\1(?!`)", without_blocks(page), re.DOTALL)
    return tuple(" ".join(text.split()) for _, text in found)


def links(page: Path) -> Iterator[tuple[str, str]]:
    """The links of a page that stay in the repository: file and anchor, either may be empty."""
    for target in re.findall(r"\]\(([^)\s]+)\)", without_blocks(page)):
        if not re.match(r"[a-z]+:", target):
            path, _, anchor = target.partition("#")
            yield path, anchor


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and mkdocs make them."""
    found: set[str] = set()
    for heading in re.findall(r"^#{1,6} (.+)$", without_blocks(page), re.MULTILINE):
        slug = re.sub(r"[^\w\s-]", "", heading.replace("`", "").strip().lower())
        found.add(re.sub(r"\s", "-", slug))
    return found


def commands(text: str) -> Iterator[list[str]]:
    """The simple commands of a shell's text, as words. What stands for something left out (…) is dropped."""
    for line in text.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars="&|;")
        lexer.whitespace_split, lexer.commenters = True, "#"
        words: list[str] = []
        for word in [*lexer, "&&"]:
            if word and set(word) <= set("&|;"):
                if words:
                    yield words
                words = []
            elif word != "…":
                words.append(word)


def is_json(text: str) -> bool:
    """Whether a text is one JSON document, or one a line."""
    for documents in ([text], text.strip().splitlines()):
        try:
            return all(json.loads(one) is not None for one in documents)
        except json.JSONDecodeError:
            continue
    return False
