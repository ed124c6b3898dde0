"""Real processes killed at bad moments: the engine in the middle of a stream, the proxy after finished turns."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.conftest import Stack, started, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack of its own: its processes are killed."""
    with started(tmp_path_factory.mktemp("mortal")) as running:
        yield running


def say(text: str, **more: Any) -> dict[str, Any]:
    return {"model": "helpdesk", "messages": [{"role": "user", "content": text}], "max_tokens": 4} | more


def answers(stack: Stack) -> bool:
    with stack.proxy() as proxy:
        headers = {"x-hone-purpose": "none"}
        return proxy.post("/v1/chat/completions", json=say("again"), headers=headers).is_success


def test_an_engine_that_dies_in_a_stream_ends_it_with_an_error_and_comes_back(mortal: Stack) -> None:
    events: list[dict[str, Any]] = []
    request = say("tell me", max_tokens=900, ignore_eos=True, stream=True)
    with mortal.proxy() as proxy, proxy.stream("POST", "/t/cut/v1/chat/completions", json=request) as answer:
        assert answer.status_code == 200
        for line in answer.iter_lines():
            if line.startswith("data: {"):
                events.append(json.loads(line.removeprefix("data: ")))
            if len(events) == 5:
                os.kill(mortal.pid("engine"), signal.SIGKILL)

    assert "error" in events[-1]
    assert events[-1]["error"]["message"]
    assert all(choice["finish_reason"] is None for event in events[:-1] for choice in event["choices"])
    [call] = mortal.calls_of("cut")
    assert call["status"] == "errored"
    assert not any(choice["trainable"] for choice in call["choices"])

    with mortal.proxy() as proxy:
        down = proxy.post("/v1/chat/completions", json=say("now"))
    if not down.is_success:  # the engine may be back already
        assert down.status_code == 503
        assert int(down.headers["retry-after"]) > 0
        assert down.json()["error"]["message"]
    wait_for("an answer of the restarted engine", lambda: answers(mortal))


def test_no_finished_turn_is_lost_when_the_proxy_is_killed(mortal: Stack) -> None:
    wait_for("an answer", lambda: answers(mortal))
    finished: set[str] = set()
    for round_ in range(3):
        with mortal.proxy() as proxy:
            for number in range(10):
                answer = proxy.post("/v1/chat/completions", json=say(f"{round_} {number}")).raise_for_status()
                finished.add(answer.headers["x-hone-call"])
        killed = mortal.pid("proxy")
        os.kill(killed, signal.SIGKILL)
        wait_for("a new proxy", lambda killed=killed: mortal.pid("proxy") != killed)
        wait_for("an answer of the restarted proxy", lambda: answers(mortal))
    recorded = {c["call_id"] for c in mortal.export() if c["status"] == "complete"}
    assert finished <= recorded
