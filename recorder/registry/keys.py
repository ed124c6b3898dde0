"""API keys: created once, or imported with an existing secret, stored as a hash, checked by scope; and page sign-ins.

Owns: keys, scopes, families and sign-in tokens. Refuses: HTTP and cookies (`proxy.dashboard.sign_in`), and what is
allowed while no key exists (`proxy.admission.auth`).

Keys of one family share their trajectories: a key, the keys that replaced it, and the keys that it created for a
trajectory. A sign-in token is kept by a browser and stands for a key while that key is valid.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from sqlalchemy import ColumnElement, delete, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.errors import Conflict, NotFound
from recorder.ids import new_id
from recorder.store import sql
from recorder.store.database import Project, Store
from recorder.store.schema import keys, sign_ins
from recorder.store.sql import now

PREFIX: Final = "hone_"
SOMEBODY: Final = "somebody on this machine"  # the actor while no key is required
_HINT_CHARS: Final = len(PREFIX) + 4
_LEAST_CHARS: Final = len(PREFIX) + 32  # minimum length of an imported secret: 16 random bytes in hex


class Scope(StrEnum):
    """What a key may do."""

    INFER = "infer"  # call models
    FEEDBACK = "feedback"  # end trajectories of its own family and give feedback on them
    FEEDBACK_ALL = "feedback-all"  # the same for all trajectories: a backend's key, a reviewer's
    READ = "read"  # read transcripts, exports, the ledger
    EVAL = "eval"  # request a version by name, mark trajectories as val or eval
    ADMIN = "admin"  # everything, and move versions and keys


def grants(scopes: Collection[Scope], scope: Scope) -> bool:
    """Whether these scopes include one: admin includes all, and `feedback-all` includes `feedback`."""
    return scope in scopes or Scope.ADMIN in scopes or (scope is Scope.FEEDBACK and Scope.FEEDBACK_ALL in scopes)


@dataclass(frozen=True, slots=True)
class KeyView:
    """A key without its secret. Times are unix seconds.

    `trajectory_id`: set if it was created for one trajectory. `replaces`: the key that it was rotated from. `made_by`,
    `revoked_by`: a key's id, or the actor while no key was required; None: unknown.
    """

    id: str
    project_id: str
    name: str
    hint: str
    scopes: frozenset[Scope]
    trajectory_id: str | None
    created_at: float
    expires_at: float | None
    revoked_at: float | None
    family: str
    replaces: str | None
    made_by: str | None
    revoked_by: str | None

    def may(self, scope: Scope) -> bool:
        """Whether the key has a scope, or one that includes it."""
        return grants(self.scopes, scope)


async def create_key(
    project: Project,
    name: str,
    scopes: Collection[str],
    trajectory_id: str | None = None,
    expires_at: float | None = None,
    family: str | None = None,
    by: str | None = None,
) -> tuple[KeyView, str]:
    """Create a key, of a new family or of an existing one. `by`: the creator.

    Returns the key and its secret, which is not stored. Raises ValueError for an unknown scope, and for `feedback`
    without `infer`.
    """
    fields = {"name": name, "scopes": sorted(check_scopes(scopes)), "trajectory_id": trajectory_id, "made_by": by}
    async with project.store.write() as conn:
        return await _insert(conn, project.id, _secret(), **fields, expires_at=expires_at, family=family)


async def adopt_key(
    project: Project,
    name: str,
    scopes: Collection[str],
    secret: str,
    expires_at: float | None = None,
    by: str | None = None,
) -> KeyView:
    """Return the key with a secret that was made elsewhere; create it if it does not exist.

    Raises ValueError for an invalid secret, and Conflict if its key belongs to another project, has other scopes or was
    revoked.
    """
    if not secret.startswith(PREFIX) or len(secret) < _LEAST_CHARS or not secret.isprintable() or " " in secret:
        raise ValueError(f"a key is {PREFIX!r} and at least {_LEAST_CHARS - len(PREFIX)} random characters")
    wanted = check_scopes(scopes)
    async with project.store.write() as conn:
        row = (await conn.execute(select(keys).where(keys.c.hash == _hash(secret)))).first()
        if row is None:
            fields = {"name": name, "scopes": sorted(wanted), "expires_at": expires_at, "family": None, "made_by": by}
            return (await _insert(conn, project.id, secret, **fields))[0]
    there = _view(row)
    if there.project_id != project.id or there.scopes != wanted or there.revoked_at is not None:
        raise Conflict(
            f"the key {there.id} ({there.name!r}) has this secret, and it was revoked, has other scopes, or belongs to "
            "another project: use a new secret"
        )
    return there


async def rotate_key(project: Project, key: str, grace_s: float = 0.0, by: str | None = None) -> tuple[KeyView, str]:
    """Replace a key, by its id or its name, with a new one that has its scopes, its trajectories and its expiry.

    The old one ends at once, or after `grace_s` seconds. Raises NotFound, and Conflict for an ambiguous name.
    """
    async with project.store.write() as conn:
        old = await _in_force(conn, project.id, key)
        until = now() + grace_s
        sooner = or_(keys.c.expires_at.is_(None), keys.c.expires_at > until)
        of_old = update(keys).where(keys.c.id == old.id)
        await conn.execute(
            of_old.where(sooner).values(expires_at=until) if grace_s else of_old.values(revoked_at=now(), revoked_by=by)
        )
        kept = {name: getattr(old, name) for name in ("name", "scopes", "trajectory_id", "expires_at", "family")}
        return await _insert(conn, project.id, _secret(), **kept, replaces=old.id, made_by=by)


def _secret() -> str:
    return PREFIX + secrets.token_urlsafe(32)  # 256 random bits: a fast hash is enough


async def _insert(conn: AsyncConnection, project_id: str, secret: str, **fields: Any) -> tuple[KeyView, str]:
    key_id = new_id("key")
    own = {"id": key_id, "project_id": project_id, "hash": _hash(secret), "hint": secret[:_HINT_CHARS]}
    family = fields.pop("family") or key_id
    made = insert(keys).values(**own, **fields, family=family, created_at=now()).returning(keys)
    return _view((await conn.execute(made)).one()), secret


def check_scopes(scopes: Collection[str]) -> frozenset[Scope]:
    """Return a key's scopes. Raises ValueError for an unknown one, for none, and for `feedback` without `infer`."""
    unknown = set(scopes) - set(Scope)
    if unknown or not scopes:
        wrong = f"unknown: {', '.join(sorted(unknown))}" if unknown else "none was given"
        raise ValueError(f"a key needs scopes from {', '.join(Scope)} ({wrong})")
    known = frozenset(map(Scope, scopes))
    if Scope.FEEDBACK in known and not grants(known, Scope.INFER):
        raise ValueError(
            "a key with the scope feedback gives feedback on its own trajectories, and without infer it has none: give "
            "it the scope infer too, or, for a backend or a reviewer, feedback-all in place of feedback"
        )
    return known


async def verify_secret(store: Store, secret: str) -> KeyView | None:
    """Return the key with that secret; None if it is unknown, revoked or expired."""
    async with store.read() as conn:
        return await _valid(conn, keys.c.hash == _hash(secret))


async def find_valid_key(conn: AsyncConnection, key_id: str) -> KeyView | None:
    """Return the key with that id; None if it is unknown, revoked or expired."""
    return await _valid(conn, keys.c.id == key_id)


async def _valid(conn: AsyncConnection, which: ColumnElement[bool]) -> KeyView | None:
    valid = (keys.c.revoked_at.is_(None), or_(keys.c.expires_at.is_(None), keys.c.expires_at > now()))
    row = (await conn.execute(select(keys).where(which, *valid))).first()
    return _view(row) if row else None


async def list_keys(project: Project) -> list[KeyView]:
    """Return every key of the project, revoked ones too, oldest first."""
    query = select(keys).where(keys.c.project_id == project.id).order_by(keys.c.created_at, keys.c.id)
    async with project.store.read() as conn:
        return [_view(row) for row in await conn.execute(query)]


async def newest_keys(project: Project, limit: int = 200) -> list[KeyView]:
    """Return the newest keys that were not created for a single trajectory, revoked ones too."""
    own = (keys.c.project_id == project.id, keys.c.trajectory_id.is_(None))
    query = select(keys).where(*own).order_by(keys.c.id.desc()).limit(limit)  # ids begin with the time
    async with project.store.read() as conn:
        return [_view(row) for row in await conn.execute(query)]


async def key_names(conn: AsyncConnection, project_id: str, families: Collection[str]) -> dict[str, str]:
    """Return the name of the first key of some families, by family; families without a key are absent."""
    query = select(keys.c.id, keys.c.name).where(keys.c.project_id == project_id, keys.c.id.in_(families))
    return {row.id: row.name for row in await conn.execute(query)}


async def revoke_key(project: Project, key: str, by: str | None = None) -> KeyView:
    """Revoke a key by its id or its name, for good. Raises NotFound, and Conflict for an ambiguous name."""
    async with project.store.write() as conn:
        found = await _in_force(conn, project.id, key)
        revoked = update(keys).where(keys.c.id == found.id).values(revoked_at=now(), revoked_by=by).returning(keys)
        return _view((await conn.execute(revoked)).one())


async def _in_force(conn: AsyncConnection, project_id: str, key: str) -> Any:
    """Return the row of a key that was not revoked, by its id or its name."""
    named = or_(keys.c.id == key, keys.c.name == key)
    query = select(keys).where(keys.c.project_id == project_id, named, keys.c.revoked_at.is_(None))
    rows = list(await conn.execute(query))
    if not rows:
        raise NotFound(f"no valid key {key!r} in project {project_id!r}: `hone keys list` shows them")
    if len(rows) > 1:
        raise Conflict(f"{len(rows)} keys are called {key!r}: use the id (`hone keys list`)")
    return rows[0]


async def has_keys(project: Project) -> bool:
    """Whether the project requires keys: it has a key that was not revoked and not created for one trajectory.

    An expired key counts too: expiry alone must not open the project.
    """
    guarding = (keys.c.project_id == project.id, keys.c.trajectory_id.is_(None), keys.c.revoked_at.is_(None))
    async with project.store.read() as conn:
        return (await conn.execute(select(keys.c.id).where(*guarding).limit(1))).first() is not None


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _view(row: Any) -> KeyView:
    return sql.as_view(KeyView, row, scopes=frozenset(map(Scope, row.scopes)))


LASTS_S: Final = 12 * 3600.0


async def sign_in(store: Store, key: KeyView) -> str:
    """Return a new token for a key. Expired tokens are deleted."""
    token = secrets.token_urlsafe(32)
    fields = {"hash": _token_hash(token), "project_id": key.project_id, "key_id": key.id}
    async with store.write() as conn:
        await conn.execute(delete(sign_ins).where(sign_ins.c.expires_at <= now()))
        await conn.execute(insert(sign_ins).values(**fields, expires_at=now() + LASTS_S))
    return token


async def find_signed_in_key(store: Store, token: str) -> KeyView | None:
    """Return the key of a sign-in token; None if the token or the key is unknown, ended or expired."""
    query = select(sign_ins.c.key_id).where(sign_ins.c.hash == _token_hash(token), sign_ins.c.expires_at > now())
    async with store.read() as conn:
        key_id = (await conn.execute(query)).scalar_one_or_none()
        return await find_valid_key(conn, key_id) if key_id is not None else None


async def sign_out(store: Store, token: str) -> None:
    """End a token."""
    async with store.write() as conn:
        await conn.execute(delete(sign_ins).where(sign_ins.c.hash == _token_hash(token)))


def _token_hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
