"""Events come out whole, however the bytes were cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.errors import EngineBroke
from proxy.http import sse

ENDS = ("\n", "\r\n", "\r")
lines = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=30)


@st.composite
def streams(draw: st.DrawFn) -> tuple[bytes, list[bytes]]:
    """An event stream, and the data of its events."""
    text, events = draw(st.sampled_from(["", "\ufeff"])), []
    for _ in range(draw(st.integers(0, 6))):
        end = draw(st.sampled_from(ENDS))
        data = draw(st.lists(lines, min_size=0, max_size=3))
        noise = draw(st.sampled_from(["", ": a comment", "event: message", "id: 7", "retry: 10"]))
        if noise:
            text += noise + end
        text += "".join(draw(st.sampled_from(["data: ", "data:"])) + _unspaced(line) + end for line in data) + end
        if data:
            events.append("\n".join(map(_unspaced, data)).encode())
    # a carriage return at the very end may be half of a line break, so that the last event would wait for the rest
    return text.encode() + b"\n: end\n", events


def _unspaced(line: str) -> str:
    """Without a leading space: "data:" takes one away, "data: " is followed by one already."""
    return line.lstrip(" ")


@given(streams(), st.lists(st.integers(1, 12), min_size=1, max_size=40))
def test_events_are_the_same_however_the_bytes_are_cut(stream: tuple[bytes, list[bytes]], sizes: list[int]) -> None:
    raw, events = stream
    parser, got, at, turn = sse.Parser(), [], 0, 0
    while at < len(raw):
        size = sizes[turn % len(sizes)]
        got += parser.feed(raw[at : at + size])
        at, turn = at + size, turn + 1
    assert got == events


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
    assert sse.Parser().feed(sse.event(b'{"a":1}') + sse.KEEP_ALIVE + sse.event(sse.DONE)) == [b'{"a":1}', b"[DONE]"]


def test_an_endless_event_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "MAX_EVENT_BYTES", 100)
    with pytest.raises(EngineBroke, match="more than 100 bytes"):
        sse.Parser().feed(b"data: " + b"x" * 101)
