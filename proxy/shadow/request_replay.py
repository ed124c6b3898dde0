"""A recorded call as a request that can be sent again: its exact prompt, its tools, its sampling parameters.

Owns: which calls can be answered again, and the request's fields. Pure. Refuses: sending it (`proxy.shadow.answers`).

Whatever format the client used, the engine gets a chat completion on the recorded prompt ids: its parser reads tool
calls, and no template renders the prompt again. A client's seed is dropped: it would reproduce the client's answer.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from proxy.dialects.base import DialectRules
from proxy.dialects.chat import ChatDialect, ChatReader
from proxy.serving.prompt_splice import has_media
from recorder.states import CallKind, CallState
from recorder.views.trajectories.shapes import CallView

# Grammars of the client's tools are not repeated: a call under one is not trained on, and not answered again.
_RULES: Final = DialectRules(strict_tools="plain", forced_tools="plain")
# Fields of chat completions that change how an answer is sampled or read, and that `Sampling` does not hold.
_KEPT: Final = ("tool_choice", "parallel_tool_calls", "chat_template_kwargs", "reasoning_effort", "stop_token_ids")


def is_replayable(call: CallView) -> bool:
    """Whether a call is on the main path, can be trained on, and its prompt is its ids only."""
    return (
        call.call_kind is CallKind.MAIN
        and call.state is CallState.COMPLETE
        and len(call.choices) == 1
        and call.choices[0].trainable
        and bool(call.prompt_token_ids)
        and not any(has_media(message) for message in call.messages)
    )


def replay_request(call: CallView, model: str) -> ChatReader:
    """Return a call as a request of chat completions. Raises BadRequest for one that an engine must not be asked."""
    return ChatDialect().read(orjson.dumps(_fields(call, model)), {}, _RULES)


def _fields(call: CallView, model: str) -> dict[str, Any]:
    sampling = call.sampling
    fields: dict[str, Any] = {"model": model, "messages": list(call.messages), "temperature": sampling.temperature}
    if call.tools:
        fields["tools"] = list(call.tools)
    if sampling.max_tokens is not None:
        fields["max_tokens"] = sampling.max_tokens
    if sampling.stop:
        fields["stop"] = list(sampling.stop)
    if call.dialect == ChatDialect.name:
        fields |= {name: call.rest[name] for name in _KEPT if call.rest.get(name) is not None}
    return fields
