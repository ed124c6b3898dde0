"""Anthropic's content blocks ⇄ messages of the chat form.

Owns: the translation of `system` and `messages`, as pure functions. The prompt equals that of the engine's own
`/v1/messages`, and blocks that a client sends back become the recorded message again. Blocks that no chat template can
render (a PDF, a stored file, sealed reasoning) are dropped and reported, with a short text in their place: they stay in
a client's history, and a refusal would fail every later request. Refuses: the rest of a request
(`fields.py`) and streams (`stream_events.py`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import Any, Final

import orjson

from proxy.dialects.base import is_json_object, require_call_start
from proxy.dialects.tool_types import table
from proxy.errors import BadRequest

Body = dict[str, Any]

# Claude Code's first system block: it has a new hash in every request, so that no prefix would ever match.
BILLING_HEADER: Final = "x-anthropic-billing-header"
# The key, from Anthropic's documentation, under which clients wrap text that is not a JSON object.
INVALID_JSON: Final = "INVALID_JSON"
_COUNTED: Final = frozenset(
    {"text", "image", "thinking", "redacted_thinking", "tool_use", "tool_result", "tool_reference"}
)  # blocks that the engine's own route reads
_WITH_TEXT: Final = ("document", "search_result", "compaction")  # blocks whose content may be text
TOOL_CHANGES: Final = ("tool_addition", "tool_removal")
_CACHE_KEYS: Final[Mapping[str, str]] = {
    "cached_tokens": "cache_read_input_tokens",
    "created_cache_tokens": "cache_creation_input_tokens",
}


def parse_messages(system: object, messages: list[Any], dropped: table.DroppedTool | None = None) -> list[Body]:
    """Return the chat form of a conversation. Raises BadRequest, naming the field, for blocks without one.

    Blocks of tools that Anthropic's servers ran are noted in `dropped`.
    """
    dropped = dropped or table.DroppedTool()
    form: list[Body] = []
    # the engine looks for the header in blocks only
    if text := system if system is None or isinstance(system, str) else _system_text(system, "system"):
        form.append({"role": "system", "content": text})
    for at, message in enumerate(messages):
        form += _messages(message, f"messages[{at}]", dropped)
    return form


def countable_message(message: object) -> object:
    """Return a message whose blocks the engine can count: without those of tools that Anthropic's servers ran, and with
    texts for those that are not shown otherwise.
    """
    content = message.get("content") if isinstance(message, dict) else None
    if not isinstance(message, dict) or not isinstance(content, list):
        return message
    return message | {"content": [_countable(block) for block in content if not _is_foreign(block)]}


def _countable(block: object) -> object:
    if not isinstance(block, dict) or not isinstance(block.get("type"), str):
        return block
    if block["type"] == "tool_result" and isinstance(block.get("content"), list):
        return block | {"content": [_countable(part) for part in block["content"]]}
    return block if block["type"] in _COUNTED else {"type": "text", "text": _text_of(block, "messages", [])}


def _is_foreign(block: object) -> bool:
    kind = block.get("type") if isinstance(block, dict) else None
    return isinstance(kind, str) and kind in table.FOREIGN["messages"]


def render_blocks(message: Mapping[str, Any]) -> list[Body]:
    """Return a chat message as content blocks. An empty message becomes one empty text: strict clients read
    content[0].
    """
    blocks: list[Body] = []
    if reasoning := message.get("reasoning"):
        blocks.append({"type": "thinking", "thinking": reasoning, "signature": thinking_signature(reasoning)})
    if content := message.get("content"):
        blocks.append({"type": "text", "text": content})
    blocks += [_tool_use(call) for call in message.get("tool_calls") or ()]
    return blocks or [{"type": "text", "text": ""}]


def render_usage(usage: Mapping[str, Any] | None) -> Body:
    """Return Anthropic's counts. Input excludes cached tokens, which have counts of their own if the engine reports
    them.
    """
    if usage is None:
        return {"input_tokens": 0, "output_tokens": 0}
    details = usage.get("prompt_tokens_details") or {}
    cached = {key: details[name] for name, key in _CACHE_KEYS.items() if details.get(name) is not None}
    taken = max(0, (usage.get("prompt_tokens") or 0) - sum(cached.values()))
    return {"input_tokens": taken, "output_tokens": usage.get("completion_tokens") or 0} | cached


def render_stop(
    finish: str | None, matched: object, tool_used: bool, tool_complete: bool
) -> tuple[str | None, str | None]:
    """Return stop reason and stop sequence for a chat finish. `matched`: the engine's `stop_reason`, a string or not.

    A stop string that cut a tool call short is reported as the reason, since that call must not be executed.
    """
    if finish == "length":
        return "max_tokens", None
    if finish not in ("stop", "tool_calls"):
        return None, None
    if tool_complete:
        return "tool_use", None
    if isinstance(matched, str):
        return "stop_sequence", matched
    return ("tool_use" if finish == "tool_calls" or tool_used else "end_turn"), None


def thinking_signature(thinking: str) -> str:
    """Return the signature of a thinking block: clients send one back, but it proves nothing here."""
    return blake2b(thinking.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


# --- requests


def _messages(message: object, where: str, dropped: table.DroppedTool) -> Iterator[Body]:
    """One message as chat messages: tool results first, as in the engine, then the rest."""
    if not isinstance(message, dict) or message.get("role") not in ("user", "assistant", "system"):
        raise BadRequest(f"{where} must be an object with the role 'user' or 'assistant'.", param=where)
    role, content = message["role"], message.get("content")
    if role == "system":
        if text := _system_text(content, f"{where}.content"):
            yield {"role": "system", "content": text}
    elif isinstance(content, str):
        yield {"role": role, "content": content}
    else:
        built: Body = {"role": role}
        blocks = list(enumerate(_blocks(content, f"{where}.content")))
        own_blocks = [(at, block) for at, block in blocks if not _is_foreign(block)]
        dropped.items += [block["type"] for _, block in blocks if _is_foreign(block)]
        yield from _read_blocks(built, own_blocks, f"{where}.content", dropped.items)
        if role != "user" or "content" in built:
            yield built


def _read_blocks(message: Body, blocks: list[tuple[int, Body]], where: str, dropped: list[str]) -> Iterator[Body]:
    """Add the blocks, each with its place, to `message`; yields the messages that go before it."""
    parts: list[Body] = []
    thoughts: list[str] = []
    calls: list[Body] = []
    for at, block in blocks:
        here, kind = f"{where}[{at}]", block["type"]
        if kind == "text":
            parts += _text_part(block, here)
        elif kind == "image":
            parts.append(_image(block, here, dropped))
        elif kind == "thinking":
            thoughts.append(_string(block, "thinking", here))
        elif kind == "tool_use":
            calls.append(_tool_call(block, here))
        elif kind == "tool_result" and message["role"] == "user":
            yield from _tool_result(block, here, dropped)
        elif kind == "tool_result":
            parts.append({"type": "text", "text": f"Tool result: {block.get('content') or ''}"})
        elif kind == "redacted_thinking":  # another vendor's, sealed
            dropped.append(kind)
        elif kind != "tool_reference":  # no template can render it
            parts.append({"type": "text", "text": _text_of(block, here, dropped)})
    if thoughts:
        message["reasoning"] = "".join(thoughts)
    if calls:
        message["tool_calls"] = calls
    if parts:
        alone = len(parts) == 1 and parts[0]["type"] == "text"
        message["content"] = parts[0]["text"] if alone else parts


def _system_text(system: object, where: str) -> str:
    if isinstance(system, str):
        texts = [system]
    else:
        blocks = list(enumerate(_blocks(system, where)))
        own_blocks = [(at, block) for at, block in blocks if where == "system" or block["type"] not in TOOL_CHANGES]
        texts = [_system_block(block, f"{where}[{at}]") for at, block in own_blocks]
    return "".join(text for text in texts if not text.startswith(BILLING_HEADER))


def _system_block(block: Body, where: str) -> str:
    if block["type"] != "text":
        raise _unreadable(block["type"], where)
    return _string(block, "text", where)


def _text_part(block: Body, where: str) -> list[Body]:
    text = _string(block, "text", where)
    return [{"type": "text", "text": text}] if text else []


def _text_of(block: Body, where: str, dropped: list[str]) -> str:
    """The text of a document, a search result or a compacted history; of any other block that it was omitted."""
    kind, title = block["type"], block.get("title")
    texts = [title] if isinstance(title, str) and title else []
    content = block.get("content")
    if kind == "document":
        source = block.get("source")
        form = source.get("type") if isinstance(source, dict) else None
        content = source.get({"text": "data", "content": "content"}.get(str(form), "")) if source else None
    if isinstance(content, str) and kind in _WITH_TEXT:
        return "\n".join([*texts, content])
    if isinstance(content, list) and kind in _WITH_TEXT:
        parts = _blocks(content, f"{where}.content")
        return "\n".join([*texts, *(_inner_text(part, f"{where}.content", dropped) for part in parts)])
    dropped.append(kind)
    return _omitted(kind, *texts)


def _inner_text(part: Body, where: str, dropped: list[str]) -> str:
    if part["type"] == "text":
        return _string(part, "text", where)
    dropped.append(part["type"])
    return _omitted(part["type"])


def _omitted(kind: str, *about: str) -> str:
    """What the model reads in place of a block that it cannot be shown."""
    return f"[{kind[:60]} omitted{''.join(f': {text[:200]}' for text in about)}]"


def _image(block: Body, where: str, dropped: list[str]) -> Body:
    source = block.get("source")
    kind = source.get("type") if isinstance(source, dict) else None
    if isinstance(source, dict) and kind == "url":
        url = _string(source, "url", f"{where}.source")
    elif isinstance(source, dict) and kind == "base64":
        media_type = source.get("media_type") or "image/jpeg"
        url = f"data:{media_type};base64,{_string(source, 'data', f'{where}.source')}"
    elif isinstance(kind, str):  # a file that another vendor stores
        dropped.append("image")
        return {"type": "text", "text": _omitted("image")}
    else:
        raise BadRequest(
            f"{where}.source must have the type 'base64' or 'url': Hone stores no files.", param=f"{where}.source"
        )
    return {"type": "image_url", "image_url": {"url": url}}


def _tool_call(block: Body, where: str) -> Body:
    given = block.get("input")
    if given is not None and not isinstance(given, dict):
        raise BadRequest(f"{where}.input must be an object.", param=f"{where}.input", code="invalid_type")
    name, call_id = _string(block, "name", where), _string(block, "id", where)
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": _written(given or {})}}


def _written(given: Body) -> str:
    """The arguments that the model wrote, from the form that the client received (`_input`)."""
    wrapped = given.get(INVALID_JSON)
    if len(given) == 1 and isinstance(wrapped, str) and not is_json_object(wrapped):
        return wrapped
    return json.dumps(given)


def _tool_result(block: Body, where: str, dropped: list[str]) -> Iterator[Body]:
    call_id, content = _string(block, "tool_use_id", where), block.get("content")
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else None
    parts = _blocks([] if content is None else content, f"{where}.content") if parts is None else parts
    texts, images, references = [], [], []
    for at, part in enumerate(parts):
        here, kind = f"{where}.content[{at}]", part["type"]
        if kind == "text":
            texts.append(_string(part, "text", here))
        elif kind == "image" and (image := _image(part, here, dropped))["type"] == "text":
            texts.append(image["text"])
        elif kind == "image":
            images.append(image)
        elif kind == "tool_reference":
            references.append({"type": kind, "name": part.get("tool_name") or _string(part, "name", here)})
        else:
            texts.append(_text_of(part, here, dropped))
    result: Body = {"role": "tool", "tool_call_id": call_id, "content": "\n".join(texts)}
    if block.get("is_error") is True:
        result["is_error"] = True  # no template renders it, but judges read it
    yield result
    if images:
        yield {"role": "user", "content": images}
    if references:
        yield {"role": "tool", "tool_call_id": call_id, "content": references}


def _blocks(content: object, where: str) -> list[Body]:
    if not isinstance(content, list):
        raise BadRequest(f"{where} must be a string or a list of content blocks.", param=where, code="invalid_type")
    for at, block in enumerate(content):
        if not isinstance(block, dict) or not isinstance(block.get("type"), str):
            raise BadRequest(
                f"{where}[{at}] is not a content block: give an object with a 'type'.", param=f"{where}[{at}]"
            )
    return content


def _string(block: Body, name: str, where: str) -> str:
    value = block.get(name)
    if not isinstance(value, str):
        raise BadRequest(f"{where}.{name} must be a string.", param=f"{where}.{name}", code="invalid_type")
    return value


def _unreadable(kind: str, where: str) -> BadRequest:
    return BadRequest(
        f"{where} is a block of the type {kind!r:.60}, which cannot be shown to the model: send its content as a text "
        "block.",
        param=where,
        code="unsupported_block",
    )


# --- answers


def _tool_use(call: Mapping[str, Any]) -> Body:
    call_id, name = require_call_start(call)
    return {"type": "tool_use", "id": call_id, "name": name, "input": _input(call["function"].get("arguments") or "")}


def _input(arguments: str) -> Body | orjson.Fragment:
    """Return the model's exact text, since large numbers would not survive parsing."""
    if not arguments:
        return {}
    return orjson.Fragment(arguments) if is_json_object(arguments) else {INVALID_JSON: arguments}
