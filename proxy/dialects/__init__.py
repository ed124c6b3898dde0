"""The registry of wire formats, by the route that clients call. A new format is one module and one line here.

Refuses: the steps of a call (`proxy.serving`), attribution, and what is recorded. Others import `DIALECTS`,
`format_of`, the interface in `base`, and a format's module where they serve only that format.
"""

from __future__ import annotations

from collections.abc import Mapping

from proxy.dialects.base import Dialect
from proxy.dialects.chat import ChatDialect
from proxy.dialects.completions import CompletionsDialect
from proxy.dialects.messages.dialect import MessagesDialect
from proxy.dialects.responses.dialect import ResponsesDialect

DIALECTS: Mapping[str, Dialect] = {
    dialect.path: dialect for dialect in (ChatDialect(), CompletionsDialect(), ResponsesDialect(), MessagesDialect())
}
_FALLBACK: Dialect = DIALECTS[ChatDialect.path]


def format_of(path: str) -> Dialect:
    """Return the dialect of a path, or of the route above it; otherwise chat's, with OpenAI's errors."""
    return next((d for route, d in DIALECTS.items() if path == route or path.startswith(route + "/")), _FALLBACK)
