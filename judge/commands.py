"""`hone judge` and `hone score`.

Owns: reading arguments, signals. Refuses: scoring (`judge.scoring`), and how a score reads (`judge.showing`).
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import click

from judge.settings import JudgeSettings

if TYPE_CHECKING:
    from recorder.settings import LearnSettings, RecorderSettings


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


@click.command()
@click.option("--check", "only_check", is_flag=True, help="Only say whether its settings can work, and end.")
@click.pass_obj
def judge(context: Context, only_check: bool) -> None:
    """Score groups as they become ready, until stopped."""
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


async def run_worker(settings: Settings) -> None:
    """Run one judge worker until SIGTERM or SIGINT. Raises JudgeMisconfigured, StoreError, SchemaMismatch."""
    from judge.scoring.bench import check_settings, open_bench
    from judge.scoring.worker import JudgeWorker
    from recorder.store.migrate import open_store

    check_settings(settings.judge)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    store = await open_store(settings.data, settings.recorder, migrate=False, project=settings.project)
    try:
        async with open_bench(settings.judge, store, settings.project) as bench:
            worker = JudgeWorker(store, settings.project, bench, settings.recorder, learn=settings.learn)
            names = ", ".join(f"{reward.name} x {reward.weight:g}" for reward in settings.judge.in_force())
            logging.getLogger(__name__).info(
                "judge %s: %s (%s)", worker.owner, names, settings.judge.model or "no model"
            )
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
@click.pass_obj
def score(context: Context, group: str | None, still_open: bool, debug: bool, save: bool, again: bool) -> None:
    """Judge one GROUP (its id, or the name it was given) and show how.

    Changes nothing in the store without --save or --again. With --open, runs that go on are judged as if they had
    ended now.
    """
    from judge.errors import JudgeUnanswered
    from judge.scoring.bench import check_settings
    from recorder.commands.terminal import clean

    if group is None and not still_open:
        raise click.UsageError("name a group, or say --open for all that are open.")
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
