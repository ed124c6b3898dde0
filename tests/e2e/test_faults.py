"""Real processes killed at bad moments: the proxy after finished turns, the engine in the middle of a stream.

The engine is killed by a test of test_engine_lora.py, which also looks at what is loaded into the next one: an engine
takes 20 to 30 CPU seconds to start.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from tests.e2e.conftest import Stack, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

# one grey pixel
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNoAAAAggCBd81ytgAAAABJRU5ErkJggg=="


def say(text: str, **more: Any) -> dict[str, Any]:
    return {"model": "helpdesk", "messages": [{"role": "user", "content": text}], "max_tokens": 4} | more


def answers(stack: Stack) -> bool:
    with stack.proxy() as proxy:
        headers = {"x-hone-purpose": "none"}
        return proxy.post("/v1/chat/completions", json=say("again"), headers=headers).is_success


def kill_engine_in_a_stream(stack: Stack) -> None:
    """The stream ends with an error, its call is recorded as errored, and the next request is refused for a while."""
    events: list[dict[str, Any]] = []
    request = say("tell me", max_tokens=900, ignore_eos=True, stream=True)
    with stack.proxy() as proxy, proxy.stream("POST", "/t/cut/v1/chat/completions", json=request) as answer:
        assert answer.status_code == 200
        for line in answer.iter_lines():
            if line.startswith("data: {"):
                events.append(json.loads(line.removeprefix("data: ")))
                if len(events) == 5:  # once: the empty line that ends an event is read, too
                    os.kill(stack.pid("engine"), signal.SIGKILL)

    assert "error" in events[-1]
    assert events[-1]["error"]["message"]
    assert all(choice["finish_reason"] is None for event in events[:-1] for choice in event["choices"])
    [call] = stack.calls_of("cut")
    assert call["status"] == "errored"
    assert not any(choice["trainable"] for choice in call["choices"])

    with stack.proxy() as proxy:
        down = proxy.post("/v1/chat/completions", json=say("now"))
    if not down.is_success:  # the engine may be back already
        assert down.status_code == 503
        assert int(down.headers["retry-after"]) > 0
        assert down.json()["error"]["message"]


def test_no_finished_turn_is_lost_when_the_proxy_is_killed(killable_stack: Stack) -> None:
    wait_for("an answer", lambda: answers(killable_stack))
    finished: set[str] = set()
    for round_ in range(3):
        with killable_stack.proxy() as proxy:
            for number in range(10):
                answer = proxy.post("/v1/chat/completions", json=say(f"{round_} {number}")).raise_for_status()
                finished.add(answer.headers["x-hone-call"])
        killed = killable_stack.pid("proxy")
        os.kill(killed, signal.SIGKILL)
        wait_for("a new proxy", lambda killed=killed: killable_stack.pid("proxy") != killed)
        wait_for("an answer of the restarted proxy", lambda: answers(killable_stack))
    recorded = {c["call_id"] for c in killable_stack.export() if c["status"] == "complete"}
    assert finished <= recorded


@pytest.mark.parametrize(
    ("path", "body", "told"),
    [
        (
            "/v1/messages",
            {"content": [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}]},
            lambda answer: (answer["type"], answer["error"]["type"], answer["error"]["message"]),
        ),
        (
            "/v1/chat/completions",
            {"content": [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}]},
            lambda answer: ("error", "invalid_request_error", answer["error"]["message"]),
        ),
    ],
)
def test_an_image_is_refused_clearly_where_the_model_can_not_see(
    killable_stack: Stack, path: str, body: dict[str, Any], told: Callable[[Any], tuple[str, str, str]]
) -> None:
    asked = {"model": "helpdesk", "max_tokens": 8, "messages": [{"role": "user"} | body]}
    wait_for("an answer", lambda: answers(killable_stack))
    with killable_stack.proxy() as proxy:
        answer = proxy.post(path, json=asked, headers={"x-hone-purpose": "none"})
        kind, error, message = told(answer.json())
        assert (answer.status_code, kind, error) == (400, "error", "invalid_request_error")
        assert "multimodal" in message or "image" in message
        plain = asked | {"messages": [{"role": "user", "content": "hi"}]}
        assert proxy.post(path, json=plain, headers={"x-hone-purpose": "none"}).is_success  # the engine lives on
