"""`hone scenarios`: `check` a list, make one `from-traffic`, `generate` one.

Owns: the flags, and the output of parts, tasks and progress. Refuses: reading lists and tasks (`trainer.tasks`),
generating scenarios (`trainer.scenario_generation.program`), replaying (`trainer.agents.replay`).
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from pydantic import ValidationError

from recorder.base.errors import FAILED, INTERRUPTED
from recorder.base.terminal import confirm, echo, show_table, write_json
from recorder.commands.context import Context
from trainer.campaign_settings import CampaignSettings
from trainer.commands.support import parse_shares, path_option, run

if TYPE_CHECKING:
    from proxy.settings.hone import HoneSettings
    from recorder.messages.redaction import Redactor
    from trainer.scenario_generation.generation import GenerationRequest, GenerationResult
    from trainer.scenario_generation.output_file import ScenarioWriter
    from trainer.scenario_generation.program import GenerationOrder, GenerationOutcome
    from trainer.tasks.traffic import Opening, TrafficTasks


@click.command()
@click.option(
    "--mcp", metavar="URL|NAME", help="An MCP server whose tools the scenarios need: its URL, or its name in [mcp]."
)
@click.option("--task", metavar="TEXT", help="What the agent is for, in words; with --mcp or alone.")
@click.option("-n", "number", required=True, type=click.IntRange(1, 2000), help="How many scenarios.")
@click.option("--model", metavar="MODEL", help="LiteLLM name of the model that writes them [judge.model].")
@click.option(
    "--adversarial",
    default=0.0,
    type=click.FloatRange(0, 1),
    metavar="SHARE",
    help="Share of adversarial scenarios, which tempt to cheat and are marked so [none].",
)
@click.option("--allow-writes", is_flag=True, help="Include tools that are not marked read-only.")
@click.option(
    "--seed", default=0, show_default=True, help="Random seed of the tools in each request, if there are many."
)
@click.option(
    "--max-usd",
    type=click.FloatRange(0, min_open=True),
    metavar="USD",
    help="Stop asking the model once this is spent.",
)
@path_option("--out", "JSONL file to write or to continue [scenarios are printed].")
@click.pass_obj
def generate(context: Context, /, out: Path | None, **order: Any) -> None:
    """Let a model write scenarios, from an MCP server's tools or from a description.

    They have stated difficulties: one tool, several steps, an error to handle, nothing to do. No tool is called.
    Near-duplicates, and scenarios that name tools which are not offered, are dropped and counted. The exit status is 1
    if there are fewer at the end than requested.

    Each scenario is written as soon as it is checked. After an interruption (exit status 130), or if there are too few,
    the same command continues its file; so does one with a larger -n.
    """
    from trainer.scenario_generation.output_file import ScenarioWriter
    from trainer.scenario_generation.program import GenerationOrder

    asked = GenerationOrder(**order)
    if asked.mcp is None and not (asked.task or "").strip():
        raise click.UsageError("name what the scenarios are for: --mcp URL, --task TEXT, or both.")
    file = None if out is None else ScenarioWriter(out)  # raises before a model is asked
    try:
        made = run(_generate(context, asked, file))
    finally:
        if file is not None:
            file.close()
    _show_generated(made, out, as_json=context.json)
    sys.exit(INTERRUPTED if made.stopped else FAILED if made.found.missing else 0)


async def _generate(context: Context, asked: GenerationOrder, file: ScenarioWriter | None) -> GenerationOutcome:
    """Generate the scenarios; each is written, or printed, before it is counted."""
    from trainer.scenario_generation import program
    from trainer.scenario_generation.program import generate_order
    from trainer.tasks.scenarios import scenario_line

    begun = [] if file is None else file.begun
    kept = len(begun)

    def tell(found: GenerationResult, wanted: GenerationRequest) -> None:
        nonlocal kept
        new, kept = found.scenarios[kept:], len(found.scenarios)
        if file is not None:
            file.add(new)
        elif not context.json:
            for scenario in new:
                echo(scenario_line(scenario))
        _tell(program.progress_line(found, wanted))

    if begun:
        _tell(f"continuing with the {len(begun)} existing scenarios")
    return await generate_order(asked, context.settings(), begun, tell)


def _tell(text: str) -> None:
    """Print a line to standard error."""
    echo(text, err=True)


def _show_generated(made: GenerationOutcome, out: Path | None, *, as_json: bool) -> None:
    from trainer.scenario_generation import program

    written = out if made.found.scenarios else None
    if as_json:
        write_json(program.generation_json(made.found, made.wanted, made.spent, written, stopped=made.stopped))
        return
    for text in program.generation_summary(made.found, made.wanted, made.spent):
        _tell(text)
    if made.stopped:
        _tell(program.stopped_text(made.found, made.wanted, out))
    elif written is not None:
        _tell(f"Wrote {out}: review it, then run hone train --scenarios {out} --agent …")


@click.command("from-traffic")
@click.option("--alias", metavar="NAME", help="The alias whose traffic is read.")
@click.option(
    "--dataset", metavar="NAME", help="The dataset whose trajectories are read, of all aliases or of --alias."
)
@click.option(
    "--where", "conditions", multiple=True, metavar="CONDITION",
    help="Only trajectories with: reward<0.5, calls>=3, version=NAME@2, tag.team=billing. Repeatable: all must hold.",
)  # fmt: skip
@click.option(
    "--replay", is_flag=True, help="Include the trajectory's tools and their results, for `hone train --replay`."
)
@click.option(
    "--trajectories",
    default=2000,
    show_default=True,
    type=click.IntRange(1),
    help="How many of the newest trajectories are read.",
)
@path_option("--out", "JSONL file to write [tasks are only shown].")
@click.option("--yes", is_flag=True, help="Write without asking.")
@click.pass_obj
def from_traffic(
    context: Context,
    alias: str | None,
    dataset: str | None,
    conditions: tuple[str, ...],
    replay: bool,
    trajectories: int,
    out: Path | None,
    yes: bool,
) -> None:
    """Show agents' first messages as scenarios, and write them to a file for `hone train`.

    Your agent attempts them. With --replay Hone does, and tool calls are answered from the record, or not at all.
    Near-duplicate tasks are merged. Text that `recorder.redact` matches is masked, as in the record. With --json the
    file is written only with --yes.
    """
    from recorder.messages.redaction import Redactor
    from trainer.tasks import scenarios as files
    from trainer.tasks import traffic

    if alias is None and dataset is None:
        raise click.UsageError("name whose first messages become scenarios: --alias NAME, --dataset NAME, or both.")
    settings = context.settings()
    redaction = Redactor(settings.recorder.redact)
    opening = traffic.opening_key if replay else traffic.opening_text
    tasks = asyncio.run(_tasks(settings, alias, dataset, conditions, redaction, opening, trajectories))
    found = traffic.replay_scenarios(tasks.found, redaction) if replay else traffic.task_scenarios(tasks.found)
    if not context.json:
        _show_tasks(tasks)
        yes = yes or (out is not None and confirm(f"Write {len(found)} scenarios to {out}?"))
    written = out if yes else None
    if written is not None:
        files.write_scenarios(written, found)
    if context.json:
        write_json(_tasks_as_json(tasks, written))
    elif written is not None:
        who = "--replay" if replay else "--agent …"
        echo(f"Wrote {written}: hone train --scenarios {written} --alias {alias or 'NAME'} {who}")
    elif out is None:
        echo("Nothing was written: name a file with --out.")


async def _tasks(
    settings: HoneSettings,
    alias: str | None,
    dataset: str | None,
    conditions: Sequence[str],
    redaction: Redactor,
    opening: Opening,
    runs: int,
) -> TrafficTasks:
    from recorder.curation.datasets import get_dataset
    from recorder.registry.aliases import get_alias
    from recorder.store.bootstrap import open_store
    from recorder.store.database import Project
    from trainer.tasks import traffic
    from trainer.tasks.conditions import parse_condition

    asked = [parse_condition(text) for text in conditions]
    store = await open_store(settings.data, settings.recorder, migrate=False, project=settings.project)
    try:
        project = Project(store, settings.project)
        if alias is not None:
            await get_alias(project, alias)  # raises NotFound, with the known names
        if dataset is not None:
            await get_dataset(project, dataset)
        return await traffic.traffic_tasks(
            project, alias, asked, redaction, runs=runs, opening=opening, dataset=dataset
        )
    finally:
        await store.close()


def _show_tasks(tasks: TrafficTasks) -> None:
    rows = [(task.run.id, task.runs, task.text) for task in tasks.found]
    show_table(("scenario", "trajectories", "task"), rows, right=("trajectories",))
    counted = [f"{tasks.looked_at} trajectories gave {len(tasks.found)} tasks"]
    counted += [f"{count} trajectories {why}" for why, count in sorted(tasks.passed_over.items())]
    echo("; ".join(counted) + ".")


def _tasks_as_json(tasks: TrafficTasks, written: Path | None) -> dict[str, Any]:
    return {
        "scenarios": [{"id": task.run.id, "input": task.text, "trajectories": task.runs} for task in tasks.found],
        "trajectories": tasks.looked_at,
        "passed_over": {str(why): count for why, count in tasks.passed_over.items()},
        "written": str(written) if written is not None else None,
    }


@click.group(invoke_without_command=True)
@click.pass_context
def scenarios(click_context: click.Context) -> None:
    """Lists of scenarios for `hone train`. Without a subcommand: show the lists of the settings."""
    if click_context.invoked_subcommand is None:
        context: Context = click_context.obj
        _show_parts(context, context.settings().campaign)


@scenarios.command("check")
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.option(
    "--split", metavar="SHARES", callback=parse_shares, help="Shares of the file, as 0.8,0.1,0.1 [campaign.split]."
)
@click.option("--seed", type=int, help="Random seed of the split [campaign.seed].")
@click.pass_obj
def check_scenarios(context: Context, /, file: Path | None, **flags: Any) -> None:
    """Read a list of scenarios, or those of the settings, and show what each part contains.

    Unusable lines, an empty part and a scenario in two parts are reported with their lines: exit status 2. Columns of a
    table that look like criteria and are not read are named.
    """
    settings = context.settings().campaign
    given = {name: value for name, value in flags.items() if value is not None}
    if file is not None:  # the settings' other files do not belong to this one
        given |= {"scenarios": file, "val_scenarios": None, "test_scenarios": None}
    try:
        _show_parts(context, CampaignSettings.model_validate(settings.model_dump() | given))
    except ValidationError as e:
        raise click.UsageError("; ".join(one["msg"].removeprefix("Value error, ") for one in e.errors())) from e


def _show_parts(context: Context, settings: CampaignSettings) -> None:
    from trainer.tasks import selection
    from trainer.tasks.scenarios import ignored_columns

    if settings.scenarios is None:
        raise click.UsageError("no scenarios: name a file (`hone scenarios check FILE`), or set campaign.scenarios.")
    found = selection.read_parts(settings, settings.scenarios)
    counted, repeated = selection.count_parts(found), selection.find_duplicates(found)
    ignored = ignored_columns(chain(*found.values()))
    if context.json:
        shown = {
            "parts": [asdict(part) for part in counted],
            "alike": [asdict(one) for one in repeated],
            "ignored_columns": [asdict(one) for one in ignored],
        }
        write_json({"split": settings.split, "seed": settings.seed, **shown})
        return
    rows = [(part.name, part.scenarios, part.adversarial, part.references, part.rubrics) for part in counted]
    headings = ("part", "scenarios", "adversarial", "with a reference", "with a rubric")
    show_table(headings, rows, right=headings[1:])
    for one in repeated:
        echo(f"Alike in {one.part}: {', '.join(one.ids)} ({'; '.join(one.places)}).")
    for column in ignored:
        echo(f"Ignored: {column}.")


scenarios.add_command(from_traffic)
scenarios.add_command(generate)
