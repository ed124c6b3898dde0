"""`hone scenarios generate`.

Owns: its flags, and where what comes of it is written. Refuses: writing scenarios (`trainer.programs.generating`).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from recorder.base.errors import FAILED, INTERRUPTED
from recorder.base.json_output import write_json
from recorder.base.terminal import echo
from recorder.commands.context import Context
from trainer.commands.support import path_option, run

if TYPE_CHECKING:
    from trainer.generating.generate import Generated, Wanted
    from trainer.generating.keeping import Growing
    from trainer.programs.generating import Order, Outcome


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
@path_option("--out", "JSONL file to write, or to go on with [they are printed].")
@click.pass_obj
def generate(context: Context, /, out: Path | None, **order: Any) -> None:
    """Have a model write scenarios, from an MCP server's tools or a description.

    They are of stated difficulties: one tool, several steps, an error to be handled, nothing to be done. No tool is
    called. Ones that are nearly the same, or name tools that are not offered, are dropped and counted. Exits with 1
    where there are fewer in the end than were asked for.

    Each is written as soon as it is checked. After an interruption (exit status 130), or where there were too few, the
    same command goes on with its file; so does one with a larger -n.
    """
    from trainer.generating.keeping import Growing
    from trainer.programs.generating import Order

    asked = Order(**order)
    if asked.mcp is None and not (asked.task or "").strip():
        raise click.UsageError("say what the scenarios are for: --mcp URL, --task TEXT, or both.")
    file = None if out is None else Growing(out)  # before a model is paid for them
    try:
        made = run(_generate(context, asked, file))
    finally:
        if file is not None:
            file.close()
    _show_generated(made, out, as_json=context.json)
    sys.exit(INTERRUPTED if made.stopped else FAILED if made.found.missing else 0)


async def _generate(context: Context, asked: Order, file: Growing | None) -> Outcome:
    """Make them; each is kept, or printed, before it is counted."""
    from trainer.generating import telling
    from trainer.programs.generating import generated
    from trainer.tasks.scenarios import line

    begun = [] if file is None else file.begun
    kept = len(begun)

    def tell(found: Generated, wanted: Wanted) -> None:
        nonlocal kept
        new, kept = found.scenarios[kept:], len(found.scenarios)
        if file is not None:
            file.add(new)
        elif not context.json:
            for scenario in new:
                echo(line(scenario))
        _tell(telling.so_far(found, wanted))

    if begun:
        _tell(f"going on with the {len(begun)} scenarios that are there")
    return await generated(asked, context.settings(), begun, tell)


def _tell(text: str) -> None:
    """A line beside the output: what comes from a model or a server is nothing that a terminal obeys."""

    echo(text, err=True)


def _show_generated(made: Outcome, out: Path | None, *, as_json: bool) -> None:
    from trainer.generating import telling

    written = out if made.found.scenarios else None
    if as_json:
        told = telling.as_json(made.found, made.wanted, made.spent, written, stopped=made.stopped)
        write_json(told)
        return
    for text in telling.summary(made.found, made.wanted, made.spent):
        _tell(text)
    if made.stopped:
        _tell(telling.stopped(made.found, made.wanted, out))
    elif written is not None:
        _tell(f"Wrote {out}: look through it, then hone train --scenarios {out} --agent …")
