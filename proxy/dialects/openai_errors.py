"""OpenAI's error object, for the formats that are OpenAI's.

Owns: an error as a body, and as the end of a stream. Refuses: deciding what is an error.
"""

from __future__ import annotations

import orjson

from proxy.errors import CallerError
from proxy.http import sse


class OpenAIErrors:
    """What a dialect of OpenAI's says when something is wrong."""

    def error_body(self, error: CallerError) -> bytes:
        """An error as OpenAI's error object."""
        shown = {"message": str(error), "type": error.kind, "param": error.param, "code": error.code}
        return orjson.dumps({"error": shown})

    def error_events(self, error: CallerError) -> bytes:
        """An error as the last event of a stream, and the end of it."""
        return sse.event(self.error_body(error)) + sse.event(sse.DONE)
