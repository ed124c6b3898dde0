"""Mask what varies between similar tasks: numbers, dates, ids, addresses, URLs and quoted text. Pure.

Owns: what is masked, and with which mark. Refuses: deciding whether similar tasks count as the same (the setting
`recorder.same_task`), and the judge's prompt (`judge.llm.prompt`).

Each kind has its own mark, so a number never stands for an address. Masking is idempotent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from recorder.messages.calls import Message

_MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sep(?:t(?:ember)?)?|oct(?:ober)?"
    r"|nov(?:ember)?|dec(?:ember)?)"
)
_DAY = r"\d{1,2}(?:st|nd|rd|th)?"
_CLOCK = r"\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:\s?[ap]m\b)?"
_PIECE_CHARS: Final = 1 << 16  # 5 ms
_MOST_QUOTED = 2000  # characters between two quotation marks; a longer text is not a quotation

# In this order, because earlier kinds contain later ones (a URL has numbers, a quotation may have anything).
_KINDS: Final = (
    ("url", re.compile(r"\b(?:https?|ftp|file|s3|gs)://[^\s<>\"'`]+[^\s<>\"'`.,;:!?)\]}]", re.IGNORECASE)),
    ("address", re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)+|\b\d{1,3}(?:\.\d{1,3}){3}\b(?::\d+)?")),
    (
        "quote",
        re.compile(
            rf"\"[^\"\n]{{1,{_MOST_QUOTED}}}\"|“[^“”\n]{{1,{_MOST_QUOTED}}}”|«[^«»\n]{{1,{_MOST_QUOTED}}}»"
            rf"|„[^„“”\n]{{1,{_MOST_QUOTED}}}[“”]|`[^`\n]{{1,{_MOST_QUOTED}}}`"
            rf"|(?<!\w)'[^'\n]{{1,{_MOST_QUOTED}}}'(?!\w)|(?<!\w)‘[^‘’\n]{{1,{_MOST_QUOTED}}}’(?!\w)"
        ),
    ),
    (
        "date",
        re.compile(
            rf"\b\d{{4}}-\d{{2}}-\d{{2}}(?:[T ]{_CLOCK}(?:Z|[+-]\d{{2}}:?\d{{2}})?)?"
            rf"|\b\d{{1,4}}([./-])\d{{1,2}}\1\d{{1,4}}\b"
            rf"|\b{_DAY}\.?\s(?:of\s)?{_MONTH}\b\.?(?:,?\s\d{{4}}\b)?|\b{_MONTH}\.?\s{_DAY}\b(?:,?\s\d{{4}}\b)?|\b{_CLOCK}",
            re.IGNORECASE,
        ),
    ),
    ("id", re.compile(r"(?<![\w-])(?=[\w-]*\d)(?=[\w-]*[^\W\d])[\w-]+(?![\w-])")),
    ("number", re.compile(r"\d+(?:[.,'\u202f\u00a0]\d+)*")),
)


def mask_text(text: str) -> str:
    """Return a text with a mark in place of each value that may differ between similar tasks.

    A long text is masked in pieces of whole lines, since the interpreter runs nothing else while a pattern is applied.
    """
    return _mask_piece(text) if len(text) <= _PIECE_CHARS else "".join(map(_mask_piece, _pieces(text)))


def _mask_piece(text: str) -> str:
    for kind, pattern in _KINDS:
        text = pattern.sub(f"<{kind}>", text)
    return text


def _pieces(text: str) -> Iterator[str]:
    """Split a text after a line, else after a word."""
    at = 0
    while at < len(text):
        end = at + _PIECE_CHARS
        if end < len(text):
            seam = next((seam for mark in ("\n", " ") if (seam := text.rfind(mark, at, end)) >= at), end - 1)
            end = seam + 1
        yield text[at:end]
        at = end


def mask_message(message: Message) -> dict[str, Any]:
    """Return a message with its texts masked and everything else unchanged."""
    return {**message, "content": _masked(message.get("content"))}


def _masked(content: Any) -> Any:
    if isinstance(content, str):
        return mask_text(content)
    if isinstance(content, list):
        return [_masked_part(part) for part in content]
    return content


def _masked_part(part: Any) -> Any:
    if isinstance(part, Mapping) and isinstance(part.get("text"), str):
        return {**part, "text": mask_text(part["text"])}
    return mask_text(part) if isinstance(part, str) else part
