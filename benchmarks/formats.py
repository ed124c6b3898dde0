"""The wire formats to measure: for each a request, and the answer of an upstream that speaks the format itself.

Owns: these bytes. Hone asks its engine for chat completions whatever the client speaks, so its upstream answers with
token ids and logprobs; a gateway that passes the format through gets the upstream's own answer in that format.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson

from benchmarks import load
from benchmarks.load import Answers

MODEL = "bench"
SYSTEM = "You answer questions about orders. " * 40
USER = f"Where is my order {load.NUMBER.decode()}? " * 20
TEXT = " order" * load.SAMPLED


@dataclass(frozen=True, slots=True)
class Format:
    """One wire format: its route, a request's body, and an upstream's own answers in it."""

    name: str
    path: str
    body: bytes
    answers: Answers

    def request(self, *, stream: bool) -> bytes:
        """Return the body, with or without streaming."""
        return self.body[:-1] + b',"stream":true}' if stream else self.body


def formats() -> list[Format]:
    """Return all formats, chat completions first."""
    chat = Answers(load.plain_answer(), load.stream_events())
    return [
        Format("chat", "/v1/chat/completions", load.REQUEST, chat),
        Format("responses", "/v1/responses", _body(instructions=SYSTEM, input=USER), _responses()),
        Format(
            "messages",
            "/v1/messages",
            _body(system=SYSTEM, messages=[{"role": "user", "content": USER}], max_tokens=256),
            _messages(),
        ),
        Format("completions", "/v1/completions", _body(prompt=SYSTEM + USER, max_tokens=256), _completions()),
    ]


def upstream_answers() -> dict[str, Answers]:
    """Return the static upstream's answers by path. A chat completion of `load.LONG` tokens streams as many events."""
    chat, *others = formats()
    long = Answers(load.plain_answer(), load.stream_events(load.LONG))
    return {one.path: one.answers for one in (chat, *others)} | {chat.path + load.LONG_MARK.decode(): long}


def _body(**fields: Any) -> bytes:
    return orjson.dumps({"model": MODEL, **fields, "temperature": 1.0})


def _logprobs(count: int) -> dict[str, Any]:
    return {
        "tokens": [" order"] * count,
        "token_logprobs": [-0.25] * count,
        "top_logprobs": [{}] * count,
        "text_offset": list(range(0, 6 * count, 6)),
    }


def _completions() -> Answers:
    head = {"id": "cmpl-bench", "object": "text_completion", "created": 1, "model": MODEL}
    prompt = {"prompt_token_ids": list(range(1000, 1300))}
    usage = {"prompt_tokens": 300, "completion_tokens": load.SAMPLED, "total_tokens": 300 + load.SAMPLED}

    def choice(text: str, finish: str | None, ids: list[int]) -> dict[str, Any]:
        return {
            "index": 0,
            "text": text,
            "logprobs": _logprobs(len(ids)),
            "finish_reason": finish,
            "stop_reason": None,
            "token_ids": ids,
        }

    whole = choice(TEXT, "stop", [2000 + i for i in range(load.SAMPLED)]) | prompt
    events = [
        head | {"choices": [choice(load.word(i), None, [2000 + i]) | (prompt if i == 0 else {})]}
        for i in range(load.STREAMED - 1)
    ]
    events.append(head | {"choices": [choice(".", "stop", [13])]})
    streamed = {"prompt_tokens": 300, "completion_tokens": load.STREAMED, "total_tokens": 300 + load.STREAMED}
    events.append(head | {"choices": [], "usage": streamed})
    plain = orjson.dumps(head | {"choices": [whole], "usage": usage})
    return Answers(plain, [b"data: " + orjson.dumps(event) + b"\n\n" for event in events] + [b"data: [DONE]\n\n"])


def _named(events: list[dict[str, Any]]) -> list[bytes]:
    return [b"event: " + e["type"].encode() + b"\ndata: " + orjson.dumps(e) + b"\n\n" for e in events]


def _messages() -> Answers:
    message = {"id": "msg_bench", "type": "message", "role": "assistant", "model": MODEL}
    usage = {"input_tokens": 300, "output_tokens": load.SAMPLED}
    ended = {"stop_reason": "end_turn", "stop_sequence": None}
    plain = message | {"content": [{"type": "text", "text": TEXT}], "usage": usage} | ended
    start: dict[str, Any] = message | {
        "content": [],
        "usage": {"input_tokens": 300, "output_tokens": 0},
        "stop_reason": None,
    }
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": start},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        *[
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": load.word(i)}}
            for i in range(load.STREAMED)
        ],
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": ended, "usage": {"output_tokens": load.STREAMED}},
        {"type": "message_stop"},
    ]
    return Answers(orjson.dumps(plain), _named(events))


def _responses() -> Answers:
    usage = {
        "input_tokens": 300,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": load.SAMPLED,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 300 + load.SAMPLED,
    }

    def item(text: str | None, status: str) -> dict[str, Any]:
        content = [] if text is None else [{"type": "output_text", "text": text, "annotations": []}]
        return {"id": "msg_bench", "type": "message", "role": "assistant", "status": status, "content": content}

    def response(status: str, output: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": "resp_bench",
            "object": "response",
            "created_at": 1,
            "model": MODEL,
            "status": status,
            "output": output,
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "usage": usage if status == "completed" else None,
        }

    at = {"item_id": "msg_bench", "output_index": 0, "content_index": 0}
    text = "".join(load.word(i) for i in range(load.STREAMED))
    part = {"type": "output_text", "text": "", "annotations": []}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": response("in_progress", [])},
        {"type": "response.in_progress", "response": response("in_progress", [])},
        {"type": "response.output_item.added", "output_index": 0, "item": item(None, "in_progress")},
        {"type": "response.content_part.added", **at, "part": part},
        *[
            {"type": "response.output_text.delta", **at, "delta": load.word(i), "logprobs": []}
            for i in range(load.STREAMED)
        ],
        {"type": "response.output_text.done", **at, "text": text, "logprobs": []},
        {"type": "response.content_part.done", **at, "part": part | {"text": text}},
        {"type": "response.output_item.done", "output_index": 0, "item": item(text, "completed")},
        {"type": "response.completed", "response": response("completed", [item(text, "completed")])},
    ]
    numbered = [event | {"sequence_number": number} for number, event in enumerate(events)]
    return Answers(orjson.dumps(response("completed", [item(TEXT, "completed")])), _named(numbered))
