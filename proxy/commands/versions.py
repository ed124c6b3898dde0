"""`hone versions`, `promote`, `rollback`, `config`, `status`: what is in service, and moving it.

Owns: reading arguments and printing. Refuses: the moves themselves (`recorder.registry.aliases` guards them). They
work whether or not a proxy runs, because a running one follows the store.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from proxy.commands.context import Context

if TYPE_CHECKING:
    from proxy.api.steering import Moved
    from proxy.settings.hone import HoneSettings
    from recorder.registry.aliases import AliasView
    from recorder.registry.versions import VersionView
    from recorder.store.database import Store

_METRICS = {"reward": "reward_mean", "kl": "kl_engine", "tokens": "tokens"}  # column → the trainer's name of it
_PIPE_WIDTH = 200  # lines for a program or a file are not folded at 80


@asynccontextmanager
async def opened(settings: HoneSettings) -> AsyncIterator[Store]:
    """The store of these settings, for the length of a command. Raises StoreError, SchemaMismatch."""
    from recorder.store.migrate import open_store

    store = await open_store(settings.data, settings.recorder, migrate=False, project=settings.project)
    try:
        yield store
    finally:
        await store.close()


@click.command()
@click.argument("alias", required=False)
@click.pass_obj
def versions(context: Context, alias: str | None) -> None:
    """List the versions of ALIAS, or of every alias, newest first."""
    found = asyncio.run(_versions(context.settings(), alias))
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
        _print(table)


async def _versions(settings: HoneSettings, alias: str | None) -> list[tuple[AliasView, list[VersionView]]]:
    from recorder.registry.aliases import get_alias, get_aliases
    from recorder.registry.versions import list_versions

    async with opened(settings) as store:
        project = settings.project
        aliases = [await get_alias(store, project, alias)] if alias else await get_aliases(store, project)
        return [(one, await list_versions(store, one.id)) for one in aliases]


@click.command()
@click.argument("version")
@click.option("--alias", help="The alias, where there are several.")
@click.pass_obj
def promote(context: Context, version: str, alias: str | None) -> None:
    """Make VERSION live: its number, or its name (helpdesk@3)."""
    _tell_move(context, asyncio.run(_promote(context.settings(), version, alias)))


async def _promote(settings: HoneSettings, version: str, alias: str | None) -> Moved:
    from proxy.api.steering import promote

    async with opened(settings) as store:
        return await promote(store, settings.project, version, alias)


@click.command()
@click.argument("alias", required=False)
@click.pass_obj
def rollback(context: Context, alias: str | None) -> None:
    """Take the canary of ALIAS away; without a canary, go back to the version that was live before.

    Running trajectories move at once.
    """
    _tell_move(context, asyncio.run(_rollback(context.settings(), alias)))


async def _rollback(settings: HoneSettings, alias: str | None) -> Moved:
    from proxy.api.steering import roll_back

    async with opened(settings) as store:
        return await roll_back(store, settings.project, alias)


def _tell_move(context: Context, moved: Moved) -> None:
    before, after = moved.left, moved.live
    if context.json:
        click.echo(json.dumps({"alias": after.alias_name, "live": after.name, "left": before}))
    else:
        click.echo(f"{after.name} is live" + (f" ({before} left)" if before and before != after.name else ""))


@click.command()
@click.pass_obj
def config(context: Context) -> None:
    """Show the settings in force and where each value came from. Secrets are masked."""
    from proxy.settings.showing import leaves, shown

    loaded = context.loaded()
    values = [(key, shown(key, value), loaded.origin[key]) for key, value in leaves(loaded.settings)]
    if context.json:
        settings = {key: {"value": value, "from": origin} for key, value, origin in values}
        click.echo(json.dumps({"file": str(loaded.file) if loaded.file else None, "settings": settings}, indent=2))
        return
    width = max(len(key) for key, _, _ in values)
    for key, value, origin in values:
        line = f"{key:<{width}}  {json.dumps(value, ensure_ascii=False)}"
        click.echo(line if origin == "default" else f"{line}  {click.style('<- ' + origin, fg='cyan')}")


@click.command()
@click.pass_obj
def status(context: Context) -> None:
    """Show what runs on this data folder, and which versions are in service."""
    found = asyncio.run(_status(context.settings()))
    if context.json:
        click.echo(json.dumps(found, indent=2))
        return
    from rich.table import Table

    from recorder.commands.terminal import line

    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))

    def add(*cells: str) -> None:
        table.add_row(*map(line, cells))

    add("data", found["data"], "")
    run = found["run"]
    add("hone up", f"runs, {run['proxy_url']}/v1" if run else "does not run", "")
    for row in found["engines"]:
        add("engine", f"{row['url']} {row['state']}", row["detail"] or ", ".join(row["loaded"]))
    for row in found["proxies"]:
        add("proxy", row["url"], f"{row['in_flight']} in flight")
    for row in found["workers"]:
        add("worker", row, "")
    for row in found["aliases"]:
        canary = f", canary {row['canary']} ({row['canary_share']:.0%})" if row["canary"] else ""
        add("alias", row["name"], f"live {row['live']}{canary}")
    _print(table)


async def _status(settings: HoneSettings) -> dict[str, Any]:
    from proxy.programs.run_file import read_run_file
    from recorder.registry import replicas
    from recorder.registry.aliases import get_aliases
    from recorder.registry.versions import get_versions
    from recorder.work import leases

    recent_s = 30.0
    async with opened(settings) as store:
        project = settings.project
        names = {v.id: v.name for v in await get_versions(store, project)}
        return {
            "data": str(settings.data),
            "run": read_run_file(settings.data),
            "engines": [
                {"url": r.url, "state": r.state, "detail": r.detail, "loaded": r.loaded, "base_model": r.base_model}
                for r in await replicas.list_replicas(store, project, recent_s)
            ],
            "proxies": [
                {"url": p.url, "in_flight": sum(p.in_flight.values())}
                for p in await replicas.proxies_seen(store, project, recent_s)
            ],
            "workers": [lease.name for lease in await leases.holders(store, project)],
            "aliases": [
                {
                    "name": a.name,
                    "live": names.get(a.live_version_id or ""),
                    "previous": names.get(a.previous_version_id or ""),
                    "canary": names.get(a.canary_version_id or ""),
                    "canary_share": a.canary_share,
                    "generation": a.generation,
                }
                for a in await get_aliases(store, project)
            ],
        }


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
    share = f" {alias.canary_share:.0%}" if version.id == alias.canary_version_id else ""
    colour = colours.get(version.state, "default")
    return f"{version.state}{share}", colour


def _figure(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, int | float) else ""


def _when(unix_s: float) -> str:
    """The time of day for what happened today, else the date too."""
    then = datetime.fromtimestamp(unix_s).astimezone()
    return then.strftime("%H:%M:%S" if then.date() == datetime.now().astimezone().date() else "%Y-%m-%d %H:%M:%S")


def _print(table: Any) -> None:
    from rich.console import Console

    console = Console(markup=False, emoji=False)
    if not console.is_terminal:
        console.width = _PIPE_WIDTH
    console.print(table)
