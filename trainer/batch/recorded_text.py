"""Compare the ids of an answer with the text that the engine made of them. Pure.

Owns: which texts of a message must occur among the decoded ids, in which order, and for which parsers a contradiction
excludes the answer. Refuses: the tokenizer, and what follows (`trainer.batch.rows`).

A wrong id list has the right length now and then. The text of the answer was recorded beside the ids: thinking, content
and the arguments of tool calls must occur in the decoded ids, in this order, whatever the whitespace and the escapes.
Parsers rewrite arguments, so of those only the texts and whole numbers inside must occur. A parser may still change
more than this. So a contradiction in tool calls or thinking excludes an answer only for the proven parsers: those that
vLLM's own code was compared for (tests/e2e/test_parsers.py). For others it is counted and reported.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from recorder.messages.calls import Message
from recorder.messages.plain_text import find_texts, thinking_text, tool_calls

PROVEN_TOOL_PARSERS: Final = frozenset(
    {
        None,
        "deepseek_v3",
        "deepseek_v32",
        "deepseek_v4",
        "deepseek_v41",
        "dots",
        "ernie45",
        "gemma4",
        "glm45",
        "glm47",
        "granite4",
        "hermes",
        "hy_v3",
        "kimi_k2",
        "lfm2",
        "ling3",
        "llama4_pythonic",
        "longcat",
        "mimo",
        "minimax_m2",
        "phi4_mini_json",
        "plamo3",
        "poolside_v1",
        "pythonic",
        "qwen3_coder",
        "qwen3_json",
        "qwen3_xml",
        "seed_oss",
        "step3p5",
    }
)
PROVEN_REASONING_PARSERS: Final = frozenset(
    {
        None,
        "deepseek_r1",
        "deepseek_v3",
        "deepseek_v4",
        "deepseek_v41",
        "ernie45",
        "gemma4",
        "glm45",
        "glm47",
        "granite",
        "granite_thinking_parser",
        "holo2",
        "hy_v3",
        "hy_v4",
        "inkling",
        "k2_horizon",
        "kimi_k2",
        "ling3",
        "mimo",
        "minicpmv",
        "minimax_m2",
        "nemotron_v3",
        "plamo3",
        "poolside_v1",
        "qwen3",
        "seed_oss",
        "step3",
        "step3p5",
    }
)

Parsers = tuple[str | None, str | None]  # the engine's parsers of tool calls and of reasoning
NO_PARSERS: Final[Parsers] = (None, None)
Decode = Callable[[Sequence[int]], Sequence[str]]  # ids → their text, in each way that an engine may decode them

_CODE: Final = re.compile(r"\\+(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2}))")  # \u00e9, \xe9
_NOTATION: Final = re.compile(r"\d(?:[eE]\+?|_)\d|\b0[xXoObB]")  # 1e3, 1_000, 0xff
_DROPPED: Final = re.compile(r"\\+[nrtbf]|\\|[\s\x08]")  # whitespace, itself or escaped, and every other backslash


@dataclass(frozen=True, slots=True)
class TextCheck:
    """The check of a step's answers, for an engine with these parsers.

    `contradictions`: ids of calls that are reported and not excluded.
    """

    decode: Decode
    tool_parser: str | None = None
    reasoning_parser: str | None = None
    contradictions: list[str] = field(default_factory=list)

    def excludes(self, call_id: str, message: Message, ids: Sequence[int]) -> bool:
        """Return whether an answer is excluded. One whose parser is not proven is added to `contradictions` instead."""
        if agrees(message, ids, self.decode):
            return False
        proven = (not tool_calls(message) or self.tool_parser in PROVEN_TOOL_PARSERS) and (
            not thinking_text(message) or self.reasoning_parser in PROVEN_REASONING_PARSERS
        )
        if not proven:
            self.contradictions.append(call_id)
        return proven


def agrees(message: Message, ids: Sequence[int], decode: Decode) -> bool:
    """Return whether the texts of a message occur in the decoded ids, in order, ignoring whitespace and escapes.

    Content may stand before, between and after the calls, and around a second mark that ends thinking. Engines join it.
    """
    return any(_agrees(message, text) for text in decode(ids))


def _agrees(message: Message, text: str) -> bool:
    thinking, calls = thinking_text(message), tool_calls(message)
    content = list(find_texts(message.get("content")))
    numbers = _NOTATION.search(text) is None  # 1e3 is recorded as 1000
    values = [value for call in calls for value in _values(_parsed(call.arguments), numbers)]
    bare = _bare(text)
    start = _end_of([thinking], bare, 0)
    if start is None or _end_of(values, bare, start) is None:
        return False
    return _has_parts(_bare("".join(content)), bare[start:], len(content) + len(calls) + bool(thinking))


def _parsed(arguments: object) -> Any:
    """The arguments; None for malformed ones: a parser may have joined what it had of them."""
    if not isinstance(arguments, str):
        return arguments
    try:
        return json.loads(arguments)
    except ValueError:
        return None


def _values(value: Any, numbers: bool) -> Iterator[str]:
    """The texts and whole numbers inside arguments, in order. (A parser may write 1.0 as 1, and true as True.)"""
    if isinstance(value, dict):
        for one in value.values():
            yield from _values(one, numbers)
    elif isinstance(value, list):
        for one in value:
            yield from _values(one, numbers)
    elif isinstance(value, str) or (numbers and type(value) is int):
        yield str(value)


def _end_of(pieces: Sequence[str], text: str, at: int) -> int | None:
    """Where the last of these pieces ends in a bare text, each behind the one before; None if one is missing."""
    for piece in map(_bare, pieces):
        place = text.find(piece, at)
        if place < 0:
            return None
        at = place + len(piece)
    return at


def _has_parts(piece: str, text: str, most: int) -> bool:
    """Whether a text has a piece, in at most so many parts: the longest beginning first, then the rest behind it."""
    for _ in range(most):
        length = bisect_left(range(1, len(piece) + 1), True, key=lambda n: piece[:n] not in text)
        text = text[text.find(piece[:length]) + length :]
        piece = piece[length:]
    return not piece


def _bare(text: str) -> str:
    """A text without whitespace, in a form that is the same however a model escaped it inside JSON or Python."""
    return _DROPPED.sub("", _joined(_CODE.sub(lambda found: chr(int(found[1] or found[2], 16)), text)))


def _joined(text: str) -> str:
    """The text with the two halves of a character that JSON escapes as two made one."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
