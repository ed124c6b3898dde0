"""Numbers and booleans in the forms in which the engine reads them: clients of other languages send them so."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.dialects import DIALECTS
from proxy.dialects.base import DialectRules
from proxy.errors import BadRequest

CHAT = "/v1/chat/completions"
BODIES: dict[str, dict[str, Any]] = {
    CHAT: {"messages": [{"role": "user", "content": "x"}]},
    "/v1/completions": {"prompt": "x"},
    "/v1/messages": {"max_tokens": 100, "messages": [{"role": "user", "content": "x"}]},
    "/v1/responses": {"input": "x"},
}


def read(path: str, **fields: Any) -> Any:
    return DIALECTS[path].read(json.dumps(BODIES[path] | fields | {"model": "m"}).encode(), {}, DialectRules())


@pytest.mark.parametrize(
    ("sent", "name", "value"),
    [
        ({"max_tokens": 64.0}, "max_tokens", 64),
        ({"max_tokens": "64"}, "max_tokens", 64),
        ({"max_completion_tokens": "64"}, "max_completion_tokens", 64),
        ({"temperature": "0.7"}, "temperature", 0.7),
        ({"n": 1.0}, "n", 1),
        ({"n": "2"}, "n", 2),
        ({"seed": "7"}, "seed", 7),
        ({"seed": str(2**63 - 1)}, "seed", 2**63 - 1),
        ({"top_k": 20.0}, "top_k", 20),
        ({"top_k": "-1"}, "top_k", -1),
        ({"stream": "false"}, "stream", False),
        ({"stream": 0}, "stream", False),
        ({"stream": "1"}, "stream", True),
        ({"logprobs": 1}, "logprobs", True),
        ({"logprobs": "true", "top_logprobs": "3"}, "top_logprobs", 3),
    ],
)
def test_chat_reads_them_as_the_number_or_boolean_they_are(sent: dict[str, Any], name: str, value: object) -> None:
    reading = read(CHAT, **sent)
    body = json.loads(reading.engine_body("engine"))
    assert body[name] == value or name == "logprobs"
    assert reading.chat[name] == value
    assert type(reading.chat[name]) is type(value)


def test_what_is_recorded_of_sampling_is_the_number() -> None:
    sampling = read(CHAT, max_tokens="64", temperature="0.7", top_k=20.0, n=1.0, seed="7").request.sampling
    found = (sampling.max_tokens, sampling.temperature, sampling.top_k, sampling.n, sampling.seed)
    assert found == (64, 0.7, 20, 1, 7)


@pytest.mark.parametrize(
    ("path", "sent"),
    [
        ("/v1/completions", {"max_tokens": "64", "temperature": "0.7", "logprobs": "1"}),
        ("/v1/messages", {"max_tokens": "64", "temperature": "0.7"}),
        ("/v1/responses", {"max_output_tokens": "64", "temperature": "0.7"}),
    ],
)
def test_every_format_reads_them(path: str, sent: dict[str, Any]) -> None:
    sampling = read(path, **sent).request.sampling
    assert (sampling.max_tokens, sampling.temperature) == (64, 0.7)


@pytest.mark.parametrize(
    "sent",
    [
        {"max_tokens": 64.5}, {"max_tokens": "many"}, {"max_tokens": "64.5"}, {"max_tokens": ""}, {"n": "1e400"},
        {"temperature": "warm"}, {"temperature": "0_7"}, {"stream": "maybe"}, {"stream": 2}, {"n": [1]},
        {"max_tokens": "9" * 100}, {"max_tokens": True}, {"top_k": 1e300},
    ],
)  # fmt: skip
def test_what_is_no_number_stays_refused(sent: dict[str, Any]) -> None:
    with pytest.raises(BadRequest):
        read(CHAT, **sent)


@pytest.mark.parametrize("value", [0, "0", 0.0])
def test_a_priority_of_zero_is_the_default_and_goes_no_further(value: object) -> None:
    assert "priority" not in json.loads(read(CHAT, priority=value).engine_body("engine"))


@pytest.mark.parametrize("value", [1, -1, "5", True, [0]])
def test_another_priority_is_refused(value: object) -> None:
    with pytest.raises(BadRequest, match="priority"):
        read(CHAT, priority=value)
