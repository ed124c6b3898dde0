"""Whatever a client declares, demands or repeats of tools: it is read, or refused as a bad request."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.dialects import DIALECTS
from proxy.dialects.base import DialectRules
from proxy.dialects.tool_types import table
from proxy.errors import BadRequest

pytestmark = pytest.mark.slow  # many bodies: left out of `make check`

KINDS = [f"{kind.removeprefix('hosted ')}{version}" for form in table.TABLE.values() for kind in form for version in (
    "", "_20250124", "_2025_03_11")]  # fmt: skip
ITEMS = [
    *table.FOREIGN["responses"], "function_call", "custom_tool_call", "local_shell_call", "shell_call",
    "apply_patch_call", "tool_search_call", "tool_search_output", "additional_tools", "custom_tool_call_output",
    "local_shell_call_output", "shell_call_output", "apply_patch_call_output", "message",
]  # fmt: skip
NAMES = st.sampled_from(
    [
        "type", "name", "namespace", "tools", "custom", "function", "format", "grammar", "definition", "syntax",
        "environment", "execution", "defer_loading", "description", "parameters", "input_schema", "call_id", "id",
        "input", "arguments", "action", "operation", "output", "command", "commands", "status", "display_width_px",
    ]
)  # fmt: skip
WORDS = st.sampled_from([*KINDS, "a", "b", "client", "server", "local", "container_auto", "text", "grammar", "{}"])
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=10,
)
TOOL = st.fixed_dictionaries(
    {"type": st.sampled_from(KINDS)},
    optional={
        "name": st.sampled_from(["a", "b", "a__b"]) | VALUES, "tools": VALUES, "custom": VALUES, "format": VALUES,
        "environment": VALUES, "execution": VALUES, "defer_loading": VALUES, "function": VALUES,
    },
)  # fmt: skip
INSIDE = st.fixed_dictionaries({"type": st.just("namespace"), "name": WORDS, "tools": st.lists(TOOL, max_size=3)})
TOOLS = st.lists(TOOL | INSIDE | VALUES, max_size=4)
ITEM = st.fixed_dictionaries(
    {"type": st.sampled_from(ITEMS)},
    optional={
        "call_id": st.just("c") | VALUES, "id": st.just("c") | VALUES, "name": st.just("a") | VALUES,
        "namespace": VALUES, "input": VALUES, "arguments": VALUES, "action": VALUES, "operation": VALUES,
        "output": VALUES, "tools": TOOLS, "execution": st.just("client") | VALUES, "status": VALUES,
    },
)  # fmt: skip
CALLS = st.fixed_dictionaries({"role": st.just("assistant"), "tool_calls": st.lists(ITEM | VALUES, max_size=2)})
BLOCKS = st.fixed_dictionaries(
    {
        "role": st.just("assistant"),
        "content": st.lists(
            st.fixed_dictionaries({"type": st.sampled_from(sorted(table.FOREIGN["messages"])) | WORDS}), max_size=2
        ),
    }
)
USER: Any = {"role": "user", "content": "x"}
BODIES = {
    "/v1/chat/completions": st.builds(
        lambda tools, choice, call: {"messages": [USER, call], "tools": tools, "tool_choice": choice},
        TOOLS, VALUES | TOOL, CALLS,
    ),
    "/v1/responses": st.builds(
        lambda tools, choice, items: {"input": [USER, *items], "tools": tools, "tool_choice": choice},
        TOOLS, VALUES | TOOL, st.lists(ITEM, max_size=3),
    ),
    "/v1/messages": st.builds(
        lambda tools, choice, said: {"max_tokens": 9, "messages": [USER, said], "tools": tools, "tool_choice": choice},
        TOOLS, VALUES | TOOL, BLOCKS,
    ),
}  # fmt: skip


@pytest.mark.parametrize("path", sorted(BODIES))
@given(data=st.data())
def test_tools_are_read_or_refused(path: str, data: st.DataObject) -> None:
    body = {"model": "m"} | data.draw(BODIES[path])
    if data.draw(st.booleans()):
        del body["tool_choice"]
    with contextlib.suppress(BadRequest):
        reading = DIALECTS[path].read(json.dumps(body).encode(), {}, DialectRules())
        assert isinstance(json.loads(reading.engine_body("engine-model")), dict)
        assert all(isinstance(type_, str) for type_ in reading.request.dropped_tools)
        assert reading.answer().sampled().choices == []
