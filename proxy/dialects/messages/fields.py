"""A request of Anthropic's Messages API in the fields of chat completions.

Owns: every field but `messages` and `system` (`blocks.py`): tools, tool choice, thinking, output format, sampling, as
the engine's own `/v1/messages` sets them. Refuses: their bounds (`engine_fields`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from proxy.dialects import engine_fields
from proxy.dialects.messages.blocks import TOOL_CHANGES, countable_message, parse_messages
from proxy.dialects.tool_types import schemas, table
from proxy.errors import BadRequest

Body = dict[str, Any]

# vLLM's own sampling fields with the same meaning here; all others that are not Anthropic's are dropped.
PASSED: Final = (
    *engine_fields.NEUTRAL,
    "seed",
    "logit_bias",
    "allowed_token_ids",
    "bad_words",
    "min_tokens",
    "ignore_eos",
    "stop_token_ids",
    "structured_outputs",
    "watermarking",
    "chat_template_kwargs",
    "mm_processor_kwargs",
)
_CHOICES: Final = {"auto": "auto", "any": "required", "none": "none"}
_EFFORTS: Final = ("low", "medium", "high", "xhigh", "max")


def to_chat(fields: Body, dropped: table.DroppedTool | None = None) -> Body:
    """Return the request in the fields of chat completions. Raises BadRequest, naming the field.

    Parts that are dropped, rather than refused, are noted in `dropped`.
    """
    dropped = dropped or table.DroppedTool()
    messages, max_tokens = fields.get("messages"), fields.get("max_tokens")
    if not isinstance(messages, list):
        raise BadRequest("the field 'messages' must be a list.", param="messages")
    if not isinstance(max_tokens, int) or max_tokens < 1:
        raise BadRequest("the field 'max_tokens' must be a whole number above 0.", param="max_tokens")
    chat: Body = {name: fields[name] for name in PASSED if fields.get(name) is not None}
    chat |= {"model": fields.get("model"), "messages": parse_messages(fields.get("system"), messages, dropped)}
    chat |= {"max_tokens": max_tokens} | _stop(fields) | _output(fields) | _thinking(fields, max_tokens)
    if fields.get("stream"):
        # usage on every event: message_start holds the prompt's length
        chat |= {"stream": fields["stream"], "stream_options": {"include_usage": True, "continuous_usage_stats": True}}
    tools = _tools(fields.get("tools"), messages, dropped)
    table.require_some(tools, dropped.tools)
    if fields.get("mcp_servers"):
        dropped.tools.append("mcp_servers")
    if tools:
        _check_demanded(fields, tools)
        chat |= {"tools": tools} | _tool_choice(fields.get("tool_choice"))
    return chat


def count_tokens_body(fields: Body) -> Body:
    """Return a request to count tokens for the engine's own route: tools with schemas, without dropped parts.

    Raises BadRequest, as the request itself would.
    """
    tools, messages = fields.get("tools"), fields.get("messages")
    if isinstance(tools, list) and not all(isinstance(t, dict) and "input_schema" in t for t in tools):
        fields = fields | {"tools": [_with_schema(tool) for tool in _listed(tools, table.DroppedTool())]}
    if isinstance(messages, list):
        fields = fields | {"messages": [countable_message(message) for message in messages]}
    return fields


def _with_schema(tool: Body) -> Body:
    function = tool["function"]
    rest = {name: value for name, value in function.items() if name != "parameters"}
    return rest | {"input_schema": function["parameters"]}


def _stop(fields: Body) -> Body:
    stop = fields.get("stop_sequences")
    if stop is None:
        return {}
    if not isinstance(stop, list) or not all(isinstance(text, str) for text in stop):
        raise BadRequest("the field 'stop_sequences' must be a list of strings.", param="stop_sequences")
    return {"stop": stop}


def _thinking(fields: Body, max_tokens: int) -> Body:
    thinking = _object(fields, "thinking")
    kind, budget = thinking.get("type"), thinking.get("budget_tokens")
    if not thinking or kind == "adaptive":
        return {}
    if kind == "disabled":
        return {"reasoning_effort": "none"}
    if kind != "enabled":
        raise BadRequest("thinking.type must be 'enabled', 'disabled' or 'adaptive'.", param="thinking.type")
    if not isinstance(budget, int) or not 1024 <= budget < max_tokens:
        raise BadRequest(
            "thinking.budget_tokens must be a whole number from 1024 to below max_tokens.",
            param="thinking.budget_tokens",
        )
    return {"thinking_token_budget": budget}


def _output(fields: Body) -> Body:
    config = _object(fields, "output_config")
    form = _object(config, "format", "output_config.")
    chat: Body = {}
    if schema := form.get("schema"):
        chat["response_format"] = {"type": "json_schema", "json_schema": {"name": "json_schema", "schema": schema}}
    if (effort := config.get("effort")) is not None:
        if effort not in _EFFORTS:
            raise BadRequest(
                f"output_config.effort must be one of {', '.join(_EFFORTS)}.", param="output_config.effort"
            )
        chat["reasoning_effort"] = effort
    return chat


def _object(fields: Body, name: str, above: str = "") -> Body:
    value = fields.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadRequest(f"the field '{above}{name}' must be an object.", param=above + name, code="invalid_type")
    return value


# --- tools


def _tool_choice(choice: object) -> Body:
    if choice is None:
        return {"tool_choice": "auto"}
    kind = choice.get("type") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or kind not in ("auto", "any", "none", "tool"):
        raise BadRequest("tool_choice must be an object with the type auto, any, tool or none.", param="tool_choice")
    parallel = {"parallel_tool_calls": not choice.get("disable_parallel_tool_use")}
    if kind != "tool":
        return {"tool_choice": _CHOICES[kind]} | parallel
    if not isinstance(choice.get("name"), str):
        raise BadRequest("tool_choice.name must name a tool.", param="tool_choice.name")
    return {"tool_choice": {"type": "function", "function": {"name": choice["name"]}}} | parallel


def _check_demanded(fields: Body, tools: list[Body]) -> None:
    """Raise BadRequest if tool_choice names a dropped tool."""
    choice = fields.get("tool_choice")
    name = choice.get("name") if isinstance(choice, dict) and choice.get("type") == "tool" else None
    if name is None or any(tool["function"]["name"] == name for tool in tools):
        return
    for tool in fields.get("tools") or ():
        if tool.get("name") == name and (error := table.demanded_refusal("messages", tool.get("type"))):
            raise error


def _tools(tools: object, messages: list[Any], dropped: table.DroppedTool) -> list[Body]:
    """Return the tools at the end of the conversation: the field's, with the changes of system messages applied."""
    if tools is not None and not isinstance(tools, list):
        raise BadRequest("the field 'tools' must be a list.", param="tools", code="invalid_type")
    listed = _listed(tools or (), dropped)
    changes = list(_changes(messages))
    if not changes:
        return listed
    in_force = {tool["function"]["name"]: tool for tool in listed}
    removed: set[str] = set()
    for kind, change, where in changes:
        name = _changed(kind, change, in_force, where, dropped)
        (removed.add if kind == "tool_removal" else removed.discard)(name)
    return [tool for name, tool in in_force.items() if name not in removed]


def _listed(tools: Sequence[object], dropped: table.DroppedTool) -> list[Body]:
    read = [_tool(tool, f"tools[{at}]", dropped) for at, tool in enumerate(tools)]
    return [tool for tool in read if tool is not None]


def _changes(messages: list[Any]) -> list[tuple[str, Body, str]]:
    return [
        (block["type"], _object(block, "tool"), f"messages[{at}].content[{place}].tool")
        for at, message in enumerate(messages)
        if message["role"] == "system" and isinstance(message.get("content"), list)
        for place, block in enumerate(message["content"])
        if block["type"] in TOOL_CHANGES
    ]


def _changed(kind: str, change: Body, in_force: dict[str, Body], where: str, dropped: table.DroppedTool) -> str:
    """Apply one change. Return the name of its tool; empty if the tool is dropped."""
    if change.get("type") == "tool_definition" and kind == "tool_addition":
        tool = _tool(change.get("definition"), where, dropped)
        if tool is None:
            return ""
        name: str = tool["function"]["name"]
        in_force[name] = tool
        return name
    name = str(change.get("name"))
    if change.get("type") != "tool_reference" or name not in in_force:
        raise BadRequest(f"{where} must name one of the tools: {', '.join(in_force) or 'none'}.", param=where)
    if kind == "tool_addition":
        in_force[name]["function"].pop("defer_loading", None)
    return name


def _tool(tool: object, where: str, dropped: table.DroppedTool) -> Body | None:
    """Return a tool as a chat function; None if it is dropped, which is noted."""
    rule = table.find_rule("messages", tool)
    if isinstance(tool, dict) and rule is not None and rule.treatment == "dropped":
        dropped.tools.append(tool["type"])
        return None
    if not isinstance(tool, dict) or not isinstance(tool.get("name"), str):
        raise BadRequest(f"{where} must be an object with a 'name'.", param=where, code="invalid_type")
    schema = tool.get("input_schema")
    optional = {name: tool[name] for name in ("description", "strict", "defer_loading") if tool.get(name) is not None}
    if rule is not None and rule.treatment == "translated":
        kind, version = table.split_version(tool["type"])
        fixed = schemas.anthropic_function(kind, version, tool)
        return {**fixed, "function": {**fixed["function"], **optional}}
    if isinstance(schema, dict):
        parameters = schema if "type" in schema else schema | {"type": "object"}
        return {"type": "function", "function": {"name": tool["name"], **optional, "parameters": parameters}}
    if tool.get("type") not in (None, "custom"):
        raise table.tool_refusal("messages", tool, where)
    raise BadRequest(
        f"{where} ({tool['name']!r:.60}) has no input_schema: every tool of your own needs one.",
        param=f"{where}.input_schema",
        code="unsupported_tool",
    )
