"""`hone scenarios generate`.

Owns: its flags, and where what comes of it is written. Refuses: writing scenarios (`trainer.programs.generating`).
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trainer.commands.support import Context, path_option

if TYPE_CHECKING:
    from trainer.programs.generating import Outcome


@click.command()
@click.option("--mcp", metavar="URL|NAME", help="An MCP server whose tools they need: its URL, or its name in [mcp].")
@click.option("--task", metavar="TEXT", help="What the agent is for, in words; beside --mcp, or alone.")
@click.option("-n", "number", required=True, type=click.IntRange(1, 2000), help="How many.")
@click.option("--model", metavar="MODEL", help="The model that writes them, by its LiteLLM name [judge.model].")
@click.option(
    "--adversarial",
    default=0.0,
    type=click.FloatRange(0, 1),
    metavar="SHARE",
    help="So many of them tempt to cheat, and say so [none].",
)
@click.option("--allow-writes", is_flag=True, help="Also for tools that are not marked read-only.")
@click.option("--seed", default=0, show_default=True, help="Of which tools a request shows, where there are many.")
@click.option(
    "--max-usd", type=click.FloatRange(0, min_open=True), metavar="USD", help="Ask no more once this is spent."
)
@path_option("--out", "JSONL file to write [they are printed].")
@click.pass_obj
def generate(context: Context, /, out: Path | None, **order: Any) -> None:
    """Have a model write scenarios, from an MCP server's tools or a description.

    They are of stated difficulties: one tool, several steps, an error to be handled, nothing to be done. No tool is
    called. Ones that are nearly the same, or name tools that are not offered, are dropped and counted. Exits with 1
    where there are fewer in the end than were asked for.
    """
    from trainer.generating import telling
    from trainer.programs.generating import Order, generated
    from trainer.tasks import scenarios as files

    asked = Order(**order)
    if asked.mcp is None and not (asked.task or "").strip():
        raise click.UsageError("say what the scenarios are for: --mcp URL, --task TEXT, or both.")
    if out is not None:
        files.require_new(out)  # before a model is paid for them
    made = asyncio.run(generated(asked, context.settings(), lambda found, wanted: _tell(telling.so_far(found, wanted))))
    if out is not None:
        files.write(out, made.found.scenarios)
    _show_generated(made, out, as_json=context.json)
    sys.exit(1 if made.found.missing else 0)


def _tell(text: str) -> None:
    """A line beside the output: what comes from a model or a server is nothing that a terminal obeys."""
    from recorder.commands.terminal import clean

    click.echo(clean(text), err=True)


def _show_generated(made: Outcome, out: Path | None, *, as_json: bool) -> None:
    from trainer.generating import telling
    from trainer.tasks.scenarios import line

    if as_json:
        click.echo(json.dumps(telling.as_json(made.found, made.wanted, made.spent, out), indent=2))
        return
    if out is None:
        for scenario in made.found.scenarios:
            click.echo(line(scenario))
    for text in telling.summary(made.found, made.wanted, made.spent):
        _tell(text)
    if out is not None:
        _tell(f"Wrote {out}: look through it, then hone train --scenarios {out} --agent …")
