"""The tools and prompts of `tests.proxy.mcp_everything`: what the conformance suite calls, and our tests."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from tests.proxy.mcp_words import (
    NO_ARGUMENTS,
    PNG,
    ROOTS,
    SCHEMA_2020,
    TEXT,
    WAV,
    Context,
    Result,
    asks_name,
    samples,
    text,
)

if TYPE_CHECKING:
    from tests.proxy.mcp_everything import Everything

Tool = Callable[["Everything", Context, dict[str, Any]], Awaitable[Result]]

TOOLS: dict[str, tuple[dict[str, Any], Tool]] = {}
PROMPTS: dict[str, dict[str, Any]] = {
    "test_simple_prompt": {"description": "A simple one."},
    "test_prompt_with_arguments": {
        "description": "With arguments.",
        "arguments": [{"name": n, "description": n, "required": True} for n in ("arg1", "arg2")],
    },
    "test_prompt_with_embedded_resource": {
        "description": "With a resource.",
        "arguments": [{"name": "resourceUri", "description": "Its URI.", "required": True}],
    },
    "test_prompt_with_image": {"description": "With an image."},
    "test_input_required_result_prompt": {"description": "Asks first."},
}


def tool(name: str, schema: dict[str, Any] = NO_ARGUMENTS, **annotations: bool) -> Callable[[Tool], Tool]:
    def register(function: Tool) -> Tool:
        shown: dict[str, Any] = {"description": f"The tool {name}.", "inputSchema": schema}
        TOOLS[name] = (shown | ({"annotations": annotations} if annotations else {}), function)
        return function

    return register


def fixed(name: str, *content: Result, **more: Any) -> None:
    async def run(self: Everything, ctx: Context, sent: dict[str, Any]) -> Result:
        return {"content": list(content), **more}

    tool(name, readOnlyHint=True)(run)


def asking(name: str, *rounds: dict[str, Result], state: bool = False, says: str = "{}") -> None:
    """A tool that asks its questions, round by round, and tells the last answers."""

    async def run(self: Everything, ctx: Context, sent: dict[str, Any]) -> Result:
        at = int(self.opened(sent)) if state and sent.get("requestState") is not None else 0
        if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
            answers = await self.ask(ctx, sent, rounds[at])
            if answers is not None and (at + 1 < len(rounds)):
                at, answers = at + 1, None
            if answers is None:
                result: Result = {"resultType": "input_required", "inputRequests": rounds[at]}
                return result | ({"requestState": self.sealed(str(at))} if state else {})
        else:
            for questions in rounds:
                answers = await self.ask(ctx, sent, questions)
        return text(says.format(json.dumps(answers)))

    tool(name)(run)


IMAGE = {"type": "image", "data": PNG, "mimeType": "image/png"}
fixed("test_simple_text", {"type": "text", "text": "This is a simple text response for testing."})
fixed("test_image_content", IMAGE)
fixed("test_audio_content", {"type": "audio", "data": WAV, "mimeType": "audio/wav"})
fixed(
    "test_embedded_resource",
    {
        "type": "resource",
        "resource": {
            "uri": "test://embedded-resource",
            "mimeType": "text/plain",
            "text": "This is an embedded resource content.",
        },
    },
)
fixed(
    "test_multiple_content_types",
    {"type": "text", "text": "Multiple content types test:"},
    IMAGE,
    {
        "type": "resource",
        "resource": {
            "uri": "test://mixed-content-resource",
            "mimeType": "application/json",
            "text": '{"test":"data","value":123}',
        },
    },
)
fixed(
    "test_error_handling",
    {"type": "text", "text": "This tool intentionally returns an error for testing"},
    isError=True,
)
asking("test_input_required_result_elicitation", {"user_name": asks_name("What is your name?", name=TEXT)})
asking("test_input_required_result_sampling", {"capital_question": samples("What is the capital of France?")})
asking("test_input_required_result_list_roots", {"client_roots": ROOTS})
asking(
    "test_input_required_result_request_state",
    {"confirm": asks_name("Please confirm", ok={"type": "boolean"})},
    state=True,
    says="state-ok {}",
)
asking(
    "test_input_required_result_multiple_inputs",
    {
        "user_name": asks_name("What is your name?", name=TEXT),
        "greeting": samples("Generate a greeting", 50),
        "client_roots": ROOTS,
    },
    state=True,
)
asking(
    "test_input_required_result_multi_round",
    {"step1": asks_name("Step 1: What is your name?", name=TEXT)},
    {"step2": asks_name("Step 2: What is your favorite color?", color=TEXT)},
    state=True,
)
asking(
    "test_input_required_result_tampered_state",
    {"confirm": asks_name("Please confirm", ok={"type": "boolean"})},
    state=True,
)
asking("test_streaming_elicitation", {"user_name": asks_name("What is your name?", name=TEXT)})
asking(
    "test_elicitation_sep1034_defaults",
    {
        "all": asks_name(
            "With defaults",
            name={"type": "string", "default": "John Doe"},
            age={"type": "integer", "default": 30},
            score={"type": "number", "default": 95.5},
            status={"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
            verified={"type": "boolean", "default": True},
        )
    },
    says="Elicitation completed: {}",
)
_OPTIONS = ["option1", "option2", "option3"]
_TITLED = [{"const": f"value{n}", "title": f"{t} Option"} for n, t in ((1, "First"), (2, "Second"), (3, "Third"))]
_CHOICES = [{"const": f"value{n}", "title": f"{t} Choice"} for n, t in ((1, "First"), (2, "Second"), (3, "Third"))]
asking(
    "test_elicitation_sep1330_enums",
    {
        "all": asks_name(
            "Choose",
            untitledSingle={"type": "string", "enum": _OPTIONS},
            titledSingle={"type": "string", "oneOf": _TITLED},
            legacyEnum={
                "type": "string",
                "enum": ["opt1", "opt2", "opt3"],
                "enumNames": ["Option One", "Option Two", "Option Three"],
            },
            untitledMulti={"type": "array", "items": {"type": "string", "enum": _OPTIONS}},
            titledMulti={"type": "array", "items": {"anyOf": _CHOICES}},
        )
    },
    says="Elicitation completed: {}",
)


@tool("test_input_required_result_capabilities")
async def _capabilities(self: Everything, ctx: Context, sent: dict[str, Any]) -> Result:
    declared: Any = (ctx.meta or {}).get(types.CLIENT_CAPABILITIES_META_KEY) or {}
    questions = {
        "elicitation": ("name", asks_name("What is your name?", name=TEXT)),
        "sampling": ("greeting", samples("Generate a greeting", 50)),
        "roots": ("roots", ROOTS),
    }
    asked = dict(question for need, question in questions.items() if need in declared)
    return {"resultType": "input_required", "inputRequests": asked} if asked else text("nobody to ask")


@tool("test_missing_capability")
async def _missing(self: Everything, ctx: Context, sent: dict[str, Any]) -> Result:
    declared: Any = (ctx.meta or {}).get(types.CLIENT_CAPABILITIES_META_KEY) or {}
    if "sampling" not in declared:
        needed: dict[str, Any] = {"requiredCapabilities": {"sampling": {}}}
        raise MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, "sampling is required", needed)
    return text("enough")


@tool("test_sampling", {"type": "object", "properties": {"prompt": TEXT}, "required": ["prompt"]})
async def _sampling(self: Everything, ctx: Context, sent: dict[str, Any]) -> Result:
    question = samples(sent["arguments"]["prompt"])
    answers = await self.ask(ctx, sent, {"sampled": question})
    if answers is None:
        return {"resultType": "input_required", "inputRequests": {"sampled": question}}
    return text(f"LLM response: {answers['sampled']['content']['text']}")


@tool("test_elicitation", {"type": "object", "properties": {"message": TEXT}, "required": ["message"]})
async def _elicitation(self: Everything, ctx: Context, sent: dict[str, Any]) -> Result:
    described = {"username": "User's response", "email": "User's email address"}
    question = asks_name(sent["arguments"]["message"], **{k: {**TEXT, "description": d} for k, d in described.items()})
    answers = await self.ask(ctx, sent, {"user": question})
    if answers is None:
        return {"resultType": "input_required", "inputRequests": {"user": question}}
    return text(f"User response: {json.dumps(answers['user'])}")


@tool("test_tool_with_logging")
async def _logging(self: Everything, ctx: Context, sent: dict[str, Any]) -> Result:
    for said in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await self.log(ctx, "info", said)
    return text("logged")


tool("test_logging_tool")(_logging)


@tool("test_tool_with_progress", idempotentHint=True)
async def _progress(self: Everything, ctx: Context, sent: dict[str, Any]) -> Result:
    for done in (0, 50, 100):
        await ctx.session.report_progress(done, 100)
    return text("done")


@tool("test_trigger_tool_change")
async def _tool_change(self: Everything, ctx: Context, sent: dict[str, Any]) -> Result:
    name = "a_new_tool"
    if self.tools.pop(name, None) is None:
        self.tools[name] = TOOLS["test_simple_text"]
    await self.tools_changed()
    return text("changed")


@tool("test_trigger_prompt_change")
async def _prompt_change(self: Everything, ctx: Context, sent: dict[str, Any]) -> Result:
    name = "a_new_prompt"
    if self.prompts.pop(name, None) is None:
        self.prompts[name] = {"description": "A new one."}
    await self.prompts_changed()
    return text("changed")


@tool("json_schema_2020_12_tool", SCHEMA_2020)
async def _schema(self: Everything, ctx: Context, sent: dict[str, Any]) -> Result:
    return text("ok")


@tool(
    "test_custom_headers",
    {"type": "object", "properties": {"region": {**TEXT, "x-mcp-header": "Region"}, "query": TEXT}},
)
async def _headers(self: Everything, ctx: Context, sent: dict[str, Any]) -> Result:
    return text(json.dumps(sent.get("arguments")))


@tool("find_order", {"type": "object", "properties": {"order_id": TEXT}}, readOnlyHint=True, openWorldHint=False)
async def _find_order(self: Everything, ctx: Context, sent: dict[str, Any]) -> Result:
    return text(f"order {sent['arguments'].get('order_id')} is on its way", structuredContent={"server": self.name})


@tool("large", {"type": "object", "properties": {"bytes": {"type": "integer"}}})
async def _large(self: Everything, ctx: Context, sent: dict[str, Any]) -> Result:
    return text("x" * sent["arguments"]["bytes"])


@tool("slow", destructiveHint=True)
async def _slow(self: Everything, ctx: Context, sent: dict[str, Any]) -> Result:
    self.entered.set()
    try:
        await self.gate.wait()
    except asyncio.CancelledError:
        self.cancelled.append("slow")
        raise
    return text("at last")


@tool("test_reconnection")
async def _reconnection(self: Everything, ctx: Context, sent: dict[str, Any]) -> Result:
    await self.log(ctx, "info", "before")
    if ctx.close_sse_stream is not None:
        await ctx.close_sse_stream()
    await self.log(ctx, "info", "after")
    return text("reconnected")


@tool("note", {"type": "object", "properties": {"text": TEXT}})
async def _note(self: Everything, ctx: Context, sent: dict[str, Any]) -> Result:
    notes = self.state(ctx).setdefault("notes", [])
    notes.append(sent["arguments"]["text"])
    return text("noted", structuredContent={"notes": notes, "pid": os.getpid(), "roots": self.state(ctx).get("roots")})


@tool("unlock")
async def _unlock(self: Everything, ctx: Context, sent: dict[str, Any]) -> Result:
    self.state(ctx)["unlocked"] = True
    await ctx.session.send_tool_list_changed()
    return text("unlocked")


@tool("touch", {"type": "object", "properties": {"uri": TEXT}})
async def _touch(self: Everything, ctx: Context, sent: dict[str, Any]) -> Result:
    await ctx.session.send_resource_updated(sent["arguments"]["uri"])
    return text("touched")
