"""Content ids: when two messages are the same message, and their hashes.

Owns: the canonical form of a message (clients echo an assistant message in several forms), and the keyed hashes of
nodes, blobs and implicit groups. Refuses: storage, and what follows from equality (`recorder.messages.lineage`).

Hashes are keyed with the project's `node_key`, so equal text in two projects cannot be linked.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any

import orjson

from recorder.base.json_limits import parse_json_text
from recorder.messages.calls import Message
from recorder.messages.long_texts import LONG_CHARS, dump_long_texts
from recorder.messages.text_masking import mask_message

# What clients add to, or omit from, an assistant message when they send it back.
ECHO_EXTRAS = frozenset(
    {
        "refusal",
        "annotations",
        "audio",
        "parsed",
        "reasoning",
        "reasoning_content",
        "reasoning_details",
        "thinking_blocks",
        "provider_specific_fields",
        "cache_control",
    }
)
_ID_CHARS = 256
_TEXT_PARTS = frozenset({"text", "output_text", "input_text"})


def canonical_json(value: Any) -> bytes:
    """`value` as compact JSON with sorted keys: equal values give equal bytes."""
    try:
        # no function for this test: 13 function calls less for each call, here and in `recorder.capture.rows`
        if value.__class__ is dict and (text := value.get("content")).__class__ is str and len(text) > LONG_CHARS:
            return dump_long_texts(value, orjson.OPT_SORT_KEYS)
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # integers beyond 64 bits, lone surrogates: valid JSON, but orjson rejects them
        return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def canonical_message(message: Message) -> dict[str, Any]:
    """Return `message` in the one form that all its echoes share.

    None, "" and an absent content are equal; a list with one text part equals its text; arguments of tool calls are
    compared as JSON if they parse; ids are kept; fields that only echoes add (`ECHO_EXTRAS`, nulls, the name that a
    client gives to an assistant's message) are dropped.
    """
    if len(message) == 2 and message.get("content").__class__ is str and message["content"] and "role" in message:
        return dict(message)  # nearly all messages
    form = {k: v for k, v in message.items() if v is not None and k not in ECHO_EXTRAS}
    if form.get("role") == "assistant":
        form.pop("name", None)
    content = form.get("content")
    if isinstance(content, list):
        content = form["content"] = _content(content)
    if content is not None and not content:
        del form["content"]
    calls = form.get("tool_calls")
    if isinstance(calls, list):
        form["tool_calls"] = [_tool_call(call) for call in calls]
        if not calls:
            del form["tool_calls"]
    return form


def echoed_extras(message: Message) -> dict[str, Any]:
    """Return the fields with content that `canonical_message` omits: reasoning, refusal, annotations …"""
    return {k: v for k, v in message.items() if k in ECHO_EXTRAS and v not in (None, [], "")}


def node_id(key: bytes, parent: bytes | None, message: Message) -> bytes:
    """The 16-byte id of `message` under `parent`; the id identifies the whole conversation up to it."""
    return blake2b((parent or b"") + canonical_json(canonical_message(message)), digest_size=16, key=key).digest()


def chain_node_ids(key: bytes, messages: Sequence[Message]) -> list[bytes]:
    """Return the node ids of a conversation, one per message, in order."""
    ids: list[bytes] = []
    parent: bytes | None = None
    for message in messages:
        parent = node_id(key, parent, message)
        ids.append(parent)
    return ids


def content_id(key: bytes, content: bytes) -> bytes:
    """The 16-byte id of a blob."""
    return blake2b(content, digest_size=16, key=key, person=b"blob").digest()


def issued_id_key(issued_id: str) -> str:
    """Return the key by which an issued id is looked up: the id itself, or a hash of a long one.

    Some providers put a signature of kilobytes into a tool-call id, which is too long for PostgreSQL's indexes.
    """
    if len(issued_id) <= _ID_CHARS:
        return issued_id
    return "blake2b:" + blake2b(issued_id.encode(errors="surrogatepass"), digest_size=16).hexdigest()


def hash_first_turns(messages: Iterable[Message], *, whole: bool = False) -> list[dict[str, Any]]:
    """Return the canonical messages that define a task: system messages and the first user message; `whole`: all."""
    head: list[dict[str, Any]] = []
    for message in messages:
        role = message.get("role")
        if role in {"system", "developer", "user"}:
            head.append(canonical_message(message))
        if role == "user" and not whole:
            break
    return head


def implicit_group_key(
    key: bytes,
    alias_id: str | None,
    messages: Sequence[Message],
    tools: Sequence[Mapping[str, Any]] | None,
    purpose: str = "train",
    *,
    continued: bool = False,
    masked: bool = False,
) -> str:
    """Return the key that trajectories of the same task share: alias, system messages, tools, first user message.

    `purpose` is part of it, so that an evaluation never shares a group with trajectories that are trained on. A
    continuation of an ended trajectory (`continued`) is not another attempt at its task, so all later user messages
    count too. `masked`: similar texts count as the same (`recorder.messages.text_masking`).
    """
    head = hash_first_turns(messages, whole=continued)
    if masked:
        head = [mask_message(message) for message in head]
    person = b"continued" if continued else b"group"
    return blake2b(
        canonical_json([alias_id, purpose, head, tools or []]), digest_size=16, key=key, person=person
    ).hexdigest()


def _content(parts: list[Any]) -> Any:
    kept = [_without_marks(part) for part in parts]
    if not kept:
        return None
    if len(kept) == 1 and isinstance(kept[0], dict) and str(kept[0].get("type")) in _TEXT_PARTS:
        return kept[0].get("text")
    return kept


def _without_marks(part: Any) -> Any:
    # clients move cache marks from message to message as a conversation grows
    if not isinstance(part, dict):
        return part
    return {k: v for k, v in part.items() if v is not None and k != "cache_control"}


def _tool_call(call: Any) -> Any:
    if not isinstance(call, dict):
        return call
    form = {k: v for k, v in call.items() if v is not None and k != "index"}
    function = form.get("function")
    if isinstance(function, dict) and isinstance(function.get("arguments"), str):
        form["function"] = function | {"arguments": _arguments(function["arguments"])}
    return form


def _arguments(text: str) -> Any:
    """Return arguments as a JSON value if they parse, else as the text that the model wrote."""
    try:
        value = parse_json_text(text)
    except (ValueError, RecursionError):
        return text
    # a JSON string must not equal a malformed text with the same characters
    return {"json": value}
