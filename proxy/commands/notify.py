"""`hone notify`: the notifications that were sent, failed or wait, and sending a test.

Owns: reading arguments and printing. Refuses: what is told (`recorder.views.notices`) and sending it
(`proxy.notifications`). `hone notify test` works without a running proxy.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from recorder.base.errors import FAILED
from recorder.base.terminal import build_table, clean_line, clock_or_date, echo, show, write_json, write_json_line
from recorder.commands.context import Context, run

if TYPE_CHECKING:
    from rich.text import Text

    from proxy.settings.hone import HoneSettings
    from recorder.queue.notifications import Notification
    from recorder.store.database import Project

_COLOURS = {"sent": "green", "failed": "red", "waiting": "yellow", "counted": "dim"}


@click.group()
def notify() -> None:
    """List notifications, and send a test."""


@notify.command(name="list")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="How many.")
@click.pass_obj
def list_command(context: Context, limit: int) -> None:
    """List the newest notifications, newest first: what was sent, what failed and why, and what waits."""
    listed = run(context, lambda project: _list(project, limit))
    if context.json:
        write_json([asdict(one) for one in listed])
        return
    if not listed:
        echo("No notification yet. `hone notify test` sends one.")
        return
    show(build_table(("when", "kind", "state", "what", "tries", "note"), map(_row, listed)), folded=True)


@notify.command()
@click.pass_obj
def test(context: Context) -> None:
    """Send one message to `notify.url` now, and show whether the receiver accepted it."""
    settings = context.settings()
    one = run(context, lambda project: _send(project, settings), migrate=True)
    if context.json:
        write_json_line(asdict(one))
    elif one.error is None:
        echo(f"The receiver accepted the test {one.id}.")
    else:
        echo(f"The test was not accepted: {one.error}.", err=True)
    if one.error is not None:
        raise SystemExit(FAILED)


async def _list(project: Project, limit: int) -> list[Notification]:
    from recorder.queue.notifications import list_notifications

    return await list_notifications(project, limit)


async def _send(project: Project, settings: HoneSettings) -> Notification:
    from proxy.errors import ConfigError
    from proxy.notifications.target import find_target
    from proxy.notifications.trial import OFF, send_trial

    proxy = settings.proxy
    pages = (proxy.url or f"http://{proxy.host}:{proxy.port}") if proxy.pages else None
    target = find_target(settings.notify, pages)
    if target is None:
        raise ConfigError(OFF)
    return await send_trial(project, target, "`hone notify test`")


def _row(one: Notification) -> list[Text]:
    note = one.error or (f"and {one.omitted} more" if one.omitted else "")
    cells = (one.what, one.tries or "", note)
    state = clean_line(one.state, _COLOURS.get(one.state, ""))
    return [clean_line(clock_or_date(one.at)), clean_line(one.kind), state, *map(clean_line, cells)]
