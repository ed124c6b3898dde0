"""Parts of a history that no model here can be shown: they are dropped and reported, and the request goes on."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from proxy.dialects import DIALECTS
from proxy.dialects.base import DialectRules
from proxy.dialects.messages.fields import count_tokens_body
from recorder.messages.calls import RecordedRequest

Body = dict[str, Any]
PDF = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0xLjQK"}}
LINKED = {"type": "document", "source": {"type": "url", "url": "https://x/y.pdf"}}
TEXT = {"type": "text", "text": "a"}
PLAIN = "data:text/plain;base64," + base64.b64encode("Prices: 3 €".encode()).decode()


def read(path: str, fields: Body | bytes) -> RecordedRequest:
    body = fields if isinstance(fields, bytes) else json.dumps(fields | {"model": "helpdesk"}).encode()
    return DIALECTS[path].read(body, {}, DialectRules()).request


def messages(*blocks: Body, role: str = "user") -> RecordedRequest:
    asked = [{"role": "user", "content": "Go on"}]
    history = [{"role": role, "content": list(blocks)}] + (asked if role == "assistant" else [])
    return read("/v1/messages", {"max_tokens": 100, "messages": history})


def text_of(request: RecordedRequest, at: int = -1) -> str:
    content = request.messages[at].get("content") or ""
    return content if isinstance(content, str) else "\n".join(part["text"] for part in content)


def test_a_pdf_beside_a_tool_result_is_omitted_and_the_result_is_shown() -> None:
    use = {"type": "tool_use", "id": "toolu_01", "name": "Read", "input": {"file_path": "notes.pdf"}}
    result = {"type": "tool_result", "tool_use_id": "toolu_01", "content": "PDF file read: notes.pdf (1 KB)"}
    fields = {
        "max_tokens": 100,
        "tools": [{"name": "Read", "input_schema": {"type": "object"}}],
        "messages": [
            {"role": "user", "content": "Sum up notes.pdf"},
            {"role": "assistant", "content": [use]},
            {"role": "user", "content": [result, PDF]},
        ],
    }
    request = read("/v1/messages", fields)
    assert [message["role"] for message in request.messages] == ["user", "assistant", "tool", "user"]
    assert request.messages[2]["content"] == "PDF file read: notes.pdf (1 KB)"
    assert text_of(request) == "[document omitted]"
    assert request.dropped_items == ("document",)
    counted = count_tokens_body(fields)["messages"][-1]["content"]
    assert counted == [result, {"type": "text", "text": "[document omitted]"}]


@pytest.mark.parametrize(
    ("block", "text", "dropped"),
    [
        (PDF | {"title": "notes.pdf"}, "[document omitted: notes.pdf]", ("document",)),
        ({"type": "document", "source": {"type": "file", "file_id": "f"}}, "[document omitted]", ("document",)),
        (LINKED, "[document omitted]", ("document",)),
        ({"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "Prices"}}, "Prices", ()),
        ({"type": "document", "title": "P", "source": {"type": "content", "content": "Prices"}}, "P\nPrices", ()),
        (
            {"type": "document", "source": {"type": "content", "content": [TEXT, {"type": "image"}]}},
            "a\n[image omitted]",
            ("image",),
        ),
        ({"type": "search_result", "source": "s", "title": "T", "content": [TEXT]}, "T\na", ()),
        ({"type": "compaction", "content": "What was said"}, "What was said", ()),
        ({"type": "compaction", "encrypted_content": "gAAA"}, "[compaction omitted]", ("compaction",)),
        ({"type": "container_upload", "file_id": "f"}, "[container_upload omitted]", ("container_upload",)),
        ({"type": "image", "source": {"type": "file", "file_id": "f"}}, "[image omitted]", ("image",)),
    ],
)  # fmt: skip
def test_blocks_of_messages_are_their_text_or_omitted(block: Body, text: str, dropped: tuple[str, ...]) -> None:
    for request in (messages(block), messages({"type": "tool_result", "tool_use_id": "t", "content": [block]})):
        assert text_of(request) == text
        assert request.dropped_items == dropped


def test_sealed_reasoning_of_another_vendor_is_dropped() -> None:
    said = messages({"type": "redacted_thinking", "data": "x"}, {"type": "text", "text": "Yes"}, role="assistant")
    assert (said.messages[0]["content"], said.dropped_items) == ("Yes", ("redacted_thinking",))
    items = [
        {"role": "user", "content": "Hi"},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Greet"}], "encrypted_content": "gAAA"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hello"}]},
        {"role": "user", "content": "Go on"},
    ]
    request = read("/v1/responses", {"input": items})
    assert [dict(message) for message in request.messages] == [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "reasoning": "Greet", "content": "Hello"},
        {"role": "user", "content": "Go on"},
    ]
    assert request.dropped_items == ("reasoning", "reasoning")
    parts = [{"type": "redacted_thinking", "data": "x"}, {"type": "text", "text": "Yes"}]
    chat = {"messages": [{"role": "assistant", "content": parts}, {"role": "user", "content": "Go on"}]}
    request = read("/v1/chat/completions", chat)
    assert (request.messages[0]["content"], request.dropped_items) == ([parts[1]], ("redacted_thinking",))


@pytest.mark.parametrize("kind", ["compaction", "compaction_summary", "context_compaction", "telepathy_call"])
def test_compacted_and_unknown_items_are_dropped(kind: str) -> None:
    items = [{"type": kind, "encrypted_content": "gAAA"}, {"role": "user", "content": "Go on"}]
    request = read("/v1/responses", {"input": items})
    assert ([m["content"] for m in request.messages], request.dropped_items) == (["Go on"], (kind,))


@pytest.mark.parametrize(
    ("part", "text", "dropped"),
    [
        ({"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBE"}, "[file omitted: a.pdf]", 1),
        ({"file_id": "file-1"}, "[file omitted]", 1),
        ({"filename": "a.txt", "file_data": PLAIN}, "a.txt\nPrices: 3 €", 0),
        ({"file_data": "data:text/plain;base64,###"}, "[file omitted]", 1),
    ],
)
def test_files_are_their_text_or_omitted(part: Body, text: str, dropped: int) -> None:
    chat = {"messages": [{"role": "user", "content": [{"type": "file", "file": part}]}]}
    request = read("/v1/chat/completions", chat)
    assert (text_of(request), request.dropped_items) == (text, ("file",) * dropped)
    items = [{"role": "user", "content": [{"type": "input_file", **part}]}]
    request = read("/v1/responses", {"input": items})
    assert (text_of(request), request.dropped_items) == (text, ("input_file",) * dropped)


BODIES = {
    "/v1/chat/completions": '{"model": "m", "messages": [{"role": "user", "content": "TEXT"}]}',
    "/v1/completions": '{"model": "m", "prompt": "TEXT"}',
    "/v1/messages": '{"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "TEXT"}]}',
    "/v1/responses": '{"model": "m", "input": "TEXT"}',
}


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (rb"cut \ud83d", "cut \ufffd"),
        (rb"\ude00 cut", "\ufffd cut"),
        (rb"\ud83d\ud83d\ude00 \uD83D\uDE00", "\ufffd\U0001f600 \U0001f600"),
        (rb"\\ud83d \\\ud83d", "\\ud83d \\\ufffd"),
        (b"raw \xed\xa0\xbd half", "raw \ufffd half"),
    ],
)
def test_half_an_emoji_is_replaced_and_reported(path: str, text: bytes, shown: str) -> None:
    request = read(path, BODIES[path].encode().replace(b"TEXT", text))
    assert text_of(request) == shown
    assert request.dropped_items == ("half_character",)


def test_a_whole_emoji_is_nobodys_half() -> None:
    for text in (rb"\ud83d\ude00", "\U0001f600".encode()):
        request = read("/v1/chat/completions", BODIES["/v1/chat/completions"].encode().replace(b"TEXT", text))
        assert (text_of(request), request.dropped_items) == ("\U0001f600", ())
