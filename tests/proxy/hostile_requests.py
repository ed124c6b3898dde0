"""Requests of the four wire formats that say all there is to say, with a part or two replaced by anything."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.proxy.formats import CHAT, COMPLETIONS, MESSAGES, RESPONSES, request
from tests.proxy.hostile import dumped, spoilt
from tests.proxy.hostile_tools import BLOCKS, CHAT_MESSAGES, FUNCTION, ITEMS, TOOLS

Body = dict[str, Any]

_CALL: Body = {"id": "call_1", "type": "function", "function": {"name": "find_order", "arguments": '{"order_id": 1}'}}
_IMAGE = "data:image/png;base64,AAAA"
_SAMPLED: Body = {"temperature": 0.7, "top_p": 1.0, "top_k": 0, "seed": 7, "stop": ["x"], "presence_penalty": 0.0}
_ABOUT: Body = {"user": "u", "metadata": {"session_id": "s", "k": "v"}}
PREVIOUS = "resp_previous"  # stands for the id of an answer that was given

_CHATS: list[Body] = [
    request(CHAT),
    request(CHAT, n=2, logprobs=True, top_logprobs=2, max_tokens=9, return_token_ids=True) | _SAMPLED | _ABOUT,
    request(
        CHAT,
        tools=[FUNCTION],
        tool_choice="auto",
        parallel_tool_calls=True,
        stream_options={"include_usage": True, "continuous_usage_stats": False},
        response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}},
        chat_template_kwargs={"enable_thinking": True},
        logit_bias={"7": 1.0},
        messages=[
            {"role": "system", "content": [{"type": "text", "text": "Be brief."}]},
            {
                "role": "user",
                "content": [{"type": "image_url", "image_url": {"url": _IMAGE}}, {"type": "text", "text": "?"}],
            },
            {"role": "assistant", "content": None, "tool_calls": [_CALL], "reasoning": "hm"},
            {"role": "tool", "tool_call_id": "call_1", "content": "shipped"},
        ],
    ),
    request(
        CHAT,
        tools=TOOLS[CHAT],
        tool_choice={"type": "custom", "custom": {"name": "note"}},
        messages=CHAT_MESSAGES,
    ),
]
_COMPLETIONS: list[Body] = [
    request(COMPLETIONS),
    request(COMPLETIONS, prompt=[1, 2, 3], n=2, logprobs=1, max_tokens=5, return_token_ids=True) | _SAMPLED | _ABOUT,
    request(COMPLETIONS, prompt=["one", "two"], suffix="x", tools=[FUNCTION], response_format={"type": "text"}),
    request(COMPLETIONS, prompt=[[1, 2], [3]], stream_options={"include_usage": True}, extra_body={"x": 1}),
]
_RESPONSES: list[Body] = [
    request(RESPONSES),
    request(RESPONSES, previous_response_id=PREVIOUS, instructions="Be brief.", store=True, max_output_tokens=9)
    | _ABOUT,
    request(
        RESPONSES,
        tools=[{"type": "function", "name": "find_order", "parameters": {"type": "object"}, "strict": False}],
        tool_choice={"type": "function", "name": "find_order"},
        reasoning={"effort": "low", "summary": None},
        text={"format": {"type": "json_schema", "name": "x", "schema": {"type": "object"}}, "verbosity": "low"},
        include=["message.output_text.logprobs"],
        top_logprobs=2,
        truncation="disabled",
        service_tier="auto",
        input=[
            {"role": "developer", "content": "Be brief."},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "?"}]},
            {"type": "message", "role": "user", "content": [{"type": "input_image", "image_url": _IMAGE}]},
            {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
            {"type": "function_call", "call_id": "call_1", "name": "find_order", "arguments": "{}", "id": "fc_1"},
            {"type": "function_call_output", "call_id": "call_1", "output": "shipped"},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "On its way"}]},
            {"type": "item_reference", "id": "msg_0123456789abcdef_0"},
        ],
    )
    | {
        "temperature": 1.0,
        "top_p": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "parallel_tool_calls": True,
    },
]
_RESPONSES.append({**_RESPONSES[2], "input": _RESPONSES[2]["input"][:-1], "tool_choice": "auto", "text": {}})
_RESPONSES.append(
    request(RESPONSES, tools=TOOLS[RESPONSES], tool_choice={"type": "custom", "name": "note"}, input=ITEMS)
)
_MESSAGES: list[Body] = [
    request(MESSAGES),
    request(
        MESSAGES,
        system="Be brief.",
        stop_sequences=["x"],
        temperature=1.0,
        top_p=0.5,
        top_k=3,
        metadata={"user_id": "u"},
    ),
    request(
        MESSAGES,
        max_tokens=4096,
        system=[{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
        tools=[{"name": "find_order", "description": "d", "input_schema": {"type": "object", "properties": {}}}],
        tool_choice={"type": "tool", "name": "find_order", "disable_parallel_tool_use": True},
        thinking={"type": "enabled", "budget_tokens": 1024},
        output_config={"effort": "low", "format": {"type": "json_schema", "schema": {"type": "object"}}},
        messages=[
            {"role": "user", "content": [{"type": "text", "text": "?"}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "s"},
                    {"type": "text", "text": "One moment."},
                    {"type": "tool_use", "id": "toolu_1", "name": "find_order", "input": {"order_id": 1}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "toolu_1",
                        "is_error": False,
                        "content": [{"type": "text", "text": "shipped"}, {"type": "tool_reference", "tool_name": "f"}],
                    },
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
                ],
            },
            {
                "role": "system",
                "content": [{"type": "tool_removal", "tool": {"type": "tool_reference", "name": "find_order"}}],
            },
        ],
    ),
    request(
        MESSAGES,
        tools=TOOLS[MESSAGES],
        tool_choice={"type": "any"},
        mcp_servers=[{"type": "url", "url": "https://a.example/mcp", "name": "a"}],
        messages=BLOCKS,
    ),
]
SOUND: dict[str, list[Body]] = {CHAT: _CHATS, COMPLETIONS: _COMPLETIONS, RESPONSES: _RESPONSES, MESSAGES: _MESSAGES}
# Of routes whose answers are passed on.
PASSED: dict[str, list[Body]] = {
    "/v1/messages/count_tokens": _MESSAGES,
    "/v1/embeddings": [{"model": "helpdesk", "input": ["one", [1, 2]], "encoding_format": "float", "dimensions": 8}],
    "/tokenize": [{"model": "helpdesk", "prompt": "one"}, {"messages": [{"role": "user", "content": "?"}]}],
    "/detokenize": [{"model": "helpdesk", "tokens": [1, 2]}],
}


def requests(path: str) -> st.SearchStrategy[bytes]:
    """The body of a request that is recorded."""
    return st.booleans().flatmap(lambda stream: _bodies([body | {"stream": stream} for body in SOUND[path]]))


def passed(path: str) -> st.SearchStrategy[bytes]:
    """The body of a request that is passed on."""
    return _bodies(PASSED[path])


@st.composite
def _bodies(draw: st.DrawFn, of: list[Body]) -> bytes:
    sound = draw(st.sampled_from(of))
    body = dumped(draw(spoilt(sound)))
    if draw(st.integers(0, 19)) == 0:
        at = draw(st.integers(0, len(body)))
        body = body[:at] + draw(st.sampled_from([b"", b"\xff", b"\x00", b"}", b"[" * 300, b'"'])) + body[at:]
    return body
