"""The recordable parts of an engine's chat completion, whole or chunk by chunk.

Owns: choices as they grow (ids, logprobs, message, finish), the prompt's ids, valid counts of usage, and errors that
the engine puts into a stream. Every dialect that sends chat completions to the engine builds its answer on this.
Refuses: what clients get, and counting.

Usage is optional: an invalid value never fails a finished answer.
"""

from __future__ import annotations

import math
from typing import Any, Final

import orjson

from proxy.dialects.base import Choice, RecordableAnswer, ToolCallBuilder, add_deltas
from proxy.dialects.engine_fields import is_writable
from proxy.errors import EngineFailed
from recorder.messages.calls import Message, SampledChoice

Body = dict[str, Any]

MOST: Final = 2**53  # JSON readers lose precision above it, so a larger number is not a valid count
_COUNTS: Final = ("prompt_tokens", "completion_tokens", "total_tokens")
_DETAILS: Final = {
    "prompt_tokens_details": ("cached_tokens", "created_cache_tokens"),
    "completion_tokens_details": ("reasoning_tokens",),
}


def clean_usage(usage: object) -> Body | None:
    """Return the usage without invalid counts; None if it is not an object.

    Fields that are not read here stay unchanged, and so do details that are null.
    """
    if not isinstance(usage, dict):
        return None
    valid = {key: n for key, n in usage.items() if key not in _COUNTS or _is_count(n)}
    for name, counts in _DETAILS.items():
        details = valid.get(name)
        if isinstance(details, dict):
            valid[name] = {key: n for key, n in details.items() if key not in counts or n is None or _is_count(n)}
        elif name in valid:
            valid[name] = None
    return valid


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < MOST


MALFORMED = (KeyError, TypeError, AttributeError, ValueError)


class ChatRecord:
    """One call's answer in the recorder's form. `finished`, `over`, `begun` and `error` are those of `Answer`."""

    __slots__ = (
        "_choices",
        "_finished_before",
        "_meta",
        "_prompt_ids",
        "_requested",
        "_taken",
        "_unfinished",
        "_usage",
        "begun",
        "error",
        "finished",
        "over",
    )

    def __init__(self, choices: int) -> None:
        self._choices: dict[int, Choice] = {}
        self._requested = self._unfinished = choices
        self._taken = 0
        self._prompt_ids: list[int] | None = None
        self._usage: Body | None = None
        self._meta: Body = {}
        self.finished = self._finished_before = False
        self.over = False
        self.begun = False
        self.error: str | None = None

    def note_head(self, chunk: Body) -> None:
        """Record all fields of a chunk or a whole answer but its choices, and clean its usage. Call this first."""
        self._finished_before = self.finished
        self.note_prompt(chunk.get("prompt_token_ids"))
        if "usage" in chunk:
            chunk["usage"] = clean_usage(chunk["usage"])
        if not self._meta or "system_fingerprint" in chunk:
            self._meta |= {k: chunk[k] for k in ("id", "created", "system_fingerprint") if chunk.get(k) is not None}

    def note_prompt(self, ids: object) -> None:
        """Record the prompt's ids, if given."""
        if ids is not None and self._prompt_ids is None:
            self._prompt_ids = _listed(ids)

    def note_usage(self, usage: Body | None) -> None:
        """Record the usage, which `note_head` has cleaned."""
        self._usage = usage or self._usage

    def note_error(self, fault: object) -> None:
        """Record an error inside a stream; does nothing for None."""
        if fault is not None:
            self.error = str(fault.get("message") if isinstance(fault, dict) else fault)

    def take(self, given: Body, delta: Body) -> Choice:
        """Add one choice's part of the answer: `given` is the choice, `delta` its message or delta."""
        index = given["index"]
        choice = self._choices.get(index)
        if choice is None:
            choice = self._choices[index] = Choice(_index(index, self._requested))
        self._taken += 1
        ids = given.get("token_ids")
        if ids:
            choice.token_ids += _listed(ids)
            self.begun = True
        logprobs = given.get("logprobs")
        if logprobs:
            choice.logprobs += _logprobs(logprobs)
        _add_delta(choice, delta, streamed="delta" in given)
        if not self.begun:  # an answer without ids
            self.begun = _says_something(choice)
        finish = given.get("finish_reason")
        if finish:
            self._finish(choice, _text(finish), given)
        return choice

    def _finish(self, choice: Choice, reason: str, given: Body) -> None:
        if choice.finish_reason is None:
            self._unfinished -= 1
            self.finished = self._unfinished <= 0
        choice.finish_reason = reason
        choice.stop_reason = given.get("stop_reason")

    def require_finished(self) -> None:
        """Check that a whole answer has all its choices, each once. Raises EngineFailed."""
        if not self.finished or self._taken != self._requested:
            self.finished = False
            finished = sum(choice.finish_reason is not None for choice in self._choices.values())
            raise EngineFailed(
                f"the engine's answer has {self._taken} choices, {finished} of them finished, but {self._requested} "
                "were requested"
            )
        self.over = True

    def unreadable(self, data: bytes, why: Exception) -> EngineFailed:
        """Return the error for an unreadable answer or event, which finishes nothing."""
        self.finished = self._finished_before
        return _no_completion(data, why)

    def sampled(self) -> RecordableAnswer:
        """Return the recordable parts, also of an answer that broke off."""
        choices = [self._choices[index] for index in sorted(self._choices)]
        stops = {str(c.index): c.stop_reason for c in choices if c.stop_reason is not None}
        return RecordableAnswer(
            prompt_token_ids=self._prompt_ids,
            choices=[_sampled(choice) for choice in choices],
            usage=self._usage or self._counted(choices),
            response_meta=(self._meta | {"stop_reasons": stops} if stops else self._meta) or None,
            issued_ids=[
                (call.id, "tool_call", choice.index)
                for choice in choices
                for call in choice.tool_calls.values()
                if call.id is not None and _is_unique(call.id)
            ],
        )

    def _counted(self, choices: list[Choice]) -> Body | None:
        """The usage of an answer that broke off before the engine reported it."""
        if self._prompt_ids is None:
            return None
        prompt, sampled = len(self._prompt_ids), sum(len(choice.token_ids) for choice in choices)
        return {"prompt_tokens": prompt, "completion_tokens": sampled, "total_tokens": prompt + sampled}


def parse_answer(data: bytes) -> Body:
    """Return the engine's JSON object, which can be encoded again. Raises EngineFailed."""
    try:
        parsed = orjson.loads(data)
    except orjson.JSONDecodeError as e:
        raise _no_completion(data, e) from e
    if not isinstance(parsed, dict):
        raise _no_completion(data, TypeError("not an object"))
    if not is_writable(parsed, data):
        raise _no_completion(data, ValueError("nested too deeply"))
    return parsed


def _no_completion(data: bytes, why: Exception) -> EngineFailed:
    excerpt = data[:200].decode(errors="replace")
    return EngineFailed(
        f"the engine sent something that is not a chat completion ({type(why).__name__}: {why}): {excerpt!r}"
    )


def _add_delta(choice: Choice, delta: Body, *, streamed: bool) -> None:
    """Add a delta, or a whole message. Several parts of one tool call in it are merged."""
    for name, value in delta.items():
        if not value:
            continue
        if name == "content":
            choice.content.append(_text(value))
        elif name == "tool_calls":
            delta[name] = add_deltas(choice.tool_calls, value, streamed=streamed)
        elif name in ("reasoning", "reasoning_content"):
            choice.reasoning.append(_text(value))
        elif name == "refusal":
            choice.refusal.append(_text(value))
        elif name == "function_call":
            choice.function_call = choice.function_call or ToolCallBuilder()
            choice.function_call.add_function(value)
        elif name != "role":
            choice.extras[name] = value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.60} is not a text")
    return value


def _index(value: object, requested: int) -> int:
    if type(value) is not int or not 0 <= value < requested:
        raise ValueError(f"{value!r:.60} is not an index of the {requested} requested choices")
    return value


def _listed(ids: object) -> list[Any]:
    """Token ids as received; the recorder checks them."""
    return ids if isinstance(ids, list) else [None]


def _logprobs(given: Any) -> list[Any]:
    """The sampled tokens' logprobs, in the form of chat or of completions; one invalid value if they are malformed."""
    try:
        tokens = given.get("token_logprobs")
        return [entry["logprob"] for entry in given.get("content") or ()] if tokens is None else list(tokens)
    except MALFORMED:
        return [None]


def _sampled(choice: Choice) -> SampledChoice:
    are_numbers = set(map(type, choice.logprobs)) <= {float, int}
    return SampledChoice(
        index=choice.index,
        message=_message(choice),
        token_ids=choice.token_ids or None,
        logprobs=(choice.logprobs if are_numbers else [_number(p) for p in choice.logprobs]) or None,
        finish_reason=choice.finish_reason,
    )


def _number(logprob: object) -> float:
    if isinstance(logprob, int | float) and not isinstance(logprob, bool):
        return float(logprob)
    return math.nan


def _message(choice: Choice) -> Message | None:
    if not (choice.token_ids or choice.finish_reason or _says_something(choice)):
        return None
    message: Body = {"role": "assistant", "content": "".join(choice.content) or None}
    if choice.reasoning:
        message["reasoning"] = "".join(choice.reasoning)
    if choice.refusal:
        message["refusal"] = "".join(choice.refusal)
    if choice.tool_calls:
        message["tool_calls"] = [choice.tool_calls[index].whole() for index in sorted(choice.tool_calls)]
    if choice.function_call is not None:
        message["function_call"] = choice.function_call.function()
    return message | choice.extras


def _says_something(choice: Choice) -> bool:
    return bool(choice.content or choice.reasoning or choice.tool_calls or choice.function_call)


def _is_unique(tool_call_id: str) -> bool:
    """Whether an id is certainly unique: some models number their calls (`functions.find:0`), others draw
    random ids.
    """
    return len(tool_call_id) >= 9 and not tool_call_id.startswith("functions.")
