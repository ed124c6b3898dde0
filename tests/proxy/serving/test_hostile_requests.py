"""Requests with parts replaced by anything: answered, or refused in their own format before an engine is asked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.proxy import hostile_requests
from tests.proxy.fake_engine import completion_of, events_of, text_completion_of, text_events_of, words
from tests.proxy.formats import CHAT, MESSAGES, REQUESTS, RESPONSES, fault_in, request
from tests.proxy.fuzzed import TIMEOUT_S, Fuzzed, fuzzed
from tests.proxy.hostile import dumped
from tests.proxy.raw_engine import CHUNKED, END, Raw, framed, sized

pytestmark = pytest.mark.slow

REFUSALS = {400, 404, 413}  # 404: no such model, or earlier answer


def sound(body: dict[str, Any]) -> Raw:
    """What a sound engine answers, whatever it is asked."""
    said = [words("It arrives on Monday")] * (body.get("n") or 1)
    about: dict[str, Any] = {"model": "base-model", "return_token_ids": True, "logprobs": True}
    about |= {"top_logprobs": body.get("top_logprobs"), "stream_options": {"include_usage": True}}
    if "prompt" in body:
        about |= {"prompt": [1, 2, 3]}
        whole, events = text_completion_of(about, said), text_events_of(about, said)
    else:
        about |= {"messages": [{"role": "user", "content": "Where?"}]}
        whole, events = completion_of(about, said), events_of(about, said)
    return Raw((CHUNKED + framed(b"".join(events)) + END if body.get("stream") else sized(dumped(whole)),))


def _format_of(path: str) -> str:
    """The path of the format in which errors about another path are told."""
    return MESSAGES if path.startswith(MESSAGES) else CHAT


@pytest.fixture
def hone(tmp_path: Path, migrated_file: Path) -> Iterator[Fuzzed]:
    with Fuzzed(tmp_path, migrated_file) as running:
        running.engine.default = sound
        running.earlier = running.post(RESPONSES, json.dumps(request(RESPONSES)).encode()).json()["id"]
        yield running


@pytest.mark.slow
@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.parametrize("path", REQUESTS)
@given(data=st.data())
@fuzzed
def test_whatever_is_asked_is_answered_or_refused(hone: Fuzzed, path: str, data: st.DataObject) -> None:
    body = data.draw(hostile_requests.requests(path), label="body")
    run = data.draw(st.sampled_from(["", "/t/one", "/g/all/t/two"]), label="run")
    body = body.replace(hostile_requests.PREVIOUS.encode(), hone.earlier.encode())
    hone.engine.requests.clear()
    answer = hone.post(run + path, body)
    streamed = answer.headers["content-type"].startswith("text/event-stream")
    fault = fault_in(path, answer.status_code, answer.text, streamed=streamed)
    states = hone.states(answer)
    if answer.status_code == 200:
        assert fault is None
        assert states
        assert set(states) == {"complete"} or "background" in answer.text
        if path == RESPONSES and not streamed:
            shown = answer.json()
            assert hone.get(f"{RESPONSES}/{shown['id']}").json() == shown or shown["background"]
    else:
        assert answer.status_code in REFUSALS
        assert (hone.engine.requests, states) == ([], [])


@pytest.mark.slow
@pytest.mark.timeout(TIMEOUT_S)
@given(data=st.data())
@fuzzed
def test_whatever_is_to_be_passed_on_is_answered_or_refused(hone: Fuzzed, data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(list(hostile_requests.PASSED)), label="path")
    hone.engine.default = Raw((sized(b'{"model": "base-model", "count": 3}'),))
    hone.engine.requests.clear()
    answer = hone.post(path, data.draw(hostile_requests.passed(path), label="body"))
    assert hone.states(answer) == []
    if answer.status_code == 200:
        assert answer.json()["count"] == 3
    else:
        assert answer.status_code in REFUSALS
        assert fault_in(_format_of(path), answer.status_code, answer.text, streamed=False)
        assert hone.engine.requests == []


@pytest.mark.parametrize("path", REQUESTS)
def test_tools_that_are_none_are_refused_in_the_callers_format(hone: Fuzzed, path: str) -> None:
    nones: list[Any] = [[[]], [None], ["a"], [5], {}, "find"]
    for tools in nones:
        answer = hone.post(path, json.dumps(request(path, tools=tools)).encode())
        fault = fault_in(path, answer.status_code, answer.text, streamed=False)
        assert fault is not None
        assert (answer.status_code, "tools" in fault["message"]) == (400, True)
