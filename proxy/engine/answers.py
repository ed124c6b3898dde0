"""What the controller asks a model to answer, and what came back, in vLLM's chat form with ids and logprobs.

Owns: the request's body and reading the replies. Refuses: sending (`proxy.engine.replica`), agents' calls
(`proxy.dialects`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from proxy.errors import EngineError

ANSWER_TOKENS: Final = 512  # at most: what decides whether a version is sane shows in the first page
_MISSING: Final = -9999.0  # how vLLM writes a logprob that it does not have
# What begins a tool call in the words of a model whose engine could not parse it: the parsers' own marks.
_MARKS: Final = ("<tool_call>", "<|tool_call", "[TOOL_CALLS]", "<|python_tag|>", "<function=", "<｜tool▁calls▁begin｜>")


@dataclass(frozen=True, slots=True)
class EngineQuestion:
    """A conversation that waits for the model, in the chat form."""

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] | None = None
    max_tokens: int | None = None

    def body(self, model: str) -> dict[str, Any]:
        """The request: plain sampling, whatever the recorded call asked for, so that logprobs are the model's own."""
        asked: dict[str, Any] = {
            "model": model,
            "messages": list(self.messages),
            "max_tokens": min(self.max_tokens or ANSWER_TOKENS, ANSWER_TOKENS),
            "temperature": 1.0,
            "top_p": 1.0,
            "logprobs": True,
            "top_logprobs": 0,
            "return_token_ids": True,
            "include_reasoning": True,  # without it the engine tells neither ids nor logprobs
        }
        return asked | ({"tools": list(self.tools)} if self.tools else {})


@dataclass(frozen=True, slots=True)
class EngineAnswer:
    """One sampled answer. `logprobs` are as many as `token_ids`, NaN where the engine had none."""

    message: Mapping[str, Any]
    prompt_ids: Sequence[int]
    token_ids: Sequence[int]
    logprobs: Sequence[float]
    finish_reason: str | None

    @property
    def begins_call(self) -> bool:
        """Whether it calls a tool, or says what begins a call that could not be parsed."""
        said = self.message.get("content")
        return bool(self.message.get("tool_calls")) or (isinstance(said, str) and any(m in said for m in _MARKS))

    @property
    def has_parsed_calls(self) -> bool:
        """Whether it calls tools, each with arguments that are a JSON object."""
        calls = self.message.get("tool_calls")
        return bool(calls) and all(_is_object(call) for call in calls or ())


def _is_object(call: Any) -> bool:
    try:
        return isinstance(json.loads(call["function"]["arguments"] or "{}"), dict)
    except (KeyError, TypeError, ValueError, RecursionError):
        return False


def read_answer(url: str, body: Mapping[str, Any]) -> EngineAnswer:
    """Read a chat completion of one choice. Raises EngineError where ids are missing."""
    try:
        choice = body["choices"][0]
        ids = [int(token) for token in choice["token_ids"]]
        said = [_number(entry["logprob"]) for entry in (choice.get("logprobs") or {}).get("content") or ()]
        logprobs = said if len(said) == len(ids) else [math.nan] * len(ids)
        prompt = [int(token) for token in body["prompt_token_ids"]]
        return EngineAnswer(choice["message"], prompt, ids, logprobs, choice.get("finish_reason"))
    except (KeyError, IndexError, TypeError, ValueError) as e:
        raise EngineError(f"the engine {url} answered without the token ids it was asked for: {str(body)[:300]}") from e


def read_prompt_logprobs(url: str, body: Mapping[str, Any], token_ids: Sequence[int]) -> list[float]:
    """The logprob of each token of the prompt but the first. Raises EngineError where there are not as many."""
    try:
        rows = body["choices"][0]["prompt_logprobs"][1:]
        found = [_number(row[str(token)]["logprob"]) for row, token in zip(rows, token_ids[1:], strict=True)]
    except (KeyError, IndexError, TypeError, ValueError) as e:
        raise EngineError(f"the engine {url} told no logprobs of a prompt: {str(body)[:300]}") from e
    return found


def _number(logprob: object) -> float:
    known = isinstance(logprob, int | float) and logprob != _MISSING
    return float(logprob) if known and isinstance(logprob, int | float) else math.nan
