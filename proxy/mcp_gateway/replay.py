"""Events sent to callers of the handshake era, kept for callers that lose their connection before they have read them.

Owns: the events of all sessions, within one limit; the oldest are dropped first. Refuses: streams, which are the SDK's,
and persistence: a caller starts again after a restart.

An event's id holds its stream and its number: a caller still gets the later ones if its last event was dropped.
"""

from __future__ import annotations

import base64
from collections import deque
from dataclasses import dataclass
from typing import Final

from mcp.server.streamable_http import EventCallback, EventId, EventMessage, EventStore, StreamId
from mcp_types import JSONRPCMessage, jsonrpc_message_adapter

MOST_BYTES: Final = 32 * 1024 * 1024  # for all sessions together
_EVENT_BYTES: Final = 512  # estimate for an event without its message


@dataclass(slots=True)
class _Event:
    number: int
    stream: StreamId
    message: bytes | None  # None: a mark without one

    @property
    def id(self) -> EventId:
        return f"{self.number}.{base64.urlsafe_b64encode(self.stream.encode()).decode()}"

    @property
    def bytes(self) -> int:
        return _EVENT_BYTES + len(self.message or b"")


class EventReplay:
    """The events of all sessions. `session()` returns the store of one session."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._numbers = 0
        self._kept: deque[tuple[_Events, _Event]] = deque()

    def session(self) -> EventStore:
        """Return a store for one session: request numbers restart in each, and its events are its caller's only."""
        return _Events(self)

    def add(self, events: _Events, stream: StreamId, message: bytes | None) -> _Event:
        """Keep an event, and drop old ones beyond the limit."""
        self._numbers += 1
        event = _Event(self._numbers, stream, message)
        self._kept.append((events, event))
        events.kept.append(event)
        self._bytes += event.bytes
        while self._bytes > self._most_bytes:
            owner, oldest = self._kept.popleft()
            owner.kept.popleft()  # each session's events are in the global order
            self._bytes -= oldest.bytes
        return event


class _Events(EventStore):
    """The events of one session."""

    def __init__(self, replay: EventReplay) -> None:
        self.kept: deque[_Event] = deque()
        self._replay = replay

    async def store_event(self, stream_id: StreamId, message: JSONRPCMessage | None) -> EventId:
        """Keep a message (None: the mark at the start of a stream); return its id."""
        body = None if message is None else message.model_dump_json(by_alias=True, exclude_unset=True).encode()
        return self._replay.add(self, stream_id, body).id

    async def replay_events_after(self, last_event_id: EventId, send_callback: EventCallback) -> StreamId | None:
        """Send the events after the given one on its stream again. None for an unknown id."""
        number, _, encoded = last_event_id.partition(".")
        try:
            last, stream = int(number), base64.b64decode(encoded.encode(), altchars=b"-_", validate=True).decode()
        except ValueError:
            return None
        for event in list(self.kept):
            if event.stream == stream and event.number > last and event.message is not None:
                message = jsonrpc_message_adapter.validate_json(event.message, by_name=False)
                await send_callback(EventMessage(message, event.id))
        return stream
