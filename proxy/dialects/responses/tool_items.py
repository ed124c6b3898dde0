"""Tool calls and tool outputs: items of the Responses API ⇄ chat's form.

Owns: each kind of call by its item. Pure. Refuses: which tool is of which kind (`tools.py`), messages (`items.py`).

A call is sent as an item of its own kind only if that item reproduces exactly the sampled arguments. Any other call
(malformed, or with more than the kind can hold) is sent as a function_call with the model's text. So an item that a
client sends back always equals the recorded call.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from proxy.dialects.responses.tools import ToolOrigin, tool_model_name
from proxy.dialects.tool_types import custom, table
from proxy.errors import BadRequest

Body = dict[str, Any]
Item = dict[str, Any]

FUNCTION: Final = ToolOrigin()


@dataclass(frozen=True, slots=True)
class _CallItemKind:
    """A kind of call: its item, the item's fields for the call's arguments, and the arguments for an item."""

    item: str
    prefix: str  # of the item's id
    to_item: Callable[[Body], Body | None]  # None: the arguments do not fit
    to_arguments: Callable[[Item], object]


def item_prefixes() -> list[str]:
    """Return the prefixes of the ids of calls' items."""
    return ["fc", *(kind.prefix for kind in _KINDS.values())]


def call_item(call: Mapping[str, Any], origin: ToolOrigin, item_id: Callable[[str], str]) -> Item:
    """Return a sampled call as an item. `item_id` returns an id for a prefix."""
    kind = _KINDS.get(origin.type)
    arguments = custom.parse_arguments(call["function"]["arguments"]) if kind is not None else None
    fields = kind.to_item(arguments) if kind is not None and arguments is not None else None
    if kind is None or fields is None or kind.to_arguments(fields) != arguments:
        return function_item(call, origin, item_id("fc"))
    names = {"name": origin.name, "namespace": origin.namespace} if origin.type == "custom" else {}
    return {
        **names,
        **fields,
        "call_id": call["id"],
        "type": kind.item,
        "id": item_id(kind.prefix),
        "status": "completed",
    }


def function_item(call: Mapping[str, Any], origin: ToolOrigin, id_: str) -> Item:
    """Return a function call as an item."""
    return {
        "arguments": call["function"]["arguments"],
        "call_id": call["id"],
        "name": origin.name or call["function"]["name"],
        "type": "function_call",
        "id": id_,
        "caller": None,
        "namespace": origin.namespace,
        "status": "completed",
    }


def is_foreign(item: Item) -> bool:
    """Whether an item belongs to a tool that a vendor's servers ran."""
    hosted = item["type"] in ("tool_search_call", "tool_search_output") and item.get("execution") != "client"
    return hosted or item["type"] in table.FOREIGN["responses"]


def is_call(item_type: object) -> bool:
    """Whether an item of this type is a call by the model."""
    return item_type == "function_call" or item_type in _BY_ITEM


def parse_call(item: Item, where: str) -> Body:
    """Return the call of an item. Raises BadRequest."""
    type_ = str(item["type"])
    if type_ == "function_call":
        name, arguments = _name(item, where), _text(item, "arguments", where)
    else:
        tool, kind = _BY_ITEM[type_]
        try:
            parsed = kind.to_arguments(item)
        except (KeyError, TypeError, AttributeError) as e:
            raise _wrong(where, f"a {type_} with missing fields") from e
        name = _name(item, where) if tool == "custom" else tool
        arguments = parsed if isinstance(parsed, str) else json.dumps(parsed)
    return {
        "id": _text(item, "call_id", where),
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


# --- outputs of tools


def parse_output(item: Item, call_ids: Mapping[str, str], where: str) -> tuple[str, object] | None:
    """Return the call's id and the tool's output (a text, or a list of parts) of an item. None: not an output.

    `call_ids`: the calls' ids by their items', for outputs that name the item.
    """
    type_ = item["type"]
    if type_ in ("function_call_output", "custom_tool_call_output"):
        return _text(item, "call_id", where), item.get("output")
    if type_ == "local_shell_call_output":
        id_ = item.get("call_id") or item.get("id")
        return call_ids.get(str(id_), str(id_)), item.get("output")
    if type_ == "shell_call_output":
        return _text(item, "call_id", where), json.dumps(item.get("output"))
    if type_ == "apply_patch_call_output":
        result = {name: item[name] for name in ("status", "output") if item.get(name) is not None}
        return _text(item, "call_id", where), json.dumps(result)
    if type_ == "tool_search_output":
        return _text(item, "call_id", where), json.dumps({"tools": _names(item.get("tools"))})
    return None


def output_item(origin: ToolOrigin, call_id: str | None, content: object) -> Item:
    """Return a tool's output as the item for such a call. `content` is chat's, in a client's parts."""
    item: Item = {"type": "function_call_output", "call_id": call_id, "output": content}
    if origin.type in ("custom", "local_shell"):
        item["type"] = f"{_KINDS[origin.type].item}_output"
        return item | ({"id": call_id} if origin.type == "local_shell" else {})
    parsed = custom.parse_arguments(f'{{"output": {content}}}') if isinstance(content, str) else None
    if origin.type == "shell" and parsed is not None and isinstance(parsed["output"], list):
        return item | {"type": "shell_call_output", "output": parsed["output"]}
    if origin.type == "apply_patch" and parsed is not None and isinstance(parsed["output"], dict):
        return {"type": "apply_patch_call_output", "call_id": call_id, **parsed["output"]}
    return item


def loaded_tools(item: Item, where: str) -> list[tuple[str, object]]:
    """Return the tools that an item adds, each with its place."""
    if item["type"] not in ("tool_search_output", "additional_tools"):
        return []
    tools = item.get("tools")
    if not isinstance(tools, list):
        raise _wrong(f"{where}.tools", "not a list")
    return [(f"{where}.tools[{at}]", tool) for at, tool in enumerate(tools)]


def _names(tools: object) -> list[str]:
    """The names of found tools, as the model calls them."""
    names = []
    for tool in tools if isinstance(tools, list) else ():
        if isinstance(tool, dict) and isinstance(tool.get("tools"), list):
            inside = (one.get("name") for one in tool["tools"] if isinstance(one, dict))
            names += [tool_model_name(str(tool.get("name")), str(name)) for name in inside]
        elif isinstance(tool, dict):
            names.append(str(tool.get("name") or tool.get("type")))
    return names


# --- kinds


def _custom_to_item(arguments: Body) -> Body | None:
    text = custom.arguments_to_input(arguments)
    return None if text is None else {"input": text}


def _custom_to_arguments(item: Item) -> Body:
    if not isinstance(item["input"], str):
        raise TypeError(f"{item['input']!r:.60} is not a text")
    return {"input": item["input"]}


def _local_shell_to_item(arguments: Body) -> Body | None:
    env = arguments.get("env", {})
    if not _texts(arguments.get("command")) or not _are(arguments, _LOCAL_SHELL) or not _texts(list(env.values())):
        return None
    return {"action": {"type": "exec", "env": {}, **arguments}}


def _local_shell_to_arguments(item: Item) -> Body:
    action = item["action"]
    arguments = {name: action[name] for name in ("command", *_LOCAL_SHELL) if action.get(name) is not None}
    return arguments if arguments.get("env") else {name: value for name, value in arguments.items() if name != "env"}


def _shell_to_item(arguments: Body) -> Body | None:
    if not _texts(arguments.get("commands")) or not _are(arguments, _SHELL):
        return None
    action = {"timeout_ms": None, "max_output_length": None, **arguments}
    return {"action": action, "environment": {"type": "local"}}


def _shell_to_arguments(item: Item) -> Body:
    action = item["action"]
    return {name: action[name] for name in ("commands", *_SHELL) if action.get(name) is not None}


def _patch_to_item(arguments: Body) -> Body | None:
    needed = {"create_file": ("path", "diff"), "update_file": ("path", "diff"), "delete_file": ("path",)}
    names = needed.get(str(arguments.get("type")), ("type",))
    right = all(isinstance(arguments.get(name), str) for name in names) and set(arguments) == {"type", *names}
    return {"operation": arguments} if right and names != ("type",) else None


def _texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _are(arguments: Body, types: Mapping[str, type]) -> bool:
    """Whether each of these fields that is present has its type."""
    return all(name not in arguments or type(arguments[name]) is type_ for name, type_ in types.items())


_LOCAL_SHELL: Final[Mapping[str, type]] = {"timeout_ms": int, "working_directory": str, "env": dict, "user": str}
_SHELL: Final[Mapping[str, type]] = {"timeout_ms": int, "max_output_length": int}
_KINDS: Final[Mapping[str, _CallItemKind]] = {
    "custom": _CallItemKind("custom_tool_call", "ctc", _custom_to_item, _custom_to_arguments),
    "local_shell": _CallItemKind("local_shell_call", "lsh", _local_shell_to_item, _local_shell_to_arguments),
    "shell": _CallItemKind("shell_call", "sh", _shell_to_item, _shell_to_arguments),
    "apply_patch": _CallItemKind(
        "apply_patch_call", "apc", _patch_to_item, lambda item: _without_nulls(item["operation"])
    ),
    "tool_search": _CallItemKind(
        "tool_search_call",
        "tsc",
        lambda arguments: {"execution": "client", "arguments": arguments},
        lambda item: item["arguments"],
    ),
}
_BY_ITEM: Final[Mapping[str, tuple[str, _CallItemKind]]] = {kind.item: (tool, kind) for tool, kind in _KINDS.items()}


def _without_nulls(fields: Mapping[str, Any]) -> Body:
    return {name: value for name, value in fields.items() if value is not None}


def _name(item: Item, where: str) -> str:
    namespace = item.get("namespace")
    if namespace is not None and not isinstance(namespace, str):
        raise _wrong(f"{where}.namespace", "not a text")
    return tool_model_name(namespace or None, _text(item, "name", where))


def _text(item: Item, name: str, where: str) -> str:
    value = item.get(name)
    if not isinstance(value, str):
        raise _wrong(f"{where}.{name}", f"{value!r:.60}: give a text")
    return value


def _wrong(where: str, what: str) -> BadRequest:
    return BadRequest(f"{where} is {what}.", param=where, code="invalid_type")
