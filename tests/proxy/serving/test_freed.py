"""Agents that force tools or sample greedily, freed by settings: what the engine is asked, and what is told of it."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from proxy.settings.sections import ProxySettings
from recorder.store.database import Project, Store
from recorder.views.status.client_problems import find_untrainable_clients
from tests.proxy.fake_engine import FakeEngine
from tests.proxy.running import ALIAS, PROJECT, WITHOUT_PAGES, Proxy, serving

pytestmark = pytest.mark.slow

GREEDY: dict[str, Any] = {"temperature": 0, "top_p": 0.9}
FREE = {"temperature": 0.7, "top_p": 1.0, "top_k": 0, "presence_penalty": 0.0}
SCHEMA = {"type": "object"}
FIND = {"type": "function", "function": {"name": "find", "parameters": SCHEMA}}
NAMED = {"type": "function", "function": {"name": "find"}}
SAID = [{"role": "user", "content": "Where is 4821?"}]

BODIES: dict[str, dict[str, Any]] = {
    "chat/completions": {"messages": SAID},
    "completions": {"prompt": "Where is 4821?", "max_tokens": 9},
    "messages": {"messages": SAID, "max_tokens": 9},
    "responses": {"input": "Where is 4821?"},
}
FORCED: list[tuple[str, dict[str, Any]]] = [
    ("chat/completions", {"tools": [FIND], "tool_choice": "required"}),
    ("chat/completions", {"tools": [FIND], "tool_choice": NAMED}),
    ("messages", {"tools": [{"name": "find", "input_schema": SCHEMA}], "tool_choice": {"type": "any"}}),
    (
        "messages",
        {"tools": [{"name": "find", "input_schema": SCHEMA}], "tool_choice": {"type": "tool", "name": "find"}},
    ),
    ("responses", {"tools": [{"type": "function", "name": "find", "parameters": SCHEMA}], "tool_choice": "required"}),
    (
        "responses",
        {
            "tools": [{"type": "function", "name": "find", "parameters": SCHEMA}],
            "tool_choice": {"type": "function", "name": "find"},
        },
    ),
]


async def ask(proxy: Proxy, path: str, headers: dict[str, str] | None = None, **more: Any) -> httpx.Response:
    answer = await proxy.http.post(f"/v1/{path}", json={"model": ALIAS} | BODIES[path] | more, headers=headers)
    return answer.raise_for_status()


# --- forced tools


@pytest.mark.parametrize(("path", "asked"), FORCED)
async def test_forced_tools_may_be_offered_plainly(
    store: Store, engine: FakeEngine, path: str, asked: dict[str, Any]
) -> None:
    async with serving(store, engine, settings=ProxySettings(port=0, forced_tools="plain")) as proxy:
        answer = await ask(proxy, path, **asked)
        sent, call = engine.requests[0], await proxy.call()
    assert (sent["tool_choice"], sent["tools"][0]["function"]["name"]) == ("auto", "find")
    assert (answer.headers["x-hone-plainly"], call["response"]["offered_plainly"]) == (
        "tool_choice",
        ["tool_choice"],
    )
    assert (call["sampling"]["distorting"], call["choices"][0]["trainable"]) == ((), True)
    assert call["request"]["tool_choice"] == asked["tool_choice"]  # recorded as the client sent it


@pytest.mark.parametrize(("path", "asked"), FORCED)
async def test_forced_tools_are_forced_where_nothing_else_is_set(
    proxy: Proxy, engine: FakeEngine, path: str, asked: dict[str, Any]
) -> None:
    answer = await ask(proxy, path, **asked)
    assert engine.requests[0]["tool_choice"] in ("required", NAMED)
    assert "x-hone-plainly" not in answer.headers
    assert (await proxy.call())["choices"][0]["trainable"] is False


@pytest.mark.parametrize("choice", ["auto", "none"])
async def test_a_choice_that_forces_nothing_stays(store: Store, engine: FakeEngine, choice: str) -> None:
    async with serving(store, engine, settings=ProxySettings(port=0, forced_tools="plain")) as proxy:
        answer = await ask(proxy, "chat/completions", tools=[FIND], tool_choice=choice)
    assert engine.requests[0]["tool_choice"] == choice
    assert "x-hone-plainly" not in answer.headers


async def test_a_forced_choice_of_strict_tools_names_both(store: Store, engine: FakeEngine) -> None:
    strict = {"type": "function", "function": {"name": "find", "strict": True}}
    settings = ProxySettings(port=0, forced_tools="plain", strict_tools="plain")
    async with serving(store, engine, settings=settings) as proxy:
        answer = await ask(proxy, "chat/completions", tools=[strict], tool_choice="required")
        assert answer.headers["x-hone-plainly"] == "tool_choice, strict_tools"
        assert "strict" not in engine.requests[0]["tools"][0]["function"]
        assert (await proxy.call())["choices"][0]["trainable"] is True


async def test_strict_tools_stay_a_reason_where_only_the_choice_is_free(store: Store, engine: FakeEngine) -> None:
    strict = {"type": "function", "function": {"name": "find", "strict": True}}
    async with serving(store, engine, settings=ProxySettings(port=0, forced_tools="plain")) as proxy:
        await ask(proxy, "chat/completions", tools=[strict], tool_choice="required")
        assert (await proxy.call())["sampling"]["distorting"] == ("strict_tools",)


# --- sampling


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", BODIES)
async def test_an_alias_gives_its_own_sampling(store: Store, engine: FakeEngine, path: str, stream: bool) -> None:
    async with serving(store, engine, settings=WITHOUT_PAGES, overrides={ALIAS: FREE}) as proxy:
        answer = await ask(proxy, path, stream=stream, **GREEDY)
        call = await proxy.call()
    assert engine.requests[0].items() >= FREE.items()
    assert call["response"]["sampling_override"] == {"temperature": 0.7, "top_p": 1.0}
    assert answer.headers["x-hone-sampling"] == "temperature=0.7, top_p=1"
    assert (call["sampling"]["temperature"], call["sampling"]["top_p"]) == (0.7, 1.0)
    assert call["request"].items() >= GREEDY.items()  # recorded as the client sent it
    assert call["choices"][0]["trainable"] is True


@pytest.mark.parametrize("path", BODIES)
async def test_what_is_measured_is_sampled_as_it_was_asked(store: Store, engine: FakeEngine, path: str) -> None:
    async with serving(store, engine, settings=WITHOUT_PAGES, overrides={ALIAS: FREE}) as proxy:
        answer = await ask(proxy, path, {"x-hone-purpose": "eval"}, **GREEDY)
        assert engine.requests[0].items() >= GREEDY.items()
        assert "x-hone-sampling" not in answer.headers
        assert "sampling_override" not in (await proxy.call())["response"]


async def test_other_aliases_and_equal_values_are_not_told(store: Store, engine: FakeEngine) -> None:
    async with serving(store, engine, settings=WITHOUT_PAGES, overrides={"another": FREE}) as proxy:
        assert "x-hone-sampling" not in (await ask(proxy, "chat/completions", **GREEDY)).headers
    async with serving(store, engine, settings=WITHOUT_PAGES, overrides={ALIAS: FREE}) as proxy:
        assert "x-hone-sampling" not in (await ask(proxy, "chat/completions", temperature=0.7)).headers


async def test_values_that_a_client_left_to_the_engine_are_replaced_too(store: Store, engine: FakeEngine) -> None:
    settings = ProxySettings(port=0, defaults="engine")
    every = FREE | {"min_p": 0.0, "frequency_penalty": 0.0, "repetition_penalty": 1.0}
    async with serving(store, engine, settings=settings, overrides={ALIAS: every}) as proxy:
        answer = await ask(proxy, "chat/completions")
        assert "temperature=0.7" in answer.headers["x-hone-sampling"]
        assert (await proxy.call())["choices"][0]["trainable"] is True


# --- who would need it


@pytest.mark.parametrize("path", BODIES)
async def test_an_agent_that_cannot_be_learned_from_is_told_by_its_name(proxy: Proxy, path: str) -> None:
    await ask(proxy, path, {"user-agent": "aider/0.86 litellm/1.75"}, **GREEDY)
    [found] = await find_untrainable_clients(Project(proxy.store, PROJECT))
    assert (found.client, found.alias, found.why()) == ("aider", ALIAS, "temperature_below_0.1, top_p")
    assert (await proxy.call())["response"]["client"] == "aider"
