"""`hone learn`.

Owns: its flags. Refuses: the learner (`trainer.runtime.learner`).
"""

from __future__ import annotations

import asyncio
import json
import sys

import click

from recorder.commands.context import Context
from trainer.commands.support import log_to_terminal, processes_option, run, work_as_other_rank


@click.command()
@click.option("--alias", "names", multiple=True, metavar="NAME", help="An alias to train [all]. Repeatable.")
@click.option(
    "--check", "only_check", is_flag=True, help="Only check whether gates can attempt their scenarios, then exit."
)
@processes_option
@click.option("--engine-logprobs", is_flag=True, hidden=True)  # `hone doctor` sends them on standard input
@click.option("--explain-target", is_flag=True, hidden=True)  # for `hone doctor`
@click.pass_obj
def learn(
    context: Context,
    names: tuple[str, ...],
    only_check: bool,
    processes: int | None,
    engine_logprobs: bool,
    explain_target: bool,
) -> None:
    """Train on live traffic: begin a step whenever enough groups are scored, until stopped."""
    if explain_target:
        _explain_target(context)
        return
    if engine_logprobs:
        _compare(context)
        return
    if only_check:
        _check(context)
        return
    context.override("trainer.processes", processes)
    if work_as_other_rank(context):
        return
    log_to_terminal()
    run(_learn(context, names), stopped=0)


def _check(context: Context) -> None:
    """Print the findings; exit with status 1 if one is an error."""
    from recorder.commands.context import echo_findings
    from trainer.runtime.examiner import check_gates

    echo_findings(asyncio.run(check_gates(context.settings())), as_json=context.json)


def _compare(context: Context) -> None:
    """Print whether the engines' logprobs on standard input are the trainer's."""
    from recorder.commands.context import echo_findings
    from trainer.runtime.train import compare_with_engines

    echo_findings(compare_with_engines(context.settings(), json.load(sys.stdin)), as_json=context.json)


def _explain_target(context: Context) -> None:
    """Print which share of the base's weights trainer.target adapts."""
    from recorder.commands.context import echo_findings
    from trainer.runtime.train import explain_target

    echo_findings(explain_target(context.settings()), as_json=context.json)


async def _learn(context: Context, names: tuple[str, ...]) -> None:
    from trainer.progress import choose_progress
    from trainer.runtime.learner import learn as run_learners

    with choose_progress(as_json=context.json) as shown:
        await run_learners(context.settings(), names, shown)
