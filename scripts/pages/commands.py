"""docs/commands.md: every command of `hone` with its arguments and options, from the command line itself.

Owns: the page's form. Refuses: what commands do, which is in their help.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from inspect import cleandoc
from pathlib import Path
from textwrap import indent
from typing import Final

import click

from proxy.cli import cli
from proxy.commands.context import with_shared_options
from scripts.pages.table import code, table

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "commands.md"
_HEAD = """\
# Commands

**For:** people who use the command line. **You will have:** every command, its arguments and its options.

`hone COMMAND --help` prints the same. Exit status 0: success; 1: failure, with one line that gives the reason; 2: a
wrong setting or argument.

(Made from the command line by `python -m scripts.pages --write`.)
"""


def every() -> Iterator[click.Context]:
    """Yield a context for each command that does something, in the table's order."""
    yield from _below(cli, click.Context(cli, info_name="hone"))


def _below(group: click.Group, context: click.Context) -> Iterator[click.Context]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        inner = click.Context(command, info_name=name, parent=context)
        if not isinstance(command, click.Group) or command.invoke_without_command:
            yield inner
        if isinstance(command, click.Group):
            yield from _below(command, inner)


def page() -> str:
    """Return the whole page."""
    return "\n".join([_HEAD, "## Options of every command\n", _options(_shared()), *map(_chapter, every())])


def _chapter(context: click.Context) -> str:
    pieces = " ".join(context.command.collect_usage_pieces(context)[1:])
    known = {option.name for option in _shared()}
    options = [p for p in context.command.params if isinstance(p, click.Option) and not p.hidden]
    own = [option for option in options if option.name not in known]
    parts = [f"## {context.command_path}\n", f"    {context.command_path} [OPTIONS] {pieces}".rstrip() + "\n"]
    return "\n".join([*parts, _prose(context.command.help or ""), _options(own) if own else ""])


def _shared() -> list[click.Option]:
    bare = with_shared_options(click.Command("any"))
    return [parameter for parameter in bare.params if isinstance(parameter, click.Option)]


def _options(options: list[click.Option]) -> str:
    return table(["option", "what it does"], map(_option, options))


def _option(option: click.Option) -> list[str]:
    names, text = option.get_help_record(click.Context(click.Command("any"))) or ("", "")
    return [code(names), _escaped(text)]


def _prose(text: str) -> str:
    """Return help text as Markdown; a paragraph that click must not wrap (`\\b`) as a block of code."""
    paragraphs = cleandoc(text).replace("\f", "").split("\n\n")
    return "\n\n".join(map(_paragraph, paragraphs)) + "\n"


def _paragraph(text: str) -> str:
    return indent(text[1:].strip("\n"), "    ") if text.startswith("\b") else _escaped(text)


def _escaped(text: str) -> str:
    """Return help text with brackets, stars and underscores escaped outside of code."""
    pieces = text.split("`")
    return "`".join(piece if at % 2 else re.sub(r"([\[\]*_<>])", r"\\\1", piece) for at, piece in enumerate(pieces))
