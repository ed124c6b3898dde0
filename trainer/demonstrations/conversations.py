"""Conversations from files: OpenAI chat or prompt-completion, one JSON object a line, or parquet with the same columns.

Owns: the forms, which answers are imitated, and what a message is. Refuses: reading the file
(`trainer.demonstrations.row_files`), rendering (`trainer.demonstrations.chat_template`), and rows that do not fit
(`trainer.demonstrations.rows`).

`{"messages": [...], "tools": [...]}`: each assistant message is imitated unless its `weight` is 0. `{"prompt": ...,
"completion": ...}`: both are texts, or both are lists of messages; the assistant messages of the completion are
imitated. A file with one wrong row is not used at all.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from recorder.messages.calls import Message
from recorder.messages.media import has_media
from trainer.demonstrations.row_files import read_rows
from trainer.tasks.json_objects import InvalidObject

ROLES: Final = ("system", "developer", "user", "assistant", "tool")
_CHAT: Final = {"messages", "tools"}
_COMPLETION: Final = {"prompt", "completion", "tools"}
_IGNORED: Final = {"parallel_tool_calls"}  # of OpenAI's form: it says nothing about an answer


@dataclass(frozen=True, slots=True)
class Conversation:
    """One row of a file. `answers`: the indices of the messages to imitate. `source_id`: by the content of the row, so
    that the same row has it in every file.
    """

    source_id: str
    name: str  # FILE:LINE
    messages: Sequence[Message]
    tools: Sequence[Mapping[str, Any]] | None
    answers: Sequence[int]
    has_media: bool = False


def read_conversations(file: Path) -> list[Conversation]:
    """Read a file. Raises `DemonstrationsInvalid`, with line and column of each fault, if any row is wrong or none is
    there.
    """
    return read_rows(file, _conversation, "conversation")


def _conversation(value: Mapping[str, Any], name: str) -> Conversation:
    given = {key: one for key, one in value.items() if key not in _IGNORED and one is not None}
    if "messages" in given:
        refuse_others(given, _CHAT)
        messages = read_messages(given["messages"], "messages")
        answers = [at for at, one in enumerate(messages) if one["role"] == "assistant" and one.get("weight") != 0]
    elif "prompt" in given and "completion" in given:
        refuse_others(given, _COMPLETION)
        prompt, completion = read_part(given, "prompt", "user"), read_part(given, "completion", "assistant")
        messages = [*prompt, *completion]
        answers = [at for at, one in enumerate(messages) if at >= len(prompt) and one["role"] == "assistant"]
    else:
        raise InvalidObject("it has neither messages, nor prompt and completion", next(iter(given), None))
    plain, tools = plain_messages(messages), read_tools(given.get("tools"))
    return Conversation(row_id(plain, tools, answers), name, plain, tools, answers, has_media(plain))


def row_id(*content: Any) -> str:
    """The id of a row by its content: the same in every file."""
    return f"row_{hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:24]}"


def plain_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Messages without the keys that say nothing to a model."""
    return [{key: one for key, one in message.items() if key != "weight" and one is not None} for message in messages]


def refuse_others(given: Mapping[str, Any], known: set[str]) -> None:
    """Raise `InvalidObject` for a key that the form of a row does not have."""
    for key in given:
        if key not in known:
            raise InvalidObject(f"unknown key {key!r} (known: {', '.join(sorted(known))})", key)


def read_part(given: Mapping[str, Any], key: str, role: str) -> list[dict[str, Any]]:
    """Return a part of a conversation: a text is one message of `role`. Raises `InvalidObject`."""
    value = given[key]
    if isinstance(value, str):
        return [{"role": role, "content": value}]
    return read_messages(value, key)


def read_messages(value: Any, key: str) -> list[dict[str, Any]]:
    """Return a list of messages. Raises `InvalidObject`, with the place of the first wrong one."""
    if not isinstance(value, list) or not value:
        raise InvalidObject(f"{key} is a list of messages", key)
    for number, message in enumerate(value, 1):
        if (why := _why_no_message(message)) is not None:
            raise InvalidObject(f"message {number} of {key}: {why}", key, entry=number)
    return value


def _why_no_message(message: Any) -> str | None:
    if not isinstance(message, dict):
        return "it is no object"
    role, content = message.get("role"), message.get("content")
    if role not in ROLES:
        return f"its role {role!r} is none of {', '.join(ROLES)}"
    if "weight" in message and (role != "assistant" or message["weight"] not in (0, 1)):
        return "weight is 0 or 1, of an assistant message"
    calls = message.get("tool_calls")
    if calls and (role != "assistant" or not isinstance(calls, list) or not all(map(_is_call, calls))):
        return "tool_calls is a list of an assistant message's function calls, each with a name and arguments"
    if content is None and not calls:
        return "it has no content"
    if content is not None and not isinstance(content, str | list):
        return "content is a text, or a list of parts"
    if isinstance(content, list) and not all(isinstance(part, dict) for part in content):
        return "a part of content is an object"
    return None


def _is_call(call: Any) -> bool:
    function = call.get("function") if isinstance(call, dict) else None
    return isinstance(function, dict) and isinstance(function.get("name"), str) and "arguments" in function


def read_tools(value: Any) -> list[dict[str, Any]] | None:
    """Return the tools of a row. Raises `InvalidObject`."""
    if value is None:
        return None
    if isinstance(value, str):  # as columns of data sets have them
        try:
            value = json.loads(value)
        except ValueError as e:
            raise InvalidObject(f"tools is no JSON: {e}", "tools") from None
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise InvalidObject("tools is a list of objects", "tools")
    return value or None
