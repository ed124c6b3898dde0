"""What was sent is sent again to whoever comes back for it, as far as there was room to keep it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.server.streamable_http import EventMessage, EventStore
from mcp_types import JSONRPCMessage, JSONRPCNotification

from proxy.mcp_gateway.replay import EventReplay

STREAMS = st.sampled_from(["1", "2", "ünï\n.", ""])
SENT = st.lists(st.tuples(st.integers(0, 1), STREAMS, st.booleans()), max_size=30)


def note(text: str) -> JSONRPCMessage:
    return JSONRPCNotification(jsonrpc="2.0", method=text)


async def replayed(store: EventStore, after: str) -> tuple[str | None, list[tuple[str, str | None]]]:
    """The stream, and (method, id) of what is sent again."""
    found: list[tuple[str, str | None]] = []

    async def send(event: EventMessage) -> None:
        assert isinstance(event.message, JSONRPCNotification)
        found.append((event.message.method, event.event_id))

    return await store.replay_events_after(after, send), found


@given(SENT)
async def test_what_came_after_an_event_on_its_stream_is_sent_again_in_order(sent: list[tuple[int, str, bool]]) -> None:
    replay = EventReplay()
    stores = [replay.session(), replay.session()]
    kept = []
    for at, (session, stream, is_mark) in enumerate(sent):
        text = None if is_mark else str(at)
        kept.append((session, stream, text, await stores[session].store_event(stream, note(text) if text else None)))
    for at, (session, stream, _, id_) in enumerate(kept):
        after = [(text, i) for s, of, text, i in kept[at + 1 :] if (s, of) == (session, stream) and text is not None]
        assert await replayed(stores[session], id_) == (stream, after)


@given(st.lists(st.integers(1, 4000), min_size=1, max_size=40))
async def test_the_oldest_is_given_up_for_the_newest(sizes: list[int]) -> None:
    replay = EventReplay(most_bytes=10_000)
    store = replay.session()
    first = await store.store_event("1", None)
    texts = [str(at) * 1 + "x" * size for at, size in enumerate(sizes)]
    for text in texts:
        await store.store_event("1", note(text))
    stream, found = await replayed(store, first)
    said = [text for text, _ in found]
    assert stream == "1"  # though the mark itself may be gone
    assert said == texts[len(texts) - len(said) :]
    assert sum(map(len, said)) <= 10_000
    assert said[-1:] == texts[-1:]


@pytest.mark.parametrize("id_", ["", "7", "7.", "x.MQ==", "7.ü", "7.MQ", ".", "1.1.1"])
async def test_an_id_of_somebody_else_brings_nothing(id_: str) -> None:
    store = EventReplay().session()
    await store.store_event("1", note("secret"))
    assert (await replayed(store, id_))[1] == []
