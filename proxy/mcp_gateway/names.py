"""What things are called behind the gateway: tools and prompts by server, and what callers may see.

Owns: `server__tool` and back, allow and deny lists, the pages of a list, and URIs. Refuses: knowing what there is.

A URI stays as its server wrote it, because results, links and updates mention it; who serves it is looked up. Only
where two servers list the same URI, those of the later one get a scheme of their own: `<server>+<uri>`.
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
        """Whether `name` (a server's own name of it) is allowed and not denied."""
        return any(fnmatchcase(name, p) for p in self.allow) and not any(fnmatchcase(name, p) for p in self.deny)


@dataclass(frozen=True, slots=True)
class NameScheme:
    """How names are made and taken apart. `only` is the one server whose names stay as they are."""

    only: str | None = None

    def shown(self, server: str, name: str) -> str:
        """A server's tool or prompt as callers see it."""
        return name if self.only is not None else f"{server}{SEPARATOR}{name}"

    def taken_apart(self, name: str) -> tuple[str, str] | None:
        """(server, its own name) of what a caller names; None where that names no server."""
        if self.only is not None:
            return self.only, name
        server, separator, own = name.partition(SEPARATOR)
        return (server, own) if separator and server and own else None


def gateway_uri(server: str, uri: str) -> str:
    """The URI of a server's resource where another server has the same."""
    return f"{server.replace('_', '-')}+{uri}"


def matches_template(template: str, uri: str) -> bool:
    """Whether a URI can be one of a template's (RFC 6570, as far as telling servers apart needs it)."""
    literal = re.split(r"\{[^{}]*\}", template)
    # [^\n]: an expression may stand for anything, `{+path}` for several segments
    return re.fullmatch("[^\n]*".join(map(re.escape, literal)), uri) is not None


def list_page(items: Sequence[T], cursor: str | None) -> tuple[Sequence[T], str | None]:
    """A page of a list and the cursor of the next. Raises ValueError for a cursor that is none of ours."""
    start = 0 if cursor is None else _offset(cursor)
    following = start + PAGE
    more = base64.urlsafe_b64encode(b"%d" % following).decode() if following < len(items) else None
    return items[start:following], more


def _offset(cursor: str) -> int:
    try:
        text = base64.b64decode(cursor.encode(), altchars=b"-_", validate=True).decode("ascii")
    except ValueError as e:
        raise ValueError(f"the cursor {cursor[:80]!r} is none of this server's") from e
    if not text.isdigit() or len(text) > 9 or int(text) % PAGE or int(text) == 0:
        raise ValueError(f"the cursor {cursor[:80]!r} is none of this server's")
    return int(text)


def cache_hints(results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """How long a list that was put together may be kept: as long as its shortest part, by all only if all say so."""
    ttl = min((r.get("ttlMs", 0) for r in results), default=0)
    shared = bool(results) and all(r.get("cacheScope") == "public" for r in results)
    return {"ttlMs": ttl, "cacheScope": "public" if shared else "private"}
