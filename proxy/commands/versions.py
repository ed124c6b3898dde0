"""`hone versions`, `promote`, `canary`, `rollback`: the versions of an alias, and moving it.

Owns: reading arguments and printing. Refuses: the moves themselves (`recorder.registry.aliases` guards them). They
work whether or not a proxy runs, because a running one follows the store.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from proxy.commands import completion
from proxy.commands.context import print_table
from recorder.commands.context import Context
from recorder.commands.support import run

if TYPE_CHECKING:
    from proxy.api.steering import Moved
    from recorder.registry.aliases import AliasView
    from recorder.registry.moves import Move
    from recorder.registry.versions import VersionView
    from recorder.store.database import Store

_METRICS = {"reward": "reward_mean", "kl": "kl_engine", "tokens": "tokens"}  # column → the trainer's name of it


@click.command()
@click.argument("alias", required=False, shell_complete=completion.aliases)
@click.option("--moves", is_flag=True, help="What was decided about them instead: when, by whom, why, which figures.")
@click.pass_obj
def versions(context: Context, alias: str | None, moves: bool) -> None:
    """List the versions of ALIAS, or of every alias, newest first."""
    if moves:
        _tell_moves(context, run(context, lambda store, project: _moves(store, project, alias)))
        return
    found = run(context, lambda store, project: _versions(store, project, alias))
    if context.json:
        click.echo(json.dumps([_version_json(a, v) for a, vs in found for v in vs], indent=2))
        return
    from rich.table import Table

    from recorder.commands.terminal import line

    for one, its_versions in found:
        columns = ("version", "state", "parent", "verified", "since", *_METRICS, "reason")
        table = Table(*columns, box=None, header_style="dim")
        names = {v.id: v.name for v in its_versions}
        for v in its_versions:
            parent = names.get(v.parent_id or "", "")
            figures = [_figure(v.metrics.get(name)) for name in _METRICS.values()]
            cells = (parent, v.verified or "", _when(v.state_at), *figures, v.reason or "")
            table.add_row(line(v.name), line(*_state(one, v)), *map(line, cells))
        print_table(table)


async def _versions(store: Store, project: str, alias: str | None) -> list[tuple[AliasView, list[VersionView]]]:
    from recorder.registry.aliases import get_alias, get_aliases
    from recorder.registry.versions import list_versions

    aliases = [await get_alias(store, project, alias)] if alias else await get_aliases(store, project)
    return [(one, await list_versions(store, one.id)) for one in aliases]


async def _moves(store: Store, project: str, alias: str | None) -> list[Move]:
    from recorder.registry.aliases import get_alias
    from recorder.registry.moves import list_moves

    one = await get_alias(store, project, alias) if alias else None
    return await list_moves(store, project, alias=one.name if one else None)


def _tell_moves(context: Context, found: list[Move]) -> None:
    if context.json:
        click.echo(json.dumps([asdict(move) for move in found], indent=2))
        return
    from rich.table import Table

    from recorder.commands.terminal import line

    table = Table("when", "version", "move", "who", "why", "figures", box=None, header_style="dim")
    for move in found:
        figures = " ".join(f"{name}={_figure(value) or value}" for name, value in move.figures.items())
        cells = (_when(move.at), move.version, move.move, move.who or "", move.why or "", figures)
        table.add_row(*map(line, cells))
    print_table(table)


@click.command()
@click.argument("version", shell_complete=completion.versions)
@click.option("--alias", help="The alias, where there are several.", shell_complete=completion.aliases)
@click.option("--why", help="Why, in your words: it is kept with the move.")
@click.pass_obj
def promote(context: Context, version: str, alias: str | None, why: str | None) -> None:
    """Make VERSION live: its number, or its name (helpdesk@3)."""
    from proxy.api import steering

    _tell_move(context, run(context, lambda store, project: steering.promote(store, project, version, alias, why=why)))


@click.command()
@click.argument("version", shell_complete=completion.versions)
@click.argument("percent", type=click.FloatRange(0, 100))
@click.option("--alias", help="The alias, where there are several.", shell_complete=completion.aliases)
@click.option("--why", help="Why, in your words: it is kept with the move.")
@click.pass_obj
def canary(context: Context, version: str, percent: float, alias: str | None, why: str | None) -> None:
    """Give VERSION (its number, or its name) PERCENT of new groups: it is the canary then.

    `hone rollback` takes it away, `hone promote` makes it live.
    """
    from proxy.api import steering

    part = percent / 100
    after = run(context, lambda store, project: steering.share(store, project, version, part, alias, why=why))
    name = f"{after.name}@{version.rpartition('@')[2]}"
    if context.json:
        click.echo(json.dumps({"alias": after.name, "canary": name, "share": after.canary_share}))
    else:
        click.echo(f"{name} gets {percent:g}% of new groups")


@click.command()
@click.argument("alias", required=False, shell_complete=completion.aliases)
@click.option("--why", help="Why, in your words: it is kept with the move.")
@click.pass_obj
def rollback(context: Context, alias: str | None, why: str | None) -> None:
    """Take the canary of ALIAS away; without a canary, go back to the version that was live before.

    Running trajectories move at once.
    """
    from proxy.api import steering

    _tell_move(context, run(context, lambda store, project: steering.roll_back(store, project, alias, why=why)))


def _tell_move(context: Context, moved: Moved) -> None:
    before, after = moved.left, moved.live
    if context.json:
        click.echo(json.dumps({"alias": after.alias_name, "live": after.name, "left": before}))
    else:
        click.echo(f"{after.name} is live" + (f" ({before} left)" if before and before != after.name else ""))


def _version_json(alias: AliasView, version: VersionView) -> dict[str, Any]:
    shown = (
        "name",
        "number",
        "state",
        "reason",
        "engine_name",
        "path",
        "verified",
        "metrics",
        "created_at",
        "state_at",
    )
    return {
        "alias": alias.name,
        **{name: getattr(version, name) for name in shown},
        "parent_id": version.parent_id,
        "id": version.id,
        "live": version.id == alias.live_version_id,
    }


def _state(alias: AliasView, version: VersionView) -> tuple[str, str]:
    """A version's state as it is shown, and its colour."""
    colours = {"live": "bold green", "canary": "yellow", "rejected": "red", "abandoned": "dim", "retired": "dim"}
    shares = {alias.canary_version_id: alias.canary_share}
    if alias.watched_until is not None:
        shares[alias.previous_version_id] = alias.holdback_share
    share = f" {shares[version.id]:.0%}" if version.id in shares else ""
    colour = colours.get(version.state, "default")
    return f"{version.state}{share}", colour


def _figure(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, int | float) else ""


def _when(unix_s: float) -> str:
    """The time of day for what happened today, else the date too."""
    then = datetime.fromtimestamp(unix_s).astimezone()
    return then.strftime("%H:%M:%S" if then.date() == datetime.now().astimezone().date() else "%Y-%m-%d %H:%M:%S")
