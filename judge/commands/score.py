"""`hone score`: one group, open groups, or all groups again.

Owns: its flags and exit codes. Refuses: scoring (`judge.scoring`), and the output (`judge.commands.score_view`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict, Unpack

import click

from recorder.base.errors import FAILED, INTERRUPTED
from recorder.base.terminal import echo, write_json
from recorder.commands.context import Context

if TYPE_CHECKING:
    from judge.scoring.request_count import RequestCount
    from judge.scoring.rescoring import RescoreTally, Tell
    from proxy.settings.hone import HoneSettings
    from recorder.store.database import Project


class ScoreSelection(TypedDict):
    """Which groups `hone score --all` selects."""

    campaign: str | None
    alias: str | None
    stale: bool
    dry_run: bool


@click.command()
@click.argument("group", required=False)
@click.option(
    "--open",
    "still_open",
    is_flag=True,
    help="Score a group that is still open, as it is now; without GROUP, all open groups.",
)
@click.option("--debug", is_flag=True, help="Show the prompt, the reply and the values read from it.")
@click.option("--save", is_flag=True, help="Store this as the group's score, even if it has one.")
@click.option(
    "--again",
    is_flag=True,
    help="Judge again and save: ignore stored replies, and include groups that were excluded because their version "
    "was rejected.",
)
@click.option(
    "--judge-recipe",
    "recipe",
    metavar="NAME",
    help="Try this judge recipe on GROUP; nothing is saved [the group's own].",
)
@click.option("--all", "every", is_flag=True, help="Rescore all groups that have ended, and save.")
@click.option("--campaign", help="With --all: only this campaign (its name or id).")
@click.option("--alias", help="With --all: only this alias.")
@click.option(
    "--stale", is_flag=True, help="With --all: only groups whose score came from another recipe than the current one."
)
@click.option(
    "--dry-run", is_flag=True, help="With --all: only count requests and tokens. No judge is asked, nothing is written."
)
@click.pass_obj
def score(
    context: Context,
    group: str | None,
    still_open: bool,
    debug: bool,
    save: bool,
    again: bool,
    recipe: str | None,
    every: bool,
    **wanted: Unpack[ScoreSelection],
) -> None:
    """Judge one GROUP (its id or external id) and show how.

    --judge-recipe judges GROUP by another recipe than its own, and shows what that costs, before you use the recipe.

    The store changes only with --save, --again or --all. With --open, trajectories that still run are judged as if they
    had ended now.

    --all scores groups again by the current judge recipe: those that wait for a judge, those that have a score, and
    those that were excluded because of their score (equal rewards, no reward, too few to compare). Old scores stay in
    the record. A group that was or is being trained on keeps its current score, and the new one is stored beside it. A
    group that a judge holds is skipped, and one that cannot be judged now stays unchanged. At the end old and new
    scores are compared: Kendall's tau inside groups, and the pairs of trajectories whose order reversed. Reward
    functions are called in a dry run too.
    """
    if recipe is not None and (every or still_open or save or again):
        raise click.UsageError("--judge-recipe tries a recipe on one GROUP: --open, --all, --save and --again do not.")
    if every:
        if group is not None or still_open or debug or (save and wanted["dry_run"]):
            raise click.UsageError("--all takes no GROUP, --open or --debug, and --dry-run saves nothing.")
        if wanted["campaign"] is not None and wanted["alias"] is not None:
            raise click.UsageError("a campaign has one alias: use --campaign or --alias.")
        _score_all(context, again=again, **wanted)
        return
    if any(wanted.values()):
        raise click.UsageError("--campaign, --alias, --stale and --dry-run need --all.")
    from judge.errors import JudgeUnanswered
    from judge.scoring.setup import check_settings

    if group is None and not still_open:
        raise click.UsageError("name a group, or use --all, or --open for all open groups.")
    if still_open and (save or again):
        raise click.UsageError(
            "an open group cannot store a score: `hone close GROUP`, then `hone score GROUP --save`."
        )
    check_settings(context.settings().judge)
    if recipe is not None and recipe not in (known := context.settings().judge.known_recipes()):
        raise click.UsageError(f"there is no judge recipe {recipe!r} (--judge-recipe); known: {', '.join(known)}.")
    try:
        if still_open:
            _score_open(context, group, debug=debug)
        else:
            assert group is not None
            _score_one(context, group, recipe, debug=debug, save=save, again=again)
    except JudgeUnanswered as e:
        if debug:
            echo("\n\n".join(f"{m['role']}\n{m['content']}" for m in e.exchange), err=context.json)
        raise


def _score_all(context: Context, *, again: bool, **wanted: Unpack[ScoreSelection]) -> None:
    """Exit with status 1 if a group failed, 130 after Ctrl-C."""
    from judge.commands.score_view import print_rescore, watch_rescore
    from judge.scoring.request_count import RequestCount
    from judge.scoring.rescoring import RescoreTally
    from judge.scoring.setup import check_settings
    from recorder.commands.context import run

    settings = context.settings()
    check_settings(settings.judge)
    tally, counted = RescoreTally(), RequestCount(settings.judge.max_tokens) if wanted["dry_run"] else None
    try:
        with watch_rescore(tally) as tell:
            run(
                context,
                lambda project: _each(project, settings, tally, counted, tell, again, wanted),
            )
    except Exception:
        if tally.over:  # for example the store failed: print what was saved
            print_rescore(tally, counted, as_json=context.json)
        raise
    print_rescore(tally, counted, as_json=context.json)
    if tally.stopped or tally.failed():
        raise SystemExit(INTERRUPTED if tally.stopped else FAILED)


async def _each(
    project: Project,
    settings: HoneSettings,
    tally: RescoreTally,
    counted: RequestCount | None,
    tell: Tell,
    again: bool,
    wanted: ScoreSelection,
) -> None:
    from judge.scoring.rescoring import choose_groups, count_requests, rescore_groups
    from judge.scoring.setup import open_judge_context

    keep, ask = counted is None, counted.ask if counted else None
    at_once, lease_s = settings.judge.concurrency, settings.recorder.lease_s
    only = {"campaign": wanted["campaign"], "alias": wanted["alias"]}
    async with open_judge_context(settings.judge, project, keep=keep, again=again, ask=ask) as judge_context:
        groups = await choose_groups(project, judge_context, **only, only_stale=wanted["stale"], anew=again)
        tally.groups = len(groups)
        with tally.until_stopped():
            if counted:
                await count_requests(project.store, groups, judge_context, tell, at_once=at_once)
            else:
                await rescore_groups(
                    project.store, groups, judge_context, tell, at_once=at_once, lease_s=lease_s, anew=again
                )


def _score_one(context: Context, group: str, recipe: str | None, *, debug: bool, save: bool, again: bool) -> None:
    from judge.commands.score_view import score_json, show_score
    from judge.scoring.manual_score import score_one
    from recorder.commands.context import run

    settings = context.settings()
    lease_s = settings.recorder.lease_s
    found, scored = run(
        context,
        lambda project: score_one(
            project, settings.judge, group, lease_s=lease_s, save=save or again, again=again, recipe=recipe
        ),
    )
    if context.json:
        write_json(score_json(found, scored, debug=debug))
    else:
        show_score(found, scored, debug=debug)


def _score_open(context: Context, group: str | None, *, debug: bool) -> None:
    from judge.commands.score_view import score_json, show_open_score
    from judge.scoring.manual_score import score_open
    from recorder.commands.context import run

    settings = context.settings()
    shown = []
    for found, scored in run(context, lambda project: score_open(project, settings.judge, group)):
        if isinstance(scored, str):
            echo(f"group {found.id}: {scored}", err=True)
        elif context.json:
            shown.append(score_json(found, scored, debug=debug))
        else:
            show_open_score(found, scored, debug=debug)
    if context.json:
        write_json(shown)
