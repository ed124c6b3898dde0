"""`hone eval`.

Owns: its flags, and where what it tells goes: the comparison to standard output, how far it is to standard error.
Refuses: the evaluation (`trainer.evaluation`).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from recorder.base.json_output import write_json
from recorder.commands.context import Context
from trainer.commands.support import log_to_terminal, path_option, run, wanted_services

if TYPE_CHECKING:
    from trainer.evaluation.runner import EvaluationResult


@click.command("eval")
@click.option(
    "--versions", "names", required=True, metavar="NAMES",
    help="Versions with commas between them: live, base, NAME@N, models of [[proxy.models]]. The first is held "
    "against.",
)  # fmt: skip
@click.option(
    "--scenarios", "file", required=True, type=click.Path(path_type=Path),
    help="JSONL file of the scenarios that each attempts.",
)  # fmt: skip
@click.option(
    "--attempts", default=1, show_default=True, type=click.IntRange(min=1),
    help="Attempts of each version at each scenario, in one group.",
)  # fmt: skip
@click.option(
    "--seeds", default=1, show_default=True, type=click.IntRange(1, 1000),
    help="How often that is repeated, each time in groups of its own.",
)  # fmt: skip
@click.option("--alias", metavar="NAME", help="The alias whose versions these are [the only one].")
@click.option("--agent", metavar="MODULE:FUNCTION|COMMAND", help="What attempts a scenario [campaign.agent].")
@click.option(
    "--success", metavar="MODULE:FUNCTION|PART",
    help="What counts as success [campaign.success; unset: rewards or wins are compared].",
)  # fmt: skip
@path_option("--python", "The Python that runs the agent [Hone's].")
@path_option("--cwd", "The folder the agent runs in [this one].")
@click.option("--judge-recipe", metavar="NAME", help="The recipe that its runs are judged by [the alias's].")
@click.option("--concurrency", type=int, help="Most attempts at one time [64].")
@click.option("--proxy", "proxy_url", metavar="URL", help="A proxy that runs; nothing is started in its place.")
@click.option("--new", "fresh", is_flag=True, help="Begin another, even if the same evaluation is unfinished.")
@click.option("--picture", type=click.Path(path_type=Path), help="SVG file to draw the versions into.")
@click.pass_obj
def evaluate(
    context: Context,
    /,
    names: str,
    file: Path,
    attempts: int,
    seeds: int,
    proxy_url: str | None,
    fresh: bool,
    picture: Path | None,
    **flags: Any,
) -> None:
    """Compare versions on a file of scenarios: every version attempts every one, and nothing is trained on.

    Told of each version are its success, its wins or its reward, and by how much they are above those of the first
    one named, each with its 95 % interval by bootstrap over scenarios; and what its attempts took. Where RULER is
    the only reward, the attempts of all versions at a scenario are judged in one blind group, and wins are told. Where
    a function tells success, no judge is asked.

    Uses the proxy, engine and judge that run for the data folder, or starts what is missing and stops it again. Told
    is the whole comparison or nothing: the same command goes on with one that was stopped or killed.
    """
    from recorder.commands.support import draw_into, require_folder
    from trainer.evaluation.display import evaluation_chart, evaluation_json, show_evaluation

    require_folder(picture)
    for name, value in flags.items():
        context.override(f"campaign.{name}", value)
    log_to_terminal()
    listed = [name for name in (one.strip() for one in names.split(",")) if name]
    found = run(_evaluate(context, listed, file, attempts, seeds, fresh=fresh, proxy_url=proxy_url))
    if context.json:
        write_json(evaluation_json(found))
    else:
        show_evaluation(found)
    if picture is not None:
        draw_into(evaluation_chart(found), picture)


async def _evaluate(
    context: Context, names: list[str], file: Path, attempts: int, seeds: int, *, fresh: bool, proxy_url: str | None
) -> EvaluationResult:
    from trainer.errors import CampaignError
    from trainer.evaluation.request import plan_evaluation
    from trainer.evaluation.runner import evaluation_measures
    from trainer.evaluation.runner import run_evaluation as program
    from trainer.progress import choose_progress

    settings = context.settings()
    given = settings.campaign
    try:
        asked = plan_evaluation(
            given, names, file, attempts=attempts, seeds=seeds, fresh=fresh, providers=settings.providers()
        )
        evaluation_measures(asked, settings)
    except CampaignError as e:  # nothing runs that could fail: something is set wrongly
        raise click.UsageError(str(e)) from e
    with choose_progress(as_json=False, out=sys.stderr) as shown:
        return await program(asked, settings, wanted_services(context, settings, proxy_url), shown)
