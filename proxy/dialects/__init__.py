"""Wire formats, by the route that clients call: the registry. A new one is one file and one line here.

Refuses: what a call is (`proxy.serving`), whose it is, what is recorded of it. Others import `DIALECTS`, `format_of`,
the seam in `base`, and a format by its own name where they serve that one alone.
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
    """The dialect of a path, or of the route below which it lies; where there is none, OpenAI's for its errors."""
    return next((d for route, d in DIALECTS.items() if path == route or path.startswith(route + "/")), _FALLBACK)
