"""Server-sent events: they come out whole however the bytes were cut, in time that grows with their bytes alone."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.errors import EngineFailed
from proxy.http import sse
from tests.proxy.until import until

MARK = b"\xef\xbb\xbf"
# Streams of what means something: line ends, fields, the halves of a byte order mark, and text that looks like these.
BITS = st.sampled_from(
    [
        b"\n", b"\r", b"\r\n", b"\n\n", b"data:", b"data: ", b"data", b" data: ", b":", b": a comment",
        b"event: message", b"id: 7", b"retry: 10", MARK, MARK[:1], MARK[1:], b" ",
        "über 🚚".encode(), b'{"a": 1}', b"\x00", b"\x85",
    ]
)  # fmt: skip
STREAMS = st.lists(BITS, max_size=30).map(b"".join)
CUTS = st.lists(st.integers(1, 12), min_size=1, max_size=40)


def reference(raw: bytes) -> list[bytes]:
    """The data of a whole stream's events, read line by line as the HTML Living Standard (9.2.6) has it."""
    *lines, _unfinished = re.split(rb"\r\n|\n|\r", raw.removeprefix(MARK))
    events: list[bytes] = []
    data: bytes | None = None
    for line in lines:
        name, _, value = line.partition(b":")
        if not line:
            events += [] if data is None else [data]
            data = None
        elif name == b"data":
            value = value.removeprefix(b" ")
            data = value if data is None else data + b"\n" + value
    return events


def pieces(raw: bytes, sizes: list[int]) -> Iterable[bytes]:
    """`raw`, cut into pieces of these sizes, which come round again."""
    at = turn = 0
    while at < len(raw):
        size = sizes[turn % len(sizes)]
        yield raw[at : at + size]
        at, turn = at + size, turn + 1


@given(STREAMS, CUTS)
def test_events_are_the_same_however_the_bytes_are_cut(raw: bytes, sizes: list[int]) -> None:
    raw += b":"  # a carriage return at the very end may be half of a line break: what follows tells
    parser = sse.Parser()
    assert [data for piece in pieces(raw, sizes) for data in parser.feed(piece)] == reference(raw)


@given(STREAMS, CUTS, st.integers(1, 20))
def test_an_event_that_is_too_large_is_an_error_however_the_bytes_are_cut(
    raw: bytes, sizes: list[int], most: int
) -> None:
    raw += b":"
    whole, said = parsed_events([raw], most)
    cut, said_cut = parsed_events(pieces(raw, sizes), most)
    assert (said_cut is None) == (said is None)
    assert cut[: len(whole)] == whole
    assert said is not None or cut == whole == reference(raw)


def parsed_events(chunks: Iterable[bytes], most: int) -> tuple[list[bytes], str | None]:
    """The events of a stream, and what is told of one that is larger than `most` bytes."""
    events: list[bytes] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sse, "MAX_EVENT_BYTES", most)
        parser = sse.Parser()
        try:
            for chunk in chunks:
                events += parser.feed(chunk)
        except EngineFailed as e:
            return events, str(e)
    return events, None


def test_a_large_event_in_small_pieces_is_read_piece_by_piece() -> None:
    """A quarter of a million pieces: were the event looked at anew with each, the test's time would not do by far."""
    parser, piece, count = sse.Parser(), b"x" * 64, 2**18
    assert parser.feed(b"data: ") == []
    assert [data for _ in range(count) for data in parser.feed(piece)] == []
    assert [len(data) for data in parser.feed(b"\n\n")] == [64 * count]


def test_many_line_ends_in_small_pieces_are_read_piece_by_piece() -> None:
    parser, count = sse.Parser(), 2**15
    for _ in range(count):
        assert parser.feed(b"data: some line\r") == []
    assert [data.count(b"\n") for data in parser.feed(b"\r:")] == [count - 1]


def test_an_event_is_given_as_soon_as_it_is_whole() -> None:
    parser = sse.Parser()
    assert parser.feed(b"data: a") == []
    assert parser.feed(b"\n") == []
    assert parser.feed(b"\ndata: b\n\nda") == [b"a", b"b"]


def test_a_character_may_be_cut_in_two() -> None:
    whole = 'data: {"x": "über 🚚"}\n\n'.encode()
    for at in range(len(whole)):
        parser = sse.Parser()
        assert parser.feed(whole[:at]) + parser.feed(whole[at:]) == [whole[6:-2]]


def test_what_is_written_is_read_back() -> None:
    assert sse.Parser().feed(sse.encode_event(b'{"a":1}') + sse.KEEP_ALIVE + sse.encode_event(sse.DONE)) == [
        b'{"a":1}',
        b"[DONE]",
    ]


def test_an_endless_event_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "MAX_EVENT_BYTES", 100)
    parser = sse.Parser()
    assert [parser.feed(b"x") for _ in range(100)] == [[]] * 100
    with pytest.raises(EngineFailed, match="an event of more than 100 bytes"):
        parser.feed(b"x")


async def test_a_comment_never_comes_within_an_event() -> None:
    sent: list[bytes] = []

    async def send(message: Any) -> None:
        sent.append(message["body"])

    with sse.KeepAliveStream(send, every_s=0.01) as stream:
        await stream.send(b'data: {"a"')
        await until(lambda: stream._timer.when() > stream._sent_at + 0.03)  # it looked, and more than once
        assert sent == [b'data: {"a"']
        for piece in (b": 1}\n", b"\n"):
            await stream.send(piece)
        await until(lambda: sse.KEEP_ALIVE in sent)
    assert [piece for piece in sent if piece != sse.KEEP_ALIVE] == [b'data: {"a"', b": 1}\n", b"\n"]
