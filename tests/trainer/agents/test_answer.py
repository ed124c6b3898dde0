"""Hone's own agent `hone:answer`: one turn, the sampling that is set, and nothing of it for others."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from trainer.agents import answer
from trainer.agents.attempts import agent_sampling
from trainer.agents.user_agent import AgentSpec, AttemptEnding, UserAgent
from trainer.campaign.record import plan_campaign
from trainer.campaign_settings import CampaignSettings
from trainer.errors import CampaignError
from trainer.runtime.services import _specs

ModelRequests = tuple[str, list[dict[str, Any]]]


@pytest.fixture
async def model() -> AsyncIterator[ModelRequests]:
    """A model on loopback: its address, and what it was asked."""
    asked: list[dict[str, Any]] = []

    async def complete(request: web.Request) -> web.Response:
        asked.append(await request.json())
        return web.json_response({"choices": [{"index": 0, "message": {"role": "assistant", "content": "Oslo."}}]})

    app = web.Application()
    app.router.add_post("/v1/chat/completions", complete)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0]
    yield f"http://{host}:{port}/v1", asked
    await runner.cleanup()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("Where?", [{"role": "user", "content": "Where?"}]),
        ([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Where?"}], None),
        ({"city": "Ålesund"}, [{"role": "user", "content": '{"city": "Ålesund"}'}]),
        (["a", "b"], [{"role": "user", "content": '["a", "b"]'}]),
        ([], [{"role": "user", "content": "[]"}]),
    ],
)
def test_the_input_is_one_turn(given: Any, said: Any) -> None:
    assert answer.first_messages(given) == (said or given)


async def test_an_attempt_is_what_the_model_says_to_it(model: ModelRequests, tmp_path: Path) -> None:
    url, asked = model
    (spec,) = _specs(CampaignSettings(agent="hone:answer", python=Path("/nowhere"), cwd=tmp_path), tmp_path)
    agent = UserAgent(spec)
    task = {"id": "t", "scenario_id": "s", "input": "Where?", "base_url": url, "api_key": "none", "model": "helpdesk"}
    try:
        outcome = await agent.run({**task, "sampling": {"temperature": 1.0, "max_tokens": 9}}, {}, 60)
    finally:
        await agent.stop()
    assert (outcome.ending, outcome.answer) == (AttemptEnding.DONE, "Oslo.")
    turn = [{"role": "user", "content": "Where?"}]
    assert asked == [{"model": "helpdesk", "messages": turn, "temperature": 1.0, "max_tokens": 9}]


def test_what_is_not_set_is_not_asked_for() -> None:
    assert agent_sampling(CampaignSettings()) == {"temperature": 1.0}
    assert agent_sampling(CampaignSettings(max_tokens=5, temperature=0.7)) == {"temperature": 0.7, "max_tokens": 5}


def test_an_agent_that_hone_has_not_is_refused_with_the_one_it_has(tmp_path: Path) -> None:
    (tmp_path / "s.jsonl").write_text('{"id": "a", "input": "x"}')
    with pytest.raises(CampaignError, match="Hone has no agent 'hone:anser': 'hone:answer' is its only agent"):
        plan_campaign(CampaignSettings(agent="hone:anser", scenarios=tmp_path / "s.jsonl"))


def test_others_agents_keep_their_own_python(tmp_path: Path) -> None:
    (spec,) = _specs(CampaignSettings(agent="mine:run", python=Path("/their/python"), cwd=tmp_path), tmp_path)
    assert isinstance(spec, AgentSpec)
    assert (spec.target, spec.python, spec.cwd) == ("mine:run", Path("/their/python"), tmp_path)
