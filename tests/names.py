"""Names of the code, read from its source: whether a dotted name exists, and whether a name can be guessed.

Nothing is imported for either.
"""

from __future__ import annotations

import ast
import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
PACKAGES: Final = ("proxy", "recorder", "judge", "trainer")
FOLDERS: Final = (*PACKAGES, "benchmarks", "examples", "tests")
DOTTED: Final = re.compile(rf"`((?:{'|'.join(PACKAGES)})(?:\.\w+)+)")  # in backticks


def files(*folders: str) -> list[Path]:
    """The Python files of folders."""
    return [path for folder in folders for path in (ROOT / folder).rglob("*.py") if ".venv" not in path.parts]


@cache
def parsed(path: Path) -> ast.Module:
    """A file's syntax tree."""
    return ast.parse(path.read_text())


def module(parts: list[str]) -> Path | None:
    """The file of a module or package, without importing it."""
    path = ROOT.joinpath(*parts)
    return next((p for p in (path.with_suffix(".py"), path / "__init__.py") if p.is_file()), None)


def defined(body: list[ast.stmt]) -> dict[str, list[ast.stmt]]:
    """The names that a module or class defines, and what is inside of each."""
    found: dict[str, list[ast.stmt]] = {}
    for node in body:
        match node:
            case ast.ClassDef():
                found[node.name] = node.body
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                found[node.name] = []
            case ast.Assign():
                found |= {target.id: [] for target in node.targets if isinstance(target, ast.Name)}
            case ast.AnnAssign(target=ast.Name(id=name)):
                found[name] = []
            case _:
                pass
    return found


def is_name(dotted: str) -> bool:
    """Whether it is a module, or an attribute defined in one."""
    parts, rest = dotted.split("."), list[str]()
    while parts and module(parts) is None:
        rest.insert(0, parts.pop())
    path = module(parts) if parts else None
    body = parsed(path).body if path and rest else []
    for part in rest:
        if part not in (names := defined(body)):
            return False
        body = names[part]
    return path is not None


_WORDS: Final = tomllib.loads((Path(__file__).parent / "unclear_names.toml").read_text("utf-8"))


def split_words(name: str) -> list[str]:
    """The words of a name in either case, in lower case."""
    bare = name.strip("_")
    if bare.islower():
        return [word for word in bare.split("_") if word]
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z][a-z0-9]*|[a-z0-9]+", bare)]


def is_unclear_noun(name: str) -> bool:
    """Whether a class's or module's name of one word is a pronoun, a participle, or a gerund that is no noun."""
    words = split_words(name)
    return len(words) == 1 and (_is_unclear(words[0]) or _is_gerund(words[0]))


def is_unclear_verb(name: str) -> bool:
    """Whether a function's name of one word is a pronoun or a participle."""
    words = split_words(name)
    return len(words) == 1 and _is_unclear(words[0])


def _is_unclear(word: str) -> bool:
    if word in _WORDS["not_participles"]:
        return False
    return (
        word in _WORDS["pronouns"] or word in _WORDS["irregular_participles"] or (word.endswith("ed") and len(word) > 3)
    )


def _is_gerund(word: str) -> bool:
    return word.endswith("ing") and word not in _WORDS["gerunds_that_are_nouns"]
