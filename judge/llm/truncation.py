"""Cut documents to size: each has an equal share of the prompt's budget, and unused room goes to the others. Pure.

Owns: the shares, and the order in which a document is cut: the middle of tool outputs, the middle of all texts, whole
messages in the middle, and finally all except the ends of its first and last message. Refuses: the contents of a
document (`judge.llm.group_text`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from judge.llm.group_text import Json
from recorder.llm.untrusted_text import fence_json

# In characters. Half of each is from either end, which still shows what the text was.
TOOL_FLOOR: Final = 240  # a tool output is not cut shorter than this
TEXT_FLOOR: Final = 480  # no other text is cut shorter than this
LAST_FLOOR: Final = 120  # before a document is dropped, its first and last message are cut down to this
_TOOL_ROLES: Final = ("tool", "function")


@dataclass(frozen=True, slots=True)
class FittedDocument:
    """A document as it is shown, and whether it was cut."""

    document: Json
    shortened: bool


def fit_documents(documents: Sequence[Json], budget: int, nonce: str) -> list[FittedDocument | None]:
    """Cut the documents so that all their lines have at most `budget` characters; None for those that do not fit.

    If not even their shortest forms fit together, the largest ones are dropped; the first document stays.
    """
    needs = [_length(document) for document in documents]
    floors = [
        min(need, _length(_shortest(document, LAST_FLOOR, nonce)))
        for document, need in zip(documents, needs, strict=True)
    ]
    kept = _that_fit(floors, budget)
    found: list[FittedDocument | None] = [None] * len(documents)
    left, reserved = budget, sum(floors[at] for at in kept)
    for done, at in enumerate(sorted(kept, key=lambda at: needs[at])):
        reserved -= floors[at]
        share = max(floors[at], min(left // (len(kept) - done), left - reserved))
        found[at] = _fit_one(documents[at], share, nonce)
        fitted = found[at]
        left -= _length(fitted.document) if fitted else 0
    return found


def _that_fit(floors: Sequence[int], budget: int) -> list[int]:
    """The indices of the documents whose shortest forms fit together: the first, and the shorter ones of the others."""
    left, kept = budget, []
    for at in (0, *sorted(range(1, len(floors)), key=lambda at: floors[at])):
        if floors[at] > left:
            break
        left -= floors[at]
        kept.append(at)
    return kept


def _length(document: Json) -> int:
    return len(fence_json(document)) + 1  # its line's end


def _fit_one(document: Json, share: int, nonce: str) -> FittedDocument | None:
    if _length(document) <= share:
        return FittedDocument(document, shortened=False)
    # No text longer than the share can fit, so no search need begin above it.
    longest = min(share, max((len(text) for text in _texts(document)), default=0))
    at_floor = _cut(document, TOOL_FLOOR, TEXT_FLOOR, nonce)
    steps: tuple[tuple[int, int, Callable[[int], Json]], ...] = (
        (TOOL_FLOOR, longest, lambda cap: _cut(document, cap, None, nonce)),
        (TEXT_FLOOR, longest, lambda cap: _cut(document, TOOL_FLOOR, cap, nonce)),
        (2, _turns(document), lambda keep: _without_middle(at_floor, keep, nonce)),
        (LAST_FLOOR, TEXT_FLOOR, lambda cap: _shortest(document, cap, nonce)),
    )
    for low, high, write in steps:
        if (found := _widest(low, high, write, share)) is not None:
            return FittedDocument(found, shortened=True)
    return None


def _widest(low: int, high: int, write: Callable[[int], Json], share: int) -> Json | None:
    """The document under the largest number in low..high that fits, or None."""
    best = write(low)
    if _length(best) > share:
        return None
    low += 1
    while low <= high:
        middle = (low + high) // 2
        document = write(middle)
        if _length(document) <= share:
            best, low = document, middle + 1
        else:
            high = middle - 1
    return best


# What is cut


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)


def _cut(document: Json, tool: int, text: int | None, nonce: str) -> Json:
    """The document with its tool outputs and other texts (None: unchanged) cut in the middle."""
    short = _with_messages(document, lambda message: _cut_message(message, tool, text, nonce))
    if text is not None and "tools" in short:
        short["tools"] = _cut_texts(short["tools"], text, nonce)
    return short


def _cut_message(message: Json, tool: int, text: int | None, nonce: str) -> Json:
    cap = tool if message["role"] in _TOOL_ROLES else text
    return message if cap is None else {name: _cut_texts(value, cap, nonce) for name, value in message.items()}


def _cut_texts(value: Any, cap: int, nonce: str) -> Any:
    if isinstance(value, str):
        return cut_middle(value, cap, nonce)
    if isinstance(value, dict):
        return {name: _cut_texts(inner, cap, nonce) for name, inner in value.items()}
    return [_cut_texts(inner, cap, nonce) for inner in value] if isinstance(value, list) else value


def _with_messages(document: Json, change: Callable[[Json], Json]) -> Json:
    changed = {**document, "messages": [change(message) for message in document["messages"]]}
    if "histories" in document:
        changed["histories"] = [
            {**history, "messages": [change(message) for message in history["messages"]]}
            for history in document["histories"]
        ]
    return changed


def _turns(document: Json) -> int:
    return sum(len(messages) for messages in _conversations(document))


def _conversations(document: Json) -> list[list[Json]]:
    """Its conversations in reading order."""
    return [*(history["messages"] for history in document.get("histories", ())), document["messages"]]


def _without_middle(document: Json, keep: int, nonce: str) -> Json:
    """The document with `keep` of its messages, taken from both ends, and a mark in place of the others."""
    conversations = _conversations(document)
    total = sum(map(len, conversations))
    gone = range(keep - keep // 2, total - keep // 2)
    if not gone:
        return document
    mark: Json = {"role": "left_out", "content": f"[… {len(gone)} messages left out, {nonce} …]"}
    short, at = [], 0
    for messages in conversations:
        kept: list[Json] = []
        for message in messages:
            kept.extend([mark] if at == gone.start else [] if at in gone else [message])
            at += 1
        short.append(kept)
    cut = {**document, "messages": short[-1]}
    if "histories" in document:
        pairs = zip(document["histories"], short[:-1], strict=True)
        cut["histories"] = [{**history, "messages": messages} for history, messages in pairs if messages]
    return cut


def _shortest(document: Json, cap: int, nonce: str) -> Json:
    """The first and the last message only, each as one text, cut in the middle."""
    short = _with_messages(_without_middle(document, 2, nonce), lambda message: _as_text(message, cap, nonce))
    if document.get("tools"):
        short["tools"] = [cut_middle(json.dumps(document["tools"], ensure_ascii=False), cap, nonce)]
    return short


def _as_text(message: Json, cap: int, nonce: str) -> Json:
    more = {name: value for name, value in message.items() if name not in ("role", "content")}
    text = message["content"] + (json.dumps(more, ensure_ascii=False) if more else "")
    return {"role": cut_middle(message["role"], cap, nonce), "content": cut_middle(text, cap, nonce)}


def cut_middle(text: str, cap: int, nonce: str) -> str:
    """`text`, or its two ends around a mark with the number of characters removed, at most `cap` characters long.

    The nonce prevents an agent from writing the mark itself to hide a missing text.
    """
    if len(text) <= cap:
        return text
    keep = max(0, cap - len(_mark(len(text), nonce)))
    head = keep - keep // 2
    return text[:head] + _mark(len(text) - keep, nonce) + text[len(text) - keep // 2 :]


def _mark(characters: int, nonce: str) -> str:
    return f" [… {characters} characters left out, {nonce} …] "
