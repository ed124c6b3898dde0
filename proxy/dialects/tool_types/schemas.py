"""Schemas of tools that a client declares by type only and runs itself.

Owns: their descriptions for the model: OpenAI's shells and patches, Anthropic's bash, text editor, memory and computer
by version. Refuses: a call's form for the client.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

Body = dict[str, Any]

_TEXT: Final[Body] = {"type": "string"}
_NUMBER: Final[Body] = {"type": "integer"}
_TEXTS: Final[Body] = {"type": "array", "items": _TEXT}
_PAIR: Final[Body] = {"type": "array", "items": _NUMBER, "minItems": 2, "maxItems": 2}


def _object(properties: Mapping[str, Body], *required: str) -> Body:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(required),
        "additionalProperties": False,
    }


def _one_of(*values: str) -> Body:
    return {"type": "string", "enum": list(values)}


def chat_function(name: str, description: str, parameters: Body) -> Body:
    """Return a chat function."""
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


# --- OpenAI's, by type, which is the name too

OPENAI: Final[Mapping[str, Body]] = {
    "local_shell": chat_function(
        "local_shell",
        "Runs a command on the user's machine and returns its output.",
        _object(
            {
                "command": _TEXTS | {"description": "The program and its arguments."},
                "working_directory": _TEXT,
                "timeout_ms": _NUMBER,
                "env": {"type": "object", "additionalProperties": _TEXT},
                "user": _TEXT,
            },
            "command",
        ),
    ),
    "shell": chat_function(
        "shell",
        "Runs shell commands on the user's machine, and returns the output and the outcome of each.",
        _object(
            {
                "commands": _TEXTS | {"description": "Shell commands, which may run concurrently."},
                "timeout_ms": _NUMBER,
                "max_output_length": _NUMBER | {"description": "The most characters of output to return."},
            },
            "commands",
        ),
    ),
    "apply_patch": chat_function(
        "apply_patch",
        "Creates, updates or deletes one file. 'diff' is in the V4A format: lines that begin with ' ', '+' or '-', in "
        "hunks that begin with '@@'; of a new file every line begins with '+'.",
        _object(
            {"type": _one_of("create_file", "update_file", "delete_file"), "path": _TEXT, "diff": _TEXT},
            "type",
            "path",
        ),
    ),
}
TOOL_SEARCH: Final[Body] = chat_function(
    "tool_search",
    "Searches for further tools, which can be called from the next turn on.",
    _object({"query": _TEXT | {"description": "What the tool should do."}}, "query"),
)

# --- Anthropic's, by type and version

_BASH: Final = (
    "Runs a command in a persistent bash session and returns its output.",
    _object({"command": _TEXT, "restart": {"type": "boolean", "description": "Start a new session."}}),
)
_EDITOR_COMMANDS: Final = ("view", "create", "str_replace", "insert")
_VIEW_RANGE: Final = _PAIR | {"description": "The first and the last line to view; -1: to the end."}


def _editor(inserted: str, *more: str) -> tuple[str, Body]:
    properties = {
        "command": _one_of(*_EDITOR_COMMANDS, *more),
        "path": _TEXT,
        "file_text": _TEXT | {"description": "For create: the whole file."},
        "old_str": _TEXT | {"description": "For str_replace: what to replace. It must occur exactly once."},
        "new_str": _TEXT,
        "insert_line": _NUMBER | {"description": "For insert: the line after which to insert; 0: at the beginning."},
        inserted: _TEXT,
        "view_range": _VIEW_RANGE,
    }
    return "Views, creates and edits text files.", _object(properties, "command", "path")


_MEMORY: Final = (
    "Keeps files below /memories between conversations. Look there before you begin.",
    _object(
        {
            "command": _one_of("view", "create", "str_replace", "insert", "delete", "rename"),
            "path": _TEXT,
            "view_range": _VIEW_RANGE,
            "file_text": _TEXT,
            "old_str": _TEXT,
            "new_str": _TEXT,
            "insert_line": _NUMBER,
            "insert_text": _TEXT,
            "old_path": _TEXT,
            "new_path": _TEXT,
        },
        "command",
    ),
)
_ACTIONS: Final = (
    "key",
    "type",
    "mouse_move",
    "left_click",
    "left_click_drag",
    "right_click",
    "middle_click",
    "double_click",
    "screenshot",
    "cursor_position",
)
_LATER_ACTIONS: Final = ("left_mouse_down", "left_mouse_up", "scroll", "hold_key", "wait", "triple_click")


def _computer(*more: str) -> tuple[str, Body]:
    later: dict[str, Body] = {
        "scroll_direction": _one_of("up", "down", "left", "right"),
        "scroll_amount": _NUMBER,
        "duration": {"type": "number", "description": "For hold_key and wait, in seconds."},
    }
    zoom: dict[str, Body] = {"region": {"type": "array", "items": _NUMBER, "minItems": 4, "maxItems": 4}}
    properties = {
        "action": _one_of(*_ACTIONS, *more),
        "coordinate": _PAIR | {"description": "x and y, in pixels."},
        "start_coordinate": _PAIR,
        "text": _TEXT,
        **(later if more else {}),
        **(zoom if "zoom" in more else {}),
    }
    return "Uses a computer's screen, mouse and keyboard; returns screenshots.", _object(properties, "action")


ANTHROPIC: Final[Mapping[str, Mapping[str, tuple[str, Body]]]] = {  # type → version → description and schema
    "bash": {"20241022": _BASH, "20250124": _BASH},
    "text_editor": {
        "20241022": _editor("new_str", "undo_edit"),
        "20250124": _editor("new_str", "undo_edit"),
        "20250429": _editor("new_str"),
        "20250728": _editor("insert_text"),
    },
    "memory": {"20250818": _MEMORY},
    "computer": {
        "20241022": _computer(),
        "20250124": _computer(*_LATER_ACTIONS),
        "20251124": _computer(*_LATER_ACTIONS, "zoom"),
    },
}


def anthropic_function(kind: str, version: str, tool: Mapping[str, Any]) -> Body:
    """Return one of Anthropic's tools as a chat function; an unknown, newer version uses the newest schema."""
    versions = ANTHROPIC[kind]
    description, parameters = versions.get(version) or versions[max(versions)]
    if kind == "computer":
        wide, high = tool.get("display_width_px"), tool.get("display_height_px")
        description += f" The screen is {wide} × {high} pixels." if wide and high else ""
    return chat_function(str(tool["name"]), description, parameters)
