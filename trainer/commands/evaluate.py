"""`hone eval`.

Owns: its flags, and where output goes: the comparison to standard output, progress to standard error. Refuses: the
evaluation (`trainer.evaluation`).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from recorder.base.terminal import write_json
from recorder.commands.context import Context
from trainer.commands.support import log_to_terminal, path_option, run, tell_ignored_columns, wanted_services

if TYPE_CHECKING:
    from trainer.evaluation.runner import EvaluationResult


@click.command("eval")
@click.option(
    "--versions", "names", required=True, metavar="NAMES",
    help="Versions, separated by commas: live, base, NAME@N, models of [[proxy.models]]. The others are compared "
    "with the first.",
)  # fmt: skip
@click.option(
    "--scenarios", "file", required=True, type=click.Path(path_type=Path),
    help="JSONL file of the scenarios to attempt.",
)  # fmt: skip
@click.option(
    "--attempts", default=1, show_default=True, type=click.IntRange(min=1),
    help="Attempts of each version at each scenario, in one group.",
)  # fmt: skip
@click.option(
    "--seeds", default=1, show_default=True, type=click.IntRange(1, 1000),
    help="How often all attempts are repeated, each time in new groups.",
)  # fmt: skip
@click.option("--alias", metavar="NAME", help="The alias whose versions these are [the only one].")
@click.option("--agent", metavar="MODULE:FUNCTION|COMMAND", help="What attempts a scenario [campaign.agent].")
@click.option(
    "--success", metavar="MODULE:FUNCTION|PART",
    help="What counts as success [campaign.success; none: rewards or wins are compared].",
)  # fmt: skip
@path_option("--python", "The Python that runs the agent [Hone's].")
@path_option("--cwd", "The folder the agent runs in [this one].")
@click.option("--judge-recipe", metavar="NAME", help="The judge recipe of its trajectories [the alias's].")
@click.option("--concurrency", type=int, help="Most attempts at one time [64].")
@click.option("--proxy", "proxy_url", metavar="URL", help="A running proxy to use; none is started.")
@click.option("--new", "fresh", is_flag=True, help="Begin a new evaluation, even if the same one is unfinished.")
@click.option("--picture", type=click.Path(path_type=Path), help="SVG file for a chart of the versions.")
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
    """Compare versions on a file of scenarios: each version attempts each scenario, and nothing is trained on.

    The output has each version's success, wins or reward, and the differences from the first version, each with a 95 %
    bootstrap interval over scenarios; and the usage of the attempts. If RULER is the only reward, the attempts of all
    versions at a scenario are judged in one blind group, and the output has wins. If a function decides success, no
    judge is asked.

    The command uses the proxy, engine and judge that run for the data folder; it starts what is missing and stops it at
    the end. The output is the whole comparison or nothing: repeat the command to resume one that was stopped or killed.
    """
    from recorder.commands.context import draw_into, require_folder
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
    from trainer.evaluation.runner import evaluation_measures, run_evaluation
    from trainer.progress import choose_progress

    settings = context.settings()
    given = settings.campaign
    try:
        asked = plan_evaluation(
            given, names, file, attempts=attempts, seeds=seeds, fresh=fresh, providers=settings.providers()
        )
        evaluation_measures(asked, settings)
    except CampaignError as e:  # nothing runs yet: a setting is wrong
        raise click.UsageError(str(e)) from e
    with choose_progress(as_json=False, out=sys.stderr) as shown:
        tell_ignored_columns(asked.tasks, shown)
        return await run_evaluation(asked, settings, wanted_services(context, settings, proxy_url), shown)
