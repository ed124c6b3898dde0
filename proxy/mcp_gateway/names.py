"""Names behind the gateway: tools and prompts by server, URIs, and which of them callers may use.

Owns: `server__tool` and back, allow and deny lists, the pages of a list, and URIs. Refuses: knowing which items exist.

A URI stays as its server wrote it, because results, links and updates mention it; its server is looked up. If two
servers list the same URI, that of the later server gets a scheme of its own: `<server>+<uri>`.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final, TypeVar

SEPARATOR: Final = "__"
PAGE: Final = 500

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class NameFilter:
    """Which names of a server callers may use."""

    allow: Sequence[str] = ("*",)
    deny: Sequence[str] = ()

    def admits(self, name: str) -> bool:
        """Whether `name`, in the server's own form, is allowed and not denied."""
        return any(fnmatchcase(name, p) for p in self.allow) and not any(fnmatchcase(name, p) for p in self.deny)


@dataclass(frozen=True, slots=True)
class NameScheme:
    """How names are built and split. `only`: the single server that keeps its own names."""

    only: str | None = None

    def public_name(self, server: str, name: str) -> str:
        """Return a callers' name for a server's tool or prompt."""
        return name if self.only is not None else f"{server}{SEPARATOR}{name}"

    def split_name(self, name: str) -> tuple[str, str] | None:
        """Split a callers' name into (server, own name); None if it names no server."""
        if self.only is not None:
            return self.only, name
        server, separator, own = name.partition(SEPARATOR)
        return (server, own) if separator and server and own else None


def gateway_uri(server: str, uri: str) -> str:
    """Return the URI of a server's resource if another server has the same."""
    return f"{server.replace('_', '-')}+{uri}"


def matches_template(template: str, uri: str) -> bool:
    """Whether a template may yield a URI (RFC 6570, as far as needed to choose a server)."""
    literal = re.split(r"\{[^{}]*\}", template)
    # [^\n]: an expression may match anything, `{+path}` for several segments
    return re.fullmatch("[^\n]*".join(map(re.escape, literal)), uri) is not None


def list_page(items: Sequence[T], cursor: str | None) -> tuple[Sequence[T], str | None]:
    """Return a page of a list and the cursor of the next. Raises ValueError for an unknown cursor."""
    start = 0 if cursor is None else _offset(cursor)
    following = start + PAGE
    more = base64.urlsafe_b64encode(b"%d" % following).decode() if following < len(items) else None
    return items[start:following], more


def _offset(cursor: str) -> int:
    try:
        text = base64.b64decode(cursor.encode(), altchars=b"-_", validate=True).decode("ascii")
    except ValueError as e:
        raise ValueError(f"the cursor {cursor[:80]!r} was not issued by this server") from e
    if not text.isdigit() or len(text) > 9 or int(text) % PAGE or int(text) == 0:
        raise ValueError(f"the cursor {cursor[:80]!r} was not issued by this server")
    return int(text)


def cache_hints(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return how long a merged list may be cached: as long as its shortest part, and publicly only if all parts may."""
    ttl = min((r.get("ttlMs", 0) for r in results), default=0)
    shared = bool(results) and all(r.get("cacheScope") == "public" for r in results)
    return {"ttlMs": ttl, "cacheScope": "public" if shared else "private"}
