"""What no sound engine answers: bodies and streams with parts replaced, framed as HTTP should not be."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from tests.proxy.fake_engine import (
    Said,
    Step,
    completion_of,
    events_of,
    ids_of,
    text_completion_of,
    text_events_of,
    tool_call,
    words,
)
from tests.proxy.formats import COMPLETIONS
from tests.proxy.hostile import JUNK, dumped, spoilt
from tests.proxy.hostile_tools import ARGUMENTS
from tests.proxy.raw_engine import Raw, Then, framed

Body = dict[str, Any]

_REASONED = Said(
    [Step({"reasoning": "hm"}, ids_of("hm")), *words("On its way").steps],
    {"role": "assistant", "content": "On its way", "reasoning": "hm"},
)
_REFUSED = Said([Step({"refusal": "No"}, [7])], {"role": "assistant", "content": None, "refusal": "No"})
_LEGACY = Said(
    [Step({"function_call": {"name": "f", "arguments": "{"}}, [7]), Step({"function_call": {"arguments": "}"}}, [8])],
    {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
    "function_call",
)


@st.composite
def _called(draw: st.DrawFn) -> Said:
    """A call of a tool, rarely with the arguments that it takes."""
    name = draw(st.sampled_from(list(ARGUMENTS)))
    return tool_call(name, draw(spoilt(ARGUMENTS[name], 0)), "chatcmpl-tool-0123456789")


_TEXTS = [words("It arrives"), words("a b c", "length"), _REASONED, _REFUSED, _LEGACY]
SAYINGS = st.sampled_from(_TEXTS) | _called()
TEXTS_SAID = st.sampled_from([words("It arrives"), words("a b c", "length"), words("")])
_ASKED: Body = {
    "model": "base-model",
    "return_token_ids": True,
    "logprobs": True,
    "stream_options": {"include_usage": True},
}


@st.composite
def wholes(draw: st.DrawFn, path: str, n: int) -> bytes:
    """The body of an answer without streaming."""
    kind = draw(st.sampled_from(["spoilt"] * 6 + ["sound", "junk", "events", "bytes", "cut"]))
    said = draw(st.lists(TEXTS_SAID if path == COMPLETIONS else SAYINGS, min_size=n, max_size=n))
    making = text_completion_of if path == COMPLETIONS else completion_of
    sound = dumped(making(_ASKED | _prompt(path), said))
    if kind == "spoilt":
        return dumped(draw(spoilt(json.loads(sound))))
    if kind == "junk":
        return dumped(draw(JUNK))
    if kind == "events":
        return b"".join(_sound_events(path, said))
    if kind == "bytes":
        return draw(st.binary(max_size=40))
    return sound[: draw(st.integers(0, len(sound)))] if kind == "cut" else sound


@st.composite
def streams(draw: st.DrawFn, path: str, n: int) -> bytes:
    """The body of a streamed answer."""
    said = draw(st.lists(TEXTS_SAID if path == COMPLETIONS else SAYINGS, min_size=n, max_size=n))
    events = _sound_events(path, said)
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(events) - 1))
        kind = draw(st.sampled_from(["spoilt"] * 5 + ["drop", "double", "swap", "insert", "merge", "end"]))
        if kind == "spoilt":
            events[at] = _event(dumped(draw(spoilt(_said_by(events[at])))))
        elif kind == "drop" and len(events) > 1:
            del events[at]
        elif kind == "double":
            events.insert(at, events[at])
        elif kind == "swap":
            other = draw(st.integers(0, len(events) - 1))
            events[at], events[other] = events[other], events[at]
        elif kind == "insert":
            events.insert(at, draw(_STRAYS))
        elif kind == "merge":  # one event where there were two
            events[at] = events[at][:-1]
        elif kind == "end":
            events = events[: at + 1]
    body = b"".join(events)
    return body.replace(b"\n", b"\r\n") if draw(st.integers(0, 9)) == 0 else body


_STRAYS = st.sampled_from(
    [
        b": a comment\n\n",
        b"data: [DONE]\n\n",
        b"data:\n\n",
        b"\n\n",
        b"event: error\ndata: {}\n\n",
        b"data: {not json\n\n",
        b'data: {"error": {"message": "out of memory", "code": 500}}\n\n',
        b'data: {"error": null}\n\n',
        b'data: {"error": "lost"}\n\n',
        b'data: {"choices": []}\n\n',
        b"data: 7\n\n",
        b'data: {"usage": 7}\n\n',
        b"id: 1\nretry: 5\n\n",
        b'data: {"choices":\ndata: []}\n\n',
        b"\xff\xfe\n\n",
        b"data: \xff\n\n",
    ]
) | JUNK.map(lambda junk: _event(dumped(junk)))


def _said_by(event: bytes) -> Any:
    try:
        return json.loads(event.removeprefix(b"data: "))
    except ValueError:
        return {}


def _event(data: bytes) -> bytes:
    return b"data: " + data + b"\n\n"


def _sound_events(path: str, said: list[Said]) -> list[bytes]:
    making = text_events_of if path == COMPLETIONS else events_of
    return list(making(_ASKED | _prompt(path), said))


def _prompt(path: str) -> Body:
    return {"prompt": "Where?"} if path == COMPLETIONS else {"messages": [{"role": "user", "content": "Where?"}]}


STATUSES = [
    *(100, 101, 103, 199, 201, 202, 204, 205, 206, 301, 302, 304, 307, 400, 401, 403, 404, 408, 409, 413, 418, 422),
    *(429, 451, 500, 501, 502, 503, 504, 505, 511, 599, 600, 999),
]
_HEADS = st.sampled_from(
    [
        b"",
        b"HTTP/1.1\r\n\r\n",
        b"HTTP/9.9 200 OK\r\n\r\n",
        b"SMTP hello\r\n",
        b"HTTP/1.1 2000 OK\r\n\r\n",
        b"\r\n" * 9,
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n: empty\r\n\r\n",
        b"\x00\x01\x02\x03\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * 20_000 + b"\r\n\r\n",
        b"HTTP/1.1 -20 OK\r\n\r\n",
        b"HTTP/1.1 200\r\n\r\n",
    ]
)
_EXTRAS = st.sampled_from(
    [
        b"",
        b"",
        b"",
        b"location: http://elsewhere.example/\r\n",
        b"set-cookie: a=b\r\n",
        b"content-encoding: gzip\r\n",
        b"connection: close\r\n",
        b"connection: upgrade\r\nupgrade: websocket\r\n",
        b"x-odd: \xff\xfe\r\n",
        b"retry-after: never\r\n",
        b"content-type: text/html\r\n",
        b"x-hone-call: mine\r\n",
    ]
)


@st.composite
def answers(draw: st.DrawFn, path: str, n: int, *, stream: bool) -> tuple[int, Raw]:
    """What an engine does with a request: the status that it says, 0 where it says none, and its bytes."""
    if draw(st.integers(0, 19)) == 0:
        return 0, Raw((draw(_HEADS),), draw(_ends(patient=False)))
    status = 200 if draw(st.integers(0, 9)) else draw(st.sampled_from(STATUSES))
    body = draw(streams(path, n) if stream else wholes(path, n))
    if status != 200 and draw(st.booleans()):
        body = dumped(draw(spoilt({"error": {"message": "because", "type": "E", "param": "n", "code": 400}}, 0)))
    head = b"HTTP/1.1 %d X\r\n" % status + draw(_EXTRAS)
    return status, draw(_framed(head, body))


def _ends(*, patient: bool) -> st.SearchStrategy[Then]:
    """How a connection ends. An answer that is whole may leave it as it is; a stall costs the read timeout."""
    often: list[tuple[Then, int]] = [("close", 8), ("abort", 4), ("stall", 1), ("keep", 20 if patient else 0)]
    return st.sampled_from([then for then, times in often for _ in range(times)])


@st.composite
def _framed(draw: st.DrawFn, head: bytes, body: bytes) -> Raw:
    kind = draw(
        st.sampled_from(["chunked"] * 8 + ["sized"] * 4 + ["closed", "short", "long", "both", "broken", "tail"])
    )
    if kind == "sized":
        return Raw((head + b"content-length: %d\r\n\r\n" % len(body), body), draw(_ends(patient=True)))
    if kind == "closed":
        return Raw((head + b"\r\n", body), draw(st.sampled_from(["close", "abort"])))
    if kind in ("short", "long"):  # than what is sent
        length = max(0, len(body) + draw(st.integers(1, 9)) * (1 if kind == "long" else -1))
        return Raw((head + b"content-length: %d\r\n\r\n" % length, body), draw(_ends(patient=False)))
    both = b"content-length: %d\r\n" % len(body) if kind == "both" else b""
    size = draw(st.integers(1, max(1, len(body))))
    chunks = [framed(body[at : at + size]) for at in range(0, len(body), size)]
    if kind == "broken":
        chunks.insert(draw(st.integers(0, len(chunks))), draw(_BREAKS))
    end = b"0\r\nx-trailer: 1\r\n\r\n" if kind == "tail" else b"0\r\n\r\n"
    pieces = [head + both + b"transfer-encoding: chunked\r\n\r\n", *chunks, end]
    if draw(st.booleans()):  # in one packet, or as many as there are chunks
        pieces = [b"".join(pieces)]
    return Raw(tuple(pieces[:50]), draw(_ends(patient=kind != "broken" and len(pieces) <= 50)))


_BREAKS = st.sampled_from(
    [b"zz\r\n", b"5 x\r\nhello\r\n", b"-1\r\n", b"f" * 40 + b"\r\n", b"3\r\nhello\r\n", b"\r\n", b"5\nhello\n"]
)
