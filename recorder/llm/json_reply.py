"""Find the JSON documents in a model's reply and the text around them. Pure.

Owns: skipping thinking, finding documents in prose, and reading each character of a reply only once. Refuses: the
meaning of a document.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

from recorder.errors import ReplyUnreadable

MAX_REPLY_CHARS = 400_000
_MAX_STARTS = 2_000  # positions in a reply at which a document may begin: bounds the work on hostile text

_PLACES = re.compile(r"[{\[]|</think>")
_THOUGHTS_END = re.compile(r"</think>")


class DuplicateKeys(dict[str, Any]):
    """An object with a duplicate key. It is not used, because either of the two values could be meant."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    return value if len(value) == len(pairs) else DuplicateKeys(value)


_DECODER = json.JSONDecoder(object_pairs_hook=_object)


@dataclass(slots=True)
class ParsedReply:
    """The outermost documents of a reply in order, and the texts before, between and after them."""

    documents: list[Any] = field(default_factory=list)
    around: list[str] = field(default_factory=list)

    @property
    def unfinished(self) -> bool:
        """Whether the text around the documents has an unclosed bracket: a document was cut off there."""
        rest = "".join(self.around)
        return rest.count("{") > rest.count("}") or rest.count("[") > rest.count("]")


def find_documents(reply: str) -> ParsedReply:
    """Return the JSON documents after a reply's thinking.

    Thinking ends at the last `</think>` outside a document, with or without a `<think>` before it.

    Raises: ReplyUnreadable: the reply is empty, too long, ends in its thinking, or contains no JSON.
    """
    if len(reply) > MAX_REPLY_CHARS:
        raise ReplyUnreadable(f"the reply is {len(reply)} characters long; at most {MAX_REPLY_CHARS} are read")
    if not reply.strip():
        raise ReplyUnreadable("the reply is empty")
    found, hopeless = _scan(reply)
    if any("<think>" in text for text in found.around):  # the model may have discarded a verdict in its thinking
        raise ReplyUnreadable("the reply ends in the middle of its thinking")
    if hopeless:
        raise ReplyUnreadable("the reply is not JSON: give one JSON object and nothing else")
    return found


def _scan(reply: str) -> tuple[ParsedReply, bool]:
    """Return the documents after the thinking, and whether the scan stopped early because too much text is not JSON.

    After a broken document the scan continues at the position of the error. So the content of a broken document is
    ignored, and no character is read twice.
    """
    found, starts, hopeless = ParsedReply(), 0, False
    told = position = 0
    while place := (_THOUGHTS_END if hopeless else _PLACES).search(reply, position):
        start, position = place.start(), place.end()
        if place[0] == "</think>":
            found, starts, hopeless, told = ParsedReply(), 0, False, position
            continue
        starts += 1
        if starts > _MAX_STARTS:
            hopeless = True
            continue
        try:
            document, position = _DECODER.raw_decode(reply, start)
        except json.JSONDecodeError as e:
            position = max(position, e.pos)
        except (ValueError, RecursionError):  # a number with thousands of digits, or nested too deeply
            hopeless = True
        else:
            found.around.append(reply[told:start])
            found.documents.append(document)
            told = position
    found.around.append(reply[told:])
    return found, hopeless
