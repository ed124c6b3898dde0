"""Engines that answer anything at all: clients are told the end in their own formats, and each row has one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.proxy import hostile_answers
from tests.proxy.formats import CHAT, COMPLETIONS, REQUESTS, fault_in, request
from tests.proxy.fuzzed import TIMEOUT_S, Fuzzed, fuzzed
from tests.proxy.hostile_tools import TOOLS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(TIMEOUT_S)]

# A caller's status → what an engine says for it. What is no answer is a 502 of Hone's.
RELAYED = {500: {500}, 503: {404, 502, 503, 504}}


@pytest.fixture
def hone(tmp_path: Path, migrated_file: Path) -> Iterator[Fuzzed]:
    with Fuzzed(tmp_path, migrated_file, silence_s=0.4) as running:
        yield running


@pytest.mark.parametrize("path", REQUESTS)
@given(data=st.data())
@fuzzed
def test_whatever_an_engine_answers_is_told(hone: Fuzzed, path: str, data: st.DataObject) -> None:
    stream = data.draw(st.booleans(), label="stream")
    n = data.draw(st.sampled_from([1, 1, 2]), label="n") if path in (CHAT, COMPLETIONS) else 1
    more: dict[str, Any] = {"n": n} if n > 1 else {}
    if data.draw(st.booleans(), label="asks for all"):
        more |= {"stream_options": {"include_usage": True}, "return_token_ids": True}
        more |= {"logprobs": 1} if path == COMPLETIONS else {"logprobs": True} if path == CHAT else {}
    if path in TOOLS and data.draw(st.booleans(), label="has tools"):
        more |= {"tools": TOOLS[path]}
    status, hone.engine.default = data.draw(hostile_answers.answers(path, n, stream=stream), label="answer")
    answer = hone.post(path, json.dumps(request(path, stream=stream) | more).encode())
    streamed = stream and answer.status_code == 200
    fault = fault_in(path, answer.status_code, answer.text, streamed=streamed)
    assert hone.states(answer) == ["complete" if fault is None else "errored"]
    assert fault is None or "a bug in Hone" not in fault["message"]
    if answer.status_code not in (200, 502):
        assert status in RELAYED.get(answer.status_code, {answer.status_code} if answer.status_code < 500 else set())


@given(data=st.data())
@fuzzed
def test_whatever_an_engine_answers_to_several_prompts_is_told(hone: Fuzzed, data: st.DataObject) -> None:
    stream = data.draw(st.booleans(), label="stream")
    sound, odd = (
        data.draw(hostile_answers.answers(COMPLETIONS, 1, stream=stream), label="answer")[1] for _ in range(2)
    )
    hone.engine.next, hone.engine.default = [odd], sound
    body = request(COMPLETIONS, prompt=["one", "two"], stream=stream, stream_options={"include_usage": True})
    answer = hone.post(COMPLETIONS, json.dumps(body).encode())
    hone.engine.next = []
    if answer.status_code != 200:
        fault = fault_in(COMPLETIONS, answer.status_code, answer.text, streamed=False)
        assert fault is not None
        assert "a bug in Hone" not in fault["message"]
    assert set(hone.states(answer)) <= {"complete", "errored"}


@given(data=st.data())
@fuzzed
def test_whatever_an_engine_answers_to_what_is_passed_on_is_told(hone: Fuzzed, data: st.DataObject) -> None:
    status, hone.engine.default = data.draw(hostile_answers.answers(CHAT, 1, stream=data.draw(st.booleans())))
    answer = hone.post("/tokenize", b'{"prompt": "one"}')
    assert hone.states(answer) == []
    if answer.status_code != 200:
        assert fault_in(CHAT, answer.status_code, answer.text, streamed=False)
        assert answer.status_code == 502 or status in RELAYED.get(answer.status_code, {answer.status_code})
