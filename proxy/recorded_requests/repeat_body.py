"""A recorded call as a request to ask it again, with changes: another version, messages, tools or temperature.

Owns: which fields of the recorded request count, and their changes. Pure. Refuses: sending it (`repeater.py`).

Chat completions and completions are asked in their own format, others as chat completions, to which serving translates
them anyway: those have `n`. Fields that name a conversation, a user or a stream are left out, and so is the seed: it
would bring the recorded answer again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from proxy.dialects import DIALECTS
from proxy.dialects.base import DialectRules
from proxy.dialects.chat import ChatDialect
from proxy.dialects.completions import CompletionsDialect
from proxy.errors import BadRequest
from proxy.recorded_requests.client_body import client_body, client_path, recorded_prompt
from recorder.messages.calls import Message
from recorder.views.trajectories.shapes import CallView

Body = dict[str, Any]

MOST_ANSWERS: Final = 8
_LEFT_OUT: Final = frozenset(
    {
        "best_of", "echo", "litellm_session_id", "logprobs", "metadata", "n", "prompt_cache_key", "return_token_ids",
        "safety_identifier", "seed", "session_id", "store", "stream", "stream_options", "top_logprobs", "user",
    }
)  # fmt: skip
_OF_TOOLS: Final = ("tools", "tool_choice", "parallel_tool_calls")


@dataclass(frozen=True, slots=True)
class RequestChanges:
    """What is asked differently; None: as recorded. `tools`: in the form of chat completions; empty: none."""

    model: str | None = None  # a version's name, or an alias
    messages: Sequence[Message] | None = None
    tools: Sequence[Mapping[str, Any]] | None = None
    temperature: float | None = None
    answers: int = 1


def repeat_body(
    call: CallView, messages: Sequence[Message], model: str, changes: RequestChanges, rules: DialectRules
) -> tuple[str, Body]:
    """Return the route and the body of a request that asks a call again. `messages`: its prompt with its reasoning.

    `model`: who answers. Raises BadRequest for changes that the call cannot have.
    """
    if not 1 <= changes.answers <= MOST_ANSWERS:
        raise BadRequest(f"{changes.answers} answers are asked for: ask for 1 to {MOST_ANSWERS}.", param="n")
    prompt = messages if changes.messages is None else changes.messages
    is_text = call.dialect == CompletionsDialect.name
    body = _completion(call, prompt, changes) if is_text else _chat(call, messages, rules) | {"messages": list(prompt)}
    if changes.tools is not None:
        body = {name: value for name, value in body.items() if name not in _OF_TOOLS or changes.tools}
        body |= {"tools": list(changes.tools)} if changes.tools else {}
    if changes.temperature is not None:
        body["temperature"] = changes.temperature
    return (CompletionsDialect if is_text else ChatDialect).path, body | {"model": model, "n": changes.answers}


def _completion(call: CallView, messages: Sequence[Message], changes: RequestChanges) -> Body:
    if changes.tools:
        raise BadRequest("a completion has no tools: ask for it without 'tools'.", param="tools")
    if len(messages) != 1:
        raise BadRequest(f"a completion has one message, its prompt, and {len(messages)} are given.", param="messages")
    return {"prompt": recorded_prompt(messages)} | _kept(client_body(call))


def _chat(call: CallView, messages: Sequence[Message], rules: DialectRules) -> Body:
    """The request in the fields of chat completions, with the tools and the answer format as recorded."""
    body = client_body(call, messages)
    if call.dialect != ChatDialect.name:
        read = DIALECTS[client_path(call)].read(orjson.dumps(body), {}, rules)
        body = dict(read.chat or {})
        body |= {"tools": list(call.tools)} if call.tools else {}
    return _kept(body)


def _kept(body: Mapping[str, Any]) -> Body:
    return {name: value for name, value in body.items() if name not in _LEFT_OUT and name != "prompt"}
