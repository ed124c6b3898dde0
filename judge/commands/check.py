"""`hone judge check`.

Owns: its flags and exit codes. Refuses: trying a judge (`judge.adversarial`), how that reads
(`judge.commands.check_view`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from judge.settings import DEFAULT
from recorder.base.errors import FAILED
from recorder.base.json_output import write_json
from recorder.commands.context import Context

if TYPE_CHECKING:
    from judge.adversarial.check import CheckRequest as Tricks
    from judge.adversarial.check import RecipeCheck
    from judge.adversarial.trick_kinds import TrialResult


@click.command("check")
@click.option("--recipe", default=DEFAULT, show_default=True, metavar="NAME", help="The recipe that is tried.")
@click.option("--alias", help="Whose base judges, where the judge is base [the only one].")
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
    alias: str | None,
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
    from judge.adversarial import user_tasks
    from judge.adversarial.check import CheckRequest, count_model_parts, count_requests
    from judge.adversarial.trick_kinds import KINDS
    from judge.commands.check_view import check_chart, check_json, show_check, show_count, watch_trials
    from recorder.commands.support import draw_into, require_folder

    if unknown := [kind for kind in kinds if kind not in KINDS]:
        raise click.UsageError(f"there is no trick {unknown[0]!r:.80}: known are {', '.join(KINDS)}.")
    require_folder(picture)
    settings = context.settings().judge
    if alias is not None and not settings.asks_base:
        raise click.UsageError(
            "--alias says whose base judges, and no judge here is `base` (judge.model, [[judge.panel]])."
        )
    wanted = CheckRequest(
        recipe, kinds, groups, seed, user_tasks.read_user_tasks(tasks, groups) if tasks else (), alias
    )
    many = count_model_parts(settings, recipe) * len(wanted.names) * groups
    if dry_run:
        show_count(asyncio.run(count_requests(settings, wanted)), many, as_json=context.json)
        return
    with watch_trials(many) as tell:
        checked = _tried(context, wanted, tell)
    if context.json:
        write_json(check_json(checked, at_most))
    else:
        show_check(checked, at_most)
    if picture is not None:
        draw_into(check_chart(checked, at_most), picture)
    if not checked.passed(at_most):
        raise SystemExit(FAILED)


def _tried(context: Context, wanted: Tricks, tell: Callable[[TrialResult], None]) -> RecipeCheck:
    """Try the judge; where it is `base`, the store says which proxy serves that."""
    from judge.adversarial.check import check_base, check_recipe
    from recorder.commands.support import run

    settings = context.settings().judge
    if not settings.asks_base:
        return asyncio.run(check_recipe(settings, wanted, tell))
    return run(context, lambda project: check_base(project, settings, wanted, tell))
