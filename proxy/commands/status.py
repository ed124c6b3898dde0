"""`hone status` and `hone config`: what runs and is in service, and the settings in force.

Owns: reading and printing. Refuses: changing anything. Status works whether or not a proxy runs, because it asks the
store.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from proxy.commands.context import Context, print_table
from recorder.commands.support import run

if TYPE_CHECKING:
    from recorder.store.database import Store


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
    data = context.settings().data
    found = run(context, lambda store, project: _status(store, project, data))
    if context.json:
        click.echo(json.dumps(found, indent=2))
        return
    from rich.table import Table

    from recorder.commands.terminal import line

    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))

    def add(*cells: str) -> None:
        table.add_row(*map(line, cells))

    add("data", found["data"], "")
    up = found["run"]
    add("hone up", f"runs, {up['proxy_url']}/v1" if up else "does not run", "")
    for row in found["engines"]:
        add("engine", f"{row['url']} {row['state']}", row["detail"] or ", ".join(row["loaded"]))
    for row in found["proxies"]:
        add("proxy", row["url"], f"{row['in_flight']} in flight")
    for row in found["workers"]:
        add("worker", row, "")
    for row in found["aliases"]:
        canary = f", canary {row['canary']} ({row['canary_share']:.0%})" if row["canary"] else ""
        add("alias", row["name"], f"live {row['live']}{canary}")
    for row in found["shadow_answers"]:
        tokens = f"{row['prompt_tokens']} tokens read and {row['sampled_tokens']} sampled in 24 h"
        add("shadow answers", f"{row['answers']} ({row['alias']})", tokens)
    for row in found["never_trained"]:
        add("never trained on", f"{row['client']} ({row['alias']}): {row['why']}", row["advice"])
    for row in found["attribution_missing"]:
        add("attribution missing", f"{row['client']} ({row['alias']}): {row['calls']} calls, each a run", row["advice"])
    print_table(table)


async def _status(store: Store, project: str, data: Path) -> dict[str, Any]:
    from proxy.programs.run_file import read_run_file
    from recorder.reading.never_trained import never_trained
    from recorder.reading.shadow_costs import shadow_costs
    from recorder.reading.unattributed import ADVICE, unattributed
    from recorder.registry import replicas
    from recorder.registry.aliases import get_aliases
    from recorder.registry.versions import get_versions
    from recorder.work import leases

    recent_s = 30.0
    names = {v.id: v.name for v in await get_versions(store, project)}
    return {
        "data": str(data),
        "run": read_run_file(data),
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
        "shadow_answers": [asdict(one) for one in await shadow_costs(store, project, time.time() - 86400.0)],
        "never_trained": [
            {**asdict(one), "why": one.why(), "advice": one.advice()} for one in await never_trained(store, project)
        ],
        "attribution_missing": [{**asdict(one), "advice": ADVICE} for one in await unattributed(store, project)],
    }
