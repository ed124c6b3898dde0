"""Who a caller is to a server that remembers something: whose state is whose.

Owns: telling callers apart. Refuses: admission (`proxy.admission`), and which run a call belongs to, which is found out
with more evidence and may change (`proxy.mcp_gateway.calling`).

A caller of the handshake era has a session: that is it. The current era has none, and a connection means nothing in it:
clients open several at once, and close them between two requests. What lasts there is the run that the caller stated
(its address, in path, key or header), for a run is what must not meet another's browser or shell. A caller that stated
none is its key. Those without either cannot be told apart, and share.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from proxy.admission.address import Stated
from proxy.admission.auth import Caller


@dataclass(frozen=True, slots=True)
class Run:
    """A run's address."""

    group: str
    trajectory: str


@dataclass(frozen=True, slots=True)
class Who:
    """A caller. At most one of these is not None."""

    session: str | None = None  # of the handshake era
    run: Run | None = None
    key: str | None = None


def who(ctx: ServerRequestContext[Any, Any]) -> Who:
    """The caller of a request."""
    if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        return Who(session=connection_of(ctx).session_id)
    scope = ctx.request.scope if ctx.request is not None else {}
    stated: Stated | None = scope.get("hone.stated")
    if stated is not None and stated.address.trajectory is not None:
        return Who(run=Run(stated.address.group or "", stated.address.trajectory))
    caller: Caller | None = scope.get("hone.caller")
    return Who(key=caller.key if caller is not None else None)


def connection_of(ctx: ServerRequestContext[Any, Any]) -> Connection:
    """What lives as long as a session of the handshake era."""
    connection: Connection = ctx.session._connection  # the SDK has no public name for it
    return connection
