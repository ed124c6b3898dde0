"""The events of a message stream, for any deltas that an engine may send. Pure."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from proxy.dialects.messages.blocks import parse_messages, thinking_signature
from proxy.dialects.messages.stream_events import MessageEvents
from tests.proxy.merged import events, merged

Delta = dict[str, Any]


def call(index: int, name: str | None = None, arguments: str = "") -> Delta:
    function = {"name": name, "arguments": arguments} if name else {"arguments": arguments}
    started = {"id": f"tool-{index}", "type": "function"} if name else {}
    return {"tool_calls": [{"index": index, "function": function} | started]}


def streamed(*deltas: Delta, finish: str = "stop", matched: Any = None) -> list[dict[str, Any]]:
    making = MessageEvents()
    raw = making.begin("chatcmpl-1", "helpdesk", {"prompt_tokens": 7, "completion_tokens": 0})
    raw += b"".join(making.add(delta) for delta in deltas)
    return events(raw + making.end(finish, matched, {"prompt_tokens": 7, "completion_tokens": 3}))


def shapes(stream: list[dict[str, Any]]) -> list[str]:
    """Each event in short: which block starts, grows or stops."""
    return [f"{e['type'].removeprefix('content_block_')} {e['index']}" if "index" in e else e["type"] for e in stream]


def test_a_text() -> None:
    stream = streamed({"role": "assistant", "content": ""}, {"content": "On "}, {}, {"content": "Monday"})
    assert shapes(stream) == [
        "message_start", "start 0", "delta 0", "delta 0", "stop 0", "message_delta", "message_stop",
    ]  # fmt: skip
    assert merged(stream) == {
        "id": "chatcmpl-1",
        "type": "message",
        "role": "assistant",
        "content": [{"type": "text", "text": "On Monday"}],
        "model": "helpdesk",
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 7, "output_tokens": 3},
    }
    assert stream[0]["message"]["usage"] == {"input_tokens": 7, "output_tokens": 0}


def test_a_thought_a_text_and_two_calls_are_one_block_after_the_other() -> None:
    stream = streamed(
        {"reasoning": "hm"},
        {"content": "Let me see."},
        call(0, "find"),
        call(0, arguments='{"id": '),
        call(0, arguments="4821}"),
        call(1, "track", "{}"),
        finish="tool_calls",
    )
    message = merged(stream)
    assert message["content"] == [
        {"type": "thinking", "thinking": "hm", "signature": thinking_signature("hm")},
        {"type": "text", "text": "Let me see."},
        {"type": "tool_use", "id": "tool-0", "name": "find", "input": {"id": 4821}},
        {"type": "tool_use", "id": "tool-1", "name": "track", "input": {}},
    ]
    assert message["stop_reason"] == "tool_use"
    assert [e["delta"]["type"] for e in stream if "delta" in e and "index" in e and e["index"] == 0] == [
        "thinking_delta", "signature_delta",
    ]  # fmt: skip


def test_text_during_a_call_waits_for_its_end() -> None:
    stream = streamed(
        call(0, "find", "{"), {"content": "and"}, call(0, arguments="}"), {"content": " so"}, call(1, "track", "{}")
    )
    kinds = [(b["type"], b.get("text")) for b in merged(stream)["content"]]
    assert kinds == [("tool_use", None), ("text", "and so"), ("tool_use", None)]


def test_under_load_one_delta_holds_several_parts_of_a_call() -> None:
    parts = call(0, "find", "{")["tool_calls"] + call(0, arguments="}")["tool_calls"] + call(1, "go")["tool_calls"]
    assert [block["name"] for block in merged(streamed({"content": "a", "tool_calls": parts}))["content"][1:]] == [
        "find",
        "go",
    ]


def test_a_call_that_a_stop_string_cut_short_must_not_run() -> None:
    cut = streamed(call(0, "find", '{"id": "'), finish="stop", matched="48")
    assert (cut[-2]["delta"]["stop_reason"], cut[-2]["delta"]["stop_sequence"]) == ("stop_sequence", "48")
    whole = streamed(call(0, "find", '{"id": "48"}'), finish="stop", matched="48")
    assert whole[-2]["delta"] == {"stop_reason": "tool_use", "stop_sequence": None}


def test_nothing_said_is_no_block() -> None:
    assert shapes(streamed({"role": "assistant", "content": ""}, {}, finish="length")) == [
        "message_start", "message_delta", "message_stop",
    ]  # fmt: skip


PIECES = st.lists(st.text(max_size=4), max_size=4)


@st.composite
def deltas(draw: st.DrawFn) -> list[Delta]:
    """What an engine may send: thoughts, texts and calls in any order, in any pieces, with empty deltas between."""
    found: list[Delta] = [{"role": "assistant", "content": ""}]
    tool = 0
    for kind in draw(st.lists(st.sampled_from(["reasoning", "content", "tool", "nothing"]), max_size=8)):
        if kind == "tool":
            arguments = json.dumps({"a": draw(st.text(max_size=4))})
            at = draw(st.integers(0, len(arguments)))
            found.append(call(tool, "find", arguments[:at]))
            if draw(st.booleans()):
                found.append({"content": draw(st.text(max_size=3))})
            found.append(call(tool, arguments=arguments[at:]))
            tool += 1
        elif kind == "nothing":
            found.append({})
        else:
            found += [{kind: piece} for piece in draw(PIECES)]
    return found


@given(deltas())
def test_nothing_is_lost_and_what_comes_back_is_what_was_said(said: list[Delta]) -> None:
    making = MessageEvents()
    raw = making.begin("c", "m", None) + b"".join(making.add(delta) for delta in said)
    recorded_texts = making.texts()  # as it is recorded: before the end is told
    message = merged(events(raw + making.end("stop", None, None)))
    texts = [block["text"] for block in message["content"] if block["type"] == "text"]
    assert recorded_texts == texts
    assert "".join(texts) == "".join(delta.get("content", "") for delta in said)
    assert "".join(b["thinking"] for b in message["content"] if b["type"] == "thinking") == "".join(
        delta.get("reasoning", "") for delta in said
    )
    [back] = parse_messages(None, [{"role": "assistant", "content": message["content"]}])
    wanted = [{"type": "text", "text": text} for text in texts] if len(texts) > 1 else "".join(texts) or None
    assert back.get("content") == wanted
    calls = [delta["tool_calls"][0] for delta in said if "tool_calls" in delta]
    written = {
        c["index"]: "".join(p["function"]["arguments"] for p in calls if p["index"] == c["index"]) for c in calls
    }
    assert [json.loads(c["function"]["arguments"]) for c in back.get("tool_calls", ())] == [
        json.loads(arguments) for arguments in written.values()
    ]
