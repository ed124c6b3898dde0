"""Asking engines for a response, in chat's words.

Owns: what an answer must know of the engine that gives it, and an engine's refusal with the fields called as the
client calls them. Refuses: which engine is asked, and taking its answer (`proxy.serving.asking`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from proxy.dialects.responses.dialect import ResponsesAnswer
from proxy.errors import EngineSaid
from proxy.http.asgi import Send
from proxy.responses.context_lengths import ContextLengths
from proxy.serving.asking import Asking
from proxy.serving.call import Call, Parts
from proxy.versions.in_service import Route

# What the engine is asked in chat's words, and may find fault with → what the client said.
_FIELDS: Final[Mapping[str, str]] = {
    "max_completion_tokens": "max_output_tokens",
    "max_tokens": "max_output_tokens",
    "messages": "input",
    "reasoning_effort": "reasoning.effort",
    "response_format": "text.format",
}


class ResponseAsking(Asking):
    """Asks for the calls of `POST /v1/responses`."""

    def __init__(self, engine_path: str, parts: Parts) -> None:
        super().__init__(engine_path, parts)
        self._lengths = ContextLengths(parts.client)

    async def ask_engine(self, call: Call, route: Route, send: Send) -> None:
        """Send the call to one engine, whose context is asked for first. Raises what `Asking.ask_engine` does."""
        assert isinstance(call.answer, ResponsesAnswer)
        call.answer.context_length = await self._lengths.of(route)
        try:
            await super().ask_engine(call, route, send)
        except EngineSaid as e:
            raise _in_own_words(e) from e


def _in_own_words(error: EngineSaid) -> EngineSaid:
    """An engine's refusal with the fields called as the client calls them."""
    message = str(error)
    for chats, own in _FIELDS.items():
        message = message.replace(f"{chats}=", f"{own}=")
    param = _FIELDS.get(error.param or "", error.param)
    return EngineSaid(message, status=error.status, kind=error.kind, param=param, code=error.code)
