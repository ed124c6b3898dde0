"""A stronger model at a URL: what is asked of it, within which bounds, and what a step does without it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import httpx
import numpy as np
import pytest

from tests.trainer.building import random_ids, trained_row
from trainer.batch.packing import Ids
from trainer.batch.row_builder import as_ids
from trainer.errors import TrainerError
from trainer.settings import DistillSettings
from trainer.teachers.distill import ScoredRows, StrongerModel
from trainer.teachers.hinted_prompt import HintExclusion
from trainer.teachers.remote_model import RemoteModel, TeacherUnavailable

SETTINGS = DistillSettings(url="http://teacher:8000/v1", model="big", clip=7.0)
ROWS = [trained_row(random_ids(9, seed), [5, 6, 7], name=f"t{seed}") for seed in range(3)]


class Letters:
    """Each character is an id."""

    marks: Sequence[str] = ("<|end|>",)

    def encode(self, text: str) -> Ids:
        return as_ids([ord(one) for one in text])

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(map(chr, ids))


def answer(request: httpx.Request) -> httpx.Response:
    """What vLLM answers: the logprob of an id is minus its hundredth."""
    asked = json.loads(request.content)
    assert asked["model"] == "big"
    if request.url.path == "/tokenize":
        assert asked["add_special_tokens"] is False
        return httpx.Response(200, json={"tokens": [ord(one) for one in asked["prompt"]]})
    assert request.url.path == "/v1/completions"
    assert (asked["max_tokens"], asked["temperature"], asked["prompt_logprobs"]) == (1, 1.0, 0)
    rows = [None, *({str(id_): {"logprob": -id_ / 100, "rank": 1}} for id_ in asked["prompt"][1:])]
    return httpx.Response(200, json={"choices": [{"text": "x", "prompt_logprobs": rows}]})


Handler = Callable[[httpx.Request], Any]


def model(handler: Handler, **settings: Any) -> StrongerModel:
    own = SETTINGS.model_copy(update=settings)
    return StrongerModel(own, lambda given: RemoteModel(given, httpx.MockTransport(handler)))


async def score(handler: Handler, **settings: Any) -> ScoredRows:
    return await model(handler, **settings).score(ROWS, Letters())


async def test_each_trained_token_gets_its_logprob_by_the_stronger_model() -> None:
    found = await score(answer)
    assert found.away is None
    assert [one.row for one in found.rows] == ROWS
    for one in found.rows:
        assert (one.lesson.teacher, one.lesson.clip, one.lesson.asked) == ("remote", 7.0, ())
        assert one.lesson.known is not None
        np.testing.assert_allclose(one.lesson.known, -one.row.token_ids[one.row.trained] / 100)


async def test_nothing_behind_the_last_trained_token_is_sent() -> None:
    lengths: list[int] = []

    def counted(request: httpx.Request) -> httpx.Response:
        asked = json.loads(request.content)["prompt"]
        lengths.extend([len(asked)] if isinstance(asked, list) else [])
        return answer(request)

    await score(counted)
    assert lengths == [8, 8, 8]


def with_status(status: int) -> Handler:
    return lambda request: httpx.Response(status) if request.url.path == "/v1/completions" else answer(request)


def with_body(body: Any) -> Handler:
    return lambda request: (
        httpx.Response(200, content=body if isinstance(body, bytes) else json.dumps(body).encode())
        if request.url.path == "/v1/completions"
        else answer(request)
    )


def disconnected(request: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("refused")


async def endless(request: httpx.Request) -> httpx.Response:
    async def parts() -> AsyncIterator[bytes]:
        while True:
            yield b" " * 65_536

    return httpx.Response(200, content=parts())


async def silent(request: httpx.Request) -> httpx.Response:
    await asyncio.Event().wait()
    raise AssertionError


@pytest.mark.parametrize(
    ("handler", "why"),
    [
        (disconnected, "does not answer"),
        (with_status(500), "status 500"),
        (with_status(401), "status 401"),
        (with_body(b"<html>"), "no JSON"),
        (with_body({"choices": []}), "no prompt_logprobs"),
        (with_body({"choices": [{"prompt_logprobs": [None, {"1": {"logprob": -1}}]}]}), "no prompt_logprobs"),
        (endless, "more than"),
        (silent, "longer than trainer.distill.timeout_s"),
    ],
)
async def test_a_model_that_is_away_or_no_vllm_leaves_the_step_without_it_and_says_so(
    handler: Handler, why: str
) -> None:
    found = await score(handler, timeout_s=0.3 if handler is silent else 60.0)
    assert found.rows == ()
    assert found.away is not None
    assert why in found.away
    assert "big at http://teacher:8000" in found.away
    assert found.away.endswith("the step was made without distill.")
    assert not found.differs


@pytest.mark.parametrize("logprob", [0.5, -1e6])
async def test_numbers_that_are_no_logprobs_are_not_trained_on(logprob: float) -> None:
    async with RemoteModel(SETTINGS, httpx.MockTransport(with_body(one_token(logprob)))) as remote:
        with pytest.raises(TeacherUnavailable, match="logprobs that are none"):
            await remote.score([1, 2])


async def test_an_impossible_token_has_a_logprob_that_the_clip_bounds() -> None:
    async with RemoteModel(SETTINGS, httpx.MockTransport(with_body(one_token(-9999.0)))) as remote:
        assert await remote.score([1, 2]) == [-9999.0]


def one_token(logprob: float) -> dict[str, Any]:
    return {"choices": [{"prompt_logprobs": [None, {"2": {"logprob": logprob}}]}]}


async def test_a_row_that_the_model_refuses_is_excluded_and_the_others_are_scored() -> None:
    def refusing(request: httpx.Request) -> httpx.Response:
        is_second = json.loads(request.content)["prompt"] == ROWS[1].token_ids[:8].tolist()
        return httpx.Response(400) if is_second else answer(request)

    found = await score(refusing)
    assert [one.row.trajectory_id for one in found.rows] == ["t0", "t2"]
    assert [(one.trajectory_id, one.code) for one in found.skipped] == [("t1", HintExclusion.TEACHER_REFUSED)]


async def test_a_model_with_another_tokenizer_scores_nothing_and_is_not_asked_again() -> None:
    asked: list[str] = []

    def other(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.path)
        text = json.loads(request.content)["prompt"]
        return httpx.Response(200, json={"tokens": [ord(one) + (one == "½") for one in text]})

    stronger = model(other)
    for _ in range(2):
        found = await stronger.score(ROWS, Letters())
        assert (found.rows, found.differs) == ((), True)
        assert found.away is not None
        assert "is not the base's" in found.away
    assert set(asked) == {"/tokenize"}
    assert len(asked) == 4  # the texts before and with the fraction


async def test_the_texts_of_the_turns_are_compared_too() -> None:
    texts = []

    def watched(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/tokenize":
            texts.append(json.loads(request.content)["prompt"])
        return answer(request)

    await score(watched)
    assert texts[-3:] == [Letters().decode(row.token_ids.tolist()) for row in ROWS]
    assert "<|end|>" in texts


async def test_the_key_comes_from_the_environment_and_is_sent_as_a_bearer(monkeypatch: pytest.MonkeyPatch) -> None:
    own = DistillSettings(url="https://teacher", model="big", api_key_env="TEACHER_KEY")
    monkeypatch.delenv("TEACHER_KEY", raising=False)
    with pytest.raises(TrainerError, match="TEACHER_KEY, which is not set"):
        RemoteModel(own)
    monkeypatch.setenv("TEACHER_KEY", "secret")
    sent: list[str] = []

    def watched(request: httpx.Request) -> httpx.Response:
        sent.append(request.headers["authorization"])
        return answer(request)

    async with RemoteModel(own, httpx.MockTransport(watched)) as remote:
        await remote.score([1, 2])
        assert "secret" not in remote.name
    assert sent == ["Bearer secret"]
