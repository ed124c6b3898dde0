"""`hone train`, `hone learn` and `hone scenarios`.

Owns: their flags, signals, exit codes. Refuses: the work (`trainer.programs.train`, `trainer.programs.learn`).
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import click
from pydantic import ValidationError

from recorder.settings import LearnSettings, RecorderSettings
from trainer.campaign_settings import CampaignSettings
from trainer.settings import TrainerSettings
from trainer.track_settings import TrackSettings

if TYPE_CHECKING:
    from recorder.content.redaction import Redaction
    from trainer.campaign.begin import Plan
    from trainer.campaign.estimate import Estimate
    from trainer.generating import asking
    from trainer.programs import estimating
    from trainer.programs.examiner import Gated
    from trainer.programs.generating import Outcome, Server
    from trainer.progress import Ended
    from trainer.tasks.traffic import Opening, Tasks

INTERRUPTED = 130
PAUSED = 3  # a campaign looked unhealthy and waits for a person

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

if TYPE_CHECKING:

    class Judge(estimating.Judge, asking.Settings, Protocol):
        """What these commands read of the judge's settings."""


class Settings(Protocol):
    """What these commands read of Hone's settings."""

    project: str
    data: Path
    recorder: RecorderSettings
    learn: LearnSettings
    trainer: TrainerSettings
    campaign: CampaignSettings
    track: TrackSettings
    engine: Any  # its `base` and `dtype`

    @property
    def judge(self) -> Judge:
        """Who judges."""

    @property
    def mcp(self) -> Mapping[str, Server]:
        """The MCP servers."""

    def declared_aliases(self) -> Mapping[str, object]:
        """The aliases, and what they leave to other sections."""

    def providers(self) -> list[str]:
        """The names of other providers' models."""

    @property
    def aliases(self) -> Mapping[str, Gated]:
        """The declared aliases."""


class Context(Protocol):
    """What these commands find in click's context."""

    config: Path | None
    json: bool
    overrides: dict[str, object]

    def override(self, key: str, value: object) -> None:
        """Let a flag decide a setting."""

    def settings(self) -> Settings:
        """The settings in force."""


def _path(name: str, text: str) -> Callable[[F], F]:
    return click.option(name, type=click.Path(path_type=Path), help=text)


def _shares(_context: click.Context, _option: click.Parameter, text: str | None) -> list[float] | None:
    try:
        return None if text is None else [float(share) for share in text.split(",")]
    except ValueError:
        raise click.BadParameter(f"{text!r} is no list of shares: write them as 0.8,0.1,0.1") from None


def _listed(_context: click.Context, _option: click.Parameter, names: tuple[str, ...]) -> list[str] | None:
    return list(names) or None  # none given: what the settings say


@click.command()
@_path("--scenarios", "JSONL file of scenarios to learn from.")
@_path("--val-scenarios", "JSONL file of scenarios to measure with; never trained on.")
@_path("--test-scenarios", "JSONL file of scenarios for the end, attempted once; never trained on.")
@click.option(
    "--split", metavar="SHARES", callback=_shares,
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
@_path("--python", "The Python that runs the agent [Hone's].")
@_path("--cwd", "The folder the agent runs in [this one].")
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
        _estimate(context)
        return
    _log()
    if _run(_train(context, proxy_url, resume, fresh=fresh)).reason == "paused":
        sys.exit(PAUSED)


def _estimate(context: Context) -> None:
    from trainer.campaign import begin
    from trainer.errors import CampaignError
    from trainer.programs.estimating import estimated

    settings = context.settings()
    _require_own_choices(settings)
    try:
        found = asyncio.run(estimated(begin.plan(settings.campaign), settings))
    except CampaignError as e:  # nothing runs that could fail: something is set wrongly
        raise click.UsageError(str(e)) from e
    if context.json:
        click.echo(json.dumps(asdict(found), indent=2))
    else:
        _show_estimate(found)


def _show_estimate(found: Estimate) -> None:
    from recorder.commands.support import show_table
    from recorder.commands.terminal import clean

    counts = found.counts
    measured = f"{counts.validations} validations" + (f", {counts.baselines} baselines" if counts.baselines else "")
    of = f"{counts.training:,} to train on, {counts.validation:,} to measure ({measured})"
    of += f", {counts.test:,} at the end" if counts.test else ""
    by = f"RULER {counts.ruler:,}, rubrics {counts.rubric:,}, by the recipe {found.recipe!r}"
    usd = "not known" if found.judge_usd is None else f"${found.judge_usd:,.2f}"
    rows = [
        ("steps", f"{found.steps:,}", "at most"),
        ("attempts", f"{counts.attempts:,}", of),
        ("tokens sent by the agent", _known(found.agent.sent), found.agent.basis),
        ("tokens sampled", _known(found.agent.answered), ""),
        ("judge requests", f"{counts.ruler + counts.rubric:,}", by),
        ("tokens sent to the judge", _known(found.judge.sent), found.judge.basis),
        ("tokens of its answers", _known(found.judge.answered), ""),
        ("the judge's price", usd, ""),
    ]
    show_table((f"campaign {found.campaign}", "how many", "how that is known"), rows, right=("how many",))
    for note in found.notes:
        click.echo(clean(f"{note[0].upper()}{note[1:]}."))


def _known(count: int | None) -> str:
    return "not known" if count is None else f"{count:,}"


async def _train(context: Context, proxy_url: str | None, resume: str | None, *, fresh: bool) -> Ended:
    from trainer.campaign import begin
    from trainer.programs.services import Wanted
    from trainer.programs.train import train as run
    from trainer.progress import progress

    settings = context.settings()
    preset = settings.campaign.preset
    _require_own_choices(settings)
    if resume is None:
        plan = begin.plan(settings.campaign, fresh=fresh)
        _require_judge_model(plan, settings)
    else:
        given = {
            key.removeprefix("campaign."): v for key, v in context.overrides.items() if key.startswith("campaign.")
        }
        plan = await begin.plan_again(settings.data, settings.recorder, settings.project, resume, given)
        _require_recipe(plan.settings.reward_recipe, settings)
    options = ["--data", str(settings.data)] + (["--config", str(context.config)] if context.config else [])
    url = proxy_url.rstrip("/").removesuffix("/v1") if proxy_url else None
    env = {"HONE_CAMPAIGN__PRESET": preset} if preset else {}  # the judge's defaults are the recipe's too
    wanted = Wanted(settings.data, settings.project, settings.recorder, url, options, env)
    with progress(as_json=context.json) as shown:
        return await run(plan, settings, wanted, shown)


def _require_own_choices(settings: Settings) -> None:
    """A recipe chooses neither the model that learns nor the one that judges."""
    if settings.campaign.preset is None:
        return
    chosen = {"engine.base": settings.engine.base, "judge.model": settings.judge.model}
    if left := [key for key, value in chosen.items() if not value]:
        raise click.UsageError(f"the preset {settings.campaign.preset!r} leaves to you: set {' and '.join(left)}.")


def _require_judge_model(plan: Plan, settings: Settings) -> None:
    """Criteria that no code decides are a judge model's."""
    from recorder.rubric import criteria

    judge, declared = settings.judge, list(settings.declared_aliases())
    alias = plan.settings.alias or (declared[0] if len(declared) == 1 else None)
    recipe = judge.by_recipe(judge.recipe_of(alias, plan.settings.reward_recipe))
    if recipe.model or not any(reward.kind == "rubric" for reward in recipe.in_force()):
        return
    for scenario in (one for part in plan.parts.values() for one in part):
        listed = criteria(scenario.rubric) if isinstance(scenario.rubric, list) else []
        if named := next((one.id for one in listed if one.check is None), None):
            raise click.UsageError(
                f"a reward is a rubric, the scenario {scenario.id!r} leaves criterion {named!r} to a judge model, and "
                "none is set: set judge.model, or give each criterion a `check`."
            )


def _require_recipe(begun_with: str | None, settings: Settings) -> None:
    """A campaign is gone on with under the recipe that it was begun with."""
    known = settings.judge.known_recipes()
    if begun_with is not None and begun_with not in known:
        raise click.UsageError(
            f"the campaign was begun with the recipe {begun_with!r} (campaign.reward_recipe), which [judge.recipes] "
            f"does not have any more (known: {', '.join(known)}): add it again, or begin another campaign."
        )


@click.command()
@click.option("--alias", "names", multiple=True, metavar="NAME", help="An alias to train [all]. Repeatable.")
@click.option(
    "--check", "only_check", is_flag=True, help="Only say whether gates can attempt their scenarios, and end."
)
@click.pass_obj
def learn(context: Context, names: tuple[str, ...], only_check: bool) -> None:
    """Train on live traffic: a step whenever enough groups were scored, until stopped."""
    if only_check:
        _check(context)
        return
    _log()
    _run(_learn(context, names))


def _check(context: Context) -> None:
    """Tell what is right and wrong; exit status 1 where something is wrong."""
    from recorder.commands.support import echo_findings
    from trainer.programs.checks import check

    echo_findings(asyncio.run(check(context.settings())), as_json=context.json)


async def _learn(context: Context, names: tuple[str, ...]) -> None:
    from trainer.programs.learn import learn as run
    from trainer.progress import progress

    with progress(as_json=context.json) as shown:
        await run(context.settings(), names, shown)


@click.group(invoke_without_command=True)
@click.pass_context
def scenarios(click_context: click.Context) -> None:
    """Lists of scenarios for `hone train`. Without a subcommand: what the settings' own lists hold."""
    if click_context.invoked_subcommand is None:
        context: Context = click_context.obj
        _show_parts(context, context.settings().campaign)


@scenarios.command("check")
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.option(
    "--split", metavar="SHARES", callback=_shares, help="Shares of the file, as 0.8,0.1,0.1 [campaign.split]."
)
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
    from recorder.commands.support import show_table
    from recorder.commands.terminal import clean
    from trainer.tasks import parts

    if settings.scenarios is None:
        raise click.UsageError("no scenarios: name a file (`hone scenarios check FILE`), or set campaign.scenarios.")
    found = parts.read(settings, settings.scenarios)
    counted, repeated = parts.counted(found), parts.repeated(found)
    if context.json:
        shown = {"parts": [asdict(part) for part in counted], "alike": [asdict(one) for one in repeated]}
        click.echo(json.dumps({"split": settings.split, "seed": settings.seed, **shown}, indent=2))
        return
    rows = [(part.name, part.scenarios, part.adversarial, part.references, part.rubrics) for part in counted]
    headings = ("part", "scenarios", "adversarial", "with a reference", "with a rubric")
    show_table(headings, rows, right=headings[1:])
    for one in repeated:
        click.echo(clean(f"Alike in {one.part}: {', '.join(one.ids)} ({'; '.join(one.places)})."))


@scenarios.command("from-traffic")
@click.option("--alias", required=True, metavar="NAME", help="Tasks that this alias was asked.")
@click.option(
    "--where", "conditions", multiple=True, metavar="CONDITION",
    help="Of such runs only: reward<0.5, calls>=3, version=NAME@2, tag.team=billing. Repeatable: all must hold.",
)  # fmt: skip
@click.option("--replay", is_flag=True, help="With the run's own tools and their results, for `hone train --replay`.")
@click.option("--runs", default=2000, show_default=True, type=click.IntRange(1), help="Newest runs that are looked at.")
@_path("--out", "JSONL file to write [they are only shown].")
@click.option("--yes", is_flag=True, help="Write without asking.")
@click.pass_obj
def from_traffic(
    context: Context, alias: str, conditions: tuple[str, ...], replay: bool, runs: int, out: Path | None, yes: bool
) -> None:
    """Show what agents were first asked, as scenarios, and write them to a file for `hone train`.

    Your agent attempts them; with --replay Hone does, and tools are answered from the record, or not at all. Tasks that
    are nearly the same are one. What `recorder.redact` matches is marked, as in the record. With --json the file is
    written only with --yes.
    """
    from recorder.content.redaction import Redaction
    from trainer.campaign import replaying
    from trainer.tasks import scenarios as files
    from trainer.tasks import traffic

    settings = context.settings()
    redaction = Redaction(settings.recorder.redact)
    opening = replaying.opening if replay else traffic.opening_text
    tasks = asyncio.run(_tasks(settings, alias, conditions, redaction, opening, runs))
    found = replaying.scenarios(tasks.found, redaction) if replay else traffic.scenarios(tasks.found)
    if not context.json:
        _show_tasks(tasks)
        yes = yes or (out is not None and click.confirm(f"Write {len(found)} scenarios to {out}?"))
    written = out if yes else None
    if written is not None:
        files.write(written, found)
    if context.json:
        click.echo(json.dumps(_tasks_as_json(tasks, written), indent=2))
    elif written is not None:
        who = "--replay" if replay else "--agent …"
        click.echo(f"Wrote {written}: hone train --scenarios {written} --alias {alias} {who}")
    elif out is None:
        click.echo("Nothing was written: name a file with --out.")


@scenarios.command()
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
@_path("--out", "JSONL file to write [they are printed].")
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


async def _tasks(
    settings: Settings, alias: str, conditions: Sequence[str], redaction: Redaction, opening: Opening, runs: int
) -> Tasks:
    from recorder.registry.aliases import get_alias
    from recorder.store.migrate import open_store
    from trainer.tasks import traffic, wanted

    asked = [wanted.parse(text) for text in conditions]
    store = await open_store(settings.data, settings.recorder, migrate=False, project=settings.project)
    try:
        await get_alias(store, settings.project, alias)  # raises NotFound, with the names that there are
        return await traffic.tasks_of(store, settings.project, alias, asked, redaction, runs=runs, opening=opening)
    finally:
        await store.close()


def _show_tasks(tasks: Tasks) -> None:
    from recorder.commands.support import show_table

    rows = [(task.run.id, task.runs, task.text) for task in tasks.found]
    show_table(("scenario", "runs", "task"), rows, right=("runs",))
    counted = [f"{tasks.looked_at} runs gave {len(tasks.found)} tasks"]
    counted += [f"{count} runs {why}" for why, count in sorted(tasks.passed_over.items())]
    click.echo("; ".join(counted) + ".")


def _tasks_as_json(tasks: Tasks, written: Path | None) -> dict[str, Any]:
    return {
        "scenarios": [{"id": task.run.id, "input": task.text, "runs": task.runs} for task in tasks.found],
        "runs": tasks.looked_at,
        "passed_over": {str(why): count for why, count in tasks.passed_over.items()},
        "written": str(written) if written is not None else None,
    }


def _run(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end, or until SIGINT or SIGTERM: then what was begun is left so that it can be gone on with."""
    with asyncio.Runner() as runner:
        try:
            return runner.run(_until_signalled(work))
        except asyncio.CancelledError:
            click.echo("stopped; the same command goes on from here", err=True)
            sys.exit(INTERRUPTED)


async def _until_signalled(work: Coroutine[Any, Any, T]) -> T:
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None

    def stop() -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)  # a second one ends the program at once
        task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    return await work


def _log() -> None:
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
