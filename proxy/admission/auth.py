"""Authorization: keys and their scopes, and the checks of a proxy that has no keys yet.

Owns: admission of one HTTP request, the table of scopes by route, and a short cache of verified keys. Refuses: creating
and storing keys (`recorder.registry.keys`), and what routes do.

Without keys the proxy serves its own machine only: peer and Host must be loopback, a foreign Origin (a page in a
browser) is refused, and a changing request must be application/json, which no page can send without a preflight. Only
the request that ends a trajectory needs no body.
"""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from proxy.admission import pages
from proxy.admission.address import NamedTrajectory, parse_named
from proxy.errors import Forbidden, Unauthorized, Unavailable, WrongMediaType
from recorder.base.lru import Lru
from recorder.errors import StoreError
from recorder.messages.calls import ANYBODY, KeyAccess
from recorder.registry import keys
from recorder.registry.keys import KeyView, Scope
from recorder.store.database import Project

REMEMBER_S = 1.0  # how long a verified key, or the absence of keys, is cached
PATIENCE_S = 2.0  # how long a request waits for the store
REMEMBERED_KEYS = 10_000
REMEMBERED_PEERS = 256
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE", "QUERY"})  # safe by definition; most have no route

# Longest prefix first. A path that is missing here needs admin: a new route without a line is closed, not open.
_SCOPES: tuple[tuple[str, Scope | None], ...] = (
    ("/hone/v1/done", Scope.FEEDBACK),
    ("/hone/v1/feedback", Scope.FEEDBACK),
    ("/hone/v1/calls", Scope.READ),
    ("/hone/v1/aliases", Scope.READ),
    ("/hone/v1/versions", Scope.READ),
    ("/hone/v1/steps", Scope.READ),
    ("/hone/v1/training", Scope.READ),
    ("/hone/v1/traffic", Scope.READ),
    ("/hone/v1/charts/", Scope.READ),
    ("/hone/v1/status", Scope.READ),
    ("/hone/v1/selection", Scope.FEEDBACK),  # and what its action needs (`proxy.api.curation.selection`)
    ("/hone/v1/judge/chat/completions", Scope.EVAL),
    ("/hone/v1/judge", Scope.READ),
    ("/hone/v1/review", Scope.READ),
    ("/hone/v1/tools", Scope.READ),
    ("/hone/v1/setting-changes", Scope.READ),
    ("/hone/v1/keys", Scope.ADMIN),
    ("/hone/v1/programs", Scope.ADMIN),
    ("/hone/v1/notifications/test", Scope.ADMIN),
    ("/hone/v1/notifications", Scope.READ),
    ("/v1/", Scope.INFER),
    ("/tokenize", Scope.INFER),
    ("/detokenize", Scope.INFER),
    ("/version", Scope.INFER),
    ("/metrics", Scope.READ),
    ("/healthz", None),
    ("/health", None),
    ("/readyz", None),
)

# Everybody who reads may read these; a change needs admin, as a change of tags does.
_CHANGED_BY_ADMINS = ("/hone/v1/datasets", "/hone/v1/filters", "/hone/v1/settings", "/hone/v1/campaigns")

# The pages' script reads these: the sign-in that opens a page opens them too. They only read, and CORS allows no page
# of another origin to send a cookie along.
_BY_SIGN_IN = "/hone/v1/charts/"
# Routes that any valid key may use, or that check the scopes of each request themselves.
_BY_KEY = frozenset({"/hone/mcp", "/schema", "/schema/openapi.json"})


def needed_scope(method: str, path: str) -> Scope | None:
    """Return the scope that a route needs; None if it is open to everybody."""
    if path.startswith(("/hone/v1/trajectories", "/hone/v1/groups")):
        if method in SAFE_METHODS:
            return Scope.READ
        if method == "DELETE":
            return Scope.ADMIN
        return Scope.INFER if path.rstrip("/") == "/hone/v1/trajectories" else Scope.FEEDBACK
    if path.startswith(_CHANGED_BY_ADMINS):
        return Scope.READ if method in SAFE_METHODS else Scope.ADMIN
    if path.rstrip("/") == "/mcp" or (path.startswith("/hone/v1/calls/") and method not in SAFE_METHODS):
        return Scope.INFER  # a call is asked again: its route requires further scopes itself
    return next((scope for prefix, scope in _SCOPES if path.startswith(prefix)), Scope.ADMIN)


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a request. `key` is None on a proxy without keys, where the machine's own user may do everything."""

    scopes: frozenset[Scope]
    key: str | None = None  # the key's id
    run: NamedTrajectory | None = None  # the trajectory that the key was created for
    guarded: bool = True  # whether the proxy has keys at all
    access: KeyAccess = ANYBODY  # which trajectories it may use

    def may(self, scope: Scope) -> bool:
        """Whether the caller has `scope`, or one that includes it."""
        return keys.grants(self.scopes, scope)

    def require(self, scope: Scope, what: str) -> None:
        """Raise Forbidden unless the caller has `scope`."""
        if not self.may(scope):
            has = ", ".join(sorted(self.scopes))
            raise Forbidden(f"{what} needs a key with the scope '{scope.value}'; this key has: {has}.")

    def require_version(self, model: str) -> None:
        """Raise Forbidden unless the caller may ask for a version by name (`name@3`): with keys, that needs eval or
        admin.
        """
        if not self.may(Scope.EVAL):
            raise Forbidden(f"the model {model!r} names a version, which needs a key with the scope 'eval' or 'admin'.")


EVERYTHING = Caller(frozenset({Scope.ADMIN}), guarded=False)


class Guard:
    """Admits requests. One per process."""

    def __init__(self, project: Project, *, own_groups: bool = True, patience_s: float = PATIENCE_S) -> None:
        self._project = project
        self._patience_s = patience_s  # how long a request waits for the store
        self._own_groups = own_groups
        self._known: Lru[str, tuple[Caller, float]] = Lru(REMEMBERED_KEYS)
        self._guarded = True
        self._is_answered = False  # the store has said once whether there are keys
        self._guarded_until = float("-inf")
        self._asking = asyncio.Lock()
        self._away = False  # the latest check got no answer from the store
        self._checking: asyncio.Task[None] | None = None  # the check that nobody waits for while it is away
        self._local: Lru[tuple[str | None, bytes], bool] = Lru(REMEMBERED_PEERS)  # (peer, Host) that were admitted

    async def admit(
        self, method: str, path: str, headers: Mapping[bytes, bytes], peer: str | None, *, page_allowed: bool = False
    ) -> Caller:
        """Return the caller of a request. `page_allowed`: settings name the page's origin, if a page sent it.

        Raises Unauthorized, Forbidden, WrongMediaType, and Unavailable where the store cannot check the key.
        """
        secret = _secret(headers)
        if not await self._is_guarded():
            self._require_local(headers, peer, page_allowed=page_allowed)
            if pages.is_page(path):
                return EVERYTHING  # its forms carry a token of their own (`proxy.dashboard.forms`)
            # DELETE ends a session, without a body; a browser sends a preflight before a page's DELETE
            is_empty = (method, path) == ("DELETE", "/mcp") or (path.endswith("/done") and _is_bare(headers))
            if method not in SAFE_METHODS and not is_empty:
                _require_json(headers)
            # a key that Hone created still names its trajectory; any other string is a placeholder
            if secret is None or not secret.startswith(keys.PREFIX):
                return EVERYTHING
            run = (await self._verified(secret)).run
            return Caller(EVERYTHING.scopes, run=run, guarded=False)
        if pages.is_page(path):
            return await self._admit_page(method, path, headers, secret)
        needed = needed_scope(method, path)
        if needed is None:
            return Caller(frozenset())
        if secret is None and method in SAFE_METHODS and path.startswith(_BY_SIGN_IN):
            token = pages.sign_in_token(headers)
            if token is not None:
                caller = await self._signed_in(token)
                caller.require(needed, f"{method} {path}")
                return caller
        if secret is None:
            self._require_answer()
            raise Unauthorized("this proxy needs a key: send `Authorization: Bearer hone_…` or `x-api-key: hone_…`.")
        caller = await self._verified(secret)
        if path.rstrip("/") not in _BY_KEY:
            caller.require(needed, f"{method} {path}")
        return caller

    async def _admit_page(self, method: str, path: str, headers: Mapping[bytes, bytes], secret: str | None) -> Caller:
        """Return the caller that opens a page: from a key in the headers, or from the cookie of a sign-in."""
        if method not in SAFE_METHODS:
            _require_same_origin(headers)
        needed, token = pages.page_scope(method, path), pages.sign_in_token(headers)
        if needed is None:
            return Caller(frozenset())
        if secret is not None:
            caller = await self._verified(secret)
        elif token is not None:
            caller = await self._signed_in(token)
        else:
            self._require_answer()
            raise Unauthorized("sign in with a key that has the scope 'read'.")
        caller.require(needed, f"{method} {path}")
        if caller.run is not None:
            raise Forbidden("a key that was created for one trajectory opens no pages: sign in with another key.")
        return caller

    async def _signed_in(self, token: str) -> Caller:
        try:
            key = await keys.find_signed_in_key(self._project.store, token)
        except StoreError as e:
            raise Unavailable(f"the sign-in cannot be checked now: {e}") from e
        if key is None or key.project_id != self._project.id:
            raise Unauthorized("the sign-in has expired: sign in again.")
        return self._caller(key)

    def _require_local(self, headers: Mapping[bytes, bytes], peer: str | None, *, page_allowed: bool) -> None:
        place = (peer, headers.get(b"host", b""))
        if place not in self._local:
            _require_loopback(peer, place[1].decode("latin-1"))
            self._local.put(place, True)
        _require_own_origin(headers, page_allowed=page_allowed)

    async def _is_guarded(self) -> bool:
        if time.monotonic() >= self._guarded_until:
            if self._away:
                if self._checking is None:
                    self._checking = asyncio.create_task(self._ask_guarded(), name="keys of the store")
                return self._guarded
            async with self._asking:
                if time.monotonic() >= self._guarded_until:
                    await self._ask_guarded()
        return self._guarded

    def _require_answer(self) -> None:
        """Raise Unavailable before the store's first answer: nobody knows then whether a key is needed."""
        if not self._is_answered:
            raise Unavailable("whether this proxy needs a key cannot be checked now: the store does not answer.")

    async def _ask_guarded(self) -> None:
        # If the store does not answer, the last known state holds; before its first answer the proxy is closed.
        try:
            async with asyncio.timeout(self._patience_s):
                self._guarded = await keys.has_keys(self._project)
            self._away, self._is_answered = False, True
        except (StoreError, TimeoutError):
            self._away = True
        finally:
            self._guarded_until = time.monotonic() + REMEMBER_S
            self._checking = None

    async def _verified(self, secret: str) -> Caller:
        known = self._known.get(secret)
        if known is not None and (self._away or time.monotonic() < known[1]):
            return known[0]
        try:
            async with asyncio.timeout(self._patience_s):
                key = await keys.verify_secret(self._project.store, secret)
        except (StoreError, TimeoutError) as e:
            if known is None:
                why = str(e) or f"the store did not answer within {self._patience_s:g} s"
                raise Unavailable(f"the key cannot be checked now: {why}") from e
            self._away = True
            return known[0]  # an outage of the store must not lock out a caller that was admitted before
        if key is None or key.project_id != self._project.id:
            self._known.drop(secret)
            raise Unauthorized("this key is unknown, revoked or expired: `hone keys list` shows the keys.")
        caller = self._caller(key)
        self._known.put(secret, (caller, time.monotonic() + REMEMBER_S))
        return caller

    def _caller(self, key: KeyView) -> Caller:
        run = parse_named(key.trajectory_id) if key.trajectory_id else None
        at = (run.group or "", str(run.trajectory)) if run is not None else None
        access = KeyAccess(key.family, key.may(Scope.ADMIN), self._own_groups, at)
        return Caller(key.scopes, key=key.id, run=run, access=access)


def _secret(headers: Mapping[bytes, bytes]) -> str | None:
    bearer = headers.get(b"authorization", b"").decode("latin-1")
    scheme, _, value = bearer.partition(" ")
    if scheme.lower() == "bearer" and value.strip():
        return value.strip()
    return headers.get(b"x-api-key", b"").decode("latin-1").strip() or None


def is_loopback(host: str | None) -> bool:
    """Whether a name or an IP address belongs to this machine's loopback."""
    if host is None:
        return False
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


_ADVICE = "Without keys Hone serves its own machine only; create one with `hone keys create`."


def _require_loopback(peer: str | None, host: str) -> None:
    if not is_loopback(peer):
        raise Forbidden(f"a request from {peer or 'an unknown peer'} was refused. {_ADVICE}")
    if not is_loopback(_hostname(host)):
        raise Forbidden(f"the Host {host[:200]!r} is not this machine's own name. {_ADVICE}")


def _require_own_origin(headers: Mapping[bytes, bytes], *, page_allowed: bool) -> None:
    if b"x-forwarded-for" in headers or b"forwarded" in headers:
        raise Forbidden(f"a request that another proxy forwarded was refused. {_ADVICE}")
    origin = headers.get(b"origin")
    if page_allowed:
        return
    if origin == b"null" and headers.get(b"sec-fetch-site") == b"same-origin":
        return  # one of Hone's forms: for a page with the policy no-referrer a browser sends the origin null
    if origin is not None and origin.lower() != b"http://" + headers.get(b"host", b"").lower():
        raise Forbidden(
            f"a page of {origin.decode('latin-1')[:200]!r} may not call Hone: name its origin in `cors_origins` of "
            f"[proxy] if it may. {_ADVICE}"
        )


def _require_same_origin(headers: Mapping[bytes, bytes]) -> None:
    """Check the origin of a form. The scheme is not compared, since a load balancer may have ended TLS.

    For a page with the policy no-referrer a browser sends the origin null, and over plain HTTP nothing else. The form's
    token (`proxy.dashboard.forms`) then proves that the form is Hone's.
    """
    origin = headers.get(b"origin")
    if origin == b"null" and headers.get(b"sec-fetch-site", b"same-origin") == b"same-origin":
        return
    if origin is not None and origin.lower().partition(b"://")[2] != headers.get(b"host", b"").lower():
        raise Forbidden(f"a page of {origin.decode('latin-1')[:200]!r} may not change anything here.")


def _hostname(host: str) -> str | None:
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None


def _is_bare(headers: Mapping[bytes, bytes]) -> bool:
    """Whether a request has no body; `curl -d ''` labels an empty body as a form."""
    return headers.get(b"content-length", b"0") == b"0" and b"transfer-encoding" not in headers


def _require_json(headers: Mapping[bytes, bytes]) -> None:
    sent = headers.get(b"content-type", b"")
    if sent.partition(b";")[0].strip().lower() != b"application/json":
        raise WrongMediaType(f"the content type is {sent[:80].decode('latin-1')!r}: send application/json.")
