"""An engine that returns logprobs before the temperature is found; one that returns those after it passes."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from aiohttp import web

from proxy.doctor.logprobs import check_logprobs
from proxy.settings.hone import HoneSettings
from proxy.settings.sections import AliasSettings
from recorder.base.findings import Finding, FindingLevel
from tests.proxy.scripted_engine import ScriptedEngine

SPREAD = [2.0, 1.0, 0.5, 0.0, -1.0]
FLAT = [0.03, 0.0, -0.04, 0.05]
SHARP = [7.5, 0.0, -1.0]
CERTAIN = [90.0, 0.0, -1.0]


def softmax_logs(logits: Sequence[float], temperature: float) -> list[float]:
    scaled = [one / temperature for one in logits]
    total = math.log(sum(math.exp(one - max(scaled)) for one in scaled)) + max(scaled)
    return [one - total for one in scaled]


class SamplingEngine(ScriptedEngine):
    """It samples one token from a few logits. `raw`: its logprobs are those before the temperature."""

    def __init__(self, logits: Sequence[float], *, raw: bool = False, noise: float = 0.0) -> None:
        super().__init__(key="engine-key")
        self.logits, self.raw, self.noise, self.seed = logits, raw, noise, random.Random(1)

    async def _chat(self, request: web.Request) -> web.Response:
        body = await request.json()
        assert body["max_tokens"] == 1
        sampled = softmax_logs(self.logits, body["temperature"])
        [token] = self.seed.choices(range(len(sampled)), [math.exp(one) for one in sampled])
        logprob = (softmax_logs(self.logits, 1.0) if self.raw else sampled)[token] + self.noise
        logprobs = {"content": [{"token": "x", "logprob": logprob}]}
        choice = {"message": {"role": "assistant", "content": "x"}, "token_ids": [token], "logprobs": logprobs}
        return web.json_response({"prompt_token_ids": [1, 2], "choices": [choice | {"finish_reason": "length"}]})

    async def _completions(self, request: web.Request) -> web.Response:
        body = await request.json()
        assert body["prompt"] == [1, 2]
        assert body["max_tokens"] == 1
        assert "prompt_logprobs" not in body
        plain = softmax_logs(self.logits, 1.0)
        top = {f"token_id:{token}": plain[token] for token in body["logprob_token_ids"]}
        return web.json_response({"choices": [{"logprobs": {"top_logprobs": [top]}}]})


async def ask(engine: ScriptedEngine, data: Path, base_model: str = "base") -> list[Finding]:
    await engine.start()
    try:
        settings = HoneSettings(data=data, aliases={"helpdesk": AliasSettings(base_model=base_model)})
        return await check_logprobs([engine.url], "engine-key", settings)
    finally:
        await engine.stop()


@pytest.mark.parametrize("logits", [SPREAD, FLAT, SHARP])
async def test_logprobs_after_the_temperature_are_fine(logits: list[float], tmp_path: Path) -> None:
    [found] = await ask(SamplingEngine(logits), tmp_path)
    assert found.verdict is FindingLevel.FINE, found


@pytest.mark.parametrize(("logits", "noise"), [(SPREAD, 0.0), (SPREAD, 0.005), (FLAT, 0.0)])
async def test_logprobs_before_the_temperature_are_wrong(logits: list[float], noise: float, tmp_path: Path) -> None:
    [found] = await ask(SamplingEngine(logits, raw=True, noise=noise), tmp_path)
    assert found.verdict is FindingLevel.WRONG
    assert "--logprobs-mode processed_logprobs" in found.todo


@pytest.mark.parametrize("raw", [True, False])
async def test_a_certain_answer_says_nothing(raw: bool, tmp_path: Path) -> None:
    [found] = await ask(SamplingEngine(CERTAIN, raw=raw), tmp_path)
    assert found.verdict is FindingLevel.NOTE


async def test_an_engine_without_logprobs_is_wrong(tmp_path: Path) -> None:
    engine = ScriptedEngine(key="engine-key")

    async def plain(_request: web.Request) -> web.Response:
        choice = {"message": {"role": "assistant", "content": "x"}, "token_ids": [7], "finish_reason": "stop"}
        return web.json_response({"prompt_token_ids": [1], "choices": [choice]})

    engine.more["/v1/chat/completions"] = plain
    [found] = await ask(engine, tmp_path)
    assert found.verdict is FindingLevel.WRONG
    assert "without logprobs" in found.found


async def test_an_engine_that_serves_another_base_is_not_asked(tmp_path: Path) -> None:
    assert await ask(SamplingEngine(SPREAD), tmp_path, base_model="other") == []
