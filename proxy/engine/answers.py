"""Questions that the controller asks a model, and the answers, in vLLM's chat form with ids and logprobs.

Owns: the request's body and reading the replies. Refuses: sending (`proxy.engine.replica`), agents' calls
(`proxy.dialects`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from proxy.errors import EngineError
from recorder.base.json_limits import parse_json_text

ANSWER_TOKENS: Final = 512  # at most: the first page shows whether a version is sane
_MISSING: Final = -9999.0  # vLLM's value for a missing logprob
# What begins a tool call in text that the engine could not parse: the marks of the parsers.
_MARKS: Final = ("<tool_call>", "<|tool_call", "[TOOL_CALLS]", "<|python_tag|>", "<function=", "<｜tool▁calls▁begin｜>")


@dataclass(frozen=True, slots=True)
class EngineQuestion:
    """A conversation to be answered, in the chat form."""

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] | None = None
    max_tokens: int | None = None
    temperature: float = 1.0

    def body(self, model: str, number: int = 1) -> dict[str, Any]:
        """Return the request for a number of answers. Apart from the temperature it samples plainly, whatever the
        recorded call used, so that logprobs are the model's own.
        """
        request: dict[str, Any] = {
            "model": model,
            "messages": list(self.messages),
            "max_tokens": min(self.max_tokens or ANSWER_TOKENS, ANSWER_TOKENS),
            "temperature": self.temperature,
            "top_p": 1.0,
            "logprobs": True,
            "top_logprobs": 0,
            "return_token_ids": True,
            "include_reasoning": True,  # without it the engine returns neither ids nor logprobs
        }
        several = {"n": number} if number > 1 else {}
        return request | several | ({"tools": list(self.tools)} if self.tools else {})


@dataclass(frozen=True, slots=True)
class EngineAnswer:
    """One sampled answer. `logprobs` has the length of `token_ids`, NaN where the engine had none."""

    message: Mapping[str, Any]
    prompt_ids: Sequence[int]
    token_ids: Sequence[int]
    logprobs: Sequence[float]
    finish_reason: str | None

    @property
    def begins_call(self) -> bool:
        """Whether it calls a tool, or its text begins a call that could not be parsed."""
        content = self.message.get("content")
        return bool(self.message.get("tool_calls")) or (isinstance(content, str) and any(m in content for m in _MARKS))

    @property
    def has_parsed_calls(self) -> bool:
        """Whether it calls tools, each with arguments that are a JSON object."""
        calls = self.message.get("tool_calls")
        return bool(calls) and all(_is_object(call) for call in calls or ())


def _is_object(call: Any) -> bool:
    try:
        return isinstance(parse_json_text(call["function"]["arguments"] or "{}"), dict)
    except (KeyError, TypeError, ValueError, RecursionError):
        return False


def read_answers(url: str, body: Mapping[str, Any], number: int = 1) -> list[EngineAnswer]:
    """Read a chat completion of so many choices. Raises EngineError where ids or choices are missing."""
    try:
        prompt = [int(token) for token in body["prompt_token_ids"]]
        found = [_read_choice(choice, prompt) for choice in body["choices"]]
    except (KeyError, IndexError, TypeError, ValueError) as e:
        raise EngineError(f"the engine {url} answered without the requested token ids: {str(body)[:300]}") from e
    if len(found) != number:
        raise EngineError(f"the engine {url} gave {len(found)} answers instead of {number}")
    return found


def _read_choice(choice: Mapping[str, Any], prompt: Sequence[int]) -> EngineAnswer:
    ids = [int(token) for token in choice["token_ids"]]
    logprobs = [_number(entry["logprob"]) for entry in (choice.get("logprobs") or {}).get("content") or ()]
    if len(logprobs) != len(ids):
        logprobs = [math.nan] * len(ids)
    return EngineAnswer(choice["message"], prompt, ids, logprobs, choice.get("finish_reason"))


def read_prompt_logprobs(url: str, body: Mapping[str, Any], token_ids: Sequence[int]) -> list[float]:
    """Return the logprob of each token of the prompt but the first. Raises EngineError where the number differs."""
    try:
        rows = body["choices"][0]["prompt_logprobs"][1:]
        logprobs = [_number(row[str(token)]["logprob"]) for row, token in zip(rows, token_ids[1:], strict=True)]
    except (KeyError, IndexError, TypeError, ValueError) as e:
        raise EngineError(f"the engine {url} returned no logprobs of a prompt: {str(body)[:300]}") from e
    return logprobs


def _number(logprob: object) -> float:
    known = isinstance(logprob, int | float) and logprob != _MISSING
    return float(logprob) if known and isinstance(logprob, int | float) else math.nan
