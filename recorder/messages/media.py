"""Media in messages: stored once as blobs, however often they occur in conversations.

Owns: whether messages hold media, extracting long strings from content parts and restoring them. Refuses: text parts,
storage.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from recorder.messages.calls import Message
from recorder.messages.content_hashes import content_id

MIN_CHARS = 4096  # shorter strings cost less inline than a blob's row
_MARK = "hone-blob:"
# Parts whose content is text: the model gets them as tokens of their text alone.
_TEXT: Final = frozenset({"text", "input_text", "output_text", "refusal", "thinking", "reasoning", "summary_text"})


def has_media(messages: Iterable[Message]) -> bool:
    """Return whether any message has a part that is not text: a picture, audio, video, a file, or an unknown kind."""
    return any(
        isinstance(part, Mapping) and not _is_text(part.get("type", "text"))
        for message in messages
        if isinstance(content := message.get("content"), list | tuple)
        for part in content
    )


def _is_text(kind: object) -> bool:
    return isinstance(kind, str) and kind in _TEXT  # a client may send anything as a type


def extract_media(key: bytes, message: Message) -> tuple[Message, dict[bytes, bytes]]:
    """Return `message` with its long media strings replaced by marks, and these strings by blob id."""
    content = message.get("content")
    if not isinstance(content, list):
        return message, {}
    blobs: dict[bytes, bytes] = {}

    def stripped(value: Any) -> Any:
        if isinstance(value, str) and len(value) >= MIN_CHARS:
            data = value.encode("utf-8", "surrogatepass")
            blob = content_id(key, data)
            blobs[blob] = data
            return _MARK + blob.hex()
        if isinstance(value, dict):
            return {k: stripped(v) for k, v in value.items()}
        return value

    parts = [stripped(part) if _is_media(part) else part for part in content]
    return ({**message, "content": parts}, blobs) if blobs else (message, {})


def media_ids(message: Message) -> Iterator[bytes]:
    """Yield the ids of the blobs that `restore_media` needs."""
    content = message.get("content")
    for part in content if isinstance(content, list) else []:
        if _is_media(part):
            yield from _marks(part)


def restore_media(message: Message, blobs: Mapping[bytes, bytes]) -> Message:
    """Return the message as it was before `extract_media`. A mark without its blob stays a mark."""
    content = message.get("content")
    if not isinstance(content, list) or not any(True for _ in media_ids(message)):
        return message
    return {**message, "content": [_restored(part, blobs) if _is_media(part) else part for part in content]}


def _is_media(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") != "text"


def _blob(value: str) -> bytes | None:
    if not value.startswith(_MARK):
        return None
    try:
        return bytes.fromhex(value[len(_MARK) :])
    except ValueError:  # text of the conversation that only looks like a mark
        return None


def _marks(value: Any) -> Iterator[bytes]:
    if isinstance(value, dict):
        for inner in value.values():
            yield from _marks(inner)
    elif isinstance(value, str) and (blob := _blob(value)) is not None:
        yield blob


def _restored(value: Any, blobs: Mapping[bytes, bytes]) -> Any:
    if isinstance(value, dict):
        return {k: _restored(v, blobs) for k, v in value.items()}
    if isinstance(value, str) and (blob := _blob(value)) is not None and blob in blobs:
        return blobs[blob].decode("utf-8", "surrogatepass")
    return value
