"""`hone train`, and `hone train --estimate`, which only counts.

Owns: the flags and exit codes, the output of an estimate, and rejecting settings with which a campaign cannot begin or
resume. Refuses: the campaign (`trainer.runtime.train`), counting (`trainer.runtime.estimate`), checking files
(`trainer.campaign`).
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import asdict
from itertools import chain
from typing import TYPE_CHECKING, Any

import click

from recorder.base.errors import PAUSED
from recorder.base.terminal import echo, format_number, show_table, write_json
from recorder.commands.context import Context
from trainer.commands.support import (
    log_to_terminal,
    parse_shares,
    path_option,
    processes_option,
    run,
    tell_ignored_columns,
    wanted_services,
    work_as_other_rank,
)

if TYPE_CHECKING:
    from proxy.settings.hone import HoneSettings
    from recorder.queue.campaign_requests import Wish
    from recorder.views.campaigns.events import CampaignEnded
    from trainer.campaign.estimate import CampaignCounts, CampaignEstimate, StrongJudgeEstimate
    from trainer.campaign.record import CampaignPlan


def require_own_choices(settings: HoneSettings) -> None:
    """Raise UsageError if a preset is used without a base model, which no preset chooses.

    It chooses no judge model either: whether one is needed depends on the scenarios (`require_judge_model`).
    """
    if settings.campaign.preset is not None and not settings.engine.base:
        raise click.UsageError(
            f"the preset {settings.campaign.preset!r} chooses no base model: set engine.base to the model that learns."
        )


def require_judge_model(plan: CampaignPlan, settings: HoneSettings) -> None:
    """Raise UsageError if RULER, or a criterion without a `check`, has no judge model to decide it."""
    from recorder.llm.rubric import parse_criteria

    judge, declared = settings.judge, list(settings.declared_aliases())
    alias = plan.settings.alias or (declared[0] if len(declared) == 1 else None)
    recipe = judge.by_recipe(judge.recipe_of(alias, plan.settings.judge_recipe))
    kinds = {reward.kind for reward in recipe.in_force()}
    if "ruler" in kinds and not recipe.members:
        raise click.UsageError(
            "the reward of kind ruler needs a judge model, and none is set: set judge.model, or name a [[judge.panel]]."
        )
    if recipe.model or "rubric" not in kinds:
        return
    for scenario in (one for part in plan.parts.values() for one in part):
        listed = parse_criteria(scenario.rubric) if isinstance(scenario.rubric, list) else []
        if named := next((one.id for one in listed if one.check is None), None):
            raise click.UsageError(
                f"criterion {named!r} of the scenario {scenario.id!r} needs a judge model for the reward of kind "
                "rubric, and none is set: set judge.model, or give each criterion a `check`."
            )


def require_recipe(begun_with: str | None, settings: HoneSettings) -> None:
    """Raise UsageError if the judge recipe that a campaign began with no longer exists."""
    known = settings.judge.known_recipes()
    if begun_with is not None and begun_with not in known:
        raise click.UsageError(
            f"the campaign began with the judge recipe {begun_with!r} (campaign.judge_recipe), which "
            f"[judge.recipes] no longer has (known: {', '.join(known)}): add it again, or begin another campaign."
        )


def estimate(context: Context) -> None:
    """Estimate the campaign of the settings, and print the estimate."""
    from trainer.campaign import record
    from trainer.errors import CampaignError
    from trainer.runtime.estimate import estimate_campaign

    settings = context.settings()
    require_own_choices(settings)
    try:
        found = asyncio.run(estimate_campaign(record.plan_campaign(settings.campaign), settings))
    except CampaignError as e:  # nothing runs yet: a setting is wrong
        raise click.UsageError(str(e)) from e
    if context.json:
        write_json(asdict(found))
    else:
        _show_estimate(found)


def _show_estimate(found: CampaignEstimate) -> None:
    counts = found.counts
    measured = f"{counts.validations} validations" + (f", {counts.baselines} baselines" if counts.baselines else "")
    of = f"{counts.training:,} to train on, {counts.validation:,} to measure ({measured})"
    of += f", {counts.test:,} at the end" if counts.test else ""
    by = f"{_by_kind(counts)}, by the judge recipe {found.recipe!r}"
    rows = [
        ("steps", f"{found.steps:,}", "at most"),
        ("attempts", f"{counts.attempts:,}", of),
        ("tokens sent by the agent", _known(found.agent.sent), found.agent.basis),
        ("tokens sampled", _known(found.agent.answered), ""),
        ("judge requests", f"{counts.requests:,}", by),
        ("tokens sent to the judge", _known(found.judge.sent), found.judge.basis),
        ("tokens of its answers", _known(found.judge.answered), ""),
        ("the judge's price", _price(found.judge_usd), ""),
    ]
    if found.strong is not None:
        rows += _beside(found.strong)
    show_table((f"campaign {found.campaign}", "how many", "basis"), rows, right=("how many",))
    for note in found.notes:
        echo(f"{note[0].upper()}{note[1:]}.")


def _beside(strong: StrongJudgeEstimate) -> list[tuple[str, str, str]]:
    """The rows of the strong judge."""
    by = f"{_by_kind(strong)}: it judges one group in {strong.every} too"
    return [
        ("requests to the strong judge", f"{strong.requests:,}", by),
        ("tokens sent to it", _known(strong.tokens.sent), strong.tokens.basis),
        ("tokens of its answers", _known(strong.tokens.answered), ""),
        ("its price", _price(strong.usd), ""),
    ]


def _by_kind(asked: CampaignCounts | StrongJudgeEstimate) -> str:
    """The requests to a judge by the kind of reward."""
    follow_ups = f", follow-ups at most {asked.follow_up:,}" if asked.follow_up else ""
    turns = f", turns {asked.turns:,}" if asked.turns else ""
    return f"RULER {asked.ruler:,}, rubrics {asked.rubric:,}{follow_ups}{turns}"


def _price(usd: float | None) -> str:
    return "unknown" if usd is None else f"${usd:,.2f}"


def _known(count: int | None) -> str:
    return format_number(count, ",", missing="unknown")


def _listed(_context: click.Context, _option: click.Parameter, names: tuple[str, ...]) -> list[str] | None:
    return list(names) or None  # none given: the settings decide


@click.command()
@path_option("--scenarios", "JSONL file of the training scenarios.")
@path_option("--val-scenarios", "JSONL file of the validation scenarios; never trained on.")
@path_option("--test-scenarios", "JSONL file of the test scenarios, attempted once at the end; never trained on.")
@click.option(
    "--split", metavar="SHARES", callback=parse_shares,
    help="Instead of these two files: shares of --scenarios for training, validation and test, as 0.8,0.1,0.1.",
)  # fmt: skip
@click.option("--preset", type=click.Choice(["rlvr"]), help="The defaults of a preset (docs/rlvr.md).")
@click.option("--agent", metavar="MODULE:FUNCTION|COMMAND", help="What attempts a scenario.")
@click.option(
    "--replay", is_flag=True, default=None, help="Attempt scenarios of `from-traffic --replay` without an agent."
)
@click.option(
    "--allow-writes", is_flag=True, default=None, help="Attempts may use MCP tools that are not marked read-only."
)
@click.option(
    "--success", metavar="MODULE:FUNCTION|PART", help="What counts as success [none: the measure is the mean reward]."
)
@path_option("--python", "The Python that runs the agent [Hone's].")
@path_option("--cwd", "The folder the agent runs in [this one].")
@click.option("--alias", metavar="NAME", help="The alias to train [the only one].")
@click.option("--judge-recipe", metavar="NAME", help="The judge recipe of its trajectories [the alias's].")
@click.option("--name", help="Name of the campaign [the scenario file's].")
@click.option("--steps", type=int, help="Most steps [20].")
@click.option("--scenarios-per-step", type=int, help="Scenarios in a step [8].")
@click.option("--group-size", type=int, help="Attempts at each scenario [8].")
@click.option("--concurrency", type=int, help="Most attempts at one time [64].")
@click.option("--max-lag", type=int, metavar="STEPS", help="Begin the attempts of so many next steps meanwhile [0].")
@click.option(
    "--attempt-timeout", "attempt_timeout_s", type=float, metavar="SECONDS", help="Time limit of an attempt [300]."
)
@click.option(
    "--on-agent-error",
    type=click.Choice(["exclude", "judge"]),
    help="What happens to attempts whose agent fails [exclude].",
)
@click.option("--target", type=float, help="Stop when the measure reaches this.")
@click.option(
    "--plateau", "plateau_steps", type=int, metavar="STEPS", help="Stop after this many steps without a rise."
)
@click.option("--epochs", type=int, help="Stop when each scenario was trained on this often.")
@click.option(
    "--max-minutes",
    type=float,
    metavar="MINUTES",
    help="Stop after this long, summed over all times that it was resumed.",
)
@click.option("--max-judge-usd", type=float, metavar="USD", help="Stop when judging has cost this much.")
@click.option("--max-judge-tokens", type=int, metavar="TOKENS", help="Stop when judging has used this many.")
@click.option(
    "--baseline", "baselines", multiple=True, metavar="NAME", callback=_listed,
    help="`base` or a model of [[proxy.models]], measured before the first step for comparison. Repeatable.",
)  # fmt: skip
@click.option("--serve", type=click.Choice(["best", "last"]), help="Which version serves at the end [best].")
@click.option("--val-every", type=int, metavar="STEPS", help="Steps between validations [before and after only].")
@click.option("--val-attempts", type=int, help="Attempts at each validation scenario [1].")
@click.option("--seed", type=int, help="Random seed of the order of scenarios [0].")
@click.option("--proxy", "proxy_url", metavar="URL", help="A running proxy to use; none is started.")
@click.option(
    "--resume", metavar="CAMPAIGN", help="Resume an unfinished campaign with the settings that it began with."
)
@click.option("--pause", metavar="CAMPAIGN", help="Ask a running campaign to pause after its step.")
@click.option("--end", metavar="CAMPAIGN", help="Ask a running campaign to end after its step.")
@processes_option
@click.option("--new", "fresh", is_flag=True, help="Begin a new campaign, even if one of this name is unfinished.")
@click.option("--estimate", "only_estimate", is_flag=True, help="Only print what it would take. Nothing is started.")
@click.pass_obj
def train(
    context: Context,
    /,
    proxy_url: str | None,
    resume: str | None,
    pause: str | None,
    end: str | None,
    processes: int | None,
    fresh: bool,
    only_estimate: bool,
    **flags: Any,
) -> None:
    """Train over a list of scenarios: attempt, judge, train, swap, repeat.

    The command uses the proxy, engine and judge that run for the data folder; it starts what is missing and stops it at
    the end. An unfinished campaign of the same name is resumed.
    """
    if pause is not None or end is not None:
        if pause is not None and end is not None:
            raise click.UsageError("give --pause or --end, not both.")
        _ask(context, pause or end or "", "end" if pause is None else "pause")
        return
    for name, value in flags.items():
        context.override(f"campaign.{name}", value)
    context.override("trainer.processes", processes)
    if only_estimate:
        if resume is not None:
            raise click.UsageError("--estimate counts a campaign from its beginning: do not use --resume with it.")
        estimate(context)
        return
    if work_as_other_rank(context):
        return
    log_to_terminal()
    if run(_train(context, proxy_url, resume, fresh=fresh)).reason == "paused":
        sys.exit(PAUSED)


def _ask(context: Context, name: str, wish: Wish) -> None:
    """Ask a running campaign to pause or to end."""
    from recorder.commands.context import run as run_on_store
    from recorder.queue.campaign_requests import ask_campaign
    from recorder.registry.alias_moves import BY_HAND

    asked = run_on_store(context, lambda project: ask_campaign(project, name, wish, BY_HAND))
    if context.json:
        write_json({"campaign": asked.name, "id": asked.id, "asked": wish})
    else:
        echo(f"{asked.name}: asked to {wish}, which happens after the step that runs.")


async def _train(context: Context, proxy_url: str | None, resume: str | None, *, fresh: bool) -> CampaignEnded:
    from trainer.campaign import record
    from trainer.progress import choose_progress
    from trainer.runtime.train import train as run_campaign

    settings = context.settings()
    preset = settings.campaign.preset
    require_own_choices(settings)
    if resume is None:
        plan = record.plan_campaign(settings.campaign, fresh=fresh)
        require_judge_model(plan, settings)
    else:
        given = {
            key.removeprefix("campaign."): v for key, v in context.overrides.items() if key.startswith("campaign.")
        }
        plan = await record.load_plan(settings.data, settings.recorder, settings.project, resume, given)
        require_recipe(plan.settings.judge_recipe, settings)
    env = {"HONE_CAMPAIGN__PRESET": preset} if preset else {}  # the preset has defaults for the judge too
    wanted = wanted_services(context, settings, proxy_url, env)
    with choose_progress(as_json=context.json) as shown:
        tell_ignored_columns(chain(*plan.parts.values()), shown)
        return await run_campaign(plan, settings, wanted, shown)
