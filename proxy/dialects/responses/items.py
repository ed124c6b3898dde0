"""Items of the Responses API ⇄ messages of the chat form, as pure functions.

Owns: an item as a message, a sampled message as the client's items, and the ids of these items, which name their
answer. Refuses: the request around the items, and the kinds of tool calls (`tool_items.py`).

One answer of the model may be several items (reasoning, message, function calls). Sent back, they become exactly the
one recorded assistant message: items with ids from Hone are merged by their ids, others if they are adjacent and do not
repeat each other, as the engine does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from proxy.dialects import engine_fields
from proxy.dialects.base import DialectRules
from proxy.dialects.responses import tool_items
from proxy.dialects.responses.tools import ToolOrigin
from proxy.errors import BadRequest, UnknownObject
from recorder.messages.calls import Message

Item = dict[str, Any]
Body = dict[str, Any]

RESPONSE: Final = "resp_"
_ITEM_ID: Final = re.compile(rf"(?:msg|rs|{'|'.join(tool_items.item_prefixes())})_([0-9a-z]{{8,64}})_(\d{{1,6}})")
_TEXT_PARTS: Final = frozenset({"input_text", "output_text", "text", "summary_text", "reasoning_text"})
_ROLES: Final = frozenset({"user", "assistant", "system", "developer"})
_OPEN: Final = frozenset({"in_progress", "incomplete"})


# --- ids


def item_id(prefix: str, response_id: str, at: int) -> str:
    """Return the id of an answer's item: it names its answer, so that none has to be stored."""
    return f"{prefix}_{response_id.removeprefix(RESPONSE)}_{at}"


def parse_item_id(item: str) -> tuple[str, int] | None:
    """Return the answer's id that an item's id names, and the item's place in it. None: not an id from Hone."""
    match = _ITEM_ID.fullmatch(item)
    return (RESPONSE + match[1], int(match[2])) if match else None


def referenced_ids(items: object) -> list[str]:
    """Return the ids of the items that a request's input names by reference only."""
    if not isinstance(items, list):
        return []
    ids = (item.get("id") for item in items if isinstance(item, dict) and _type_of(item) == "item_reference")
    return [id_ for id_ in ids if isinstance(id_, str)]


def resolve_references(items: object, answers: Mapping[str, Sequence[Item]]) -> object:
    """Return a request's input with references replaced by their items. Raises UnknownObject for an unknown
    reference.
    """
    if not isinstance(items, list):
        return items
    return [
        _itself(item, answers) if isinstance(item, dict) and _type_of(item) == "item_reference" else item
        for item in items
    ]


def _itself(reference: Item, answers: Mapping[str, Sequence[Item]]) -> Item:
    id_ = reference.get("id")
    known = parse_item_id(id_) if isinstance(id_, str) else None
    if known is not None:
        for item in answers.get(known[0], ()):
            if item["id"] == id_:
                return item
    raise UnknownObject(f"Item with id {id_!r:.120} not found.", param="input")


# --- from a client's items


@dataclass(slots=True)
class ItemExtras:
    """What the items of a request hold in addition to messages; filled while they are read."""

    call_ids: dict[str, str] = field(default_factory=dict)  # id of a call's item → id of the call
    tools: list[tuple[str, object]] = field(default_factory=list)  # tools that were found, and their places
    dropped: list[str] = field(default_factory=list)  # types of items that are not shown to the model

    def note_calls(self, items: object) -> None:
        """Note the ids of the calls in these items."""
        for item in items if isinstance(items, list) else ():
            if isinstance(item, dict) and isinstance(item.get("id"), str) and isinstance(item.get("call_id"), str):
                self.call_ids.setdefault(item["id"], item["call_id"])


def parse_messages(items: object, rules: DialectRules, extras: ItemExtras | None = None) -> list[Message]:
    """Return the chat messages of a request's `input`. Raises BadRequest, which names the item, for an item without a
    chat form.
    """
    if isinstance(items, str):
        return [{"role": "user", "content": items}]
    if not isinstance(items, list) or not items:
        raise BadRequest("the field 'input' must be a text or a list with at least one item.", param="input")
    turns, extras = _MessageBuilder(), extras or ItemExtras()
    extras.note_calls(items)
    for at, item in enumerate(items):
        where = f"input[{at}]"
        if not isinstance(item, dict):
            raise _wrong(where, item, "give an object")
        _take(turns, item, where, rules, extras)
    return turns.whole()


def continues_last(items: object) -> bool:
    """Whether the model continues the last item, which the client marked as unfinished."""
    last = items[-1] if isinstance(items, list) and items else None
    return isinstance(last, dict) and _type_of(last) in ("message", "reasoning") and str(last.get("status")) in _OPEN


class _MessageBuilder:
    """Builds messages from items: the items of one assistant turn become one message."""

    def __init__(self) -> None:
        self._messages: list[Body] = []
        self._turn: Body | None = None  # the assistant message that further items may join
        self._answer: str | None = None  # the answer of its last item with an id from Hone

    def whole(self) -> list[Message]:
        """Return all messages. A text that grew is a list of its pieces until then."""
        for message in self._messages:
            if message["role"] == "assistant":
                message |= {name: "".join(message[name]) for name in ("content", "reasoning") if name in message}
        return list(self._messages)

    def other(self, message: Body) -> None:
        """Add a message that is not the assistant's."""
        self._turn = self._answer = None
        self._messages.append(message)

    def text(self, name: str, text: str, item: Item) -> None:
        """Add a part of an assistant turn: its content or its reasoning."""
        answer = _answer(item)
        turn = self._joined(answer)
        if turn is not None and name in turn and answer is not None and answer == self._answer:
            turn[name].append(text)  # one answer with two texts, and a tool call between them
        elif turn is not None and name not in turn:
            turn[name] = [text]
        else:
            self._begin({name: [text]})
        self._answer = answer or self._answer

    def call(self, call: Body, item: Item) -> None:
        """Add a tool call."""
        answer = _answer(item)
        turn = self._joined(answer)
        if turn is None:
            turn = self._begin({})
        turn.setdefault("tool_calls", []).append(call)
        self._answer = answer or self._answer

    def _joined(self, answer: str | None) -> Body | None:
        """Return the turn that an item may join; never a turn of another answer."""
        other = answer is not None and self._answer is not None and answer != self._answer
        return None if other else self._turn

    def _begin(self, fields: Body) -> Body:
        self._turn, self._answer = {"role": "assistant", **fields}, None
        self._messages.append(self._turn)
        return self._turn


def _take(turns: _MessageBuilder, item: Item, where: str, rules: DialectRules, extras: ItemExtras) -> None:
    kind = _type_of(item)
    if kind == "message":
        _take_message(turns, item, where, rules, extras.dropped)
    elif kind == "reasoning":
        if item.get("encrypted_content"):  # another vendor's, sealed
            extras.dropped.append(kind)
        if (text := _reasoning(item, where)) or not item.get("encrypted_content"):
            turns.text("reasoning", text, item)
    elif not isinstance(kind, str):
        raise _unknown(kind, where)
    else:
        extras.tools += tool_items.loaded_tools(item, where)
        _take_tools_item(turns, item, where, rules, extras)


def _take_tools_item(turns: _MessageBuilder, item: Item, where: str, rules: DialectRules, extras: ItemExtras) -> None:
    kind = item["type"]
    if tool_items.is_foreign(item):
        extras.dropped.append(str(kind))
    elif tool_items.is_call(kind):
        turns.call(tool_items.parse_call(item, where), item)
    elif output := tool_items.parse_output(item, extras.call_ids, where):
        content = _parts(output[1], f"{where}.output", rules, extras.dropped)
        turns.other({"role": "tool", "tool_call_id": output[0], "content": content})
    elif kind != "additional_tools":  # a compacted history, or of a kind that is not known
        extras.dropped.append(kind[:60])


def _unknown(kind: object, where: str) -> BadRequest:
    return BadRequest(
        f"{where} is an item without a type ({kind!r:.60}): give a message, reasoning, a tool call, its output, or a "
        "reference to an item of an earlier answer.",
        param=where,
        code="unsupported_value",
    )


def _take_message(turns: _MessageBuilder, item: Item, where: str, rules: DialectRules, dropped: list[str]) -> None:
    role = item.get("role")
    if not isinstance(role, str) or role not in _ROLES:
        raise BadRequest(
            f"{where}.role is {role!r:.60}: give one of {', '.join(sorted(_ROLES))}.", param=f"{where}.role"
        )
    content = item.get("content")
    if role == "assistant":
        turns.text("content", _plain(content, f"{where}.content"), item)
    else:
        turns.other({"role": role, "content": _parts(content, f"{where}.content", rules, dropped)})


def _reasoning(item: Item, where: str) -> str:
    """The text of a reasoning item: its content, else its summary."""
    for name in ("content", "summary"):
        if item.get(name):
            return _plain(item[name], f"{where}.{name}")
    return ""


def _plain(content: object, where: str) -> str:
    """The text of an assistant's content."""
    if isinstance(content, str) or content is None:
        return content or ""
    if not isinstance(content, list):
        raise _wrong(where, content, "give a text or a list of parts")
    texts = []
    for at, part in enumerate(content):
        text = part.get("text", part.get("refusal")) if isinstance(part, dict) else None
        if not isinstance(text, str):
            raise _wrong(f"{where}[{at}]", part, "give an output_text part with its text")
        texts.append(text)
    return "".join(texts)


def _parts(content: object, where: str, rules: DialectRules, dropped: list[str]) -> str | list[Body]:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise _wrong(where, content, "give a text or a list of parts")
    engine_fields.check_media(content, rules, where)
    return [_part(part, f"{where}[{at}]", dropped) for at, part in enumerate(content)]


def _part(part: object, where: str, dropped: list[str]) -> Body:
    if not isinstance(part, dict):
        raise _wrong(where, part, "give an object")
    kind = str(part.get("type"))
    if kind in _TEXT_PARTS:
        return {"type": "text", "text": _text_of(part, "text", where)}
    if kind == "input_image" and isinstance(part.get("image_url"), str):
        detail = {"detail": part["detail"]} if part.get("detail") is not None else {}
        return {"type": "image_url", "image_url": {"url": part["image_url"], **detail}}
    if not isinstance(part.get("type"), str):
        raise _wrong(where, part, "give an input_text or an input_image part")
    return engine_fields.file_part(part, dropped)


def _type_of(item: Item) -> object:
    return item.get("type") or ("message" if "role" in item else None)


def _answer(item: Item) -> str | None:
    id_ = item.get("id")
    known = parse_item_id(id_) if isinstance(id_, str) else None
    return known[0] if known else None


def _text_of(item: Item, name: str, where: str) -> str:
    value = item.get(name)
    if not isinstance(value, str):
        raise _wrong(f"{where}.{name}", value, "give a text")
    return value


def _wrong(where: str, value: object, advice: str) -> BadRequest:
    return BadRequest(f"{where} is {value!r:.60}: {advice}.", param=where, code="invalid_type")


# --- to a client's items


def output_items(
    message: Message | None,
    response_id: str,
    logprobs: object = None,
    *,
    streamed: bool = False,
    origins: Mapping[str, ToolOrigin] | None = None,
) -> list[Item]:
    """Return the items of a sampled message: its reasoning, its text, its tool calls, as far as it has them.

    `logprobs`: of the text, if the client asked for them. `origins`: the client's tool for each function.
    """
    items: list[Item] = []
    fields = message or {}
    if fields.get("reasoning"):
        items.append(reasoning_item(fields["reasoning"], response_id, 0, "completed" if streamed else None))
    if fields.get("content"):
        items.append(message_item(fields["content"], response_id, len(items), logprobs))
    for call in fields.get("tool_calls") or ():
        items.append(call_item(call, response_id, len(items), origins))
    return items


def message_item(text: str, response_id: str, at: int, logprobs: object = None) -> Item:
    """Return a text as an item."""
    part = {"annotations": [], "text": text, "type": "output_text", "logprobs": logprobs}
    return {
        "id": item_id("msg", response_id, at),
        "content": [part] if text else [],
        "role": "assistant",
        "status": "completed",
        "type": "message",
        "phase": None,
    }


def reasoning_item(text: str, response_id: str, at: int, status: str | None = None) -> Item:
    """Return reasoning as an item. The engine gives it a status only in a stream."""
    return {
        "id": item_id("rs", response_id, at),
        "summary": [],
        "type": "reasoning",
        "content": [{"text": text, "type": "reasoning_text"}],
        "encrypted_content": None,
        "status": status,
    }


def call_item(
    call: Mapping[str, Any], response_id: str, at: int, origins: Mapping[str, ToolOrigin] | None = None
) -> Item:
    """Return a tool call as an item."""
    origin = _origin(call, origins or {})
    return tool_items.call_item(call, origin, lambda prefix: item_id(prefix, response_id, at))


def _origin(call: Mapping[str, Any], origins: Mapping[str, ToolOrigin]) -> ToolOrigin:
    return origins.get(call["function"]["name"], tool_items.FUNCTION)


def input_items(
    messages: Sequence[Message], response_id: str, origins: Mapping[str, ToolOrigin] | None = None
) -> list[Item]:
    """Return a recorded conversation as the client's items, each with an id."""
    items: list[Item] = []
    called: dict[str, ToolOrigin] = {}  # by the call's id
    for message in messages:
        if message.get("role") == "assistant":
            items += output_items(message, response_id, origins=origins)
            called |= {call["id"]: _origin(call, origins or {}) for call in message.get("tool_calls") or ()}
        elif message.get("role") == "tool":
            call_id = message.get("tool_call_id")
            content = _input_parts(message.get("content"), whole_text=True)
            origin = called.get(str(call_id), tool_items.FUNCTION)
            items.append({"status": "completed", **tool_items.output_item(origin, call_id, content)})
        else:
            content = _input_parts(message.get("content"), whole_text=False)
            items.append({"type": "message", "role": message.get("role"), "content": content, "status": "completed"})
    return [item | {"id": f"item_{response_id.removeprefix(RESPONSE)}_{at}"} for at, item in enumerate(items)]


def _input_parts(content: object, *, whole_text: bool) -> object:
    if isinstance(content, str) or content is None:
        return (content or "") if whole_text else [{"type": "input_text", "text": content or ""}]
    parts = content if isinstance(content, list) else []
    return [_input_part(part) for part in parts]


def _input_part(part: object) -> object:
    if not isinstance(part, dict):
        return part
    if part.get("type") == "text":
        return {"type": "input_text", "text": part.get("text")}
    image = part.get("image_url")
    if isinstance(image, dict):
        return {"type": "input_image", "image_url": image.get("url"), "detail": image.get("detail", "auto")}
    return part
