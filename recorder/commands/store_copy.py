"""`hone db copy` and `hone db backup`: copy a store to another database, or to a file.

Owns: reading arguments, progress, and printing what to do next. Refuses: copying itself
(`recorder.maintenance.transfer`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from recorder.base.json_output import write_json
from recorder.base.live import progress_bar
from recorder.base.terminal import echo
from recorder.base.urls import mask_store_url
from recorder.commands.context import Context
from recorder.commands.support import run
from recorder.errors import StoreError

if TYPE_CHECKING:
    from sqlalchemy.engine import URL

    from recorder.maintenance.transfer.store_copy import CopyProgress, CopyResult
    from recorder.store.database import Store

_DOING: Final = {"copy": "copying", "verify": "verifying"}


@click.command()
@click.option("--to", "url", required=True, metavar="URL", help="An empty PostgreSQL or SQLite database.")
@click.pass_obj
def copy(context: Context, url: str) -> None:
    """Copy the whole store to another database, SQLite or PostgreSQL, and check that both are equal.

    URL is postgresql+asyncpg://USER@HOST/DATABASE or sqlite+aiosqlite:////FOLDER/hone.db. Put a password into
    PGPASSWORD or ~/.pgpass rather than into the URL. Stop all users of the store first. An interrupted copy continues
    when the command is repeated.
    """
    done, to = run(context, lambda project: _copy(project.store, url, quiet=context.json))
    data = context.settings().data
    beside = _beside(data)
    if context.json:
        shown = mask_store_url(to)
        write_json(
            {"store": shown, "rows": done.rows, "resumed": done.resumed, "tables": done.tables, "beside": beside}
        )
        return
    echo(_told(done, to))
    if beside:
        echo(
            f"\nNot copied, because it is not part of the database: {', '.join(beside)} in {data.absolute()}. The "
            "store has the paths of\nadapters and checkpoints: keep that folder as `data`, and on another machine at "
            "the same path."
        )


async def _copy(source: Store, url: str, *, quiet: bool) -> tuple[CopyResult, URL]:
    from recorder.maintenance.transfer.store_copy import copy_store
    from recorder.maintenance.transfer.target import open_target

    target = await open_target(url)
    try:
        with progress_bar(quiet=quiet) as tell:

            def heard(news: CopyProgress) -> None:
                tell(f"{_DOING[news.doing]} {news.table}", news.done, news.of)

            return await copy_store(source, target, heard), target.url
    finally:
        await target.close()


def _told(done: CopyResult, to: URL) -> str:
    shown = mask_store_url(to)
    password = (
        ""
        if to.password is None
        else "# with the password in place of ***, or without one and PGPASSWORD in the environment\n"
    )
    began = " It continued an earlier copy." if done.resumed else ""
    return (
        f"Copied {done.rows:,} rows of {len(done.tables)} tables; every table is equal in both stores.{began}\n"
        "The source store is unchanged and still in use. To use the copy, write into hone.toml:\n\n"
        f"[recorder]\n{password}url = {json.dumps(shown)}"
    )


def _beside(data: Path) -> list[str]:
    from recorder.store.data_folder import OURS

    return sorted(path.name for name in OURS if not name.startswith("hone.db") for path in data.glob(name))


@click.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.pass_obj
def backup(context: Context, file: Path) -> None:
    """Copy a SQLite store to FILE, which must not exist yet, while everything runs.

    The copy is the store at one moment, readable by its owner only, and checked. To restore it, stop all users of the
    store and put the file in the place of `hone.db`, without a `hone.db-wal` or `hone.db-shm` beside it. Adapters and
    checkpoints are in the data folder, not in the store: back them up too. For PostgreSQL the command prints what to
    run.
    """
    from sqlalchemy.engine import make_url

    from recorder.maintenance.transfer.backup import back_up, backup_command
    from recorder.store.bootstrap import has_store
    from recorder.store.database import sqlite_url

    settings = context.settings()
    if not has_store(settings.data, settings.recorder):
        raise StoreError(f"there is no store in {settings.data}: name its folder with --data.")
    url = make_url(settings.recorder.url or sqlite_url(settings.data))
    if url.get_backend_name() != "sqlite" or url.database is None:
        raise StoreError(
            f"PostgreSQL has its own backup, which works while everything runs:\n\n{backup_command(url, file)}"
        )
    database = Path(url.database)
    with progress_bar(quiet=context.json) as tell:
        done = back_up(database, file, lambda pages, of: tell("copying pages", pages, of))
    if context.json:
        write_json({"file": str(done.file), "size_bytes": done.size_bytes})
        return
    echo(f"Backed up to {done.file} ({done.size_bytes / 1e6:,.1f} MB), and checked it.")
    beside = [name for name in _beside(settings.data) if name in ("adapters", "checkpoints", "campaigns")]
    if beside:
        echo(f"Not in the backup: {', '.join(beside)} in {settings.data}. Copy them too.")
