"""The benchmark of engines: what its agents say fits the model's context, and its figures are those of the turns."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from tokenizers import Tokenizer

from benchmarks import affinity
from benchmarks.affinity import BLOCK, Turn
from proxy.settings.sections import ProxySettings
from recorder.registry.aliases import ensure_alias
from recorder.registry.replicas import report_replica
from recorder.store.database import Project
from tests.stores import Stores, opened

E1, E2 = "http://e1:1", "http://e2:2"


def turn(number: int, engine: str, *, prompt: int = 300, cached: int = 0, at: float = 0.0, of: str = "g/0") -> Turn:
    return Turn(f"call_{of}_{number}", of, number, prompt, cached, at, at + 1.0, engine)


def test_the_longest_conversation_fits_the_context() -> None:
    tokenizer = Tokenizer.from_file(str(affinity.MODEL / "tokenizer.json"))
    for agent in affinity.agents(16, affinity.TURNS, "seed"):
        said = sum(len(tokenizer.encode(text).ids) for text in (agent.system, *agent.says))
        of_the_template = 10 * (2 * affinity.TURNS + 1)  # around each message
        assert 4 * BLOCK < said + of_the_template + affinity.TURNS * affinity.MAX_TOKENS < affinity.CONTEXT


def test_agents_of_a_group_begin_alike_and_rounds_share_nothing() -> None:
    made = affinity.agents(10, 3, "a")
    assert [(agent.group, agent.name) for agent in made[3:5]] == [("a-0", "3"), ("a-1", "4")]
    assert len({(agent.system, agent.says[0]) for agent in made}) == 3
    assert len({agent.says[1] for agent in made}) == len(made)
    assert made == affinity.agents(10, 3, "a")
    assert not {agent.system for agent in made} & {agent.system for agent in affinity.agents(10, 3, "b")}


def test_figures_are_of_the_turns_after_the_first() -> None:
    turns = [
        turn(0, E1),
        turn(1, E1, prompt=500, cached=2 * BLOCK, at=2.0),
        turn(2, E2, prompt=700, cached=BLOCK, at=4.0),
        turn(0, E2, prompt=BLOCK - 1, of="g/1"),
        turn(1, E2, of="g/1", prompt=400, cached=0, at=2.0),
    ]
    figures = affinity.figures(turns)
    assert figures["later_turns"] == 3
    assert figures["on_the_engine_of_the_turn_before"] == pytest.approx(2 / 3, abs=1e-4)
    assert figures["met_their_prefix"] == 0.5, "the prompt before of the last is shorter than a block"
    assert figures["cached_share_of_prompt_tokens"] == pytest.approx(3 * BLOCK / 1600, abs=1e-4)
    assert figures["latency_ms"] == {"median": 1000.0, "p90": 1000.0}


def test_the_load_is_that_of_the_busier_engine_over_all_rounds() -> None:
    first = [turn(0, E1), turn(0, E1, of="g/1"), turn(0, E2, of="g/2", at=1.0)]
    second = [turn(0, E1, at=10.0), turn(0, E1, of="g/1", at=11.0)]
    assert affinity.in_flight([first, second]) == {"mean": 1.25, "busier_engine_to_mean": 1.6}


@pytest.mark.parametrize("details", [None, {"cached_tokens": None}, {}])
def test_a_usage_without_details_has_no_cached_tokens(details: Any) -> None:
    [agent] = affinity.agents(1, 1, "a")
    usage = {"prompt_tokens": 7, "prompt_tokens_details": details}
    assert affinity.turn_of("call", agent, 0, usage, 0.0, 1.0) == Turn("call", "a-0/0", 0, 7, 0, 0.0, 1.0)


async def test_the_router_of_before_follows_no_trajectory(stores: Stores, tmp_path: Path) -> None:
    async with opened(stores, tmp_path) as store:
        project = Project(store, "default")
        await ensure_alias(project, "helpdesk", "base", "fp")
        for url in (E1, E2):
            await report_replica(project, url, state="up", loaded=["base"])
        router = affinity.LeastInFlight(project, ProxySettings())
        await router.refresh()
        alias = router.snapshot.aliases["helpdesk"]
        for key in map(str, range(8)):
            assert router.route(alias, key=key, engine_url=E2).replica_url == E1
        with router.hold(router.route(alias)):
            assert router.route(alias, key="k", engine_url=E1).replica_url == E2


async def test_an_agent_brings_back_what_it_was_told(monkeypatch: pytest.MonkeyPatch) -> None:
    bodies: list[dict[str, Any]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        bodies.append({"path": request.url.path, **json.loads(request.content)})
        message = {"role": "assistant", "content": f"answer {len(bodies)}"}
        usage = {"prompt_tokens": 10 * len(bodies), "prompt_tokens_details": {"cached_tokens": len(bodies)}}
        body = {"choices": [{"message": message}], "usage": usage}
        return httpx.Response(200, json=body, headers={"x-hone-call": f"call_{len(bodies)}"})

    @asynccontextmanager
    async def client(url: str) -> AsyncIterator[httpx.AsyncClient]:
        async with httpx.AsyncClient(base_url=url, transport=httpx.MockTransport(answer)) as http:
            yield http

    monkeypatch.setattr(affinity, "client", client)
    monkeypatch.setattr(affinity, "TOOL_S", 0.0)  # no pauses
    turns = await affinity.one_round(affinity.Proxy("http://p:1", Path()), affinity.agents(1, 3, "a"))
    assert [(one.call_id, one.number, one.prompt_tokens, one.cached_tokens) for one in turns] == [
        ("call_1", 0, 10, 1),
        ("call_2", 1, 20, 2),
        ("call_3", 2, 30, 3),
    ]
    assert {body["path"] for body in bodies} == {"/g/a-0/t/0/v1/chat/completions"}
    assert [len(body["messages"]) for body in bodies] == [2, 4, 6]
    assert bodies[2]["messages"][:3] == [*bodies[0]["messages"], {"role": "assistant", "content": "answer 1"}]
