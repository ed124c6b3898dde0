"""When recorded token ids may replace a rendered history, and where the new part begins behind them.

Owns: the decisions of token continuity, over a request's chat fields and token ids. Refuses: asking the engine (a
`Renderer` does), and guessing: anything uncertain raises `Fallback` with the reason that the call is recorded with.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from itertools import takewhile
from typing import Any, Final, Literal, Protocol

from recorder.capture.lookups.token_history import TokenHistory
from recorder.messages import content_hashes
from recorder.messages.calls import Message
from recorder.messages.plain_text import message_text

Body = Mapping[str, Any]

META: Final = "token_continuity"  # in a call's `response_meta`

Reason = Literal[
    "not_recorded",  # the call has no trajectory
    "no_parent",  # the conversation holds assistant turns, but none that was sampled here
    "ambiguous",  # the trajectory, or which of equal choices it continues, is not certain
    "no_parent_tokens",  # the parent's ids are unknown: never reported, redacted or deleted
    "not_prepared",  # the parent was recorded without continuity: what its template saw is unknown
    "other_base",  # the parent was sampled by another base: its ids may mean other text
    "edited_history",  # the conversation up to the parent is not the one that it was sampled in
    "other_tools",  # tools, template arguments or another field that a template may see differ from the parent's
    "cut_turn",  # the parent ended by length or by a stop string: its turn has no end token
    "media",  # the prompt is more than its ids
    "prefill",  # the conversation ends in an answer that the model continues
    "parsed_reasoning",  # the engine may mistake earlier thinking in the prompt for this turn's
    "render_failed",  # the engine did not render
    "render_not_a_prefix",  # where the new part begins is not certain
    "too_long",  # it would not fit, while the rendered prompt may
    "engine_refused",  # the engine refused the ids
    "engine_rendered",  # ids were sent, and the engine used others
    "error",  # a bug in Hone
]

# Fields that no template sees. Any other must be the same as in the parent's call.
_UNSEEN: Final = frozenset(
    {
        *("model", "messages", "stream", "stream_options", "n", "seed", "stop", "stop_token_ids", "ignore_eos"),
        *("temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty"),
        *("max_tokens", "max_completion_tokens", "min_tokens", "logit_bias", "allowed_token_ids", "bad_words"),
        *("logprobs", "top_logprobs", "return_token_ids", "include_reasoning", "include_stop_str_in_output"),
        *("skip_special_tokens", "spaces_between_special_tokens", "return_tokens_as_token_ids", "request_id"),
        *("user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key"),
        *("parallel_tool_calls", "thinking_token_budget"),
    }
)
# vLLM's reasoning parsers that look for the end of thinking in the last turn only (0.32, each tested). Other parsers
# find the end of an earlier turn's thinking in the prompt, and then return this turn's thinking as its answer.
TURN_BOUND_PARSERS: Final = frozenset({"qwen3", "mimo", "nemotron_v3", "step3p5"})
_TO_RENDER: Final = ("tools", "chat_template", "add_special_tokens")
_TEMPLATE_ARGUMENTS: Final = ("documents", "reasoning_effort")  # fields that chat completions hand to the template
_NEW_ROLES: Final = frozenset({"user", "tool", "function"})  # what may follow a sampled turn
_TEXT_PARTS: Final = frozenset({"text", "input_text", "output_text", "refusal"})


class Fallback(Exception):
    """A call cannot be sent with its recorded history; `reason` is why."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason: Reason = reason


def seen_by_template(chat: Body) -> str:
    """Return a hex hash of all that a template may see of a request except its messages."""
    seen = {name: value for name, value in chat.items() if name not in _UNSEEN and value not in (None, [], {})}
    if not seen.get("tools"):
        seen.pop("tool_choice", None)
    elif seen.get("tool_choice") == "auto":
        del seen["tool_choice"]
    if seen.get("response_format") == {"type": "text"}:
        del seen["response_format"]
    return blake2b(content_hashes.canonical_json(seen), digest_size=8).hexdigest()


def require_same(past: TokenHistory, at: int | None, chat: Body, seen: str, base_fingerprint: str | None) -> int:
    """Return the index of the parent's message if the request continues exactly what was sampled. Raises Fallback."""
    if not past.ids():
        raise Fallback("no_parent_tokens")
    if base_fingerprint is None or past.base_fingerprint != base_fingerprint:
        raise Fallback("other_base")
    if at is None:
        raise Fallback("edited_history")
    if not past.alone:
        raise Fallback("ambiguous")
    if past.finish_reason not in ("stop", "tool_calls") or isinstance(past.stop_reason, str):
        raise Fallback("cut_turn")
    prepared = past.meta.get(META, {}).get("seen")
    if prepared != seen:
        raise Fallback("other_tools" if prepared is not None else "not_prepared")
    _require_new(chat, at)
    echoed = thinking_parts(chat["messages"][at])
    if echoed is not None and echoed != thinking_parts(past.extras):
        raise Fallback("edited_history")
    return at


def _require_new(chat: Body, at: int) -> None:
    """Raise Fallback unless the messages after the parent's are plain text that asks for the next turn."""
    new = chat["messages"][at + 1 :]
    if not new or chat.get("continue_final_message") or chat.get("add_generation_prompt") is False:
        raise Fallback("prefill")
    if any(message.get("role") not in _NEW_ROLES for message in new):
        raise Fallback("edited_history")
    if any(has_media(message) for message in chat["messages"]):
        raise Fallback("media")


def has_media(message: Message) -> bool:
    """Whether a message holds more than text: such a prompt is more than its ids."""
    content = message.get("content")
    return isinstance(content, list) and not all(
        isinstance(part, dict) and part.get("type") in _TEXT_PARTS for part in content
    )


def thinking_parts(message: Body) -> str | None:
    """Return the thinking in a message that the engine parsed; None if there is none."""
    return message.get("reasoning") or message.get("reasoning_content") or None


def max_new_tokens(chat: Body) -> int:
    """Return the caller's limit of new tokens; 1 if it stated none."""
    most = chat.get("max_completion_tokens")
    return max(1, (chat.get("max_tokens") if most is None else most) or 1)


def render_body(chat: Body, messages: Sequence[Message], engine_model: str, *, ask: bool) -> dict[str, Any]:
    """Return the engine's `/tokenize` request that renders `messages` as a chat completion with these fields would.

    `ask`: end with the prompt for an assistant turn.
    """
    body = {name: chat[name] for name in _TO_RENDER if chat.get(name) is not None}
    arguments = dict(chat.get("chat_template_kwargs") or {})
    effort = chat.get("reasoning_effort")
    if effort is not None and "enable_thinking" not in arguments:
        arguments["enable_thinking"] = effort != "none"
    arguments |= {name: chat[name] for name in _TEMPLATE_ARGUMENTS if chat.get(name) not in (None, "auto")}
    return body | {
        "model": engine_model,
        "messages": messages,
        "add_generation_prompt": ask,
        "chat_template_kwargs": arguments,
    }


class Renderer(Protocol):
    """The engine's chat template and tokenizer for one request."""

    async def render(self, messages: Sequence[Message], *, ask: bool) -> Sequence[int]:
        """Return a conversation's ids; with `ask`, ending with the prompt for an assistant turn. Raises Fallback."""

    async def is_blank(self, ids: Sequence[int]) -> bool:
        """Whether ids are white space only. Raises Fallback."""


async def new_ids(renderer: Renderer, messages: Sequence[Message], at: int, end: int) -> Sequence[int]:
    """Return the ids that the template writes after the sampled turn at `at`, which ends in the id `end`. Raises
    Fallback.

    The conversation is rendered whole, and up to the turn. If the template wrote the history differently in the two
    (some drop thinking after a user message), the whole is rendered again with another text in the first new message.
    """
    whole, upto = await asyncio.gather(
        renderer.render(messages, ask=True), renderer.render(messages[: at + 1], ask=False)
    )
    turn = find_after_last(upto, end)
    if turn is None or not await renderer.is_blank(upto[turn:]):
        raise Fallback("render_not_a_prefix")
    if whole[:turn] == upto[:turn]:
        return whole[turn:]
    other = await renderer.render(mark_message(messages, at + 1), ask=True)
    start = new_part_start(whole, other, end, list(upto[:turn]).count(end))
    if start is None:
        raise Fallback("render_not_a_prefix")
    return whole[start:]


def find_after_last(ids: Sequence[int], end: int) -> int | None:
    """Return the index after the last `end` in `ids`; None if there is none."""
    return next((at + 1 for at in range(len(ids) - 1, -1, -1) if ids[at] == end), None)


def mark_message(messages: Sequence[Message], at: int) -> list[Message]:
    """Return the conversation with another text in the message at `at`, which differs from its first character on."""
    message = messages[at]
    content = message.get("content")
    mark = "B" if message_text(message, separator="").lstrip().startswith("A") else "A"
    other = dict(message) | {"content": [{"type": "text", "text": mark}] if isinstance(content, list) else mark}
    return [*messages[:at], other, *messages[at + 1 :]]


def new_part_start(whole: Sequence[int], other: Sequence[int], end: int, turns: int) -> int | None:
    """Return the index where the new part of `whole` begins: after the last `end` that it shares with `other`.

    `other` is the same conversation with another text in the first new message (`mark_message`), so the two diverge
    inside that message. `turns` is the number of `end` ids up to the sampled turn. If the shared part has another
    number, a message contains one or the template dropped one, and None is returned.
    """
    shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(whole, other, strict=False)))
    if shared == len(whole) or list(whole[:shared]).count(end) != turns:
        return None
    return find_after_last(whole[:shared], end)
