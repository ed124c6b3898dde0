"""API keys: minted once, kept as a hash, checked by what they may do.

Owns: keys and scopes. Refuses: HTTP, and what is allowed where no key exists (`proxy.admission.auth`).
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from sqlalchemy import insert, or_, select, update

from recorder.errors import Conflict, NotFound
from recorder.ids import new_id
from recorder.store import sql
from recorder.store.database import Store, now
from recorder.store.schema import keys

PREFIX: Final = "hone_"
_HINT_CHARS: Final = len(PREFIX) + 4


class Scope(StrEnum):
    """What a key may do."""

    INFER = "infer"  # call models
    FEEDBACK = "feedback"  # end runs and say how they went
    READ = "read"  # read transcripts, exports, the ledger
    EVAL = "eval"  # ask for a version by name, mark runs as val or eval
    ADMIN = "admin"  # everything, and move versions and keys


@dataclass(frozen=True, slots=True)
class KeyView:
    """A key without its secret. `trajectory_id`: it was minted for one run. Times are unix seconds."""

    id: str
    project_id: str
    name: str
    hint: str
    scopes: frozenset[Scope]
    trajectory_id: str | None
    created_at: float
    expires_at: float | None
    revoked_at: float | None

    def may(self, scope: Scope) -> bool:
        """Whether the key carries a scope; admin carries all."""
        return scope in self.scopes or Scope.ADMIN in self.scopes


async def mint(
    store: Store,
    project_id: str,
    name: str,
    scopes: Collection[str],
    trajectory_id: str | None = None,
    expires_at: float | None = None,
) -> tuple[KeyView, str]:
    """Make a key. Returns it and its secret, which is shown this once. Raises ValueError for an unknown scope."""
    granted = _scopes(scopes)
    secret = PREFIX + secrets.token_urlsafe(32)  # 256 random bits: a fast hash is enough
    key_id = new_id("key")
    statement = insert(keys).values(
        id=key_id,
        project_id=project_id,
        name=name,
        hash=_hash(secret),
        hint=secret[:_HINT_CHARS],
        scopes=sorted(granted),
        trajectory_id=trajectory_id,
        created_at=now(),
        expires_at=expires_at,
    )
    async with store.write() as conn:
        await conn.execute(statement)
        row = (await conn.execute(select(keys).where(keys.c.id == key_id))).one()
    return _view(row), secret


def _scopes(scopes: Collection[str]) -> frozenset[Scope]:
    unknown = set(scopes) - set(Scope)
    if unknown or not scopes:
        wrong = f"unknown: {', '.join(sorted(unknown))}" if unknown else "none was given"
        raise ValueError(f"a key needs scopes out of {', '.join(Scope)} ({wrong})")
    return frozenset(map(Scope, scopes))


async def verify(store: Store, secret: str) -> KeyView | None:
    """The key with that secret, unless it is unknown, revoked or past its time."""
    valid = (keys.c.revoked_at.is_(None), or_(keys.c.expires_at.is_(None), keys.c.expires_at > now()))
    async with store.read() as conn:
        row = (await conn.execute(select(keys).where(keys.c.hash == _hash(secret), *valid))).first()
    return _view(row) if row else None


async def list_keys(store: Store, project_id: str) -> list[KeyView]:
    """Every key of the project, revoked ones too, oldest first."""
    query = select(keys).where(keys.c.project_id == project_id).order_by(keys.c.created_at, keys.c.id)
    async with store.read() as conn:
        return [_view(row) for row in await conn.execute(query)]


async def revoke(store: Store, project_id: str, key: str) -> KeyView:
    """Revoke a key by its id or its name, for good. Raises NotFound, and Conflict where a name is ambiguous."""
    named = or_(keys.c.id == key, keys.c.name == key)
    of_project = (keys.c.project_id == project_id, named, keys.c.revoked_at.is_(None))
    async with store.write() as conn:
        rows = list(await conn.execute(select(keys.c.id).where(*of_project)))
        if not rows:
            raise NotFound(f"no key {key!r} in force in project {project_id!r}: `hone keys list` shows them")
        if len(rows) > 1:
            raise Conflict(f"{len(rows)} keys are called {key!r}: revoke by id (`hone keys list`)")
        revoked = update(keys).where(keys.c.id == rows[0].id).values(revoked_at=now()).returning(keys)
        return _view((await conn.execute(revoked)).one())


async def any_keys(store: Store, project_id: str) -> bool:
    """Whether the project is guarded by keys: one was made, for no single run, and it was not revoked.

    A key past its time still counts: time alone must not open what a key had closed.
    """
    guarding = (keys.c.project_id == project_id, keys.c.trajectory_id.is_(None), keys.c.revoked_at.is_(None))
    async with store.read() as conn:
        return (await conn.execute(select(keys.c.id).where(*guarding).limit(1))).first() is not None


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _view(row: Any) -> KeyView:
    return sql.view(KeyView, row, scopes=frozenset(map(Scope, row.scopes)))
