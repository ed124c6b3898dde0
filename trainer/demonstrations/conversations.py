"""Conversations from files: OpenAI chat or prompt-completion, one JSON object a line, or parquet with the same columns.

Owns: the forms, which answers are imitated, and where a file is wrong. Refuses: rendering
(`trainer.demonstrations.chat_template`), and rows that do not fit (`trainer.demonstrations.rows`).

`{"messages": [...], "tools": [...]}`: each assistant message is imitated unless its `weight` is 0. `{"prompt": ...,
"completion": ...}`: both are texts, or both are lists of messages; the assistant messages of the completion are
imitated. A file with one wrong row is not used at all.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from recorder.messages.calls import Message
from recorder.messages.media import has_media
from trainer.errors import DemonstrationsInvalid
from trainer.tasks.json_objects import DuplicateKeys, FileFault, InvalidObject, read_objects

ROLES: Final = ("system", "developer", "user", "assistant", "tool")
_CHAT: Final = {"messages", "tools"}
_COMPLETION: Final = {"prompt", "completion", "tools"}
_IGNORED: Final = {"parallel_tool_calls"}  # of OpenAI's form: it says nothing about an answer
_MOST_SHOWN: Final = 5


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
    found: list[Conversation] = []
    faults: list[str] = []
    for one in _rows(file):
        if isinstance(one, str):
            faults.append(one)
        else:
            found.append(one)
    if faults:
        more = f"\n… and {len(faults) - _MOST_SHOWN} more" if len(faults) > _MOST_SHOWN else ""
        raise DemonstrationsInvalid(
            f"{file} is not used, because some of it is wrong:\n" + "\n".join(faults[:_MOST_SHOWN]) + more
        )
    if not found:
        raise DemonstrationsInvalid(f"{file} has no conversation")
    return found


def _rows(file: Path) -> Iterator[Conversation | str]:
    try:
        if file.suffix == ".parquet":
            yield from _parquet_rows(file)
        else:
            yield from _json_rows(file, file.read_bytes().split(b"\n"))
    except OSError as e:
        raise DemonstrationsInvalid(f"{file} cannot be read: {e.strerror or e}") from e


def _json_rows(file: Path, lines: Sequence[bytes]) -> Iterator[Conversation | str]:
    for one in read_objects(lines):
        if isinstance(one, FileFault):
            yield f"{file}:{one.line}: {one.why}"
            continue
        try:
            yield _conversation(one.value, f"{file}:{one.line}")
        except InvalidObject as e:
            line, column = one.place_of(e)
            yield f"{file}:{line}:{column}: {one.name}{e}"


def _parquet_rows(file: Path) -> Iterator[Conversation | str]:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError as e:
        raise DemonstrationsInvalid(f"{file}: parquet needs the extra `data`: pip install 'hone-proxy[data]'") from e
    number = 0
    try:
        for batch in parquet.ParquetFile(file).iter_batches(batch_size=1000):
            for value in batch.to_pylist():
                number += 1
                try:
                    yield _conversation(_without_none(value), f"{file}: row {number}")
                except InvalidObject as e:
                    column = f", column {e.key}" if e.key is not None else ""
                    yield f"{file}: row {number}{column}: {e}"
    except ArrowException as e:
        raise DemonstrationsInvalid(f"{file} is not parquet: {e}") from e


def _without_none(value: Any) -> Any:
    """A value of parquet without the fields that a row lacks: every row of a column has the fields of all."""
    if isinstance(value, dict):
        return {key: _without_none(one) for key, one in value.items() if one is not None}
    if isinstance(value, list):
        return [_without_none(one) for one in value]
    return value


def _conversation(value: Any, name: str) -> Conversation:
    if not isinstance(value, dict):
        raise InvalidObject("a row is an object with messages, or with prompt and completion")
    if isinstance(value, DuplicateKeys):
        raise InvalidObject(f"{value.key!r} is given twice", value.key, nth=2)
    given = {key: one for key, one in value.items() if key not in _IGNORED and one is not None}
    if "messages" in given:
        _refuse_others(given, _CHAT)
        messages = _messages(given["messages"], "messages")
        answers = [at for at, one in enumerate(messages) if one["role"] == "assistant" and one.get("weight") != 0]
    elif "prompt" in given and "completion" in given:
        _refuse_others(given, _COMPLETION)
        prompt, completion = _side(given, "prompt", "user"), _side(given, "completion", "assistant")
        messages = [*prompt, *completion]
        answers = [at for at, one in enumerate(messages) if at >= len(prompt) and one["role"] == "assistant"]
    else:
        raise InvalidObject("it has neither messages, nor prompt and completion", next(iter(given), None))
    tools = _tools(given.get("tools"))
    plain = [{key: one for key, one in message.items() if key != "weight" and one is not None} for message in messages]
    digest = hashlib.sha256(json.dumps([plain, tools, answers], sort_keys=True).encode()).hexdigest()
    return Conversation(f"row_{digest[:24]}", name, plain, tools, answers, has_media(plain))


def _refuse_others(given: Mapping[str, Any], known: set[str]) -> None:
    for key in given:
        if key not in known:
            raise InvalidObject(f"unknown key {key!r} (known: {', '.join(sorted(known))})", key)


def _side(given: Mapping[str, Any], key: str, role: str) -> list[dict[str, Any]]:
    """The prompt or the completion: a text is one message."""
    value = given[key]
    if isinstance(value, str):
        return [{"role": role, "content": value}]
    return _messages(value, key)


def _messages(value: Any, key: str) -> list[dict[str, Any]]:
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


def _tools(value: Any) -> list[dict[str, Any]] | None:
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
