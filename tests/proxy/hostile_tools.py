"""Tools of all types that are translated, as each wire format declares them, and what a model calls them with."""

from __future__ import annotations

from typing import Any

from tests.proxy.formats import CHAT, MESSAGES, RESPONSES

Body = dict[str, Any]

_OBJECT: Body = {"type": "object", "properties": {}}
FUNCTION: Body = {
    "type": "function",
    "function": {"name": "find_order", "parameters": {"type": "object"}, "strict": False},
}
_GRAMMAR: Body = {"syntax": "lark", "definition": "start: WORD"}
_NOTE: Body = {"type": "custom", "name": "note", "description": "d", "format": {"type": "grammar", **_GRAMMAR}}
TOOLS: dict[str, list[Body]] = {
    CHAT: [
        FUNCTION,
        {"type": "custom", "custom": {"name": "note", "format": {"type": "grammar", "grammar": _GRAMMAR}}},
        {"type": "web_search"},
    ],
    RESPONSES: [
        {"type": "function", "name": "find_order", "parameters": _OBJECT, "strict": False},
        _NOTE,
        {"type": "namespace", "name": "ns", "description": "d", "tools": [_NOTE, {"type": "function", "name": "f"}]},
        {"type": "local_shell"},
        {"type": "shell", "environment": {"type": "local"}},
        {"type": "apply_patch"},
        {"type": "tool_search", "execution": "client", "description": "d", "parameters": _OBJECT},
        {"type": "function", "name": "later", "parameters": _OBJECT, "defer_loading": True},
        {"type": "web_search", "filters": {}},
    ],
    MESSAGES: [
        {"name": "find_order", "description": "d", "input_schema": _OBJECT},
        {"type": "bash_20250124", "name": "bash"},
        {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool", "max_characters": 9},
        {"type": "computer_20251124", "name": "computer", "display_width_px": 8, "display_height_px": 6},
        {"type": "web_search_20250305", "name": "web_search", "max_uses": 3},
    ],
}
# By the model's name of a tool.
ARGUMENTS: dict[str, Body] = {
    "find_order": {"order_id": 4821},
    "note": {"input": "x"},
    "ns__note": {"input": ""},
    "ns__f": {},
    "local_shell": {"command": ["ls"], "timeout_ms": 5, "env": {"A": "b"}},
    "shell": {"commands": ["ls"], "max_output_length": 9},
    "apply_patch": {"type": "update_file", "path": "a.py", "diff": "@@"},
    "tool_search": {"query": "mail", "limit": 3},
    "bash": {"command": "ls"},
}
_ITEM_CALLS: list[Body] = [
    {"type": "custom_tool_call", "call_id": "c1", "name": "note", "input": "x", "id": "ctc_1"},
    {"type": "custom_tool_call", "call_id": "c2", "name": "note", "namespace": "ns", "input": ""},
    {"type": "local_shell_call", "call_id": "c3", "id": "lsh_1", "action": {"type": "exec", "command": ["ls"]}},
    {"type": "shell_call", "call_id": "c4", "action": {"commands": ["ls"], "timeout_ms": None}},
    {"type": "apply_patch_call", "call_id": "c5", "operation": {"type": "delete_file", "path": "a"}},
    {"type": "tool_search_call", "call_id": "c6", "execution": "client", "arguments": {"query": "mail"}},
]
_ITEM_OUTPUTS: list[Body] = [
    {"type": "custom_tool_call_output", "call_id": "c1", "output": "done"},
    {"type": "custom_tool_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "done"}]},
    {"type": "local_shell_call_output", "id": "lsh_1", "output": "a.py"},
    {"type": "shell_call_output", "call_id": "c4", "output": [{"stdout": "a", "stderr": "", "outcome": {}}]},
    {"type": "apply_patch_call_output", "call_id": "c5", "status": "completed", "output": "done"},
    {
        "type": "tool_search_output",
        "call_id": "c6",
        "execution": "client",
        "tools": [{"type": "namespace", "name": "mail", "tools": [{"type": "function", "name": "send"}]}],
    },
]
# A conversation in which they were called.
ITEMS: list[Body] = [
    {"type": "web_search_call", "id": "ws_1", "status": "completed"},
    *_ITEM_CALLS,
    *_ITEM_OUTPUTS,
    {"type": "additional_tools", "tools": [{"type": "custom", "name": "more"}]},
    {"type": "message", "role": "user", "content": "And now?"},
]
CHAT_MESSAGES: list[Body] = [
    {"role": "user", "content": "?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "type": "custom", "custom": {"name": "note", "input": "x"}}],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "done"},
]
BLOCKS: list[Body] = [
    {"role": "user", "content": "?"},
    {
        "role": "assistant",
        "content": [
            {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}},
            {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
            {"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {"command": "ls"}},
        ],
    },
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "a.py"}]},
    {
        "role": "system",
        "content": [
            {
                "type": "tool_addition",
                "tool": {"type": "tool_definition", "definition": {"type": "memory_20250818", "name": "memory"}},
            }
        ],
    },
]
