"""`hone keys` and `hone db`: keys of the proxy; the store's schema, integrity, copies and backups.

Owns: reading arguments, progress, and printing results with the next step. Refuses: what a key is
(`recorder.registry.keys`), migrating (`recorder.store.bootstrap`), the rules of integrity
(`recorder.maintenance.integrity`), copying (`recorder.maintenance.transfer`).
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from recorder.base.errors import FAILED
from recorder.base.terminal import echo, format_time, progress_bar, show_table, write_json
from recorder.base.urls import mask_store_url
from recorder.commands.context import Context, run
from recorder.errors import AdaptersUnavailable, StoreError

if TYPE_CHECKING:
    from io import TextIOWrapper

    from sqlalchemy.engine import URL

    from recorder.maintenance.integrity.invariants import CheckResult
    from recorder.maintenance.transfer.store_copy import CopyProgress, CopyResult
    from recorder.registry.keys import KeyView
    from recorder.store.database import Project, Store


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
    echo(_summary(done, to))
    if beside:
        echo(
            f"\nNot copied, because it is not part of the database: {', '.join(beside)} in {data.absolute()}. The "
            "store has the paths of\nadapters and checkpoints: keep that folder as `data`. On another machine it needs "
            "the same path."
        )


async def _copy(source: Store, url: str, *, quiet: bool) -> tuple[CopyResult, URL]:
    from recorder.maintenance.transfer.store_copy import copy_store
    from recorder.maintenance.transfer.target import open_target

    target = await open_target(url)
    try:
        with progress_bar(quiet=quiet) as report:

            def show(progress: CopyProgress) -> None:
                report(f"{_DOING[progress.doing]} {progress.table}", progress.done, progress.of)

            return await copy_store(source, target, show), target.url
    finally:
        await target.close()


def _summary(done: CopyResult, to: URL) -> str:
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

    from recorder.maintenance.transfer.store_copy import back_up, backup_command
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
    with progress_bar(quiet=context.json) as report:
        done = back_up(database, file, lambda pages, of: report("copying pages", pages, of))
    if context.json:
        write_json({"file": str(done.file), "size_bytes": done.size_bytes})
        return
    echo(f"Backed up to {done.file} ({done.size_bytes / 1e6:,.1f} MB), and checked it.")
    beside = [name for name in _beside(settings.data) if name in ("adapters", "checkpoints", "campaigns")]
    if beside:
        echo(f"Not in the backup: {', '.join(beside)} in {settings.data}. Copy them too.")


_BY: Final = "hone keys"  # recorded as the creator or revoker of a key


@click.group()
def keys() -> None:
    """Create, list, rotate and revoke keys."""


@keys.command()
@click.argument("name")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    default=("infer",),
    help="infer [default], feedback, feedback-all, read, eval, admin.",
)
@click.option("--days", type=click.FloatRange(min=0, min_open=True), help="Days until the key ends [never].")
@click.option(
    "--secret-file",
    type=click.File(),
    help="Read the key's secret from this file ('-': standard input). An existing key stays valid.",
)
@click.pass_obj
def create(
    context: Context, name: str, scopes: tuple[str, ...], days: float | None, secret_file: TextIOWrapper | None
) -> None:
    """Create a key called NAME and print it. It is shown only this once.

    With --secret-file the secret is one that was made elsewhere (`hone_` and at least 32 random characters), so that a
    deployment can also give it to agents. It is not printed, and repeating the command changes nothing.
    """
    from recorder.registry.keys import check_scopes, create_key

    try:
        check_scopes(scopes)
    except ValueError as e:
        raise click.BadParameter(str(e), param_hint="--scope") from e
    expires_at = None if days is None else time.time() + days * 86400
    if secret_file is not None:
        _adopt(context, name, scopes, secret_file.read().strip(), expires_at)
        return
    key, secret = run(context, lambda project: create_key(project, name, scopes, expires_at=expires_at, by=_BY))
    if context.json:
        write_json({**_key(key), "key": secret})
        return
    echo(secret)
    echo(f"Key {key.id} ({', '.join(sorted(key.scopes))}). Save it now: it is not shown again.", err=True)


def _adopt(context: Context, name: str, scopes: tuple[str, ...], secret: str, expires_at: float | None) -> None:
    from recorder.registry.keys import adopt_key

    try:
        key = run(context, lambda project: adopt_key(project, name, scopes, secret, expires_at, _BY))
    except ValueError as e:
        raise click.BadParameter(f"{e}", param_hint="--secret-file") from e
    if context.json:
        write_json(_key(key))
    else:
        echo(f"Key {key.id} ({', '.join(sorted(key.scopes))}) exists.")


@keys.command("list")
@click.pass_obj
def list_(context: Context) -> None:
    """List the project's keys, revoked ones too."""
    from recorder.registry.keys import list_keys

    found = run(context, list_keys)
    if context.json:
        write_json([_key(key) for key in found])
        return

    rows = [
        (k.id, k.name, f"{k.hint}…", " ".join(sorted(k.scopes)), k.trajectory_id, format_time(k.created_at),
         "revoked" if k.revoked_at else format_time(k.expires_at))
        for k in found
    ]  # fmt: skip
    show_table(("id", "name", "key", "scopes", "trajectory", "created", "until"), rows)


@keys.command()
@click.argument("key")
@click.option(
    "--grace", "grace_h", type=click.FloatRange(min=0), default=0.0, help="Hours that the old key stays valid [0]."
)
@click.pass_obj
def rotate(context: Context, key: str, grace_h: float) -> None:
    """Replace KEY (its id or name) with a new secret, and print it. It is shown only this once.

    The new key has the same scopes and trajectories. The old one ends at once, or after --grace hours.
    """
    from recorder.registry.keys import rotate_key

    made, secret = run(context, lambda project: rotate_key(project, key, grace_h * 3600, _BY))
    if context.json:
        write_json({**_key(made), "key": secret})
        return
    echo(secret)
    until = f"stays valid for {grace_h:g} h" if grace_h else "has ended"
    echo(f"Key {made.id} replaces {made.replaces}, which {until}. Save it now: it is not shown again.", err=True)


@keys.command()
@click.argument("key")
@click.pass_obj
def revoke(context: Context, key: str) -> None:
    """Revoke KEY (its id or name) for good."""
    from recorder.registry.keys import revoke_key

    gone = run(context, lambda project: revoke_key(project, key, _BY))
    if context.json:
        write_json(_key(gone))
    else:
        echo(f"Key {gone.id} is revoked.")


def _key(key: KeyView) -> dict[str, Any]:
    return {**asdict(key), "scopes": sorted(key.scopes)}


@click.group()
def db() -> None:
    """Maintain the store: upgrade, check, copy, back up."""


db.add_command(copy)
db.add_command(backup)


@db.command()
@click.pass_obj
def upgrade(context: Context) -> None:
    """Migrate the store's schema to this program's, or create an empty store. Stop all users of the store first."""
    from recorder.store.bootstrap import HEAD

    async def shown(project: Project) -> str:
        return mask_store_url(project.store.url)

    url = run(context, shown, migrate=True)
    if context.json:
        write_json({"store": url, "schema": HEAD})
    else:
        echo(f"The store {url} has schema {HEAD}.")


@db.command()
@click.pass_obj
def check(context: Context) -> None:
    """Check the store's integrity: every invariant, over every row.

    The check only reads, a page at a time, and may run while Hone does. The exit status is 1 if a rule is broken. Each
    violation says what is wrong, where, and what to do.
    """
    from recorder.adapters.storage import storage_at
    from recorder.maintenance.integrity.invariants import check_store

    data, storage = context.settings().data, storage_at(context.settings().adapters.url)
    try:
        shared = storage.names() if storage is not None else set()
    except AdaptersUnavailable as e:
        echo(f"note: {e} So versions that are there alone are reported as missing.", err=True)
        shared = set()
    report = (lambda _: None) if context.json else _print_result
    done = run(context, lambda project: check_store(project.store, data, report, shared))
    if context.json:
        write_json([asdict(one) for one in done])
    broken = sum(len(one.violations) for one in done)
    if not context.json:
        echo(f"{len(done)} rules, {broken} violations" if broken else f"{len(done)} rules, no violations.")
    if broken:
        raise SystemExit(FAILED)


def _print_result(one: CheckResult) -> None:
    """Print the result of one rule. Ids and paths may come from outside."""
    mark = "BROKEN" if one.violations else "ok"
    echo(f"{mark:6} {one.title} ({one.rows:,} rows)", err=not one.violations)
    for violation in one.violations:
        echo(f"       {violation.kind} {violation.id}: {violation.what}. To do: {violation.do}.")
