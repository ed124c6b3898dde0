"""`hone logs`: where the log of each program is.

Refuses: showing their text, and decisions about training, which `hone ledger` shows.
"""

from __future__ import annotations

import click

from proxy.commands.context import ensure_context
from recorder.base.terminal import echo, write_json

FOLDER = "logs"  # in the data folder, where `proxy.supervision` writes them
LEDGER = "Why things were excluded, and who decided what: `hone ledger`."


@click.command()
@click.pass_context
def logs(click_context: click.Context) -> None:
    """Show where the log of each program is.

    `hone up` and a proxy with several workers write these files. A program that runs on its own (`hone serve`,
    `hone judge` …) logs to its terminal.
    """
    context = ensure_context(click_context)
    folder = (context.settings().data / FOLDER).absolute()
    files = sorted(folder.glob("*.log"))
    if context.json:
        write_json([{"program": file.stem, "path": str(file), "bytes": file.stat().st_size} for file in files])
        return
    for file in files:
        echo(f"{file.stem:<10} {file}")
    if not files:
        echo(f"There are no logs in {folder}: `hone up` writes them there. Other programs log to their terminal.")
    echo(LEDGER)
