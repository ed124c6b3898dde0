"""Wire formats, by the route that clients call. A new one is one file and one line here."""

from __future__ import annotations

from collections.abc import Mapping

from proxy.dialects.base import Dialect
from proxy.dialects.chat import ChatDialect
from proxy.dialects.responses import ResponsesDialect

DIALECTS: Mapping[str, Dialect] = {dialect.path: dialect for dialect in (ChatDialect(), ResponsesDialect())}
FALLBACK: Dialect = DIALECTS[ChatDialect.path]  # the format of errors on routes that have no dialect
