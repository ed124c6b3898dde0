"""`hone train`.

Owns: its flags and exit codes. Refuses: the campaign (`trainer.programs.train`).
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from recorder.base.errors import PAUSED
from recorder.commands.context import Context
from trainer.commands.estimate import estimate
from trainer.commands.requiring import require_judge_model, require_own_choices, require_recipe
from trainer.commands.support import log, path_option, run, shares, wanted_services

if TYPE_CHECKING:
    from recorder.learned.campaign_events import CampaignEnded


def _listed(_context: click.Context, _option: click.Parameter, names: tuple[str, ...]) -> list[str] | None:
    return list(names) or None  # none given: what the settings say


@click.command()
@path_option("--scenarios", "JSONL file of scenarios to learn from.")
@path_option("--val-scenarios", "JSONL file of scenarios to measure with; never trained on.")
@path_option("--test-scenarios", "JSONL file of scenarios for the end, attempted once; never trained on.")
@click.option(
    "--split", metavar="SHARES", callback=shares,
    help="In the place of these two files: shares of --scenarios, as 0.8,0.1,0.1 (the last: for the end).",
)  # fmt: skip
@click.option("--preset", type=click.Choice(["rlvr"]), help="The defaults of a published recipe (docs/rlvr.md).")
@click.option("--agent", metavar="MODULE:FUNCTION|COMMAND", help="What attempts a scenario.")
@click.option(
    "--replay", is_flag=True, default=None, help="Attempt scenarios of `from-traffic --replay`; no agent runs."
)
@click.option(
    "--allow-writes", is_flag=True, default=None, help="Attempts may use MCP tools that are not marked read-only."
)
@click.option("--success", metavar="MODULE:FUNCTION|PART", help="What counts as success [the mean reward is shown].")
@path_option("--python", "The Python that runs the agent [Hone's].")
@path_option("--cwd", "The folder the agent runs in [this one].")
@click.option("--alias", metavar="NAME", help="The alias to train [the only one].")
@click.option("--reward-recipe", metavar="NAME", help="The recipe that its runs are judged by [the alias's].")
@click.option("--name", help="Name of the campaign [the scenario file's].")
@click.option("--steps", type=int, help="Most steps [20].")
@click.option("--scenarios-per-step", type=int, help="Scenarios in a step [8].")
@click.option("--group-size", type=int, help="Attempts at each scenario [8].")
@click.option("--concurrency", type=int, help="Most attempts at one time [64].")
@click.option("--attempt-timeout", "attempt_timeout_s", type=float, metavar="SECONDS", help="Longest attempt [300].")
@click.option("--on-agent-error", type=click.Choice(["exclude", "judge"]), help="Attempts that raise [exclude].")
@click.option("--target", type=float, help="Stop when the measure reaches this.")
@click.option("--plateau", "plateau_steps", type=int, metavar="STEPS", help="Stop after so many steps without a rise.")
@click.option("--epochs", type=int, help="Stop when every scenario was learnt from so often.")
@click.option("--max-minutes", type=float, metavar="MINUTES", help="Stop after so long, over all runs of the campaign.")
@click.option("--max-judge-usd", type=float, metavar="USD", help="Stop when judging has cost so much.")
@click.option("--max-judge-tokens", type=int, metavar="TOKENS", help="Stop when judging has taken so many.")
@click.option(
    "--baseline", "baselines", multiple=True, metavar="NAME", callback=_listed,
    help="`base` or a model of [[proxy.models]], measured beside it before the first step. Repeatable.",
)  # fmt: skip
@click.option("--serve", type=click.Choice(["best", "last"]), help="Which version serves at the end [best].")
@click.option("--val-every", type=int, metavar="STEPS", help="Steps between validations [before and after only].")
@click.option("--val-attempts", type=int, help="Attempts at each validation scenario [1].")
@click.option("--seed", type=int, help="Of the order of scenarios [0].")
@click.option("--proxy", "proxy_url", metavar="URL", help="A proxy that runs; nothing is started in its place.")
@click.option("--resume", metavar="CAMPAIGN", help="Go on with an unfinished campaign, as it was begun.")
@click.option("--new", "fresh", is_flag=True, help="Begin another campaign, even if one of this name is unfinished.")
@click.option("--estimate", "only_estimate", is_flag=True, help="Only say what it would take, and start nothing.")
@click.pass_obj
def train(
    context: Context, /, proxy_url: str | None, resume: str | None, fresh: bool, only_estimate: bool, **flags: Any
) -> None:
    """Train over a list of scenarios: attempt, judge, train, swap, and again.

    Uses the proxy, engine and judge that run for the data folder, or starts what is missing and stops it again. An
    unfinished campaign of the same name is gone on with.
    """
    for name, value in flags.items():
        context.override(f"campaign.{name}", value)
    if only_estimate:
        if resume is not None:
            raise click.UsageError("--estimate counts a campaign from its beginning: leave --resume out.")
        estimate(context)
        return
    log()
    if run(_train(context, proxy_url, resume, fresh=fresh)).reason == "paused":
        sys.exit(PAUSED)


async def _train(context: Context, proxy_url: str | None, resume: str | None, *, fresh: bool) -> CampaignEnded:
    from trainer.campaign import begin
    from trainer.programs.train import train as campaign
    from trainer.progress import progress

    settings = context.settings()
    preset = settings.campaign.preset
    require_own_choices(settings)
    if resume is None:
        plan = begin.plan(settings.campaign, fresh=fresh)
        require_judge_model(plan, settings)
    else:
        given = {
            key.removeprefix("campaign."): v for key, v in context.overrides.items() if key.startswith("campaign.")
        }
        plan = await begin.plan_again(settings.data, settings.recorder, settings.project, resume, given)
        require_recipe(plan.settings.reward_recipe, settings)
    env = {"HONE_CAMPAIGN__PRESET": preset} if preset else {}  # the judge's defaults are the recipe's too
    wanted = wanted_services(context, settings, proxy_url, env)
    with progress(as_json=context.json) as shown:
        return await campaign(plan, settings, wanted, shown)
