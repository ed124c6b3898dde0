"""What README, docs/ and the pages beside them name is there: commands with their options, settings, variables, targets
of make, paths, errors."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from proxy.settings.loading import NOT_SETTINGS
from scripts import rooms
from scripts.pages.settings import sections
from tests.docs.command_line import OPTIONS, refused, wrong
from tests.docs.pages import ROOT, WRITTEN, blocks, commands, inline
from tests.test_names import is_name

# Sections that a page writes short, where it is about one alias.
SHORT = {"gate": "aliases.NAME.gate", "shadow": "aliases.NAME.shadow", "sampling": "aliases.NAME.sampling"}
# Pages that name options of other programs, and whose.
OPTIONS_OF_OTHERS = {
    "your-vllm.md": "vLLM's",
    "troubleshooting.md": "vLLM's",
    "deploy.md": "those of container engines",
    "install.md": "pip's",
    "postgresql.md": "psql's",
    "release.md": "those of build and git",
    "stores.md": "those of databases",
}
_NAMES = ("proxy", "engine", "recorder", "learn", "judge", "trainer", "campaign", "aliases", "mcp", *SHORT)
_KEY = re.compile(rf"(?<![\w./@-])((?:{'|'.join(_NAMES)})(?:\.[A-Za-z_]\w*)+)(?![\w/]|\.\w)")
_SECTION = re.compile(r"\[\[?([\w.]+)\]\]?")
_FILE = re.compile(r"\.(log|key|json|toml|py|md|service|ya?ml|db|timer|target)$")
_NAMED_BY_USERS = {"aliases", "mcp", "recipes"}  # what follows is a name of the user's

BESIDE = (ROOT / "SECURITY.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "examples").glob("*/README.md")))

on_each_page = pytest.mark.parametrize("page", [*WRITTEN, *BESIDE], ids=lambda page: str(page.relative_to(ROOT)))


@on_each_page
def test_every_hone_command_of_a_page_is_one(page: Path) -> None:
    said = [words[1:] for text in inline(page) if text.startswith("hone ") for words in split(text)]
    assert [found for words in said if (found := wrong(words))] == []
    lines = [words for block in blocks(page) if block.language == "sh" for words in hone_lines(block.text)]
    assert [found for words in lines if (found := refused(words))] == []


def split(text: str) -> Iterator[list[str]]:
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


def test_a_command_that_does_not_exist_would_be_seen() -> None:
    assert wrong(["shwo", "ID"]) == "no command 'shwo'"
    assert wrong(["keys", "create", "--scop", "infer"]) == "`hone keys create` has no --scop"
    assert wrong(["show", "ID"]) is None
    assert "No such option" in str(refused(["serve", "--prot", "8700"]))
    assert "Missing argument" in str(refused(["show"]))
    assert list(hone_lines("A=1 .venv/bin/hone up # all\nls && hone show … ID \\\n  --full")) == [
        ["up"],
        ["show", "ID", "--full"],
    ]


@pytest.mark.parametrize("page", [p for p in WRITTEN if p.name not in OPTIONS_OF_OTHERS], ids=lambda page: page.name)
def test_every_option_of_a_page_is_one_of_hones(page: Path) -> None:
    named = [text.split()[0].partition("=")[0] for text in inline(page) if text.startswith("--")]
    assert [option for option in named if option not in OPTIONS] == []


@cache
def known_keys() -> frozenset[str]:
    """Every setting and every section, dotted."""
    found = {section.key(field) for section in sections() for field in section.model.model_fields}
    return frozenset(found | {section.name for section in sections() if section.name})


@cache
def tables() -> frozenset[str]:
    """Settings that are tables of any keys."""
    return frozenset(
        section.key(name)
        for section in sections()
        for name, info in section.model.model_fields.items()
        if str(info.annotation).startswith("dict[") and f"{section.key(name)}.NAME" not in known_keys()
    )


def is_setting(key: str) -> bool:
    parts = [SHORT.get(key.partition(".")[0], key.partition(".")[0]), *key.split(".")[1:]]
    for n in range(1, len(parts)):
        if parts[n - 1] in _NAMED_BY_USERS:
            parts[n] = "NAME"
    whole = ".".join(parts)
    return whole in known_keys() or any(whole.startswith(f"{table}.") for table in tables())


@on_each_page
def test_every_setting_of_a_page_is_one(page: Path) -> None:
    keys = {key for text in inline(page) for key in _KEY.findall(text)}
    strays = {key for key in keys if not is_setting(key) and not is_name(key) and not _FILE.search(key)}
    titles = {title for text in inline(page) for title in _SECTION.findall(text) if title.partition(".")[0] in _NAMES}
    assert strays | {title for title in titles if not is_setting(title)} == set()


@on_each_page
def test_every_variable_of_a_page_is_one(page: Path) -> None:
    text = " ".join((*inline(page), *(block.text for block in blocks(page))))
    named = {name for name in re.findall(r"\bHONE_\w+", text) if not name.endswith("_") and name not in NOT_SETTINGS}
    keys = {name: name.removeprefix("HONE_").lower().replace("__", ".") for name in named}
    assert {name for name, key in keys.items() if not is_setting(key) and name not in OTHERS} == set()


# Variables of `make` and the tests, and an argument of the container files.
OTHERS = {"HONE_WRITE_TABLE", "HONE_FUZZ_CASES", "HONE_VERSION"}


def test_a_setting_that_does_not_exist_would_be_seen() -> None:
    for key in ("judge.model", "aliases.NAME.gate.kl_max", "aliases.helpdesk.promote", "gate.kl_max", "engine.env.X"):
        assert is_setting(key), key
    for key in ("judge.modle", "engine.ports", "aliases.NAME.gait", "gate.max", "recorder.url.x"):
        assert not is_setting(key), key
    assert _KEY.findall("set judge.model, not ../judge/model.py") == ["judge.model"]


@on_each_page
def test_every_target_of_make_that_a_page_names_is_one(page: Path) -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    said = [words for text in inline(page) for words in split(text)]
    said += [words for block in blocks(page) if block.language == "sh" for words in commands(block.text)]
    named = {words[1] for words in said if words[:1] == ["make"] and len(words) > 1 and "-C" not in words}
    assert named - targets == set()


@on_each_page
def test_every_path_of_a_page_is_there(page: Path) -> None:
    folders = "|".join((*rooms.PACKAGES, "tests", "benchmarks", "examples", "scripts", "docs", "deploy"))
    named = {text for text in inline(page) if re.fullmatch(rf"(?:{folders})/[\w./-]*", text)}
    assert {path for path in named if not (ROOT / path).exists()} == set()


def test_what_troubleshooting_quotes_is_said_by_the_code() -> None:
    page = ROOT / "docs" / "troubleshooting.md"
    said = "\n".join(literals())
    cells = [row.split("|")[1] for row in page.read_text("utf-8").splitlines() if row.startswith("| ")]
    quoted = [text for cell in cells for text in re.findall(r"`([^`]+)`", cell) if not text.startswith(("hone ", "/"))]
    assert len(quoted) > 40
    assert [text for text in quoted for part in text.split("…") if part.strip() not in said] == []


def literals() -> Iterator[str]:
    """Every text that stands in the packages; one that is put together by its constant parts."""
    for package in rooms.PACKAGES:
        for file in rooms.files(package):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield node.value
