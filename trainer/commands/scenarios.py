"""`hone scenarios`, and its `check`.

Owns: their flags, and how the parts of a list print. Refuses: reading them (`trainer.tasks`); its other commands have
files of their own.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from pydantic import ValidationError

from recorder.base.json_output import write_json
from recorder.base.terminal import echo, show_table
from recorder.commands.context import Context
from trainer.campaign_settings import CampaignSettings
from trainer.commands.from_traffic import from_traffic
from trainer.commands.generate import generate
from trainer.commands.support import shares


@click.group(invoke_without_command=True)
@click.pass_context
def scenarios(click_context: click.Context) -> None:
    """Lists of scenarios for `hone train`. Without a subcommand: what the settings' own lists hold."""
    if click_context.invoked_subcommand is None:
        context: Context = click_context.obj
        _show_parts(context, context.settings().campaign)


@scenarios.command("check")
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.option("--split", metavar="SHARES", callback=shares, help="Shares of the file, as 0.8,0.1,0.1 [campaign.split].")
@click.option("--seed", type=int, help="Of the split [campaign.seed].")
@click.pass_obj
def check_scenarios(context: Context, /, file: Path | None, **flags: Any) -> None:
    """Read a list of scenarios, or those of the settings, and say what is in each part.

    What is not usable, a part that is empty and a scenario in two parts are told with their lines: exit status 2.
    """
    settings = context.settings().campaign
    given = {name: value for name, value in flags.items() if value is not None}
    if file is not None:  # the settings' other files are no parts of this one
        given |= {"scenarios": file, "val_scenarios": None, "test_scenarios": None}
    try:
        _show_parts(context, CampaignSettings.model_validate(settings.model_dump() | given))
    except ValidationError as e:
        raise click.UsageError("; ".join(one["msg"].removeprefix("Value error, ") for one in e.errors())) from e


def _show_parts(context: Context, settings: CampaignSettings) -> None:
    from trainer.tasks import parts

    if settings.scenarios is None:
        raise click.UsageError("no scenarios: name a file (`hone scenarios check FILE`), or set campaign.scenarios.")
    found = parts.read(settings, settings.scenarios)
    counted, repeated = parts.counted(found), parts.repeated(found)
    if context.json:
        shown = {"parts": [asdict(part) for part in counted], "alike": [asdict(one) for one in repeated]}
        write_json({"split": settings.split, "seed": settings.seed, **shown})
        return
    rows = [(part.name, part.scenarios, part.adversarial, part.references, part.rubrics) for part in counted]
    headings = ("part", "scenarios", "adversarial", "with a reference", "with a rubric")
    show_table(headings, rows, right=headings[1:])
    for one in repeated:
        echo(f"Alike in {one.part}: {', '.join(one.ids)} ({'; '.join(one.places)}).")


scenarios.add_command(from_traffic)
scenarios.add_command(generate)
