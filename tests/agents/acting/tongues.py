"""How a move is said: as a call of a tool that was offered, or in the form that an agent's own prompt asks for.

Owns: the ways, tried in order; each says nothing (None) where it is not the agent's. Refuses: which move it is.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.agents.acting.filling import arguments, kind, resolved
from tests.agents.acting.play import Answer, Look, Move, text_of

SHELL = re.compile(r"bash|shell|exec|terminal|command", re.IGNORECASE)
SHELL_ARGUMENTS = ("command", "cmd")
ENDS = ("final_answer", "finish", "task_complete", "attempt_completion")
ANSWER_ARGUMENTS = ("answer", "message", "result", "text")
ENDING_COMMAND = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call."""

    name: str
    arguments: dict[str, Any]
    id: str


Saying = str | Call
Tongue = Callable[[dict[str, Any], Move], Saying | None]


def say(body: dict[str, Any], move: Move) -> Saying:
    """The move, as the agent behind `body` understands it."""
    for tongue in TONGUES:
        if (said := tongue(body, move)) is not None:
            return said
    # who offers no way to look asks for something else: a title, a summary
    return move.text if isinstance(move, Answer) else "A question about an order"


def tool(body: dict[str, Any], move: Move) -> Saying | None:
    """The desk's own tool, under its name or behind a prefix of the agent's."""
    if isinstance(move, Answer):
        return None
    for name, schema in _offered(body).items():
        if re.search(rf"(^|[^a-z]){move.tool}$", name):
            return _call(name, arguments(schema, {move.key: move.value}))
    return None


def shell(body: dict[str, Any], move: Move) -> Saying | None:
    """The desk's tool as a program in the agent's folder, run by a tool that runs commands."""
    command = f"./{move.tool} {move.value}" if isinstance(move, Look) else _ending(body, move)
    for name, schema in _offered(body).items():
        argument = next((one for one in SHELL_ARGUMENTS if one in (schema.get("properties") or {})), None)
        if command and argument and SHELL.search(name):
            takes_list = kind(resolved(schema["properties"][argument], schema)) == "array"
            line = ["bash", "-lc", command] if takes_list else command
            return _call(name, arguments(schema, {argument: line}))
    return None


def end(body: dict[str, Any], move: Move) -> Saying | None:
    """An answer through the tool by which the agent wants it."""
    if isinstance(move, Look):
        return None
    for name, schema in _offered(body).items():
        if name in ENDS:
            texts = [key for key, one in schema["properties"].items() if kind(resolved(one, schema)) == "string"]
            text = next((key for key in texts if key in ANSWER_ARGUMENTS), texts[0])
            return _call(name, arguments(schema, {text: move.text}))
    return None


def structured(body: dict[str, Any], move: Move) -> Saying | None:
    """browser-use: an object with a list of actions, each a branch of a union that is named by its one property."""
    schema = ((body.get("response_format") or {}).get("json_schema") or {}).get("schema") or {}
    if "action" not in (schema.get("properties") or {}):
        return None
    name, known = (
        ("done", {"text": move.text, "success": True})
        if isinstance(move, Answer)
        else (
            move.tool,
            {move.key: move.value},
        )
    )
    items = resolved(schema["properties"]["action"], schema)["items"]
    for branch in resolved_branches(items, schema):
        if name in (branch.get("properties") or {}):
            inner = {**resolved(branch["properties"][name], schema), "$defs": schema.get("$defs", {})}
            return json.dumps(arguments(schema, {"action": [{name: arguments(inner, known)}]}))
    return None


def resolved_branches(items: Mapping[str, Any], root: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The branches of a union, or its only one."""
    return [resolved(branch, root) for branch in items.get("anyOf") or items.get("oneOf") or [items]]


def code(body: dict[str, Any], move: Move) -> Saying | None:
    """smolagents' CodeAgent: Python between tags."""
    if "<code>" not in text_of(body["messages"][0]):
        return None
    line = f"final_answer({move.text!r})" if isinstance(move, Answer) else f"print({move.tool}({move.value!r}))"
    return f"Thought: I go on.\n<code>\n{line}\n</code>"


def tags(body: dict[str, Any], move: Move) -> Saying | None:
    """Qwen-Agent: JSON between tags, tools in the system message."""
    if isinstance(move, Answer) or "<tool_call>" not in text_of(body["messages"][0]):
        return None
    return "<tool_call>\n" + json.dumps({"name": move.tool, "arguments": {move.key: move.value}}) + "\n</tool_call>"


def fields(body: dict[str, Any], move: Move) -> Saying | None:
    """DSPy: a value behind a heading for each field that the last message asks for."""
    _, _, asked = text_of(body["messages"][-1]).rpartition("Respond with the corresponding output fields")
    named = re.findall(r"\[\[ ## (\w+) ## \]\]", asked)
    if not named:
        return None
    if isinstance(move, Look):
        values = {"next_tool_name": move.tool, "next_tool_args": json.dumps({move.key: move.value})}
    else:
        values = {"next_tool_name": "finish", "next_tool_args": "{}", "answer": move.text}
    known = [f"[[ ## {name} ## ]]\n{values.get(name, 'I go on.')}\n" for name in named if name != "completed"]
    return "\n".join([*known, "[[ ## completed ## ]]"])


def files(body: dict[str, Any], move: Move) -> Saying | None:
    """aider: the name of a file that is to be added to the chat."""
    if isinstance(move, Answer) or not any("orders/ORDER.json" in text_of(message) for message in body["messages"]):
        return None
    return f"I need {'orders' if move.tool == 'find_order' else 'parcels'}/{move.value}.json for that."


def _ending(body: dict[str, Any], move: Answer) -> str | None:
    """mini-swe-agent: a command whose output is the answer."""
    wants = any(ENDING_COMMAND in text_of(message) for message in body["messages"][:2])
    return f"{ENDING_COMMAND} && echo '{move.text}'" if wants else None


def _offered(body: dict[str, Any]) -> dict[str, Mapping[str, Any]]:
    tools = [tool["function"] for tool in body.get("tools") or ()]
    return {tool["name"]: tool.get("parameters") or {} for tool in tools}


def _call(name: str, given: dict[str, Any]) -> Call:
    return Call(name, given, f"chatcmpl-tool-{uuid.uuid4().hex[:16]}")


TONGUES: tuple[Tongue, ...] = (tool, shell, end, structured, code, tags, fields, files)
