"""Completions: what the engine is asked, what the client gets, what is recorded. No sockets here."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.dialects import DIALECTS
from proxy.dialects.base import DialectRules
from proxy.dialects.completions import split_prompts
from proxy.errors import BadRequest, EngineFailed
from proxy.http import sse
from tests.proxy.fake_engine import Said, ids_of, text_completion_of, text_events_of, words

COMPLETIONS = DIALECTS["/v1/completions"]
NAMES = {"text_offset", "token_logprobs", "tokens", "top_logprobs"}


def request(**more: Any) -> dict[str, Any]:
    return {"model": "helpdesk", "prompt": "Where is 4821?"} | more


def read(**more: Any) -> Any:
    return COMPLETIONS.read(json.dumps(request(**more)).encode(), {}, DialectRules())


def engine_body(**more: Any) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(read(**more).engine_body("adapter-1"))
    return body


def plain(*choices: Said, **more: Any) -> tuple[dict[str, Any], Any]:
    reading = read(n=len(choices), **more)
    answer = reading.answer()
    whole = text_completion_of(json.loads(reading.engine_body("adapter-1")), list(choices))
    body = answer.body(json.dumps(whole).encode())
    assert answer.finished
    return json.loads(body), answer.sampled()


def streamed(*choices: Said, **more: Any) -> tuple[list[Any], list[Any], Any]:
    """Events at once, events held back to the end, and what is recorded."""
    reading = read(stream=True, n=len(choices), **more)
    answer, parser, early = reading.answer(), sse.Parser(), b""
    for event in text_events_of(json.loads(reading.engine_body("adapter-1")), list(choices)):
        early += b"".join(answer.event(data) for data in parser.feed(event))
    assert answer.finished
    assert answer.over
    *late, done = sse.Parser().feed(answer.tail())
    assert done == b"[DONE]"
    return [json.loads(e) for e in sse.Parser().feed(early)], [json.loads(e) for e in late], answer.sampled()


def test_the_engine_is_asked_for_ids_and_logprobs() -> None:
    body = engine_body(prompt=[1, 2, 3], user="u", stream=True)
    assert body.items() >= {
        "model": "adapter-1", "prompt": [1, 2, 3], "return_token_ids": True, "logprobs": 0, "max_tokens": 16,
        "temperature": 1.0, "user": "u", "stream_options": {"include_usage": True},
    }.items()  # fmt: skip
    assert engine_body(logprobs=3)["logprobs"] == 3
    assert "stream_options" not in engine_body()


@pytest.mark.parametrize(
    ("prompt", "content"),
    [("Where?", "Where?"), (["Where?"], "Where?"), ([1, 2], "[1,2]"), ([[1, 2]], "[1,2]")],
)
def test_a_prompt_is_recorded_as_one_user_message(prompt: Any, content: str) -> None:
    recorded = read(prompt=prompt, max_tokens=None, temperature=0.5).request
    assert recorded.messages == [{"role": "user", "content": content}]
    assert (recorded.dialect, recorded.endpoint, recorded.tools) == ("completions", "/v1/completions", None)
    assert recorded.rest == {"model": "helpdesk", "max_tokens": None, "temperature": 0.5}
    assert (recorded.sampling.max_tokens, recorded.sampling.temperature) == (16, 0.5)


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"model": None}, "model"),
        ({"prompt": None}, "prompt"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [[]]}, "prompt"),
        ({"prompt": [True]}, "prompt"),
        ({"prompt": [-1]}, "prompt"),
        ({"prompt": [2**31]}, "prompt"),
        ({"prompt": {"a": 1}}, "prompt"),
        ({"prompt": ["a", "b"]}, "prompt"),  # taken apart before it comes here
        ({"logprobs": 21}, "logprobs"),
        ({"logprobs": -1}, "logprobs"),
        ({"logprobs": True}, "logprobs"),
        ({"echo": True}, "echo"),
        ({"prompt_embeds": "x"}, "prompt_embeds"),
        ({"use_beam_search": True}, "use_beam_search"),
        ({"n": 0}, "n"),
    ],
)
def test_what_must_not_reach_the_engine_is_refused(more: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequest) as refused:
        read(**more)
    assert refused.value.param == param


def test_several_prompts_are_told_from_one() -> None:
    assert [split_prompts(p) for p in ("a", ["a"], [1, 2], [[1, 2]], [], None, {"a": 1})] == [None] * 7
    assert split_prompts(["a", "b"]) == ["a", "b"]
    assert split_prompts([[1], [2]]) == [[1], [2]]


def test_an_answer_shows_what_was_asked_for_and_records_all() -> None:
    said = words("On Monday")
    shown, recorded = plain(said)
    assert shown["model"] == "helpdesk"
    [choice] = shown["choices"]
    assert (choice["text"], choice["logprobs"]) == ("On Monday", None)
    assert (choice["token_ids"], choice["prompt_token_ids"]) == (None, None)
    assert recorded.prompt_token_ids == ids_of("Where is 4821?")
    [sampled] = recorded.choices
    assert sampled.message == {"role": "assistant", "content": "On Monday"}
    assert (list(sampled.token_ids), sampled.finish_reason) == (said.ids(), "stop")
    assert list(sampled.logprobs) == said.logprobs()


def test_what_the_client_asks_for_it_gets() -> None:
    shown, _ = plain(words("On Monday"), logprobs=0, return_token_ids=True)
    [choice] = shown["choices"]
    assert choice["prompt_token_ids"] == ids_of("Where is 4821?")
    assert choice["token_ids"] == words("On Monday").ids()
    assert choice["logprobs"].keys() == NAMES


@pytest.mark.parametrize("asked_for", [{}, {"logprobs": 1, "return_token_ids": True}])
def test_a_stream_says_and_records_the_same(asked_for: dict[str, Any]) -> None:
    choices = [words("On Monday"), words("Never", finish="length")]
    early, late, recorded = streamed(*choices, **asked_for)
    whole, of_whole = plain(*choices, **asked_for)
    for at, choice in enumerate(whole["choices"]):
        pieces = [c for event in early + late for c in event["choices"] if c["index"] == at]
        assert "".join(piece["text"] for piece in pieces) == choice["text"]
        assert [piece["finish_reason"] for piece in pieces][-1] == choice["finish_reason"]
        assert [t for piece in pieces for t in piece["token_ids"] or ()] == (choice["token_ids"] or [])
        assert all(bool(piece["logprobs"]) is ("logprobs" in asked_for) for piece in pieces)
        assert pieces[0]["prompt_token_ids"] == choice["prompt_token_ids"]
    assert recorded.choices == of_whole.choices
    assert recorded.usage == of_whole.usage
    assert recorded.prompt_token_ids == of_whole.prompt_token_ids
    assert all("usage" not in event for event in early + late)
    assert late[-1]["system_fingerprint"] == "vllm-0.32.0"
    assert [c["finish_reason"] for event in late for c in event["choices"]] == ["stop"]


def test_usage_in_a_stream_is_for_those_who_ask() -> None:
    _, late, _ = streamed(words("On Monday"), stream_options={"include_usage": True})
    assert late[-1]["choices"] == []
    assert late[-1]["usage"]["completion_tokens"] == 3


def test_what_is_no_completion_is_said_to_be_none() -> None:
    for broken in (b"{", b'{"choices": [{"index": 0}]}', b'{"choices": []}'):
        with pytest.raises(EngineFailed):
            read().answer().body(broken)
    with pytest.raises(EngineFailed):
        read(stream=True).answer().event(b'{"choices": [3]}')
    answer = read(stream=True).answer()
    assert (answer.event(b'{"error": {"message": "lost"}}'), answer.error) == (b"", "lost")
