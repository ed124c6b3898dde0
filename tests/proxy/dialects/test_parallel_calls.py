"""Parallel tool calls as providers number and mix them: each is one call, in every format and in the record."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.dialects import DIALECTS
from proxy.dialects.base import CallSequence, DialectRules

Body = dict[str, Any]

PATHS = ["/v1/chat/completions", "/v1/messages", "/v1/responses"]
REQUESTS: dict[str, Body] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "x"}]},
    "/v1/messages": {"max_tokens": 100, "messages": [{"role": "user", "content": "x"}]},
    "/v1/responses": {"input": "x"},
}
FIRST, SECOND = ("call_first00001", "find_order", '{"id": "4821"}'), ("call_second0002", "track_parcel", '{"p": "P7"}')


def begin(index: int | None, call: tuple[str, str, str], arguments: str | None = None) -> Body:
    id_, name, whole = call
    function = {"name": name, "arguments": whole if arguments is None else arguments}
    return {"id": id_, "type": "function", "function": function} | ({} if index is None else {"index": index})


def more(index: int | None, arguments: str) -> Body:
    return {"function": {"arguments": arguments}} | ({} if index is None else {"index": index})


def chunk(delta: Body, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return json.dumps({"id": "x", "object": "chat.completion.chunk", "created": 1, "choices": [choice]}).encode()


def stream(path: str, deltas: list[list[Body]]) -> tuple[list[Body], Any]:
    """The events that a client gets for these tool parts, and the recorded message."""
    body = REQUESTS[path] | {"model": "helpdesk", "stream": True}
    answer = DIALECTS[path].read(json.dumps(body).encode(), {}, DialectRules()).answer()
    sent = b"".join(answer.event(chunk({"tool_calls": parts})) for parts in deltas)
    sent += answer.event(chunk({}, "tool_calls")) + answer.event(b"[DONE]") + answer.tail()
    lines = [line[6:] for line in sent.splitlines() if line.startswith(b"data: ") and line != b"data: [DONE]"]
    return [json.loads(line) for line in lines], answer.sampled().choices[0].message


def calls_of(path: str, events: list[Body]) -> list[tuple[str, str, str]]:
    """The calls that a client of the format makes of the events."""
    calls: dict[Any, list[str]] = {}
    for event in events:
        if path == "/v1/chat/completions":
            parts = [part for choice in event.get("choices", ()) for part in choice["delta"].get("tool_calls") or ()]
            for part in parts:
                call = calls.setdefault(part["index"], ["", "", ""])
                function = part.get("function") or {}
                found = (part.get("id") or "", function.get("name") or "", function.get("arguments") or "")
                calls[part["index"]] = [old + new for old, new in zip(call, found, strict=True)]
        elif path == "/v1/messages":
            if event["type"] == "content_block_start" and event["content_block"]["type"] == "tool_use":
                calls[event["index"]] = [event["content_block"]["id"], event["content_block"]["name"], ""]
            elif event["type"] == "content_block_delta" and event["delta"]["type"] == "input_json_delta":
                calls[event["index"]][2] += event["delta"]["partial_json"]
        elif event["type"] == "response.output_item.done" and event["item"]["type"] == "function_call":
            item = event["item"]
            calls[event["output_index"]] = [item["call_id"], item["name"], item["arguments"]]
    return [(id_, name, arguments) for _, (id_, name, arguments) in sorted(calls.items())]


def recorded(message: Body) -> list[tuple[str, str, str]]:
    return [(c["id"], c["function"]["name"], c["function"]["arguments"]) for c in message["tool_calls"]]


NUMBERINGS: dict[str, list[list[Body]]] = {
    "all zero": [[begin(0, FIRST)], [begin(0, SECOND)]],
    "all zero, in pieces": [
        [begin(0, FIRST, '{"id": ')], [more(0, '"4821"}')], [begin(0, SECOND, "")], [more(0, '{"p": "P7"}')],
    ],
    "all zero, in one delta": [[begin(0, FIRST), begin(0, SECOND)]],
    "none": [[begin(None, FIRST)], [begin(None, SECOND)]],
    "none, in pieces": [
        [begin(None, FIRST, "")], [more(None, FIRST[2])], [begin(None, SECOND, "")], [more(None, SECOND[2])],
    ],
    "an id with every part": [
        [begin(0, FIRST, '{"id": ')], [more(0, '"4821"}') | {"id": FIRST[0]}], [begin(1, SECOND)],
    ],
    "mixed": [
        [begin(0, FIRST, '{"id": ')], [begin(1, SECOND, '{"p"')], [more(0, '"4821"}')], [more(1, ': "P7"}')],
    ],
    "mixed in one delta": [
        [begin(0, FIRST, '{"id": '), begin(1, SECOND, '{"p"')], [more(1, ': "P7"}'), more(0, '"4821"}')],
    ],
    "arguments after all names": [
        [begin(0, FIRST, ""), begin(1, SECOND, "")], [more(0, FIRST[2])], [more(1, SECOND[2])],
    ],
}  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("numbering", NUMBERINGS)
def test_two_calls_are_two_however_they_are_numbered_and_mixed(path: str, numbering: str) -> None:
    events, message = stream(path, json.loads(json.dumps(NUMBERINGS[numbering])))
    assert calls_of(path, events) == recorded(message) == [FIRST, SECOND]


def test_three_calls_of_one_number_and_one_of_another_keep_apart() -> None:
    third = ("call_third000003", "close", "{}")
    events, message = stream(
        "/v1/chat/completions", [[begin(0, FIRST)], [begin(0, SECOND)], [begin(1, third)], [more(1, " ")]]
    )
    assert [id_ for id_, _, _ in recorded(message)] == [FIRST[0], SECOND[0], third[0]]
    assert len(calls_of("/v1/chat/completions", events)) == 3


@pytest.mark.parametrize("path", PATHS)
def test_a_whole_answer_whose_calls_are_all_numbered_zero_has_both(path: str) -> None:
    message = {"role": "assistant", "content": None, "tool_calls": [begin(0, FIRST), begin(0, SECOND)]}
    whole = {"id": "x", "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}
    body = json.dumps(REQUESTS[path] | {"model": "helpdesk"}).encode()
    answer = DIALECTS[path].read(body, {}, DialectRules()).answer()
    answer.body(json.dumps(whole).encode())
    said = answer.sampled().choices[0].message
    assert said is not None
    assert recorded(dict(said)) == [FIRST, SECOND]


_arguments = st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=8), max_size=3).map(json.dumps)


@given(st.lists(_arguments, min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_any_mixture_of_parts_comes_out_call_by_call(arguments: list[str], draw: Any) -> None:
    """Each call's parts are in order; the calls' parts are shuffled into each other."""
    parts = [
        [begin(n, (f"call_{n:09}", "f", ""), ""), *(more(n, text[i : i + 3]) for i in range(0, len(text), 3))]
        for n, text in enumerate(arguments)
    ]
    order = list(itertools.chain.from_iterable([n] * len(own) for n, own in enumerate(parts)))
    draw.shuffle(order)
    sequence, left = CallSequence(), [iter(own) for own in parts]
    sent = [part for n in order for part in sequence.add(next(left[n]))] + sequence.rest()
    runs = [index for index, _ in itertools.groupby(sent, key=lambda part: part["index"])]
    assert len(runs) == len(set(runs)) == len(arguments)
    for n, text in enumerate(arguments):
        assert "".join(p["function"]["arguments"] for p in sent if p["index"] == n) == text
