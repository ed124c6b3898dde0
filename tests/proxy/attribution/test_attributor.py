"""Whose call is this: addresses, keys, headers, ids that come back, and conversations that do."""

from __future__ import annotations

from typing import Any

import pytest

from recorder.store.database import Store
from tests.proxy.fake_engine import FakeEngine, Script, tool_call, words
from tests.proxy.running import WITHOUT_PAGES, Proxy, say, serving

pytestmark = pytest.mark.slow

SAID = "It arrives on Monday"


@pytest.fixture
async def engine() -> Any:
    async with FakeEngine() as running:
        running.default = Script([words(SAID)])
        yield running


@pytest.fixture
async def proxy(store: Store, engine: FakeEngine) -> Any:
    async with serving(store, engine, settings=WITHOUT_PAGES) as running:
        yield running


def attribution(call: dict[str, Any]) -> tuple[str, str]:
    return call["attribution"]["source"], call["attribution"]["confidence"]


async def test_a_path_names_the_run_and_its_calls_go_on_from_each_other(proxy: Proxy) -> None:
    await proxy.chat("Where?", path="/g/orders/t/one")
    await proxy.chat("Where?", SAID, "And now?", path="/g/orders/t/one")
    first, second = await proxy.calls()
    assert attribution(second) == ("path", "stated")
    assert first["trajectory_id"] == second["trajectory_id"]
    assert (first["parent_call_id"], second["parent_call_id"]) == (None, first["call_id"])
    prefix = [*first["prompt_token_ids"], *first["choices"][0]["token_ids"]]
    assert second["prompt_token_ids"][: len(prefix)] == prefix


async def test_the_same_id_in_two_groups_is_two_runs(proxy: Proxy) -> None:
    for path in ("/g/a/t/1", "/g/b/t/1", "/t/1", "/t/1"):
        await proxy.chat(path=path)
    calls = await proxy.calls()
    assert len({call["trajectory_id"] for call in calls}) == 3
    assert calls[2]["trajectory_id"] == calls[3]["trajectory_id"]


async def test_headers_name_a_run(proxy: Proxy) -> None:
    headers = {"x-hone-trajectory": "one", "x-hone-group": "orders", "x-hone-purpose": "val", "x-hone-turn": "aux"}
    await proxy.chat(headers=headers)
    await proxy.chat(path="/g/orders/t/one")
    first, second = await proxy.calls()
    assert attribution(first) == ("header", "stated")
    assert (first["purpose"], first["turn_kind"], first["choices"][0]["trainable"]) == ("val", "aux", False)
    assert first["trajectory_id"] == second["trajectory_id"]
    assert first["trajectory_external_id"] == "one"


async def test_a_group_alone_gets_a_new_member_and_keeps_its_conversation(proxy: Proxy) -> None:
    headers = {"x-hone-group": "orders"}
    await proxy.chat("Where?", headers=headers)
    await proxy.chat("Where?", headers=headers)
    await proxy.chat("Where?", SAID + " really", "So?", headers=headers)
    calls = await proxy.calls()
    assert len({call["trajectory_id"] for call in calls}) == 3
    assert len({call["group_id"] for call in calls}) == 1
    assert attribution(calls[0]) == ("header", "stated")


async def test_a_key_that_was_minted_for_a_run_names_it(proxy: Proxy) -> None:
    minted = (await proxy.http.post("/hone/v1/trajectories", json={"group": "orders"})).json()
    for _ in range(2):
        await proxy.chat(headers={"authorization": f"Bearer {minted['api_key']}"})
    calls = await proxy.calls()
    assert [attribution(call) for call in calls] == [("key", "stated")] * 2
    assert {call["trajectory_external_id"] for call in calls} == {minted["trajectory"]}
    path = minted["base_url"].removeprefix(proxy.url).removesuffix("/v1")
    await proxy.chat(path=path)
    assert (await proxy.calls())[-1]["trajectory_id"] == calls[0]["trajectory_id"]


async def test_tool_call_ids_that_we_issued_name_the_run(proxy: Proxy, engine: FakeEngine) -> None:
    engine.next = [Script([tool_call("find_order", {"id": n}, f"chatcmpl-tool-{n}{n}{n}")]) for n in (1, 2)]
    asked = [say("Where?"), say("Where?")]
    for body in asked:
        answer = (await proxy.http.post("/v1/chat/completions", json=body)).json()
        body["messages"] += [
            answer["choices"][0]["message"],
            {"role": "tool", "tool_call_id": answer["choices"][0]["message"]["tool_calls"][0]["id"], "content": "sent"},
        ]
    for body in reversed(asked):
        await proxy.http.post("/v1/chat/completions", json=body)
    first, second, third, fourth = await proxy.calls()
    assert [attribution(c) for c in (first, second)] == [("new", "new")] * 2
    assert [attribution(c) for c in (third, fourth)] == [("tool_call_id", "exact")] * 2
    assert (third["trajectory_id"], third["parent_call_id"]) == (second["trajectory_id"], second["call_id"])
    assert (fourth["trajectory_id"], fourth["parent_call_id"]) == (first["trajectory_id"], first["call_id"])
    assert third["choices"][0]["trainable"] is True


@pytest.mark.parametrize("echo", [SAID, [{"type": "text", "text": SAID}]])
async def test_a_conversation_that_ends_in_our_turn_names_the_run(proxy: Proxy, echo: Any) -> None:
    await proxy.chat("Where?")
    body = say("Where?", "", "And now?")
    body["messages"][1] = {"role": "assistant", "content": echo, "tool_calls": None, "refusal": None}
    await proxy.http.post("/v1/chat/completions", json=body)
    first, second = await proxy.calls()
    assert attribution(second) == ("lineage", "exact")
    assert (second["trajectory_id"], second["parent_call_id"]) == (first["trajectory_id"], first["call_id"])


async def test_identical_runs_stay_two_and_what_could_be_either_is_not_trained(proxy: Proxy) -> None:
    await proxy.chat("Where?")
    await proxy.chat("Where?")
    await proxy.chat("Where?", SAID, "And now?")
    first, second, third = await proxy.calls()
    assert first["trajectory_id"] != second["trajectory_id"]
    assert first["group_id"] == second["group_id"]
    assert attribution(third) == ("lineage", "ambiguous")
    assert third["choices"][0]["trainable"] is False


async def test_a_retry_of_an_sdk_is_the_same_turn(proxy: Proxy, engine: FakeEngine) -> None:
    engine.next = [Script(hang_up=True)] * 2  # the proxy itself asks a second time
    assert (await proxy.chat("Where?")).status_code == 502
    assert (await proxy.chat("Where?", headers={"x-stainless-retry-count": "1"})).status_code == 200
    first, second = await proxy.calls()
    assert attribution(second) == ("retry", "exact")
    assert first["trajectory_id"] == second["trajectory_id"]


@pytest.mark.parametrize(
    ("headers", "body", "source"),
    [
        ({"X-Session-Id": "../a b"}, {}, "session_header"),
        ({"Helicone-Session-Id": "7"}, {}, "session_header"),
        ({}, {"metadata": {"thread_id": "7"}}, "metadata"),
    ],
)
async def test_a_session_that_is_named_keeps_equal_runs_apart(
    proxy: Proxy, headers: dict[str, str], body: dict[str, Any], source: str
) -> None:
    await proxy.chat("Where?")
    await proxy.chat("Where?", headers=headers, **body)
    await proxy.chat("Where?", SAID, "And now?", headers=headers, **body)
    await proxy.chat("Where?", headers=headers, **body)
    _, first, second, third = await proxy.calls()
    assert [attribution(call) for call in (first, second, third)] == [(source, "stated")] * 3
    assert (second["trajectory_id"], second["parent_call_id"]) == (first["trajectory_id"], first["call_id"])
    assert third["trajectory_id"] != first["trajectory_id"]  # another task of the same session
    assert second["choices"][0]["trainable"] is True
    assert first["trajectory_external_id"] is None


async def test_a_path_is_stronger_than_a_session(proxy: Proxy) -> None:
    for path in ("/t/x", "/t/y"):
        await proxy.chat(path=path, headers={"X-Session-Id": "x"})
    await proxy.chat(headers={"X-Session-Id": "x"})
    calls = await proxy.calls()
    assert [attribution(call)[0] for call in calls] == ["path", "path", "session_header"]
    assert len({call["trajectory_id"] for call in calls}) == 3


async def test_a_cache_key_tells_equal_runs_apart(proxy: Proxy) -> None:
    for key in ("a", "b"):
        await proxy.chat("Where?", prompt_cache_key=key)
    await proxy.chat("Where?", SAID, "And now?", prompt_cache_key="a")
    first, _, third = await proxy.calls()
    assert attribution(first) == ("new", "new")
    assert attribution(third) == ("prompt_cache_key", "exact")
    assert third["trajectory_id"] == first["trajectory_id"]


async def test_a_trace_alone_is_a_hint_and_never_trained(proxy: Proxy) -> None:
    headers = {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}
    await proxy.chat("Where?", headers=headers)
    await proxy.chat("Where exactly?", SAID + " (edited)", "And now?", headers=headers)
    first, second = await proxy.calls()
    assert attribution(first) == ("new", "new")
    assert attribution(second) == ("trace", "hint")
    assert second["trajectory_id"] == first["trajectory_id"]
    assert [call["choices"][0]["trainable"] for call in (first, second)] == [True, False]
    await proxy.chat("Where exactly?", SAID + " (edited)", "And now?", SAID, "So?", headers=headers)
    assert attribution((await proxy.calls())[-1]) == ("lineage", "hint")  # what goes on from a hint is no surer


async def test_a_trace_of_several_runs_tells_nothing(proxy: Proxy) -> None:
    headers = {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}
    for question in ("Where?", "When?"):
        await proxy.chat(question, headers=headers)
    await proxy.chat("Where exactly?", SAID + " (edited)", "And now?", headers=headers)
    assert attribution((await proxy.calls())[-1]) == ("new", "new")


async def test_a_trace_chooses_among_runs_that_are_equal_so_far_and_makes_none_sure(proxy: Proxy) -> None:
    traces = [{"traceparent": f"00-{number:032x}-00f067aa0ba902b7-01"} for number in (1, 2)]
    for headers in traces:
        await proxy.chat("Where?", headers=headers)
    await proxy.chat("Where?", SAID, "And now?", headers=traces[0])
    first, _, third = await proxy.calls()
    assert attribution(third) == ("trace", "ambiguous")
    assert third["trajectory_id"] == first["trajectory_id"]


async def test_a_sub_agent_of_a_coding_agent_is_marked(proxy: Proxy) -> None:
    session = {"X-Claude-Code-Session-Id": "5d1f"}
    await proxy.chat("Do it", headers=session)
    await proxy.chat("A part of it", headers=session | {"X-Claude-Code-Agent-Id": "a1"})
    first, second = await proxy.calls()
    assert first["trajectory_id"] == second["trajectory_id"]
    assert (first["turn_kind"], second["turn_kind"]) == ("main", "sub")
    assert second["choices"][0]["trainable"] is True


async def test_a_turn_that_says_done_ends_its_run(proxy: Proxy) -> None:
    await proxy.chat(path="/t/one", headers={"x-hone-done": "true"})
    await proxy.chat(path="/t/one")
    first, second = await proxy.calls()
    assert first["trajectory_id"] != second["trajectory_id"]
    shown = (await proxy.http.get(f"/hone/v1/trajectories/{second['trajectory_id']}")).json()
    assert shown["continues"] == first["trajectory_id"]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/t/%2e%2e/v1/chat/completions", 400),
        ("/t/a%2Fb/v1/chat/completions", 400),
        ("/g/a/v1/chat/completions", 400),
        ("/t/a/v1/nothing", 404),
    ],
)
async def test_addresses_that_are_none_are_refused_in_the_callers_format(proxy: Proxy, path: str, status: int) -> None:
    answer = await proxy.http.post(path, json=say())
    assert answer.status_code == status
    assert answer.json()["error"].keys() == {"message", "type", "param", "code"}
    assert await proxy.calls() == []


async def test_dots_in_a_path_are_refused_before_anything_resolves_them(proxy: Proxy, engine: FakeEngine) -> None:
    import asyncio

    reader, writer = await asyncio.open_connection("127.0.0.1", int(proxy.url.rpartition(":")[2]))
    for path in ("/t/../v1/chat/completions", "/t/x/../../v1/models", "/v1/./models"):
        writer.write(f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400")
        length = next(
            int(line[15:]) for line in head.decode().lower().split("\r\n") if line.startswith("content-length")
        )
        assert b'"error"' in await reader.readexactly(length)
    writer.close()
    await writer.wait_closed()
    assert engine.requests == []
