"""`hone keys` and `hone db`: keys of the proxy, the store's schema, and its integrity.

Owns: reading arguments and printing. Refuses: what a key is (`recorder.registry.keys`), migrating
(`recorder.store.bootstrap`), the rules of integrity (`recorder.maintenance.integrity`), copies and backups
(`recorder.commands.store_copy`).
"""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import click

from recorder.base.errors import FAILED
from recorder.base.json_output import write_json
from recorder.base.terminal import echo, format_time, show_table
from recorder.base.urls import mask_store_url
from recorder.commands.context import Context
from recorder.commands.store_copy import backup, copy
from recorder.commands.support import run

if TYPE_CHECKING:
    from io import TextIOWrapper

    from recorder.maintenance.integrity.invariants import CheckResult
    from recorder.registry.keys import KeyView
    from recorder.store.database import Project


_BY: Final = "hone keys"  # recorded as who created or revoked a key


@click.group()
def keys() -> None:
    """Create, list, rotate and revoke keys."""


@keys.command()
@click.argument("name")
@click.option(
    "--scope", "scopes", multiple=True, default=("infer",), help="infer [default], feedback, read, eval, admin."
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
    from recorder.registry.keys import Scope, create_key

    unknown = [scope for scope in scopes if scope not in set(Scope)]
    if unknown:
        raise click.BadParameter(f"{unknown[0]!r} is none of {', '.join(Scope)}", param_hint="--scope")
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
    """Check the store's integrity: every rule that Hone keeps, over every row.

    The check only reads, a page at a time, and may run while Hone does. The exit status is 1 if a rule is broken. Each
    violation says what is wrong, where, and what to do.
    """
    from recorder.maintenance.integrity.invariants import check_store

    data = context.settings().data
    heard = (lambda _: None) if context.json else _say
    done = run(context, lambda project: check_store(project.store, data, heard))
    if context.json:
        write_json([asdict(one) for one in done])
    broken = sum(len(one.violations) for one in done)
    if not context.json:
        echo(f"{len(done)} rules, {broken} violations" if broken else f"{len(done)} rules, no violations.")
    if broken:
        raise SystemExit(FAILED)


def _say(one: CheckResult) -> None:
    """Print one rule when it is done. Ids and paths may come from outside."""

    mark = "BROKEN" if one.violations else "ok"
    echo(f"{mark:6} {one.title} ({one.rows:,} rows)", err=not one.violations)
    for violation in one.violations:
        echo(f"       {violation.kind} {violation.id}: {violation.what}. To do: {violation.do}.")
