"""Helpers of the trainer's commands: kinds of flags, and stopping at a signal.

Refuses: the commands, and the meaning of exit statuses (`recorder.base.errors`).
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Callable, Coroutine, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from recorder.base.errors import INTERRUPTED
from recorder.base.terminal import echo

if TYPE_CHECKING:
    from proxy.settings.hone import HoneSettings
    from recorder.commands.context import Context
    from trainer.progress import Progress
    from trainer.runtime.services import ServiceRequest
    from trainer.tasks.scenarios import Scenario

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


def wanted_services(
    context: Context, settings: HoneSettings, proxy_url: str | None, env: Mapping[str, str] | None = None
) -> ServiceRequest:
    """The services that a command needs: a named proxy, those that run, or new ones. `env`: variables of new ones."""
    from trainer.runtime.services import ServiceRequest

    options = ["--data", str(settings.data)] + (["--config", str(context.config)] if context.config else [])
    url = proxy_url.rstrip("/").removesuffix("/v1") if proxy_url else None
    return ServiceRequest(
        settings.data, settings.project, settings.recorder, url, options, env or {},
        judge_is_set=settings.judge.is_set(),
    )  # fmt: skip


processes_option = click.option(
    "--processes", type=click.IntRange(1, 64), metavar="N",
    help="Processes that train together on this machine, each on a GPU of its own [trainer.processes].",
)  # fmt: skip


def work_as_other_rank(context: Context) -> bool:
    """Under torchrun, on every rank but the first: compute what that one sends until it ends, and return True."""
    from trainer.runtime.rank_program import is_other_rank, work_as_rank

    if not is_other_rank():
        return False
    log_to_terminal()
    work_as_rank(context.settings())
    return True


def path_option(name: str, text: str) -> Callable[[F], F]:
    """A flag for a file or a folder."""
    return click.option(name, type=click.Path(path_type=Path), help=text)


def parse_shares(_context: click.Context, _option: click.Parameter, text: str | None) -> list[float] | None:
    """The shares that a flag lists, as `0.8,0.1,0.1`."""
    try:
        return None if text is None else [float(share) for share in text.split(",")]
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a list of shares: write them as 0.8,0.1,0.1") from None


def run(work: Coroutine[Any, Any, T], *, stopped: int = INTERRUPTED) -> T:
    """Run to the end, or until SIGINT or SIGTERM, after which unfinished work can be resumed.

    `stopped`: the exit status after a signal. 0 suits a service, which ends in no other way.
    """
    with asyncio.Runner() as runner:
        try:
            return runner.run(_until_signalled(work))
        except asyncio.CancelledError:
            echo("stopped; repeat the command to continue from here", err=True)
            sys.exit(stopped)


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


def tell_ignored_columns(scenarios: Iterable[Scenario], progress: Progress) -> None:
    """Name the columns of task files that look like criteria and were not read."""
    from trainer.progress import Notice
    from trainer.tasks.scenarios import ignored_columns

    for column in ignored_columns(scenarios):
        progress.tell(Notice(str(column), warning=True))


def log_to_terminal() -> None:
    """Log warnings to standard error."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
