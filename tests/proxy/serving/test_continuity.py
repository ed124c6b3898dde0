"""Token continuity through the whole proxy: what the engine is sent, what is recorded, when a turn goes as it came."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.serving.prompt_splice import META
from proxy.settings.sections import ProxySettings
from recorder.capture.recorder import Recorder
from recorder.store.database import Store
from tests.proxy.fake_engine import END, FakeEngine, Said, Script, ids_of, prompt_ids, tool_call, words
from tests.proxy.running import WITHOUT_PAGES, Proxy, say, serving

pytestmark = pytest.mark.slow

THOUGHT = words("<think> let me see </think> It arrives on Monday")
FIND = {"type": "function", "function": {"name": "find_order", "parameters": {"type": "object"}}}
HISTORY = ("Where is 4821?", THOUGHT.message["content"])
ON = ProxySettings(port=0, pages=False, token_continuity="on")


@pytest.fixture
async def engine() -> Any:
    async with FakeEngine() as running:
        running.default = Script([THOUGHT])
        yield running


@pytest.fixture
async def proxy(store: Store, engine: FakeEngine) -> Any:
    async with serving(store, engine, settings=ON) as running:
        yield running


def sent(engine: FakeEngine, at: int = -1) -> list[int] | None:
    """The ids that a request brought to the engine."""
    params = engine.requests[at].get("kv_transfer_params")
    return params["prompt_token_ids"] if params else None


async def continuity_meta(proxy: Proxy, at: int = -1) -> dict[str, Any]:
    """What a recorded call says about its continuity, without what stands for the template's arguments."""
    meta = dict((await proxy.calls())[at]["response"][META])
    assert len(meta.pop("seen")) == 16
    return meta


def past_of(said: Said, *texts: str) -> list[int]:
    return prompt_ids(say(*texts)["messages"]) + said.ids()


async def test_a_turn_is_sent_with_the_exact_ids_of_its_past(proxy: Proxy, engine: FakeEngine) -> None:
    await proxy.chat("Where is 4821?", path="/t/one")
    answer = await proxy.chat(*HISTORY, "And 4822?", path="/t/one")
    assert answer.status_code == 200
    new = [*ids_of("user And 4822?"), END, *ids_of("assistant")]
    assert sent(engine, 0) is None
    assert sent(engine) == past_of(THOUGHT, "Where is 4821?") + new
    first, second = await proxy.calls()
    assert second["prompt_token_ids"] == sent(engine)
    assert await continuity_meta(proxy, 0) == {"used": False}
    assert await continuity_meta(proxy, 1) == {"used": True}
    assert first["response"][META]["seen"] == second["response"][META]["seen"]
    # without continuity the template would have dropped the thinking, and the row would have ended
    assert prompt_ids(say(*HISTORY, "And 4822?")["messages"])[: len(past_of(THOUGHT, "Where is 4821?"))] != past_of(
        THOUGHT, "Where is 4821?"
    )


async def test_a_client_sees_nothing_of_it(proxy: Proxy, engine: FakeEngine) -> None:
    plain = (await proxy.chat("Where is 4821?", path="/t/one")).json()
    answer = (await proxy.chat(*HISTORY, "And 4822?", path="/t/one")).json()
    assert answer.keys() == plain.keys()
    assert META not in answer
    assert answer.get("prompt_token_ids") is None


async def test_a_stream_goes_on_too_and_a_third_turn_from_the_second(proxy: Proxy, engine: FakeEngine) -> None:
    await proxy.events("Where is 4821?", path="/t/one")
    await proxy.events(*HISTORY, "And 4822?", path="/t/one")
    await proxy.events(*HISTORY, "And 4822?", HISTORY[1], "And 4823?", path="/t/one")
    second = sent(engine, 1)
    third = sent(engine, 2)
    assert second is not None
    assert third is not None
    assert third[: len(second) + len(THOUGHT.ids())] == second + THOUGHT.ids()
    assert await continuity_meta(proxy) == {"used": True}


async def test_tool_results_go_on_from_the_call(proxy: Proxy, engine: FakeEngine) -> None:
    called = tool_call("find_order", {"order_id": "4821"}, "chatcmpl-tool-1")
    engine.next = [Script([called])]
    await proxy.chat("Where is 4821?", tools=[FIND])
    echo = called.message["tool_calls"][0]
    respaced = echo | {"function": echo["function"] | {"arguments": '{"order_id":"4821"}'}}
    messages = [
        *say("Where is 4821?")["messages"],
        {"role": "assistant", "content": None, "tool_calls": [respaced]},
        {"role": "tool", "tool_call_id": "chatcmpl-tool-1", "content": "shipped"},
    ]
    await proxy.http.post("/v1/chat/completions", json={"model": "helpdesk", "messages": messages, "tools": [FIND]})
    past = past_of(called, "Where is 4821?")
    assert sent(engine) == [*past, *ids_of("tool shipped"), END, *ids_of("assistant")]
    call = (await proxy.calls())[-1]
    assert call["attribution"] == {"source": "tool_call_id", "confidence": "exact"}


async def test_messages_and_responses_go_on_too(proxy: Proxy, engine: FakeEngine) -> None:
    said = "It arrives on Monday"
    engine.default = Script([words(said)])
    turns = [{"role": "user", "content": "Where is 4821?"}]
    more = [*turns, {"role": "assistant", "content": said}, {"role": "user", "content": "And 4822?"}]
    for asked in (turns, more):
        body = {"model": "helpdesk", "messages": asked, "max_tokens": 50}
        (await proxy.http.post("/t/messages/v1/messages", json=body)).raise_for_status()
    past = past_of(words(said), "Where is 4821?")
    assert (sent(engine) or [])[: len(past)] == past
    first = await proxy.http.post("/v1/responses", json={"model": "helpdesk", "input": "Where is 4821?"})
    body = {"model": "helpdesk", "input": "And 4822?", "previous_response_id": first.raise_for_status().json()["id"]}
    (await proxy.http.post("/v1/responses", json=body)).raise_for_status()
    assert (sent(engine) or [])[: len(past)] == past
    assert await continuity_meta(proxy, 1) == await continuity_meta(proxy, 3) == {"used": True}


async def test_after_a_restart_the_past_comes_from_the_store(store: Store, engine: FakeEngine) -> None:
    async with serving(store, engine, settings=ON) as before:
        await before.chat("Where is 4821?", path="/t/one")
        await before.chat(*HISTORY, "And 4822?", path="/t/one")
    async with serving(store, engine, settings=ON) as after:
        await after.chat(*HISTORY, "And 4822?", HISTORY[1], "And 4823?", path="/t/one")
        assert await continuity_meta(after) == {"used": True}
    second, third = sent(engine, 1), sent(engine, 2)
    assert second is not None
    assert third is not None
    assert third[: len(second)] == second


async def test_off_sends_and_records_nothing_of_it(store: Store, engine: FakeEngine) -> None:
    async with serving(store, engine, settings=WITHOUT_PAGES) as proxy:
        await proxy.chat("Where is 4821?", path="/t/one")
        await proxy.chat(*HISTORY, "And 4822?", path="/t/one")
        assert sent(engine) is None
        assert engine.renders == []
        assert META not in (await proxy.calls())[-1]["response"]


# --- when it is sent unchanged


async def fallback(proxy: Proxy, engine: FakeEngine, *texts: str, path: str = "/t/one", **more: Any) -> str:
    """Why a second turn is sent unchanged."""
    answer = await proxy.chat(*texts, path=path, **more)
    assert answer.status_code == 200, answer.text
    assert sent(engine) is None
    meta = await continuity_meta(proxy)
    assert meta["used"] is False
    return str(meta["fallback"])


async def test_an_edited_history_is_sent_as_it_came(proxy: Proxy, engine: FakeEngine) -> None:
    await proxy.chat("Where is 4821?", path="/t/one")
    assert await fallback(proxy, engine, "Where is 4829?", HISTORY[1], "And?") == "no_parent"
    assert await fallback(proxy, engine, *HISTORY, "And?", "I never said that", "What?") == "edited_history"


async def test_a_history_edited_around_an_issued_tool_call_is_sent_as_it_came(proxy: Proxy, engine: FakeEngine) -> None:
    called = tool_call("find_order", {"order_id": "4821"}, "chatcmpl-tool-1")
    engine.next = [Script([called])]
    await proxy.chat("Where is 4821?", tools=[FIND], path="/t/one")
    messages = [
        *say("Where is my 4821?")["messages"],
        called.message,
        {"role": "tool", "tool_call_id": "chatcmpl-tool-1", "content": "shipped"},
    ]
    assert await fallback(proxy, engine, messages=messages, tools=[FIND]) == "edited_history"


@pytest.mark.parametrize(
    "more",
    [
        {"tools": [FIND]},
        {"chat_template_kwargs": {"enable_thinking": False}},
        {"reasoning_effort": "low"},
        {"some_new_field": 1},
    ],
)
async def test_other_fields_that_a_template_may_see_are_sent_as_they_came(
    proxy: Proxy, engine: FakeEngine, more: dict[str, Any]
) -> None:
    await proxy.chat("Where is 4821?", path="/t/one")
    assert await fallback(proxy, engine, *HISTORY, "And?", **more) == "other_tools"


async def test_fields_that_no_template_sees_change_nothing(proxy: Proxy, engine: FakeEngine) -> None:
    await proxy.chat("Where is 4821?", path="/t/one", temperature=0.5, max_tokens=20)
    await proxy.chat(*HISTORY, "And?", path="/t/one", seed=3, tool_choice="none", tools=[], metadata={"a": "b"})
    assert await continuity_meta(proxy) == {"used": True}


async def test_a_turn_without_an_end_is_not_gone_on_with(proxy: Proxy, engine: FakeEngine) -> None:
    cut = words("It arrives on", finish="length")
    engine.next = [Script([cut])]
    await proxy.chat("Where is 4821?", path="/t/one")
    assert await fallback(proxy, engine, "Where is 4821?", "It arrives on", "And?") == "cut_turn"


async def test_media_and_prefilled_answers_are_sent_as_they_came(proxy: Proxy, engine: FakeEngine) -> None:
    await proxy.chat("Where is 4821?", path="/t/one")
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    messages = [*say(*HISTORY)["messages"], {"role": "user", "content": [image]}]
    assert await fallback(proxy, engine, messages=messages) == "media"
    assert await fallback(proxy, engine, *HISTORY) == "prefill"


async def test_which_of_two_equal_choices_is_meant_is_not_certain(proxy: Proxy, engine: FakeEngine) -> None:
    engine.next = [Script([THOUGHT, THOUGHT])]
    await proxy.chat("Where is 4821?", path="/t/one", n=2)
    assert await fallback(proxy, engine, *HISTORY, "And?") == "ambiguous"


async def test_ambiguous_lineage_is_sent_as_it_came(proxy: Proxy, engine: FakeEngine) -> None:
    await proxy.chat("Where is 4821?")
    await proxy.chat("Where is 4821?")
    assert await fallback(proxy, engine, *HISTORY, "And?", path="") == "ambiguous"


async def test_a_parent_recorded_without_continuity_is_not_gone_on_from(store: Store, engine: FakeEngine) -> None:
    async with serving(store, engine, settings=WITHOUT_PAGES) as off:
        await off.chat("Where is 4821?", path="/t/one")
    async with serving(store, engine, settings=ON) as on:
        assert await fallback(on, engine, *HISTORY, "And?") == "not_prepared"


async def test_what_would_not_fit_is_sent_as_it_came(proxy: Proxy, engine: FakeEngine) -> None:
    await proxy.chat("Where is 4821?", path="/t/one")
    assert await fallback(proxy, engine, *HISTORY, "And?", max_tokens=4096) == "too_long"


async def test_an_engine_that_does_not_render_is_sent_the_messages(proxy: Proxy, engine: FakeEngine) -> None:
    await proxy.chat("Where is 4821?", path="/t/one")
    engine.render = lambda body: {"error": "no template"}
    assert await fallback(proxy, engine, *HISTORY, "And?") == "render_failed"


async def test_an_engine_that_renders_too_slowly_is_not_waited_for(
    proxy: Proxy, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    await proxy.chat("Where is 4821?", path="/t/one")
    monkeypatch.setattr("proxy.serving.continuity.TIMEOUT_S", 0.0)
    assert await fallback(proxy, engine, *HISTORY, "And?") == "render_failed"


async def test_where_the_new_part_begins_must_be_certain(proxy: Proxy, engine: FakeEngine) -> None:
    await proxy.chat("Where is 4821?", path="/t/one")
    # a template that puts the whole conversation behind the last message
    engine.render = lambda body: {"tokens": prompt_ids(body["messages"][::-1]), "max_model_len": 4096}
    assert await fallback(proxy, engine, *HISTORY, "And?") == "render_not_a_prefix"


async def test_an_engine_that_uses_other_ids_is_recorded_as_what_it_did(proxy: Proxy, engine: FakeEngine) -> None:
    await proxy.chat("Where is 4821?", path="/t/one")

    def ignores(body: dict[str, Any]) -> Script:
        del body["kv_transfer_params"]
        return Script([THOUGHT])

    engine.next = [ignores]
    await proxy.chat(*HISTORY, "And?", path="/t/one")
    assert await continuity_meta(proxy) == {"used": False, "fallback": "engine_rendered"}
    assert (await proxy.calls())[-1]["prompt_token_ids"] == prompt_ids(say(*HISTORY, "And?")["messages"])


async def test_an_engine_that_refuses_the_ids_is_asked_without(proxy: Proxy, engine: FakeEngine) -> None:
    await proxy.chat("Where is 4821?", path="/t/one")
    engine.next = [Script(status=400, error={"error": {"message": "what is that?", "code": 400}})]
    assert await fallback(proxy, engine, *HISTORY, "And?") == "engine_refused"
    assert sent(engine, -2) is not None


async def test_parsed_thinking_is_not_kept_where_it_would_end_the_next_turns(proxy: Proxy, engine: FakeEngine) -> None:
    parsed = words("It arrives on Monday")
    parsed.message["reasoning"] = "let me see"
    engine.next = [Script([parsed])]
    await proxy.chat("Where is 4821?", path="/t/one")
    history = ("Where is 4821?", "It arrives on Monday")
    assert await fallback(proxy, engine, *history, "And?", stream=True) == "parsed_reasoning"
    await proxy.chat(*history, "And 4823?", path="/t/one")
    assert await continuity_meta(proxy) == {"used": True, "thought": True}


async def test_parsed_thinking_is_kept_in_a_stream_where_the_parser_looks_at_the_turn_alone(
    store: Store, engine: FakeEngine
) -> None:
    parsed = words("It arrives on Monday")
    parsed.message["reasoning"] = "let me see"
    engine.next = [Script([parsed])]
    async with serving(store, engine, settings=ON, reasoning_parser="qwen3") as proxy:
        await proxy.chat("Where is 4821?", path="/t/one")
        await proxy.events("Where is 4821?", "It arrives on Monday", "And?", path="/t/one")
        assert await continuity_meta(proxy) == {"used": True, "thought": True}


async def test_edited_thinking_is_an_edited_history(proxy: Proxy, engine: FakeEngine) -> None:
    parsed = words("It arrives on Monday")
    parsed.message["reasoning"] = "let me see"
    engine.next = [Script([parsed])]
    await proxy.chat("Where is 4821?", path="/t/one")
    echo = {"role": "assistant", "content": "It arrives on Monday", "reasoning": "let me see"}
    asked = [{"role": "user", "content": "And?"}]
    edited = [*say("Where is 4821?")["messages"], echo | {"reasoning": "never mind"}, *asked]
    assert await fallback(proxy, engine, messages=edited) == "edited_history"
    await proxy.chat(messages=[*say("Where is 4821?")["messages"], echo, *asked], path="/t/one")
    assert await continuity_meta(proxy) == {"used": True, "thought": True}


async def test_a_fault_in_it_is_no_fault_of_the_call(
    proxy: Proxy, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await proxy.chat("Where is 4821?", path="/t/one")

    async def broken(*_: object) -> None:
        raise RuntimeError("lost")

    monkeypatch.setattr(Recorder, "past", broken)
    assert await fallback(proxy, engine, *HISTORY, "And?") == "error"
    assert await fallback(proxy, engine, *HISTORY, "And then?") == "error"
    assert [r.getMessage() for r in caplog.records if "continuity" in r.getMessage()] == [
        "token continuity failed, and the conversation is sent unchanged: lost"
    ]


async def test_a_client_may_still_not_send_ids(proxy: Proxy, engine: FakeEngine) -> None:
    answer = await proxy.chat("Where is 4821?", kv_transfer_params={"prompt_token_ids": [1]})
    assert answer.status_code == 400
    assert engine.requests == []
