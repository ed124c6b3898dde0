"""The four wire formats as a test asks in them: a plain request each, and what a client can make of an answer."""

from __future__ import annotations

import json
from typing import Any

from proxy.http import sse

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
RESPONSES, MESSAGES = "/v1/responses", "/v1/messages"
ASK = "Where is order 4821?"
REQUESTS: dict[str, dict[str, Any]] = {
    CHAT: {"messages": [{"role": "user", "content": ASK}]},
    COMPLETIONS: {"prompt": ASK},
    RESPONSES: {"input": ASK},
    MESSAGES: {"messages": [{"role": "user", "content": ASK}], "max_tokens": 9},
}
# What ends a stream that did not break, by the format.
_ENDS = {RESPONSES: ("response.completed", "response.incomplete"), MESSAGES: ("message_stop",)}


def request(path: str, **more: Any) -> dict[str, Any]:
    """A request that a sound engine answers."""
    return REQUESTS[path] | {"model": "helpdesk"} | more


def fault_in(path: str, status: int, text: str, *, streamed: bool) -> dict[str, Any] | None:
    """The error of an answer as its format's clients read it, None where it is none; asserts that they can read it."""
    if not streamed:
        if status == 200:
            return None
        return _fault(path, json.loads(text))
    assert status == 200
    assert text.endswith("\n\n")
    events = sse.Parser().feed(text.encode())
    if path in (CHAT, COMPLETIONS):
        assert events.pop() == sse.DONE
    assert sse.DONE not in events
    read = [json.loads(event) for event in events]
    faults = [event for event in read if "error" in event or event.get("type") in ("error", "response.failed")]
    if not faults:
        assert read
        assert path not in _ENDS or read[-1]["type"] in _ENDS[path]
        return None
    assert faults == [read[-1]]
    return _fault(path, faults[0])


def _fault(path: str, said: dict[str, Any]) -> dict[str, Any]:
    if said.get("type") == "response.failed":
        assert (path, said["response"]["status"]) == (RESPONSES, "failed")
        fault = said["response"]["error"]
        assert fault.keys() == {"code", "message"}
    elif path == RESPONSES and said.get("type") == "error":  # a stream of which nothing was sent
        fault = said
    elif path == MESSAGES:
        assert said.keys() == {"type", "error", "request_id"}
        assert said["type"] == "error"
        fault = said["error"]
        assert fault.keys() == {"type", "message"}
    else:
        assert said.keys() == {"error"}
        fault = said["error"]
        assert fault.keys() == {"message", "type", "param", "code"}
    assert isinstance(fault["message"], str)
    assert fault["message"]
    read: dict[str, Any] = fault
    return read
