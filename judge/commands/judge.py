"""`hone judge`, which runs the worker, and `hone judge check`, which tests a judge with tricks.

Owns: flags, exit codes, and running the worker until SIGTERM or SIGINT. Refuses: scoring (`judge.scoring`), testing a
judge (`judge.adversarial`), and the output (`judge.commands.check_view`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from judge.settings import DEFAULT
from recorder.base.errors import FAILED
from recorder.base.gc_pause import pause_gc
from recorder.base.terminal import write_json
from recorder.commands.context import Context

if TYPE_CHECKING:
    from judge.adversarial.check import CheckRequest, RecipeCheck
    from judge.adversarial.tricks import TrialResult
    from proxy.settings.hone import HoneSettings


@click.group(invoke_without_command=True)
@click.option("--check", "only_check", is_flag=True, help="Only check whether its settings work, then exit.")
@click.option("--ask", is_flag=True, help="With --check: send each judge model one request of at most 16 tokens.")
@click.pass_context
def judge(click_context: click.Context, only_check: bool, ask: bool) -> None:
    """Score groups as they become ready, until stopped."""
    context: Context = click_context.obj
    if click_context.invoked_subcommand is not None:
        if only_check:
            raise click.UsageError("--check takes no subcommand.")
        return
    if ask and not only_check:
        raise click.UsageError("--ask is for --check.")
    if only_check:
        _check(context, ask)
        return
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("judge").setLevel(logging.INFO)
    asyncio.run(run_worker(context.settings()))


def _check(context: Context, ask: bool) -> None:
    """Print the findings; exit with status 1 if one is an error."""
    from judge.scoring.checks import check_judge
    from recorder.commands.context import echo_findings

    echo_findings(asyncio.run(check_judge(context.settings().judge, ask=ask)), as_json=context.json)


async def run_worker(settings: HoneSettings) -> None:
    """Run one judge worker until SIGTERM or SIGINT. Raises JudgeMisconfigured, StoreError, SchemaMismatch."""
    with pause_gc():
        from judge.scoring.setup import check_settings, describe_parts, open_judge_context
        from judge.scoring.worker import JudgeWorker
        from recorder.processes.signals import call_on_stop
        from recorder.setting_changes.follower import SettingsFollower
        from recorder.store.bootstrap import open_store
        from recorder.store.database import Project

    check_settings(settings.judge)
    known = settings.judge.known_recipes()
    stop = asyncio.Event()
    with call_on_stop(stop.set):
        store = await open_store(settings.data, settings.recorder, migrate=False, project=settings.project)
        try:
            project = Project(store, settings.project)
            follower = SettingsFollower(project, settings)
            async with open_judge_context(settings.judge, project) as judge_context, follower.running():
                worker = JudgeWorker(project, judge_context, settings.recorder, follower=follower)
                parts = "; ".join(
                    f"{name}: {describe_parts(settings.judge.by_recipe(name)) or 'nothing'}" for name in known
                )
                by, strong = settings.judge.model or "no model", settings.judge.strong
                by += f", checked by {strong.model}" if strong is not None else ""
                logging.getLogger(__name__).info("judge %s: %s (%s)", worker.owner, parts, by)
                await worker.run(stop)
        finally:
            await store.close()


@judge.command("check")
@click.option("--recipe", default=DEFAULT, show_default=True, metavar="NAME", help="The judge recipe to check.")
@click.option("--alias", help="The alias whose base judges, if the judge is `base` [the only one].")
@click.option("--kind", "kinds", multiple=True, metavar="TRICK", help="Only this kind of trick. Repeatable [all].")
@click.option("--groups", default=20, show_default=True, type=click.IntRange(1, 1000), help="Groups of each kind.")
@click.option("--seed", default=0, show_default=True, type=int, help="Random seed of the groups and their order.")
@click.option(
    "--at-most",
    default=0.05,
    show_default=True,
    type=click.FloatRange(0, 1),
    help="Share of groups in which the judge may be fooled.",
)
@click.option(
    "--tasks",
    type=click.Path(path_type=Path),
    help="JSONL file of your own tasks: functions, rules and criteria score degenerate answers to them.",
)
@click.option("--picture", type=click.Path(path_type=Path), help="SVG file for a chart of the shares.")
@click.option("--dry-run", is_flag=True, help="Only count requests and tokens. No judge is asked.")
@click.pass_obj
def check_tricks(
    context: Context,
    recipe: str,
    alias: str | None,
    kinds: tuple[str, ...],
    groups: int,
    seed: int,
    at_most: float,
    tasks: Path | None,
    picture: Path | None,
    dry_run: bool,
) -> None:
    """Test the judge with known tricks, and say which of them fool it.

    Each group of a committed set contains an honest success, an honest failure, and a failure that plays a trick.
    Groups are judged as the worker judges them, by each part of the judge recipe that a judge model decides; nothing is
    stored or trained on. For each kind of trick the output has the share of its groups in which the trick got more than
    it deserves, with the 95 % interval. Answers without any work (empty, one token, the task's own words) are also
    given to the recipe's functions, rules and criteria, at no cost.

    The exit status is 1 if the interval of a kind lies above --at-most, or not everything could be tested.
    """
    from judge.adversarial import user_tasks
    from judge.adversarial.check import CheckRequest, count_model_parts, count_requests
    from judge.adversarial.tricks import KINDS
    from judge.commands.check_view import check_chart, check_json, show_check, show_count, watch_trials
    from recorder.commands.context import draw_into, require_folder

    if unknown := [kind for kind in kinds if kind not in KINDS]:
        raise click.UsageError(f"there is no trick {unknown[0]!r:.80}. Known: {', '.join(KINDS)}.")
    require_folder(picture)
    settings = context.settings().judge
    if alias is not None and not settings.asks_base:
        raise click.UsageError(
            "--alias selects the base that judges, and no judge is `base` (judge.model, [[judge.panel]])."
        )
    wanted = CheckRequest(
        recipe, kinds, groups, seed, user_tasks.read_user_tasks(tasks, groups) if tasks else (), alias
    )
    many = count_model_parts(settings, recipe) * len(wanted.names) * groups
    if dry_run:
        show_count(asyncio.run(count_requests(settings, wanted)), many, as_json=context.json)
        return
    with watch_trials(many) as tell:
        checked = _run_check(context, wanted, tell)
    if context.json:
        write_json(check_json(checked, at_most))
    else:
        show_check(checked, at_most)
    if picture is not None:
        draw_into(check_chart(checked, at_most), picture)
    if not checked.passed(at_most):
        raise SystemExit(FAILED)


def _run_check(context: Context, wanted: CheckRequest, tell: Callable[[TrialResult], None]) -> RecipeCheck:
    """Test the judge. For the judge `base`, the proxy that serves it is looked up in the store."""
    from judge.adversarial.check import check_base, check_recipe
    from recorder.commands.context import run

    settings = context.settings().judge
    if not settings.asks_base:
        return asyncio.run(check_recipe(settings, wanted, tell))
    return run(context, lambda project: check_base(project, settings, wanted, tell))
