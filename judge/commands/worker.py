"""`hone judge`: the worker, and the group of the subcommands.

Owns: its flags, and running the worker until it is told to stop. Refuses: scoring (`judge.scoring`).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import click

from judge.commands.check import check_tricks
from recorder.base.gc_pause import pause_gc
from recorder.commands.context import Context

if TYPE_CHECKING:
    from proxy.settings.hone import HoneSettings


@click.group(invoke_without_command=True)
@click.option("--check", "only_check", is_flag=True, help="Only check whether its settings work, then exit.")
@click.pass_context
def judge(click_context: click.Context, only_check: bool) -> None:
    """Score groups as they become ready, until stopped."""
    context: Context = click_context.obj
    if click_context.invoked_subcommand is not None:
        if only_check:
            raise click.UsageError("--check takes no subcommand.")
        return
    if only_check:
        _check(context)
        return
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("judge").setLevel(logging.INFO)
    asyncio.run(run_worker(context.settings()))


def _check(context: Context) -> None:
    """Print the findings; exit with status 1 if one is an error."""
    from judge.scoring.checks import check_judge
    from recorder.commands.support import echo_findings

    echo_findings(asyncio.run(check_judge(context.settings().judge)), as_json=context.json)


judge.add_command(check_tricks)


async def run_worker(settings: HoneSettings) -> None:
    """Run one judge worker until SIGTERM or SIGINT. Raises JudgeMisconfigured, StoreError, SchemaMismatch."""
    with pause_gc():
        from judge.scoring.setup import check_settings, describe_parts, open_judge_context
        from judge.scoring.worker import JudgeWorker
        from recorder.processes.signals import call_on_stop
        from recorder.store.bootstrap import open_store
        from recorder.store.database import Project

    check_settings(settings.judge)
    known = settings.judge.known_recipes()
    stop = asyncio.Event()
    with call_on_stop(stop.set):
        store = await open_store(settings.data, settings.recorder, migrate=False, project=settings.project)
        try:
            async with open_judge_context(settings.judge, Project(store, settings.project)) as judge_context:
                worker = JudgeWorker(
                    Project(store, settings.project), judge_context, settings.recorder, learn=settings.learn
                )
                told = "; ".join(
                    f"{name}: {describe_parts(settings.judge.by_recipe(name)) or 'nothing'}" for name in known
                )
                by, strong = settings.judge.model or "no model", settings.judge.strong
                by += f", checked by {strong.model}" if strong is not None else ""
                logging.getLogger(__name__).info("judge %s: %s (%s)", worker.owner, told, by)
                await worker.run(stop)
        finally:
            await store.close()
