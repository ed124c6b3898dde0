"""Requests over all formats whose answers through Hone must be the engine's own: one list, each with a name.

What samples has a seed. Anthropic's format has none on the engine, so its requests are greedy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Body = dict[str, Any]
CHAT, COMPLETIONS, MESSAGES, COUNT = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/messages",
    "/v1/messages/count_tokens",
)

SYSTEM = "You tell customers when their order arrives."
QUESTION = "Where is my order 4821?"
ARGUMENTS = (("find_order", "order_id"), ("track_parcel", "tracking"))


@dataclass(frozen=True)
class Case:
    """One request. `both` plays it streamed too."""

    name: str
    route: str
    body: Body
    both: bool = True


def schema(argument: str) -> Body:
    return {"type": "object", "properties": {argument: {"type": "string"}}, "required": [argument]}


TOOLS: list[Body] = [
    {
        "type": "function",
        "function": {"name": name, "description": name.replace("_", " "), "parameters": schema(argument)},
    }
    for name, argument in ARGUMENTS
]
ANTHROPIC_TOOLS = [
    {"name": name, "description": name.replace("_", " "), "input_schema": schema(argument)}
    for name, argument in ARGUMENTS
]
ASKED = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": QUESTION}]
FOUND = {"id": "chatcmpl-tool-1", "name": "find_order", "input": {"order_id": "4821"}}
RESULT = '{"tracking": "P079", "status": "sent"}'
UNICODE = "¿Dónde está mi pedido 4821? 订单在哪里 🚚 \u200d\u0301"


def called(arguments: str = '{"order_id": "4821"}', content: str | None = None) -> list[Body]:
    """The conversation in chat's form, after one call."""
    call = {
        "id": FOUND["id"],
        "type": "function",
        "function": {"name": FOUND["name"], "arguments": arguments},
    }
    return [
        *ASKED,
        {"role": "assistant", "content": content, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": FOUND["id"], "content": RESULT},
    ]


def chat(name: str, *, both: bool = True, messages: list[Any] | None = None, **more: Any) -> Case:
    body = {"messages": messages or ASKED, "temperature": 1.0, "seed": len(name), "max_tokens": 40} | more
    return Case(f"chat: {name}", CHAT, body, both)


def completion(name: str, *, both: bool = True, prompt: Any = QUESTION, **more: Any) -> Case:
    body = {"prompt": prompt, "temperature": 1.0, "seed": len(name), "max_tokens": 12} | more
    return Case(f"completions: {name}", COMPLETIONS, body, both)


def messages(name: str, *blocks: Any, both: bool = True, **more: Any) -> Case:
    """`blocks` are turns: user, assistant, user …; a string or a list of blocks each. Without `tools` it has some, and
    says that none may be called: see `DECIDED` of the test for what the engine does without any.
    """
    roles = ("user", "assistant")
    turns = [{"role": roles[at % 2], "content": content} for at, content in enumerate(blocks or (QUESTION,))]
    body = {"messages": turns, "system": SYSTEM, "temperature": 0, "max_tokens": 40}
    body |= more if "tools" in more else {"tools": ANTHROPIC_TOOLS, "tool_choice": {"type": "none"}} | more
    return Case(f"messages: {name}", MESSAGES, {k: v for k, v in body.items() if v is not None}, both)


def text(said: str, **more: Any) -> Body:
    return {"type": "text", "text": said} | more


def use(**more: Any) -> Body:
    return {"type": "tool_use", **FOUND} | more


def result(content: Any, **more: Any) -> Body:
    return {"type": "tool_result", "tool_use_id": FOUND["id"], "content": content} | more


FIND = {"type": "function", "function": {"name": "find_order"}}
DAY = {"type": "object", "properties": {"day": {"type": "integer"}}, "required": ["day"]}
DAY_FORM = {"type": "json_schema", "json_schema": {"name": "day", "schema": DAY}}
USAGE: Body = {"stream": True, "stream_options": {"include_usage": True}}
EVERY_USAGE: Body = {"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}

CORPUS: list[Case] = [
    chat("plain"),
    chat("tools", tools=TOOLS),
    chat("tools, another seed", tools=TOOLS, seed=77),
    chat("greedy with tools", tools=TOOLS, temperature=0),
    chat("a forced tool", tools=TOOLS, tool_choice=FIND),
    chat("some tool", tools=TOOLS, tool_choice="required"),
    chat("no tool", tools=TOOLS, tool_choice="none"),
    chat("one call at a time", tools=TOOLS, parallel_tool_calls=False),
    chat("three choices", n=3),
    chat("two choices with tools", n=2, tools=TOOLS),
    chat("logprobs", logprobs=True),
    chat("top logprobs", logprobs=True, top_logprobs=4, max_tokens=8),
    chat("logprobs of a call", logprobs=True, tools=TOOLS),
    chat("ids", return_token_ids=True, max_tokens=8),
    chat("ids and logprobs of two choices", return_token_ids=True, logprobs=True, n=2, max_tokens=8),
    chat("a stop string", stop="o"),
    chat("stop strings that are shown", stop=["er", "a"], include_stop_str_in_output=True),
    chat("one token", max_tokens=1),
    chat("max_completion_tokens", max_completion_tokens=5),
    chat("a schema", response_format=DAY_FORM, max_tokens=60),
    chat("an object", response_format={"type": "json_object"}, max_tokens=30),
    chat("after a call", messages=called(), tools=TOOLS),
    chat("after a call that was spaced otherwise", messages=called('{"order_id":"4821"}', ""), tools=TOOLS),
    chat("after a call with words", messages=called(content="Let me see. "), tools=TOOLS),
    chat("unicode", messages=[{"role": "user", "content": UNICODE}]),
    chat("parts", messages=[{"role": "user", "content": [text("Where is"), text("4821?")]}]),
    chat("an empty system", messages=[{"role": "system", "content": ""}, ASKED[1]]),
    chat("penalties", frequency_penalty=0.5, presence_penalty=0.2, repetition_penalty=1.1),
    chat("cut distribution", top_p=0.8, top_k=5, min_p=0.01),
    chat("no reasoning shown", include_reasoning=False, logprobs=True),
    chat("usage in the stream", both=False, **USAGE),
    chat("usage on every event", both=False, tools=TOOLS, **EVERY_USAGE),
    chat("unknown fields", user="u", metadata={"a": "b"}, store=True),
    completion("plain"),
    completion("ids", prompt=[350, 300, 349, 269]),
    completion("a list with one text", prompt=[QUESTION]),
    completion("two texts", prompt=["Where is", "My order"]),
    completion("lists of ids, two choices", prompt=[[350, 300], [349, 269, 1]], n=2),
    completion("three choices", n=3),
    completion("logprobs", logprobs=0),
    completion("top logprobs", logprobs=4),
    completion("ids asked for", return_token_ids=True),
    completion("ids and logprobs of two prompts", prompt=["a", "b c"], return_token_ids=True, logprobs=1),
    completion("a stop string", stop=["e"]),
    completion("greedy", temperature=0),
    completion("one token", max_tokens=1),
    completion("no maximum", max_tokens=None),
    completion("a schema", response_format=DAY_FORM, max_tokens=60),
    completion("unicode", prompt=UNICODE),
    completion("a ready prompt", prompt="<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n", max_tokens=30),
    completion("usage in the stream", both=False, **USAGE),
    completion("usage of two prompts", both=False, prompt=["a", "b c"], **USAGE),
    completion("usage on every event", both=False, **EVERY_USAGE),
    messages("plain"),
    messages("tools", tools=ANTHROPIC_TOOLS),
    messages("a forced tool", tools=ANTHROPIC_TOOLS, tool_choice={"type": "tool", "name": "track_parcel"}),
    messages("any tool", tools=ANTHROPIC_TOOLS, tool_choice={"type": "any", "disable_parallel_tool_use": True}),
    messages("no tool", tools=ANTHROPIC_TOOLS, tool_choice={"type": "none"}),
    messages("a choice without tools", "Thank you.", tools=None, system=None, tool_choice={"type": "auto"}),
    messages("no tools and no system", "Bye", tools=None, system=None),
    messages("no system", system=None),
    messages("system blocks", system=[text("x-anthropic-billing-header: a=b;"), text(SYSTEM), text(" Be brief.")]),
    messages("cache marks", [text(QUESTION, cache_control={"type": "ephemeral"})], tools=ANTHROPIC_TOOLS),
    messages("several texts", [text("Where is"), text(""), text("4821?")]),
    messages("a result", QUESTION, [use()], [result(RESULT)], tools=ANTHROPIC_TOOLS),
    messages(
        "a result in blocks, and words", QUESTION, [text("Let me see."), use()],
        [result([text("sent"), text("P079")]), text("So?")], tools=ANTHROPIC_TOOLS,
    ),
    messages("a failed tool", QUESTION, [use()], [result("no such order", is_error=True)], tools=ANTHROPIC_TOOLS),
    messages("an empty result", QUESTION, [use(input={})], [result(None)], tools=ANTHROPIC_TOOLS),
    messages("arguments in unicode", QUESTION, [use(input={"order_id": "Zoë 订单"})], [result("x")]),
    messages(
        "thinking that comes back", QUESTION,
        [{"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "redacted_thinking", "data": "x"}, use()],
        [result(RESULT)], tools=ANTHROPIC_TOOLS,
    ),
    messages("an assistant of two texts", "a", [text("b"), use(), text("c")], [result("d")]),
    messages("an answer that is begun", QUESTION, "It arrives"),
    messages("thinking disabled", thinking={"type": "disabled"}),
    messages("thinking adaptive", thinking={"type": "adaptive"}, output_config={"effort": "low"}),
    messages("a stop sequence", stop_sequences=["4"], tools=ANTHROPIC_TOOLS),
    messages("stop at once", stop_sequences=["<", "o", "e", "a"]),
    messages("one token", max_tokens=1, tools=ANTHROPIC_TOOLS),
    messages("cut in a call", max_tokens=14, tools=ANTHROPIC_TOOLS),
    messages("cut distribution", top_k=3, top_p=0.9),
    messages("a schema", output_config={"format": {"type": "json_schema", "schema": DAY}}, max_tokens=60),
    messages("unicode", UNICODE),
    messages("metadata", metadata={"user_id": "user_1_session_2"}),
    messages(
        "an inline system message", messages=[
            {"role": "user", "content": "a"}, {"role": "system", "content": [text("Be brief.")]},
            {"role": "user", "content": QUESTION},
        ],
    ),
    messages(
        "a tool that is taken away", tools=ANTHROPIC_TOOLS, messages=[
            {"role": "user", "content": QUESTION},
            {"role": "system", "content": [
                {"type": "tool_removal", "tool": {"type": "tool_reference", "name": "find_order"}},
            ]},
        ],
    ),
    Case("count: a conversation", COUNT, {
        "messages": [{"role": "user", "content": [text(QUESTION)]}], "system": SYSTEM, "tools": ANTHROPIC_TOOLS,
    }, both=False),
    Case("count: a text", COUNT, {"messages": [{"role": "user", "content": UNICODE}]}, both=False),
]  # fmt: skip
