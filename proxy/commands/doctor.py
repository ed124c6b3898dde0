"""`hone doctor`: check everything that Hone needs, and print what to do about each fault.

Owns: reading arguments and printing. Refuses: the checks (`proxy.doctor.checkup`), and repairing anything.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import click

from proxy.commands.context import ensure_context, override_engine, take_only_model
from recorder.base.errors import FAILED
from recorder.base.terminal import echo, write_json

if TYPE_CHECKING:
    from recorder.base.findings import Finding

_COLOURS: Final = {"fine": "green", "note": "yellow", "wrong": "red", "skipped": "bright_black"}


@click.command()
@click.option("--engine", "engines", multiple=True, metavar="URL", help="A running engine to use. Repeatable.")
@click.option("--model", "models", multiple=True, metavar="NAME", help="A model of the engine to serve. Repeatable.")
@click.option("--offline", is_flag=True, help="Send nothing to the judge's models and the MCP servers.")
@click.pass_context
def doctor(click_context: click.Context, engines: tuple[str, ...], models: tuple[str, ...], offline: bool) -> None:
    """Check everything that Hone needs, and show what to do. The exit status is 1 if something is wrong."""
    from dataclasses import replace

    from proxy.doctor.checkup import check_all
    from proxy.doctor.machine import ALIASES
    from proxy.errors import ConfigError
    from proxy.programs.run_file import read_run_file
    from proxy.settings.display import as_environment
    from recorder.base.findings import has_errors

    context = ensure_context(click_context)
    override_engine(context, engines, models)
    unnamed = None  # why the engines' only model cannot be taken
    try:
        take_only_model(context)
    except ConfigError as e:
        if not context.settings().engine.urls:  # the settings themselves are wrong
            raise
        unnamed = str(e)
    loaded = context.loaded()
    settings = loaded.settings
    run = read_run_file(settings.data)
    findings = asyncio.run(check_all(settings, run, loaded.file, as_environment(context.overrides), offline=offline))
    findings = [
        replace(one, found=unnamed, todo="") if unnamed and one.check == ALIASES and one.stops else one
        for one in findings
    ]
    if context.json:
        write_json(findings)
    else:
        for one in findings:
            print_finding(one)
    click_context.exit(FAILED if has_errors(findings) else 0)


def print_finding(one: Finding) -> None:
    """Print one finding, and below it what to do."""

    echo((f"{one.verdict:<7}", _COLOURS[one.verdict]), f" {one.check:<16} {one.found}")
    if one.todo:
        echo(f"{'':<24} {one.todo}")
