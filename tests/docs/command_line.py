"""A `hone …` as it stands on a page, held to the command line: which command it is, whether its options exist.

Owns: finding the command, and its options. Refuses: running it.
"""

from __future__ import annotations

from collections.abc import Sequence

import click

from proxy.cli import cli
from scripts.pages.commands import every

COMMANDS = {context.command_path.removeprefix("hone "): context.command for context in every()}
GROUPS = {name.partition(" ")[0] for name in COMMANDS if " " in name}
OPTIONS = {option for command in COMMANDS.values() for parameter in command.params for option in parameter.opts}
_TOP = {"--help", "--version", "-h"}


def named(words: Sequence[str]) -> tuple[str, list[str]]:
    """The command that words behind `hone` name, and what follows its name; "" where they name none."""
    for length in (2, 1):
        name = " ".join(words[:length])
        if name in COMMANDS:
            return name, list(words[length:])
    return "", list(words)


def wrong(words: Sequence[str]) -> str | None:
    """What of `hone WORDS` does not exist; None: nothing."""
    name, rest = named(words)
    if not name:
        is_group = bool(rest) and rest[0] in GROUPS and len(rest) == 1
        return None if not rest or rest[0] in _TOP or rest[0] == "COMMAND" or is_group else f"no command {rest[0]!r}"
    known = {option for parameter in COMMANDS[name].params for option in parameter.opts} | {"--help"}
    flags = [word.partition("=")[0] for word in rest if word.startswith("--")]
    return next((f"`hone {name}` has no {flag}" for flag in flags if flag not in known), None)


def is_named_alone(words: Sequence[str]) -> bool:
    """Whether nothing follows a command's name: a text speaks of it, and shows no use."""
    name, rest = named(words)
    return bool(name) and not rest


def without_files(words: Sequence[str]) -> list[str]:
    """The same with standard input in place of a file that the command would open."""
    return ["-" if before == "--secret-file" else word for before, word in zip(["", *words], words, strict=False)]


def refused(words: Sequence[str]) -> str | None:
    """What the command line says against `hone WORDS`, as it reads a whole command; None: it takes them."""
    name, rest = named(words)
    if not name:
        return wrong(words)
    try:
        COMMANDS[name].make_context(name, rest, parent=click.Context(cli, info_name="hone"))
    except click.exceptions.Exit:
        return None
    except click.UsageError as e:
        return f"hone {name}: {e.format_message()}"
    return None
