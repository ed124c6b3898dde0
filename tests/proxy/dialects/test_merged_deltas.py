"""Streams whose deltas were put together or taken apart, as a busy engine does it: clients assemble what was recorded.

The same answer is told in other pieces each time: texts cut anywhere, several parts of one tool call in one delta, text
beside them, several choices in one event. What is assembled is what the official clients' own helpers make of it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from anthropic.lib.streaming._messages import accumulate_event
from anthropic.types import Message as AnthropicMessage
from anthropic.types import RawMessageStreamEvent
from hypothesis import given, settings
from hypothesis import strategies as st
from openai._types import omit
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.lib.streaming.responses._responses import ResponseStreamState
from openai.types.chat import ChatCompletionChunk
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter

from proxy.dialects import DIALECTS
from proxy.dialects.base import DialectRules, RecordableAnswer
from proxy.errors import EngineFailed
from proxy.http import sse
from tests.effort import scaled

Body = dict[str, Any]

ANTHROPICS: TypeAdapter[RawMessageStreamEvent] = TypeAdapter(RawMessageStreamEvent)
OPENAIS: TypeAdapter[ResponseStreamEvent] = TypeAdapter(ResponseStreamEvent)
ASK = {"role": "user", "content": "Where is order 8214?"}
REQUESTS: dict[str, Body] = {
    "/v1/chat/completions": {"messages": [ASK]},
    "/v1/responses": {"input": [ASK]},
    "/v1/messages": {"messages": [ASK], "max_tokens": 9},
}
ARGUMENTS = st.sampled_from(['{"order_id": "8214"}', "{}", '{"text": "a \\"b\\" über 🚚", "n": [1, 2]}', ""])
TEXTS = st.sampled_from(["", "On its way", "über 🚚\n", " "])


@dataclass(frozen=True)
class Said:
    """What one choice says, in the order in which an engine tells it."""

    reasoning: str
    content: str
    calls: tuple[tuple[str, str], ...]  # name and arguments
    function_call: tuple[str, str] | None
    refusal: str
    after: str  # its calls

    def deltas(self) -> Iterator[Body]:
        """The deltas of an engine that has time: each thing by itself."""
        if self.reasoning:
            yield {"reasoning": self.reasoning}
        if self.content:
            yield {"content": self.content}
        for at, (name, arguments) in enumerate(self.calls):
            first = {"name": name, "arguments": ""}
            yield {"tool_calls": [{"index": at, "id": f"chatcmpl-tool-{at:08}", "type": "function", "function": first}]}
            yield {"tool_calls": [{"index": at, "function": {"arguments": arguments}}]}
        if self.function_call is not None:
            yield {"function_call": {"name": self.function_call[0], "arguments": ""}}
            yield {"function_call": {"arguments": self.function_call[1]}}
        if self.after:
            yield {"content": self.after}
        if self.refusal:
            yield {"refusal": self.refusal}


CALLS = st.lists(st.tuples(st.sampled_from(["find_order", "f"]), ARGUMENTS), max_size=3).map(tuple)
SAID = st.builds(Said, TEXTS, TEXTS, CALLS, st.none(), st.just(""), TEXTS)
SAID_IN_CHAT = st.builds(Said, TEXTS, TEXTS, CALLS, st.none() | st.tuples(st.just("f"), ARGUMENTS), TEXTS, TEXTS)


def cut(delta: Body, draw: Callable[[Any], Any]) -> list[Body]:
    """A delta in pieces: its text cut where `draw` says."""
    [(name, said)] = delta.items()
    text = said if isinstance(said, str) else _arguments(name, said)
    places = sorted(draw(st.lists(st.integers(0, len(text)), max_size=3)))
    texts = [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]
    if isinstance(said, str):
        return [{name: text} for text in texts]
    rest: list[Body] = [{"arguments": text} for text in texts[1:]]
    if name == "function_call":
        return [{name: said | {"arguments": texts[0]}}, *({name: more} for more in rest)]
    [part] = said
    first = part | {"function": part["function"] | {"arguments": texts[0]}}
    return [{name: [first]}, *({name: [{"index": part["index"], "function": more}]} for more in rest)]


def _arguments(name: str, said: Any) -> str:
    function: Body = said if name == "function_call" else said[0]["function"]
    return str(function["arguments"])


def merge(one: Body, other: Body) -> Body:
    """Two deltas of one choice as one, as an engine puts them together that could not send the first in time."""
    merged = dict(one)
    for name, said in other.items():
        if name not in merged:
            merged[name] = said
        elif name == "function_call":
            merged[name] = merged[name] | {"arguments": merged[name]["arguments"] + said["arguments"]}
        else:
            merged[name] = merged[name] + said  # texts, and lists of parts: two parts of one call stay two
    return merged


@st.composite
def streams(draw: st.DrawFn, said: st.SearchStrategy[Said], most: int) -> tuple[list[Said], list[Body]]:
    """What is said, and the chunks of a stream that says it."""
    choices = draw(st.lists(said, min_size=1, max_size=most))
    told = [[piece for delta in choice.deltas() for piece in cut(delta, draw)] for choice in choices]
    for deltas in told:
        for at in reversed(range(1, len(deltas))):
            if draw(st.booleans()):
                deltas[at - 1 : at + 1] = [merge(deltas[at - 1], deltas[at])]
    chunks = [[_choice(at, {"role": "assistant", "content": ""})] for at in range(len(choices))]
    while any(told):
        at = draw(st.sampled_from([at for at, deltas in enumerate(told) if deltas]))
        chunks.append([_choice(at, told[at].pop(0))])
    for at, choice in enumerate(choices):
        last = chunks[-1][0] if chunks[-1][0]["index"] == at and draw(st.booleans()) else None
        if last is None:
            last = _choice(at, {})
            chunks.append([last])
        last["finish_reason"] = "tool_calls" if choice.calls else "stop"
    for at in reversed(range(1, len(chunks))):  # choices that come at one time come in one event
        indices = {choice["index"] for choice in chunks[at - 1]}
        if indices.isdisjoint(choice["index"] for choice in chunks[at]) and draw(st.booleans()):
            chunks[at - 1 : at + 1] = [chunks[at - 1] + chunks[at]]
    return choices, [_chunk(chunk) for chunk in chunks]


def _choice(index: int, delta: Body) -> Body:
    return {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}


def _chunk(choices: list[Body]) -> Body:
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_700_000_000, "model": "base"}
    return head | {"choices": choices}


def sent(path: str, chunks: list[Body], choices: int = 1) -> tuple[list[Body], RecordableAnswer]:
    """The events that a client gets of a stream, and what is recorded."""
    request = REQUESTS[path] | {"model": "helpdesk", "stream": True} | ({"n": choices} if choices > 1 else {})
    answer = DIALECTS[path].read(json.dumps(request).encode(), {}, DialectRules()).answer()
    raw = b"".join([answer.event(json.dumps(chunk).encode()) for chunk in chunks]) + answer.event(sse.DONE)
    assert answer.finished
    data = sse.Parser().feed(raw + answer.tail())
    return [json.loads(event) for event in data if event != sse.DONE], answer.sampled()


def said_by(message: Any) -> Body:
    """What a recorded message says."""
    content = message["content"]
    text = content if isinstance(content, str) or content is None else "".join(part["text"] for part in content)
    return {
        "content": text or "",
        "reasoning": message.get("reasoning", ""),
        "refusal": message.get("refusal", ""),
        "calls": [(c["id"], c["function"]["name"], c["function"]["arguments"]) for c in message.get("tool_calls", ())],
        "function_call": message.get("function_call"),
    }


def meant(said: Said) -> Body:
    """What one says, in the same form."""
    return {
        "content": said.content + said.after,
        "reasoning": said.reasoning,
        "refusal": said.refusal,
        "calls": [(f"chatcmpl-tool-{at:08}", *call) for at, call in enumerate(said.calls)],
        "function_call": dict(zip(("name", "arguments"), said.function_call, strict=True))
        if said.function_call is not None
        else None,
    }


def recorded(sampled: RecordableAnswer) -> list[Body]:
    return [said_by(choice.message) for choice in sampled.choices]


@given(streams(SAID_IN_CHAT, most=3))
@settings(max_examples=scaled(200), deadline=None)
@pytest.mark.slow
def test_openais_helper_assembles_chat_completions(stream: tuple[list[Said], list[Body]]) -> None:
    choices, chunks = stream
    events, sampled = sent("/v1/chat/completions", chunks, len(choices))
    state = ChatCompletionStreamState()
    for event in events:
        state.handle_chunk(ChatCompletionChunk.model_validate(event))
    messages = [choice.message.to_dict() for choice in state.get_final_completion().choices]
    assembled = [said_by({"content": "", **{k: v for k, v in message.items() if v}}) for message in messages]
    assert assembled == recorded(sampled) == [meant(choice) for choice in choices]


@given(streams(SAID, most=1))
@settings(max_examples=scaled(200), deadline=None)
@pytest.mark.slow
def test_openais_helper_assembles_responses(stream: tuple[list[Said], list[Body]]) -> None:
    [said], chunks = stream
    events, sampled = sent("/v1/responses", chunks)
    state: ResponseStreamState[None] = ResponseStreamState(input_tools=omit, text_format=omit)
    for event in events:
        state.handle_event(OPENAIS.validate_python(event))
        if event["type"] == "response.output_item.done":  # what was told piece by piece is what the item is
            built = state.accumulate_event(OPENAIS.validate_python(event)).output[event["output_index"]].to_dict()
            assert {name: built[name] for name in ("arguments", "name", "call_id") if name in built}.items() <= (
                event["item"].items()
            )
    output = events[-1]["response"]["output"]
    assert output == [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert said_in_items(output) == recorded(sampled)[0] == meant(said)


def said_in_items(items: list[Body]) -> Body:
    def texts(kind: str) -> str:
        return "".join(part["text"] for item in items if item["type"] == kind for part in item["content"])

    calls = [item for item in items if item["type"] == "function_call"]
    return {
        "content": texts("message"),
        "reasoning": texts("reasoning"),
        "refusal": "",
        "calls": [(call["call_id"], call["name"], call["arguments"]) for call in calls],
        "function_call": None,
    }


@given(streams(SAID, most=1))
@settings(max_examples=scaled(200), deadline=None)
@pytest.mark.slow
def test_anthropics_helper_assembles_messages(stream: tuple[list[Said], list[Body]]) -> None:
    [said], chunks = stream
    events, sampled = sent("/v1/messages", chunks)
    snapshot: Any = None
    arguments: dict[int, bytes] = {}
    for event in events:
        snapshot = accumulate_event(
            event=ANTHROPICS.validate_python(event), current_snapshot=snapshot, json_bufs=arguments
        )
    assert isinstance(snapshot, AnthropicMessage)
    blocks = [block.to_dict() for block in snapshot.content]
    texts = ["".join(str(block.get(kind, "")) for block in blocks) for kind in ("text", "thinking")]
    calls = [(block["id"], block["name"], block["input"]) for block in blocks if block["type"] == "tool_use"]
    expected = meant(said)
    assert recorded(sampled) == [expected]
    assert texts == [expected["content"], expected["reasoning"]]
    assert calls == [(call, name, json.loads(text or "{}")) for call, name, text in expected["calls"]]


def test_several_parts_of_a_call_in_one_delta_are_one_part() -> None:
    """As vLLM sent them when it was busy."""
    first = {"index": 0, "id": "chatcmpl-tool-1", "type": "function", "function": {"name": "find", "arguments": ""}}
    parts = [first, {"index": 0, "function": {"arguments": '{"order_id'}}]
    rest = {"index": 0, "function": {"arguments": '": "8214"}'}}
    chunks = [
        _chunk([_choice(0, {"role": "assistant", "content": ""})]),
        _chunk([_choice(0, {"content": None, "tool_calls": parts})]),
        _chunk([_choice(0, {"tool_calls": [rest]}) | {"finish_reason": "tool_calls"}]),
    ]
    _, joined, last = sent("/v1/chat/completions", chunks)[0]
    whole = first | {"function": {"name": "find", "arguments": '{"order_id'}}
    assert joined["choices"][0]["delta"] == {"content": None, "tool_calls": [whole]}
    assert last["choices"][0]["delta"] == {"tool_calls": [rest]}


def test_an_id_is_told_once_whatever_the_engine_repeats() -> None:
    """Clients put the texts of parts together, ids too."""
    part = {"index": 0, "id": "chatcmpl-tool-1", "type": "function", "function": {"name": "f", "arguments": "{"}}
    again = part | {"function": {"arguments": "}"}}
    last = _choice(0, {"tool_calls": [again]}) | {"finish_reason": "tool_calls"}
    events, sampled = sent("/v1/chat/completions", [_chunk([_choice(0, {"tool_calls": [part]})]), _chunk([last])])
    state = ChatCompletionStreamState()
    for event in events:
        state.handle_chunk(ChatCompletionChunk.model_validate(event))
    [call] = state.get_final_completion().choices[0].message.tool_calls or []
    assert call.id == "chatcmpl-tool-1"
    assert sampled.issued_ids == [("chatcmpl-tool-1", "tool_call", 0)]


PART = {"index": 0, "id": "chatcmpl-tool-1", "type": "function", "function": {"name": "f", "arguments": "{"}}
OTHER = PART | {"index": 1, "id": "chatcmpl-tool-2"}
WHOLE = PART | {"function": {"name": "f", "arguments": "{}"}}


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/messages"])
@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ([WHOLE, OTHER, {"index": 0, "function": {"arguments": "}"}}], "continued a tool call"),
        ([PART, {"index": 0, "function": {"name": "ind"}}], "arrived in pieces"),
        ([{"index": 0, "function": {"name": "f", "arguments": "{}"}}], "without an id"),
        ([{"index": 0, "id": "chatcmpl-tool-1", "function": {"arguments": "{}"}}], "without an id or a name"),
    ],
)
def test_a_call_that_a_format_cannot_tell_breaks_the_answer(path: str, parts: list[Body], words: str) -> None:
    """Rather than being told as another: an agent would run it."""
    with pytest.raises(EngineFailed, match=words):
        sent(path, [_chunk([_choice(0, {"tool_calls": [part]})]) for part in parts])


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/messages"])
@pytest.mark.parametrize("call", [{"function": {"name": "f"}}, {"id": None, "function": {"name": "f"}}, {"id": "call"}])
def test_a_whole_answer_has_calls_that_can_be_answered(path: str, call: Body) -> None:
    whole = {"index": 0, "message": {"tool_calls": [call]}, "finish_reason": "tool_calls"}
    answer = (
        DIALECTS[path].read(json.dumps(REQUESTS[path] | {"model": "helpdesk"}).encode(), {}, DialectRules()).answer()
    )
    with pytest.raises(EngineFailed, match="without an id or a name"):
        answer.body(json.dumps(_chunk([whole])).encode())


def test_a_long_call_in_small_parts_is_read_part_by_part() -> None:
    """Were what came copied with each part, the test's time would not do by far."""
    count, piece = 2**17, "x" * 64
    request = json.dumps(REQUESTS["/v1/chat/completions"] | {"model": "helpdesk", "stream": True}).encode()
    answer = DIALECTS["/v1/chat/completions"].read(request, {}, DialectRules()).answer()
    data = json.dumps(_chunk([_choice(0, {"tool_calls": [{"index": 0, "function": {"arguments": piece}}]})])).encode()
    for _ in range(count):
        answer.event(data)
    [choice] = answer.sampled().choices
    assert choice.message is not None
    assert len(choice.message["tool_calls"][0]["function"]["arguments"]) == 64 * count
