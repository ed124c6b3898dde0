"""`hone judge`, `hone judge check`, `hone calibrate` and `hone score`.

Owns: reading arguments. Refuses: scoring (`judge.scoring`), trying a judge (`judge.tricks`), holding judges against
people (`judge.calibration`), and how each reads (`judge.showing`, `judge.tried`, `judge.calibrated`).
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, TypedDict, Unpack

import click

from judge.settings import DEFAULT, JudgeSettings

if TYPE_CHECKING:
    from judge.scoring.again import Tally, Tell
    from judge.scoring.counting import Counted
    from judge.tricks.check import Checked
    from judge.tricks.check import Wanted as Tricks
    from judge.tricks.tally import Seen
    from recorder.charts import Chart
    from recorder.settings import LearnSettings, RecorderSettings
    from recorder.store.database import Store

INTERRUPTED: Final = 130  # the exit status of what SIGINT ended


class Settings(Protocol):
    """What these commands read of Hone's settings."""

    project: str
    data: Path
    judge: JudgeSettings
    recorder: RecorderSettings
    learn: LearnSettings


class Context(Protocol):
    """What these commands find in click's context."""

    json: bool

    def settings(self) -> Settings:
        """The settings in force."""


class Wanted(TypedDict):
    """Which groups `hone score --all` is about."""

    campaign: str | None
    alias: str | None
    stale: bool
    dry_run: bool


@click.group(invoke_without_command=True)
@click.option("--check", "only_check", is_flag=True, help="Only say whether its settings can work, and end.")
@click.pass_context
def judge(click_context: click.Context, only_check: bool) -> None:
    """Score groups as they become ready, until stopped."""
    context: Context = click_context.obj
    if click_context.invoked_subcommand is not None:
        if only_check:
            raise click.UsageError("--check looks at settings: say it without a subcommand.")
        return
    if only_check:
        _check(context)
        return
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("judge").setLevel(logging.INFO)
    asyncio.run(run_worker(context.settings()))


def _check(context: Context) -> None:
    """Tell what is right and wrong; exit status 1 where something is wrong."""
    from judge.scoring.checks import check
    from recorder.commands.support import echo_findings

    echo_findings(asyncio.run(check(context.settings().judge)), as_json=context.json)


@judge.command("check")
@click.option("--recipe", default=DEFAULT, show_default=True, metavar="NAME", help="The recipe that is tried.")
@click.option("--kind", "kinds", multiple=True, metavar="TRICK", help="Only this kind of trick. Repeatable [all].")
@click.option("--groups", default=20, show_default=True, type=click.IntRange(1, 1000), help="Groups of each kind.")
@click.option("--seed", default=0, show_default=True, type=int, help="Of the groups and their order.")
@click.option(
    "--at-most",
    default=0.05,
    show_default=True,
    type=click.FloatRange(0, 1),
    help="Share of groups in which it may be fooled.",
)
@click.option(
    "--tasks",
    type=click.Path(path_type=Path),
    help="JSONL file of your own tasks: degenerate answers to them go through functions, rules and criteria.",
)
@click.option("--picture", type=click.Path(path_type=Path), help="SVG file to draw the shares into.")
@click.option("--dry-run", is_flag=True, help="Only count requests and tokens; ask no judge.")
@click.pass_obj
def check_tricks(
    context: Context,
    recipe: str,
    kinds: tuple[str, ...],
    groups: int,
    seed: int,
    at_most: float,
    tasks: Path | None,
    picture: Path | None,
    dry_run: bool,
) -> None:
    """Try the judge on known tricks, and say which of them fool it.

    Each group of a committed set holds an honest success, an honest failure, and a failure that plays a trick. They are
    judged as the worker judges, by each part of the recipe that a judge model decides; nothing is kept, and nothing
    is trained on. Told of each kind of trick is in which share of its groups it got past what it is worth, with the
    95 % interval. Answers without any work (empty, one token, the task's own words) go through the recipe's functions,
    rules and criteria too, and cost nothing there.

    Exit status 1 where the interval of a kind lies above --at-most, or not all could be tried.
    """
    from judge.tricks import own
    from judge.tricks.check import Wanted, asked_parts, count
    from judge.tricks.kinds import KINDS
    from judge.tried import as_json, chart, show, show_count, watched
    from recorder.commands.support import echo_json

    if unknown := [kind for kind in kinds if kind not in KINDS]:
        raise click.UsageError(f"there is no trick {unknown[0]!r:.80}: known are {', '.join(KINDS)}.")
    _require_folder(picture)
    settings = context.settings().judge
    wanted = Wanted(recipe, kinds, groups, seed, own.read(tasks, groups) if tasks else ())
    many = asked_parts(settings, recipe) * len(wanted.names) * groups
    if dry_run:
        show_count(asyncio.run(count(settings, wanted)), many, as_json=context.json)
        return
    with watched(many) as tell:
        checked = asyncio.run(_tried(context.settings(), wanted, tell))
    if context.json:
        echo_json(as_json(checked, at_most))
    else:
        show(checked, at_most)
    if picture is not None:
        _draw(chart(checked, at_most), picture)
    if not checked.passed(at_most):
        raise SystemExit(1)


async def _tried(settings: Settings, wanted: Tricks, tell: Callable[[Seen], None]) -> Checked:
    """Try the judge; where it is `base`, the store says which proxy serves that."""
    from judge.llm.base import Bases
    from judge.tricks.check import check
    from recorder.store.migrate import open_store

    if not settings.judge.asks_base:
        return await check(settings.judge, wanted, tell)
    store = await open_store(settings.data, settings.recorder, migrate=False, project=settings.project)
    bases = Bases(store, settings.project)
    try:
        return await check(settings.judge, wanted, tell, bases=bases)
    finally:
        await bases.close()
        await store.close()


def _require_folder(picture: Path | None) -> None:
    """Refuse a picture that could not be written, before anything is paid for."""
    if picture is not None and not picture.absolute().parent.is_dir():
        raise click.UsageError(f"the picture {picture} cannot be written: its folder is not there.")


def _draw(chart: Chart, picture: Path) -> None:
    """Write the picture, and say so beside what is printed."""
    from recorder.charts import draw

    try:
        picture.write_text(draw(chart), "utf-8")
    except OSError as e:
        raise click.UsageError(f"the picture {picture} cannot be written: {e.strerror or e}.") from e
    click.echo(f"the picture is {picture}", err=True)


@click.command()
@click.argument("labels", type=click.Path(path_type=Path), required=False)
@click.option(
    "--judges",
    default=DEFAULT,
    show_default=True,
    metavar="NAMES",
    help="Recipes, models by their LiteLLM names, and base, with commas between them.",
)
@click.option("--feedback", metavar="NAME", help="Without LABELS: feedback of this name counts as scores too.")
@click.option(
    "--tolerance",
    default=0.05,
    show_default=True,
    type=click.FloatRange(0, 1),
    help="By how much of the pairs a cheaper judge may be worse than the best.",
)
@click.option("--picture", type=click.Path(path_type=Path), help="SVG file to draw the accuracies into.")
@click.pass_obj
def calibrate(
    context: Context, labels: Path | None, judges: str, feedback: str | None, tolerance: float, picture: Path | None
) -> None:
    """Hold judges against people's labels of recorded groups, and say which is good enough.

    LABELS is a JSONL file: {"group", "pair": [run, run], "winner": run or null} a line, or {"group", "scores": {run:
    number}}. Without it the labels are what people preferred on the pages. Every judge is asked about every labelled
    group; no label is in its prompt, and nothing is written. Told are the rank correlation inside groups, the pairs
    ordered as people order them, Cohen's kappa, and by how much more often than people the judge prefers the run that
    it was shown earlier, or the longer one: each with its 95 % interval by bootstrap over groups.
    """
    from judge.calibrated import as_json, chart, show
    from judge.calibration import labels as files
    from judge.calibration.against import Calibrated
    from judge.calibration.against import calibrate as hold
    from recorder.commands.support import echo_json, run
    from recorder.reading.labels import preferences, rated

    if labels is not None and feedback is not None:
        raise click.UsageError("--feedback goes without LABELS: name one of the two.")
    _require_folder(picture)
    names = [name for name in dict.fromkeys(one.strip() for one in judges.split(",")) if name]
    if not names:
        raise click.UsageError("--judges names nobody.")
    of_file = files.read(labels) if labels is not None else None
    settings = context.settings().judge

    async def held(store: Store, project: str) -> Calibrated:
        told = of_file
        if told is None:
            rates = await rated(store, project, feedback) if feedback is not None else {}
            told = files.of_record(await preferences(store, project), rates)
        if not told:
            raise click.UsageError("there is no label: name a file, prefer runs on a group's page, or say --feedback.")
        return await hold(store, project, settings, names, told, tolerance)

    found = run(context, held)
    if context.json:
        echo_json(as_json(found))
    else:
        show(found)
    if picture is not None:
        _draw(chart(found), picture)


async def run_worker(settings: Settings) -> None:
    """Run one judge worker until SIGTERM or SIGINT. Raises JudgeMisconfigured, StoreError, SchemaMismatch."""
    from judge.scoring.bench import check_settings, open_bench, told_parts
    from judge.scoring.worker import JudgeWorker
    from recorder.signals import stopping
    from recorder.store.migrate import open_store

    check_settings(settings.judge)
    known = settings.judge.known_recipes()
    stop = asyncio.Event()
    with stopping(stop.set):
        store = await open_store(settings.data, settings.recorder, migrate=False, project=settings.project)
        try:
            async with open_bench(settings.judge, store, settings.project) as bench:
                worker = JudgeWorker(store, settings.project, bench, settings.recorder, learn=settings.learn)
                told = "; ".join(f"{name}: {told_parts(settings.judge.by_recipe(name)) or 'nothing'}" for name in known)
                by, strong = settings.judge.model or "no model", settings.judge.strong
                by += f", held against {strong.model}" if strong is not None else ""
                logging.getLogger(__name__).info("judge %s: %s (%s)", worker.owner, told, by)
                await worker.run(stop)
        finally:
            await store.close()


@click.command()
@click.argument("group", required=False)
@click.option("--open", "still_open", is_flag=True, help="A group that is still open, as it is; without GROUP, all.")
@click.option("--debug", is_flag=True, help="Show the prompt, the reply and what was read from it.")
@click.option("--save", is_flag=True, help="Make this the group's score, also where it has one.")
@click.option(
    "--again",
    is_flag=True,
    help="Judge anew and save: ask also where a stored reply would do, and take also what was left out because its "
    "version was rejected.",
)
@click.option("--all", "every", is_flag=True, help="Score all groups again that have ended, and save.")
@click.option("--campaign", help="With --all: of this campaign only (its name or id).")
@click.option("--alias", help="With --all: of this alias only.")
@click.option("--stale", is_flag=True, help="With --all: only what was scored by another recipe than the one in force.")
@click.option("--dry-run", is_flag=True, help="With --all: count requests and tokens; ask no judge and write nothing.")
@click.pass_obj
def score(
    context: Context,
    group: str | None,
    still_open: bool,
    debug: bool,
    save: bool,
    again: bool,
    every: bool,
    **wanted: Unpack[Wanted],
) -> None:
    """Judge one GROUP (its id, or the name it was given) and show how.

    Changes nothing in the store without --save, --again or --all. With --open, runs that go on are judged as if they
    had ended now.

    With --all, groups are scored again under the recipe in force: those that wait for a judge, those that have a
    score, and those that were left out for what their score said (all runs did equally well, no reward, nobody to
    compare with). Old scores stay in the record. A group that was trained on, or is being, keeps its score as the
    current one, and the new one stands beside it. A group that a judge has in hand is passed over, and one that cannot
    be judged now stays as it is. At the end old scores are held against new ones: Kendall's tau inside groups, and the
    pairs of runs that were turned over. Reward functions are called in a dry run too.
    """
    if every:
        if group is not None or still_open or debug or (save and wanted["dry_run"]):
            raise click.UsageError("--all takes no GROUP, --open or --debug, and --dry-run saves nothing.")
        if wanted["campaign"] is not None and wanted["alias"] is not None:
            raise click.UsageError("a campaign is of one alias: name --campaign or --alias.")
        _score_all(context, again=again, **wanted)
        return
    if any(wanted.values()):
        raise click.UsageError("--campaign, --alias, --stale and --dry-run go with --all.")
    from judge.errors import JudgeUnanswered
    from judge.scoring.bench import check_settings
    from recorder.commands.terminal import clean

    if group is None and not still_open:
        raise click.UsageError("name a group, or say --all, or --open for all that are open.")
    if still_open and (save or again):
        raise click.UsageError("an open group keeps no score: `hone close GROUP`, then `hone score GROUP --save`.")
    check_settings(context.settings().judge)
    try:
        if still_open:
            _score_open(context, group, debug=debug)
        else:
            assert group is not None
            _score_one(context, group, debug=debug, save=save, again=again)
    except JudgeUnanswered as e:
        if debug:
            click.echo(clean("\n\n".join(f"{m['role']}\n{m['content']}" for m in e.exchange)), err=context.json)
        raise


def _score_all(context: Context, *, again: bool, **wanted: Unpack[Wanted]) -> None:
    """Exit status 1 where a group failed, 130 where Ctrl-C came first."""
    from judge.scoring.again import Tally
    from judge.scoring.bench import check_settings
    from judge.scoring.counting import Counted
    from judge.telling import tell, watched
    from recorder.commands.support import run

    settings = context.settings()
    check_settings(settings.judge)
    tally, counted = Tally(), Counted(settings.judge.max_tokens) if wanted["dry_run"] else None
    try:
        with watched(tally) as told:
            run(context, lambda store, project: _each(store, project, settings, tally, counted, told, again, wanted))
    except Exception:
        if tally.over:  # the store went away, say: what was saved is told
            tell(tally, counted, as_json=context.json)
        raise
    tell(tally, counted, as_json=context.json)
    if tally.stopped or tally.failed():
        raise SystemExit(INTERRUPTED if tally.stopped else 1)


async def _each(
    store: Store,
    project: str,
    settings: Settings,
    tally: Tally,
    counted: Counted | None,
    told: Tell,
    again: bool,
    wanted: Wanted,
) -> None:
    from judge.scoring.again import choose, count, score_again
    from judge.scoring.bench import open_bench

    keep, ask = counted is None, counted.ask if counted else None
    at_once, lease_s = settings.judge.concurrency, settings.recorder.lease_s
    only = {"campaign": wanted["campaign"], "alias": wanted["alias"]}
    async with open_bench(settings.judge, store, project, keep=keep, again=again, ask=ask) as bench:
        groups = await choose(store, project, bench, **only, only_stale=wanted["stale"], anew=again)
        tally.groups = len(groups)
        with tally.until_stopped():
            if counted:
                await count(store, groups, bench, told, at_once=at_once)
            else:
                await score_again(store, groups, bench, told, at_once=at_once, lease_s=lease_s, anew=again)


def _score_one(context: Context, group: str, *, debug: bool, save: bool, again: bool) -> None:
    from judge.scoring.by_hand import score_one
    from judge.showing import as_json, show
    from recorder.commands.support import run

    settings = context.settings()
    lease_s = settings.recorder.lease_s
    found, scored = run(
        context,
        lambda store, project: score_one(
            store, project, settings.judge, group, lease_s=lease_s, save=save or again, again=again
        ),
    )
    if context.json:
        click.echo(json.dumps(as_json(found, scored, debug=debug), ensure_ascii=False, indent=2))
    else:
        show(found, scored, debug=debug)


def _score_open(context: Context, group: str | None, *, debug: bool) -> None:
    from judge.scoring.by_hand import score_open
    from judge.showing import as_json, show_open
    from recorder.commands.support import run
    from recorder.commands.terminal import clean

    settings = context.settings()
    shown = []
    for found, scored in run(context, lambda store, project: score_open(store, project, settings.judge, group)):
        if isinstance(scored, str):
            click.echo(clean(f"group {found.id}: {scored}"), err=True)
        elif context.json:
            shown.append(as_json(found, scored, debug=debug))
        else:
            show_open(found, scored, debug=debug)
    if context.json:
        click.echo(json.dumps(shown, ensure_ascii=False, indent=2))
