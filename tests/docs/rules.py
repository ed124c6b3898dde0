"""What holds of every text: whatever of Hone it names is there. One table of rules; each finds the strays of a text.

Owns: the rules, and what is known: settings, variables, targets of make. Refuses: reading texts (`tests.docs.texts`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Final

from proxy.settings.display import list_leaves
from proxy.settings.hone import ENV_PREFIX, HoneSettings
from proxy.settings.loader import NOT_SETTINGS
from proxy.settings.sections import AliasSettings
from scripts.pages.settings import sections
from tests.deploy.container_files import stages
from tests.docs.command_line import OPTIONS, is_named_alone, refused, without_files, wrong
from tests.docs.pages import ROOT, WRITTEN, anchors, links
from tests.docs.texts import Text, split, texts
from tests.names import DOTTED, FOLDERS, is_name

# Sections that a page writes short, where it is about one alias.
SHORT: Final = {"gate": "aliases.NAME.gate", "shadow": "aliases.NAME.shadow", "sampling": "aliases.NAME.sampling"}
# Pages that name options of other programs, and whose.
OPTIONS_OF_OTHERS: Final = {
    "your-vllm.md": "vLLM's",
    "troubleshooting.md": "vLLM's",
    "deploy.md": "those of container engines",
    "install.md": "pip's",
    "postgresql.md": "psql's",
    "release.md": "those of build and git",
    "stores.md": "those of databases",
}
# Variables of `make` and the tests, and an argument of the container files.
OTHER_VARIABLES: Final = frozenset({"HONE_WRITE_TABLE", "HONE_FUZZ_CASES", "HONE_VERSION"})
# Files that deploy/ tells its user to make.
MADE_BY_USERS: Final = frozenset({"deploy/compose/secrets/agents-key", "deploy/compose/.env"})
_NAMES: Final = ("proxy", "engine", "recorder", "learn", "judge", "trainer", "campaign", "aliases", "mcp", *SHORT)
KEY: Final = re.compile(rf"(?<![\w./@-])((?:{'|'.join(_NAMES)})(?:\.[A-Za-z_]\w*)+)(?![\w/]|\.\w)")
_KEY_ANYWHERE: Final = re.compile(rf"(?<![\w./@[-])((?:{'|'.join(HoneSettings.model_fields)})\.[a-z_]+)(?![\w(/.-])")
_SECTION: Final = re.compile(r"\[\[?([\w.]+)\]\]?")
_FILE: Final = re.compile(r"\.(log|key|json|toml|py|md|service|ya?ml|db|timer|target)$")
_FILE_OR_URL: Final = frozenset({"service", "toml", "yaml", "url"})  # hone-judge.service, and the like
_NAMED_BY_USERS: Final = frozenset({"aliases", "mcp", "recipes"})  # what follows is a name of the user's
_PATH: Final = re.compile(rf"(?:{'|'.join((*FOLDERS, 'scripts', 'docs', 'deploy'))})/[\w./-]*")
_PATH_ANYWHERE: Final = re.compile(r"(?<![\w./-])((?:deploy|docs|examples|benchmarks)/[\w./-]*\w)(?!\*)")


# --- what is known


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
    """Whether a page may write a setting so, or a section."""
    parts = [SHORT.get(key.partition(".")[0], key.partition(".")[0]), *key.split(".")[1:]]
    for n in range(1, len(parts)):
        if parts[n - 1] in _NAMED_BY_USERS:
            parts[n] = "NAME"
    whole = ".".join(parts)
    return whole in known_keys() or any(whole.startswith(f"{table}.") for table in tables())


@cache
def own_keys() -> frozenset[str]:
    """The settings as `hone config` lists them, and those of an alias."""
    return frozenset(
        {key for key, _ in list_leaves(HoneSettings())} | {f"aliases.{name}" for name in AliasSettings.model_fields}
    )


def is_key_of_code(dotted: str) -> bool:
    """Whether it is a setting's key, or a section, as code writes it."""
    return any(f"{key}.".startswith(f"{dotted}.") for key, _ in list_leaves(HoneSettings()))


@cache
def build_arguments() -> frozenset[str]:
    """What container files are told when they are built."""
    folder = ROOT / "deploy" / "docker"
    return frozenset(
        rest.partition("=")[0] for file in folder.iterdir() for stage in stages(file) for rest in stage.all("ARG")
    )


# --- the rules


def commands(text: Text) -> Iterator[str]:
    """Commands and their options."""
    yield from (found for words in text.mentions() if (found := wrong(words)))
    yield from (found for words in text.calls() if (found := _of_call(text, words)))


def _of_call(text: Text, words: list[str]) -> str | None:
    if text.deployed and is_named_alone(words):
        return wrong(words)
    return refused(without_files(words) if text.deployed else words)


def options(text: Text) -> Iterator[str]:
    """Options that stand alone."""
    if text.path in WRITTEN and text.path.name not in OPTIONS_OF_OTHERS:
        named = [code.split()[0].partition("=")[0] for code in text.inline if code.startswith("--")]
        yield from (option for option in named if option not in OPTIONS)


def settings(text: Text) -> Iterator[str]:
    """Settings and their sections."""
    if text.kind == "page":
        for code in text.inline:
            keys = (key for key in KEY.findall(code) if not is_name(key) and not _FILE.search(key))
            titles = (title for title in _SECTION.findall(code) if title.partition(".")[0] in _NAMES)
            yield from (key for key in (*keys, *titles) if not is_setting(key))
    if text.deployed:
        keys = (key for key in _KEY_ANYWHERE.findall(text.raw) if key.rpartition(".")[2] not in _FILE_OR_URL)
        yield from (key for key in keys if key not in own_keys())


def variables(text: Text) -> Iterator[str]:
    """Variables of the environment."""
    pattern = rf"\b{ENV_PREFIX}[A-Z][A-Z_]*[A-Z]\b" if text.deployed else rf"\b{ENV_PREFIX}\w+"
    for name in re.findall(pattern, text.raw if text.deployed else text.code):
        key = name.removeprefix(ENV_PREFIX).lower().replace("__", ".")
        known = name in NOT_SETTINGS | OTHER_VARIABLES | build_arguments() or name.endswith("_")
        if not known and key not in own_keys() and (text.deployed or not is_setting(key)):
            yield name


def targets(text: Text) -> Iterator[str]:
    """Targets of make."""
    there = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    said = [*(words for code in text.inline for words in split(code)), *text.shell()]
    named = [words[1] for words in said if words[:1] == ["make"] and len(words) > 1 and "-C" not in words]
    yield from (target for target in named if target not in there)


def paths(text: Text) -> Iterator[str]:
    """Paths in the repository."""
    named = [code for code in text.inline if _PATH.fullmatch(code)] if text.kind == "page" else []
    named += _PATH_ANYWHERE.findall(text.raw) if text.deployed else []
    yield from (path for path in named if path not in MADE_BY_USERS and not (ROOT / path).exists())


def targets_of_links(text: Text) -> Iterator[str]:
    """Pages and anchors that links lead to."""
    for path, anchor in links(text.path):
        target = (text.path.parent / path).resolve() if path else text.path
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            yield f"{path}#{anchor}" if anchor else path


def names(text: Text) -> Iterator[str]:
    """Modules, classes and settings in backticks."""
    yield from (name for name in DOTTED.findall(text.raw) if not is_name(name) and not is_key_of_code(name))


# A rule, and the kinds of texts that it is for.
RULES: Final[Mapping[str, tuple[Callable[[Text], Iterator[str]], frozenset[str]]]] = {
    "commands": (commands, frozenset({"page", "deploy"})),
    "options": (options, frozenset({"page"})),
    "settings": (settings, frozenset({"page", "deploy"})),
    "variables": (variables, frozenset({"page", "deploy"})),
    "targets of make": (targets, frozenset({"page"})),
    "paths": (paths, frozenset({"page", "deploy"})),
    "links": (targets_of_links, frozenset({"page", "made"})),
    "names": (names, frozenset({"code"})),
}


def strays(rule: str) -> list[str]:
    """What breaks a rule, over all texts: each with where it stands."""
    find, kinds = RULES[rule]
    return sorted({f"{text}: {stray}" for text in texts() if text.kind in kinds for stray in find(text)})
