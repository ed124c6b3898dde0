"""On a real vLLM the text of every answer occurs in its ids, and the ids are as many as the usage says."""

from __future__ import annotations

from typing import Any

import pytest
from transformers import AutoTokenizer

from tests.e2e.conftest import MODEL, Stack, at_once
from tests.e2e.test_capture import body
from trainer.batch.recorded_text import agrees
from trainer.policy.base_model import load_decoder

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

KINDS: dict[str, dict[str, Any]] = {
    "plain": {"tools": None},
    "several": {"n": 3},
    "stopped": {"stop": ["order", "4"], "tools": None},
    "stopped-several": {"stop": ["e"], "n": 2, "tools": None},
    "tools": {},
    "long": {"max_tokens": 200},
    "unicode": {"messages": [{"role": "user", "content": "¿Dónde está mi pedido 4821? 订单 🚚"}], "temperature": 1.5},
}


SEEDS = 4


def trajectory_of(kind: str, seed: int, *, stream: bool) -> str:
    return f"text-{kind}-{stream}-{seed}"


@pytest.fixture(scope="module")
def recorded(stack: Stack) -> dict[str, list[dict[str, Any]]]:
    """The calls of each trajectory. All are asked at once: what is sampled is compared with nothing."""
    asked = {
        trajectory_of(kind, seed, stream=stream): {
            k: v for k, v in body(seed, stream=stream, **more).items() if v is not None
        }
        for kind, more in KINDS.items()
        for stream in (False, True)
        for seed in range(SEEDS)
    }
    with stack.proxy() as proxy:
        at_once(lambda name: proxy.post(f"/t/{name}/v1/chat/completions", json=asked[name]).raise_for_status(), asked)
    calls = stack.export()
    return {name: [call for call in calls if call["trajectory_external_id"] == name] for name in asked}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_ids_agree_with_the_text_and_the_usage(
    recorded: dict[str, list[dict[str, Any]]], kind: str, stream: bool
) -> None:
    decode = load_decoder(MODEL)
    assert decode is not None
    seen = 0
    for seed in range(SEEDS):
        [call] = recorded[trajectory_of(kind, seed, stream=stream)]
        choices = call["choices"]
        assert call["usage"]["completion_tokens"] == sum(len(one["token_ids"]) for one in choices)
        assert call["usage"]["prompt_tokens"] == len(call["prompt_token_ids"])
        for said, choice in zip(call["response"]["choices"], choices, strict=True):
            assert agrees(said["message"], choice["token_ids"], decode), (said, decode(choice["token_ids"]))
            if len(choices) == 1:  # of several, none is continued yet
                assert choice["trainable"] is (choice["finish_reason"] != "length")
            seen += 1
    assert seen >= SEEDS


def test_the_check_would_find_the_ids_of_another_answer(stack: Stack) -> None:
    decode = load_decoder(MODEL)
    assert decode is not None
    tokenizer: Any = AutoTokenizer.from_pretrained(MODEL)
    ids = tokenizer.encode("Your order arrives on Monday.", add_special_tokens=False)
    assert agrees({"role": "assistant", "content": "Your order arrives on Monday."}, ids, decode)
    assert not agrees({"role": "assistant", "content": "Your order arrives on Friday."}, ids, decode)
