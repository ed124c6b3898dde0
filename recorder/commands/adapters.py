"""`hone adapters sync`: what runs on the host of each engine where adapters come from `adapters.url`.

Owns: reading arguments, the folder of the copies and its permissions, logging. Refuses: fetching
(`recorder.adapters.sync`). It needs neither the store nor a proxy.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING

import click

from recorder.base.errors import FAILED
from recorder.base.terminal import echo, write_json
from recorder.commands.context import Context

if TYPE_CHECKING:
    from recorder.adapters.storage import AdapterStorage
    from recorder.adapters.sync import SyncResult


@click.group()
def adapters() -> None:
    """Adapters that come from `adapters.url` instead of a common folder."""


@adapters.command()
@click.option("--once", is_flag=True, help="Fetch what is missing, then exit: 1 if something could not be fetched.")
@click.pass_obj
def sync(context: Context, once: bool) -> None:
    """Keep this host's adapters as they are at adapters.url, until stopped.

    It runs beside an engine, on the same data folder. Each version is verified against its manifest before the engine
    can see it. A version is removed here after the learner removed it there.
    """
    settings = context.settings()
    if settings.adapters.url is None:
        raise click.UsageError("adapters.url is not set (HONE_ADAPTERS__URL): without it engines read the data folder.")
    storage, into = _prepare(settings.adapters.url, settings.data, settings.engine.adapter_group)
    if once:
        from recorder.adapters.sync import AdapterSync

        result = AdapterSync(storage, into).run_pass()
        _show(context, result, into)
        if result.failed:
            raise SystemExit(FAILED)
        return
    if context.json:
        raise click.UsageError("--json is for --once.")
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)-7s %(message)s")
    logging.getLogger("recorder.adapters").setLevel(logging.INFO)
    asyncio.run(_run(storage, into, settings.adapters.sync_s))


def _prepare(url: str, data: Path, group: str | None) -> tuple[AdapterStorage, Path]:
    """Return the storage, and the folder that the engine reads, with its permissions."""
    from recorder.adapters.storage import AdapterStorage
    from recorder.processes import file_modes
    from recorder.store.data_folder import ADAPTERS, make_data_folder, share_adapters

    folder = make_data_folder(data)
    share_adapters(folder, group)
    file_modes.make_folder(folder / ADAPTERS)
    return AdapterStorage(url), folder / ADAPTERS


async def _run(storage: AdapterStorage, into: Path, every_s: float) -> None:
    from recorder.adapters.sync import AdapterSync, keep_in_sync
    from recorder.processes.signals import call_on_stop

    stopping = asyncio.Event()
    with call_on_stop(stopping.set):
        logging.getLogger("recorder.adapters").info("%s is looked at every %g s, for %s", storage.url, every_s, into)
        await keep_in_sync(AdapterSync(storage, into), every_s, stopping)


def _show(context: Context, result: SyncResult, into: Path) -> None:
    if context.json:
        write_json({"fetched": result.fetched, "removed": result.removed, "failed": result.failed})
        return
    for name in result.fetched:
        echo(f"fetched {name}")
    for name in result.removed:
        echo(f"removed {name}")
    for sentence in result.failed:
        echo(f"error: {sentence}", err=True)
    if not (result.fetched or result.removed or result.failed):
        echo(f"{into} is as adapters.url is.")
