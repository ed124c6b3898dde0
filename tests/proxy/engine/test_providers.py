"""Other providers' models through the whole proxy: served, recorded as text, judged and exported, never trained."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from examples.running.programs import free_ports
from proxy.engine.providers import Provider, Providers
from proxy.errors import ConfigError
from proxy.settings.loader import load_settings
from proxy.settings.sections import ModelSettings, ProxySettings
from proxy.supervision.serve import run
from recorder.maintenance.export import openai_lines
from recorder.queue.claims import claim_for_judging, claim_for_training
from recorder.queue.groups import lookup
from recorder.store import ledger
from recorder.store.database import Project, Store
from recorder.views.trajectories.transcripts import load_group
from tests.proxy.fake_engine import FakeEngine, Script, words
from tests.proxy.provider_server import KEY, ProviderServer, provider_server
from tests.proxy.running import ALIAS, NO_TLS, PROJECT, Proxy, say, serving

# LiteLLM reads what pydantic deprecated; an error out of that would be taken for one of the provider's.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:Accessing the 'model_:DeprecationWarning")]

TODAY, CLAUDE, IMPATIENT = "gpt-today", "claude-today", "impatient"
FIND = {"type": "function", "function": {"name": "find_order", "parameters": {"type": "object"}}}


@pytest.fixture
async def provider() -> AsyncIterator[ProviderServer]:
    async with provider_server() as running:
        yield running


@pytest.fixture
async def engine() -> AsyncIterator[FakeEngine]:
    async with FakeEngine() as running:
        running.default = Script([words("The engine says so")])
        yield running


@pytest.fixture
async def proxy(store: Store, engine: FakeEngine, provider: ProviderServer) -> AsyncIterator[Proxy]:
    openai = ModelSettings(
        name=TODAY, model="openai/gpt-4o", api_base=f"{provider.url}/v1", api_key=SecretStr(KEY), timeout_s=10
    )
    models = [
        openai,
        openai.model_copy(update={"name": IMPATIENT, "timeout_s": 0.3}),
        ModelSettings(
            name=CLAUDE,
            model="anthropic/claude-sonnet-4-5",
            api_base=provider.url,
            api_key=SecretStr(KEY),
            timeout_s=10,
        ),
    ]
    settings = ProxySettings(port=0, models=models)
    async with serving(store, engine, settings=settings, fallbacks={ALIAS: TODAY}) as running:
        yield running


async def ask(proxy: Proxy, *texts: str, model: str = TODAY, **more: Any) -> httpx.Response:
    return await proxy.chat(*texts, model=model, **more)


def merged(events: list[dict[str, Any]]) -> str:
    assert all("choices" in event for event in events), events
    return "".join(c["delta"].get("content") or "" for event in events for c in event["choices"])


# --- served and recorded


async def test_a_providers_model_is_served_under_our_name_and_recorded_as_text(
    proxy: Proxy, provider: ProviderServer
) -> None:
    answer = await ask(proxy, "Where is 4821?", path="/t/one", headers={"x-hone-group": "g"})
    body = answer.json()
    assert answer.status_code == 200, answer.text
    assert (body["model"], body["choices"][0]["message"]["content"]) == (TODAY, "It arrives on Monday")
    assert body["usage"] == {"prompt_tokens": 11, "completion_tokens": 4, "total_tokens": 15}
    assert "x-hone-version" not in answer.headers
    assert "x-hone-fallback" not in answer.headers
    call = await proxy.call()
    assert answer.headers["x-hone-call"] == call["call_id"]
    assert (call["model"], call["version"], call["status"]) == (TODAY, None, "complete")
    assert call["prompt_token_ids"] is None
    assert call["choices"] == [{"token_ids": None, "logprobs": None, "finish_reason": "stop", "trainable": False}]
    said = call["response"]
    assert (said["provider"], said["provider_model"], "fallback" in said) == ("openai", "openai/gpt-4o", False)
    assert said["cost_usd"] == pytest.approx(11 * 2.5e-6 + 4 * 1e-5)
    assert said["choices"][0]["message"]["content"] == "It arrives on Monday"


async def test_a_stream_comes_event_by_event_with_what_was_asked_for(proxy: Proxy, provider: ProviderServer) -> None:
    events = await proxy.events("Where?", model=TODAY)
    assert merged(events) == "It arrives on Monday"
    assert [c["finish_reason"] for e in events for c in e["choices"]][-1] == "stop"
    assert not [event for event in events if event.get("usage")]
    with_usage = await proxy.events("Where?", model=TODAY, stream_options={"include_usage": True})
    assert with_usage[-1]["usage"]["total_tokens"] == 15
    assert with_usage[-1]["choices"] == []
    assert {event["model"] for event in events + with_usage} == {TODAY}
    first, second = await proxy.calls()
    assert first["usage"]["completion_tokens"] == second["usage"]["completion_tokens"] == 4
    assert first["timings"]["first_token_s"] is not None
    assert first["response"]["choices"][0]["message"]["content"] == "It arrives on Monday"
    assert first["response"]["cost_usd"] > 0


@pytest.mark.parametrize("stream", [False, True])
async def test_tool_calls_come_back_to_their_run(proxy: Proxy, provider: ProviderServer, stream: bool) -> None:
    provider.mode = "tool"
    if stream:
        events = await proxy.events("Where?", model=TODAY, tools=[FIND])
        parts = [p for e in events for c in e["choices"] for p in c["delta"].get("tool_calls") or ()]
        call = {"id": parts[0]["id"], "type": "function", "function": {"name": "find_order", "arguments": ""}}
        call["function"] |= {"arguments": "".join(p["function"].get("arguments") or "" for p in parts)}
        assert events[-1]["choices"][0]["finish_reason"] == "tool_calls"
    else:
        [call] = (await ask(proxy, "Where?", tools=[FIND])).json()["choices"][0]["message"]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"id": 1}
    assert provider.requests[0]["tools"] == [FIND]
    provider.mode = "ok"
    history = [
        {"role": "user", "content": "Where?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": "Monday"},
    ]
    await proxy.http.post("/v1/chat/completions", json={"model": TODAY, "messages": history, "tools": [FIND]})
    first, second = await proxy.calls()
    assert (second["parent_call_id"], second["trajectory_id"]) == (first["call_id"], first["trajectory_id"])
    assert second["attribution"]["source"] == "tool_call_id"


@pytest.mark.parametrize("stream", [False, True])
async def test_another_protocol_is_translated(proxy: Proxy, provider: ProviderServer, stream: bool) -> None:
    if stream:
        said = merged(await proxy.events("Where?", model=CLAUDE, max_tokens=50))
    else:
        said = (await ask(proxy, "Where?", model=CLAUDE, max_tokens=50)).json()["choices"][0]["message"]["content"]
    assert said == "It arrives"
    assert provider.headers[0]["x-api-key"] == KEY
    assert provider.requests[0]["max_tokens"] == 50
    assert "temperature" not in provider.requests[0]
    call = await proxy.call()
    assert (call["response"]["provider"], call["usage"]["completion_tokens"]) == ("anthropic", 4)


async def test_a_provider_is_sent_what_the_client_sent_and_nothing_of_ours(
    proxy: Proxy, provider: ProviderServer
) -> None:
    await ask(proxy, "Where?", top_p=1.0, metadata={"session_id": "s"}, seed=7)
    [body] = provider.requests
    assert body == {"model": "gpt-4o", "messages": [{"role": "user", "content": "Where?"}], "top_p": 1.0, "seed": 7}
    assert provider.headers[0]["authorization"] == f"Bearer {KEY}"
    assert (await proxy.call())["request"]["metadata"] == {"session_id": "s"}


async def test_what_no_provider_takes_is_refused_by_name_and_not_dropped(
    proxy: Proxy, provider: ProviderServer
) -> None:
    for field, value in (("return_token_ids", True), ("mock_response", "hi"), ("api_base", "http://evil")):
        asked: dict[str, Any] = {field: value}
        answer = await ask(proxy, "Where?", **asked)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, field)
    several = await ask(proxy, "Where?", n=2, stream=True)
    assert (several.status_code, several.json()["error"]["param"]) == (400, "n")
    unsupported = await ask(proxy, "Where?", model=CLAUDE, logit_bias={"5": 1})
    assert unsupported.status_code == 400
    assert "logit_bias" in unsupported.json()["error"]["message"]
    assert provider.requests == []


async def test_several_choices_are_all_recorded(proxy: Proxy) -> None:
    assert len((await ask(proxy, "Where?", n=2)).json()["choices"]) == 2
    assert [c["finish_reason"] for c in (await proxy.call())["choices"]] == ["stop", "stop"]


async def test_the_names_are_listed(proxy: Proxy) -> None:
    names = [card["id"] for card in (await proxy.http.get("/v1/models")).json()["data"]]
    assert names[0] == ALIAS
    assert {TODAY, CLAUDE} <= set(names)
    assert (await proxy.http.get(f"/v1/models/{TODAY}")).json()["id"] == TODAY


# --- what goes wrong


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("status", [400, 401, 404, 429, 500, 529])
async def test_a_providers_refusal_keeps_its_status_and_loses_our_key(
    proxy: Proxy, provider: ProviderServer, status: int, stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    provider.mode = str(status)
    answer = await ask(proxy, "Where?", stream=stream)
    assert answer.status_code == status, answer.text
    assert "no, not with ***" in answer.json()["error"]["message"]
    assert answer.headers["retry-after"] == "7"
    call = await proxy.call()
    assert (call["status"], call["response"]["http_status"]) == ("errored", status)
    assert KEY not in answer.text + json.dumps(call) + caplog.text


@pytest.mark.parametrize("stream", [False, True])
async def test_a_provider_that_hangs_is_given_up(proxy: Proxy, provider: ProviderServer, stream: bool) -> None:
    provider.mode = "hang"
    answer = await ask(proxy, "Where?", model=IMPATIENT, stream=stream)
    if stream:
        assert "broke off" in answer.text
        assert "[DONE]" in answer.text
    else:
        assert (answer.status_code, "sent nothing for 0.3 s" in answer.text) == (502, True)
    await asyncio.wait_for(provider.given_up.wait(), 10)
    assert (await proxy.call())["status"] == "errored"


@pytest.mark.parametrize("mode", ["cut", "end", "fault"])
async def test_a_stream_that_ends_early_is_never_taken_for_finished(
    proxy: Proxy, provider: ProviderServer, mode: str
) -> None:
    provider.mode = mode
    answer = await ask(proxy, "Where?", stream=True)
    assert "It arrives" in answer.text
    assert "broke off" in answer.text
    assert '"finish_reason":"stop"' not in answer.text
    call = await proxy.call()
    assert (call["status"], call["choices"][0]["finish_reason"]) == ("errored", None)


async def test_a_provider_that_is_not_there_is_told(store: Store, engine: FakeEngine, provider: ProviderServer) -> None:
    model = ModelSettings(name=TODAY, model="openai/gpt-4o", api_base="http://127.0.0.1:1/v1")
    async with serving(store, engine, settings=ProxySettings(port=0, models=[model])) as proxy:
        answer = await ask(proxy, "Where?")
        assert (answer.status_code, answer.json()["error"]["code"]) == (502, "provider_error")


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_goes_takes_its_request_with_it(
    proxy: Proxy, provider: ProviderServer, stream: bool
) -> None:
    provider.mode = "hang"
    body = say("Where?", model=TODAY, stream=stream)
    asking = asyncio.ensure_future(proxy.http.post("/v1/chat/completions", json=body))
    await provider.arrived.wait()
    asking.cancel()
    await asyncio.wait_for(provider.given_up.wait(), 10)
    while (calls := await proxy.calls()) == [] or calls[0]["status"] == "open":
        await asyncio.sleep(0.01)
    assert calls[0]["status"] == "aborted"


# --- in the engine's place


@pytest.mark.parametrize("stream", [False, True])
async def test_a_fallback_answers_while_the_engine_is_down_and_is_stamped(
    proxy: Proxy, engine: FakeEngine, provider: ProviderServer, stream: bool
) -> None:
    await engine.stop()
    answer = await proxy.chat("Where?", stream=stream, path="/t/one")
    assert answer.status_code == 200, answer.text
    assert "on Monday" in answer.text
    assert answer.headers["x-hone-fallback"] == TODAY
    assert "x-hone-version" not in answer.headers
    call = await proxy.call()
    assert (call["model"], call["version"], call["status"]) == (ALIAS, None, "complete")
    assert call["response"]["fallback"] is True
    assert "cannot be reached" in call["response"]["fallback_reason"]
    assert call["choices"][0]["trainable"] is False
    assert await proxy.metric("hone_fallbacks_total") == 1


@pytest.mark.parametrize(
    "script",
    [
        Script(status=500, error={"message": "broken"}),
        Script(status=503, error="not ready"),
        Script(hang_up=True),
        Script(body=b"no completion"),
    ],
    ids=["500", "503", "hangs up", "nonsense"],
)
async def test_a_fallback_answers_for_an_engine_that_fails_before_a_byte_was_sent(
    proxy: Proxy, engine: FakeEngine, script: Script
) -> None:
    engine.default = script
    answer = await proxy.chat("Where?")
    assert (answer.status_code, answer.headers.get("x-hone-fallback")) == (200, TODAY)


async def test_a_fallback_answers_where_no_engine_holds_the_version(proxy: Proxy, store: Store) -> None:
    from recorder.registry.replicas import forget_replica

    await forget_replica(Project(store, PROJECT), proxy.versions.snapshot.replicas[0].url)
    await proxy.versions.refresh()
    assert (await proxy.chat("Where?", path="/g/a/t/1")).headers["x-hone-fallback"] == TODAY
    call = await proxy.call()
    assert (call["attribution"]["source"], call["trajectory_external_id"]) == ("path", "1")
    pinned = await proxy.chat("Where?", model=f"{ALIAS}@0")
    assert pinned.status_code == 503
    measured = await proxy.chat("Where?", headers={"x-hone-purpose": "val"})
    assert measured.status_code == 503


async def test_no_fallback_for_a_request_at_fault_or_an_answer_that_had_begun(
    proxy: Proxy, engine: FakeEngine, provider: ProviderServer
) -> None:
    engine.next = [Script(status=400, error={"message": "too long"})]
    assert (await proxy.chat("Where?")).status_code == 400
    engine.next = [Script([words("The engine says so")], after_events=2)]
    broken = await proxy.chat("Where?", stream=True)
    assert "engine_broke" in broken.text
    assert provider.requests == []


async def test_a_fallback_that_fails_too_leaves_the_engines_error(
    proxy: Proxy, engine: FakeEngine, provider: ProviderServer
) -> None:
    await engine.stop()
    provider.mode = "401"
    answer = await proxy.chat("Where?")
    assert answer.status_code == 503
    assert "cannot be reached" in answer.json()["error"]["message"]
    assert KEY not in answer.text


async def test_without_a_fallback_nothing_changes(store: Store, engine: FakeEngine, provider: ProviderServer) -> None:
    async with serving(store, engine) as proxy:
        await engine.stop()
        assert (await proxy.chat("Where?")).status_code == 503


# --- judged, exported, never trained


async def test_a_group_of_text_is_judged_and_exported_and_its_ledger_says_why_it_is_not_trained(
    proxy: Proxy, store: Store
) -> None:
    for name in ("1", "2"):
        await ask(proxy, "Where?", path=f"/g/a/t/{name}", headers={"x-hone-done": "true", "x-hone-group-size": "2"})
    claim = await claim_for_judging(Project(store, PROJECT), "judge", 60)
    assert claim is not None
    view = await load_group(store, claim.group_id, with_tokens=True)
    assert [m.messages[-1]["content"] for m in view.members] == ["It arrives on Monday"] * 2
    assert [(c.trainable, c.untrainable_reason) for m in view.members for c in m.calls[0].choices] == [
        (False, "token_ids_missing")
    ] * 2
    for kind, ids in (("group", [view.id]), ("trajectory", [m.id for m in view.members])):
        for id_ in ids:
            assert [entry.code for entry in await ledger.object_entries(store, kind, id_)] == ["token_ids_missing"]
    assert len([line async for line in openai_lines(Project(store, PROJECT))]) == 2
    assert await lookup.count_groups(store, proxy.alias.id) == {}  # nothing that a learner waits for
    assert await claim_for_training(store, proxy.alias.id, "trainer", 60, limit=9) == []


async def test_runs_of_two_models_on_one_task_are_two_groups(proxy: Proxy) -> None:
    await ask(proxy, "Where?")
    await ask(proxy, "Where?", model=IMPATIENT)
    await ask(proxy, "Where?")
    by_model: dict[str, set[str]] = {}
    for call in await proxy.calls():
        by_model.setdefault(call["model"], set()).add(call["group_id"])
    assert [len(found) for found in by_model.values()] == [1, 1]
    assert by_model[TODAY] != by_model[IMPATIENT]


async def test_a_run_may_go_on_with_the_engine_after_a_fallback(
    proxy: Proxy, engine: FakeEngine, provider: ProviderServer
) -> None:
    engine.next = [Script(status=503, error="not ready")]
    await proxy.chat("Where?", path="/t/one")
    answer = await proxy.chat("Where?", "It arrives on Monday", "Sure?", path="/t/one")
    assert answer.json()["choices"][0]["message"]["content"] == "The engine says so"
    first, second = await proxy.calls()
    assert second["parent_call_id"] == first["call_id"]
    assert (first["version"], second["version"]) == (None, f"{ALIAS}@0")
    assert [c["choices"][0]["trainable"] for c in (first, second)] == [False, True]


async def test_the_proxy_serves_without_any_engine(tmp_path: Path, provider: ProviderServer) -> None:
    model = {"name": TODAY, "model": "openai/gpt-4o", "api_base": f"{provider.url}/v1", "api_key": KEY}
    [port] = free_ports(1)
    config = tmp_path / "hone.toml"
    config.write_text("")
    settings = load_settings(config, {"proxy.models": [model], "proxy.port": port}).settings
    serving_alone = asyncio.ensure_future(run(settings))
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=20, verify=NO_TLS) as http:
            asking = asyncio.ensure_future(_once_it_listens(http))
            await asyncio.wait({asking, serving_alone}, return_when=asyncio.FIRST_COMPLETED)
            assert (await asking).status_code == 200
    finally:
        serving_alone.cancel()
        await asyncio.gather(serving_alone, return_exceptions=True)


async def _once_it_listens(http: httpx.AsyncClient) -> httpx.Response:
    while True:
        try:
            return await http.post("/v1/chat/completions", json=say("Where?", model=TODAY))
        except httpx.ConnectError:
            await asyncio.sleep(0.05)


async def test_a_key_that_is_not_set_is_told_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TODAYS_KEY", raising=False)
    model = ModelSettings(name=TODAY, model="openai/gpt-4o", api_key_env="TODAYS_KEY")
    with pytest.raises(ConfigError, match="TODAYS_KEY"):
        await Providers([model]).start()
    monkeypatch.setenv("TODAYS_KEY", KEY)
    assert Provider(model).key() == KEY


# --- in the other formats


@pytest.mark.parametrize("stream", [False, True])
async def test_messages_are_answered_by_a_providers_model(proxy: Proxy, provider: ProviderServer, stream: bool) -> None:
    body = {"model": TODAY, "max_tokens": 64, "stream": stream, "messages": [{"role": "user", "content": "Where?"}]}
    answer = await proxy.http.post("/v1/messages", json=body)
    assert answer.status_code == 200, answer.text
    if stream:
        events = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]
        said = "".join(e["delta"].get("text", "") for e in events if e["type"] == "content_block_delta")
        assert events[-1]["type"] == "message_stop"
    else:
        said = answer.json()["content"][0]["text"]
    assert said == "It arrives on Monday"
    assert provider.requests[0]["max_tokens"] == 64
    call = await proxy.call()
    assert (call["dialect"], call["model"], call["choices"][0]["trainable"]) == ("messages", TODAY, False)


@pytest.mark.parametrize("stream", [False, True])
async def test_responses_are_answered_by_a_providers_model_and_go_on_by_their_id(
    proxy: Proxy, provider: ProviderServer, stream: bool
) -> None:
    first = await proxy.http.post("/v1/responses", json={"model": TODAY, "input": "Where?"})
    assert first.status_code == 200, first.text
    more = {"model": TODAY, "input": "Sure?", "previous_response_id": first.json()["id"], "stream": stream}
    answer = await proxy.http.post("/v1/responses", json=more)
    assert answer.status_code == 200, answer.text
    assert "It arrives on Monday" in answer.text
    assert ("response.completed" in answer.text) is stream
    assert [message["role"] for message in provider.requests[1]["messages"]] == ["user", "assistant", "user"]
    one, two = await proxy.calls()
    assert (two["parent_call_id"], two["trajectory_id"]) == (one["call_id"], one["trajectory_id"])


async def test_completions_are_refused_since_no_provider_is_asked_for_them(
    proxy: Proxy, engine: FakeEngine, provider: ProviderServer
) -> None:
    body = {"model": TODAY, "prompt": "Where"}
    answer = await proxy.http.post("/v1/completions", json=body)
    assert (answer.status_code, "/v1/chat/completions" in answer.text) == (400, True)
    await engine.stop()
    assert (await proxy.http.post("/v1/completions", json=body | {"model": ALIAS})).status_code == 503
    assert provider.requests == []


async def test_errors_are_told_in_the_callers_format(proxy: Proxy, provider: ProviderServer) -> None:
    provider.mode = "429"
    body = {"model": TODAY, "max_tokens": 64, "messages": [{"role": "user", "content": "Where?"}]}
    answer = await proxy.http.post("/v1/messages", json=body)
    assert (answer.status_code, answer.json()["type"], answer.headers["retry-after"]) == (429, "error", "7")
