"""A tool call that equal requests wait for finds its own when a model call brings its result back."""

from __future__ import annotations

import asyncio
import json
import random
import time
from typing import Any

import pytest
from sqlalchemy import select

from recorder.capture.recorder import Recorder
from recorder.capture.tool_calls import ToolCall, ToolCallAttribution
from recorder.ids import new_id
from recorder.messages.calls import Address, KeyAccess
from recorder.settings import RecorderSettings
from recorder.states import CallState, Confidence, ToolOutcome
from recorder.store.database import Store
from recorder.store.schema import tool_calls
from tests.recorder.talk import PROJECT, Talk, choice, tool_result, tool_turn, user

ARGUMENTS = {"a": 2, "b": 1}  # as talk.tool_turn asks `find`
QUESTION = [user("the same question")]


def text_result(text: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], **more}


async def gateway_call(recorder: Recorder, result: dict[str, Any] | None, **how: Any) -> str:
    """Call `find` through the gateway's part of the recorder; return the tool call's id."""
    stated = {name: how.pop(name) for name in ("stated", "source", "access", "group", "sessions") if name in how}
    started_at = time.time()
    joined = await recorder.tools.join(PROJECT, "find", ARGUMENTS, **stated)
    await asyncio.sleep(0)
    return await commit(recorder, joined, result, started_at=started_at, **how)


async def commit(recorder: Recorder, joined: ToolCallAttribution, result: dict[str, Any] | None, **changes: Any) -> str:
    now = time.time()
    values: dict[str, Any] = {
        "id": new_id("tool"),
        "project_id": PROJECT,
        "joined": joined,
        "server": "orders",
        "name": "find",
        "tool": "find",
        "arguments": ARGUMENTS,
        "outcome": ToolOutcome.COMPLETE,
        "result": result,
        "error": None,
        "annotations": None,
        "started_at": now,
        "finished_at": now,
    }
    call = ToolCall(**values | changes)
    await recorder.tools.commit(call)
    return call.id


async def stored(store: Store) -> dict[str, Any]:
    async with store.read() as conn:
        return {row.id: row for row in await conn.execute(select(tool_calls))}


def brought(id_: str, content: object) -> list[dict[str, Any]]:
    return [*QUESTION, tool_turn(id_), {"role": "tool", "tool_call_id": id_, "content": content}]


@pytest.mark.parametrize("results", ["different", "equal", "mixed"])
async def test_equal_attempts_at_once_each_get_their_own_calls(store: Store, recorder: Recorder, results: str) -> None:
    """Eight attempts of one group make ten rounds of the same call, through two proxies of one store."""
    others = Recorder(store, RecorderSettings())
    await others.start()
    proxies = [recorder, others]
    dice = random.Random(results)
    truth: dict[str, tuple[str, str]] = {}  # tool call → trajectory, issued id
    said: dict[str, str] = {}
    spread = {"different": 1000, "equal": 1, "mixed": 3}[results]

    async def attempt(number: int) -> None:
        messages: list[dict[str, Any]] = [*QUESTION]
        for at in range(10):
            id_ = f"call-{number}-{at}"
            made = await Talk(dice.choice(proxies)).call(messages, tool_turn(id_))
            await asyncio.sleep(dice.random() / 200)
            unique = number if spread == 1000 else dice.randrange(spread)
            text = f"round {at if results != 'equal' else 0}: stock is {unique}"
            called = await gateway_call(dice.choice(proxies), text_result(text))
            truth[called] = (made.attribution.trajectory.id, id_)
            said[called] = text
            await asyncio.sleep(dice.random() / 200)
            messages += [tool_turn(id_), tool_result(id_, text)]
        await Talk(dice.choice(proxies)).call(messages, "done")

    try:
        await asyncio.gather(*map(attempt, range(8)))
    finally:
        await others.stop()
    rows = await stored(store)
    assert len(rows) == len(truth) == 80
    assert {row.join_confidence for row in rows.values()} <= {"exact", "hint"}
    texts_of = {of: [said[one] for one, (home, _) in truth.items() if home == of] for of, _ in truth.values()}
    for of, texts in texts_of.items():  # what each trajectory's tools answered is right, whatever the order
        assert sorted(said[id_] for id_, row in rows.items() if row.trajectory_id == of) == sorted(texts)
    wrong = [id_ for id_, row in rows.items() if (row.trajectory_id, row.tool_call_id) != truth[id_]]
    assert {rows[id_].join_source for id_ in wrong} <= {"order"}
    if results == "different":
        assert wrong == []
        assert not {row.join_source for row in rows.values()} & {"order"}


async def two_attempts(talk: Talk) -> list[str]:
    made = [await talk.call(QUESTION, tool_turn(id_)) for id_ in ("id-1", "id-2")]
    return [call.attribution.trajectory.id for call in made]


async def test_the_result_says_whose_a_call_was(store: Store, recorder: Recorder, talk: Talk) -> None:
    one, two = await two_attempts(talk)
    first = await gateway_call(recorder, text_result("of the second"))
    second = await gateway_call(recorder, text_result("of the first"))
    await talk.call(brought("id-1", "of the first"), "done")
    rows = await stored(store)
    assert (rows[second].trajectory_id, rows[second].tool_call_id) == (one, "id-1")
    assert (rows[second].join_source, rows[second].join_confidence) == ("result", "exact")
    assert (rows[first].trajectory_id, rows[first].join_confidence) == (None, "ambiguous")
    await talk.call(brought("id-2", "of the second"), "done")
    rows = await stored(store)
    assert (rows[first].trajectory_id, rows[first].join_source) == (two, "tool_call_id")
    assert {(row.request_match, row.evidence) for row in rows.values()} == {(None, None)}


async def test_a_result_that_was_not_the_tools_joins_nothing(store: Store, recorder: Recorder, talk: Talk) -> None:
    """The first attempt's tool never ran, because a person refused it: the one call that waits is the second's."""
    _, two = await two_attempts(talk)
    called = await gateway_call(recorder, text_result("42 are in stock"))
    await talk.call(brought("id-1", "The user does not want to use this tool."), "done")
    assert (await stored(store))[called].trajectory_id is None
    await talk.call(brought("id-2", "42 are in stock"), "done")
    assert (await stored(store))[called].trajectory_id == two


async def test_what_no_model_call_brings_back_stays_ambiguous(store: Store, recorder: Recorder, talk: Talk) -> None:
    await two_attempts(talk)
    called = await gateway_call(recorder, text_result("1"))
    await talk.call([*QUESTION, tool_turn("id-1"), user("never mind")], "done")
    row = (await stored(store))[called]
    assert (row.trajectory_id, row.join_source, row.join_confidence) == (None, "arguments", "ambiguous")


async def test_equal_results_go_by_order_and_say_so(store: Store, recorder: Recorder, talk: Talk) -> None:
    one, two = await two_attempts(talk)
    calls = [await gateway_call(recorder, text_result("same")) for _ in range(2)]
    await talk.call(brought("id-2", "same"), "done")
    await talk.call(brought("id-1", "same"), "done")
    rows = await stored(store)
    assert [rows[id_].trajectory_id for id_ in calls] == [two, one]
    assert (rows[calls[0]].join_source, rows[calls[0]].join_confidence) == ("order", "hint")


async def test_parallel_equal_calls_of_one_answer_go_by_their_results(
    store: Store, recorder: Recorder, talk: Talk
) -> None:
    made = await talk.call(QUESTION, tool_turn("id-1", "id-2", "id-3"))
    second = await gateway_call(recorder, text_result("of id-2"))
    first = await gateway_call(recorder, text_result("of id-1"))
    third = await gateway_call(recorder, text_result("of id-3"))
    results = [tool_result(id_, f"of {id_}") for id_ in ("id-1", "id-2")]
    await talk.call([*QUESTION, tool_turn("id-1", "id-2", "id-3"), *results, tool_result("id-3", "?")], "done")
    rows = await stored(store)
    assert [rows[id_].tool_call_id for id_ in (first, second, third)] == ["id-1", "id-2", "id-3"]
    assert [rows[id_].position for id_ in (first, second, third)] == [0, 1, 2]
    assert {row.trajectory_id for row in rows.values()} == {made.attribution.trajectory.id}
    assert {(row.join_source, row.join_confidence) for row in rows.values()} == {("arguments", "exact")}


async def test_the_choice_that_the_agent_took_gets_the_call(store: Store, recorder: Recorder, talk: Talk) -> None:
    answers = [choice(tool_turn("id-1"), 0), choice(tool_turn("id-2"), 1)]
    await talk.call(QUESTION, answers)
    called = await gateway_call(recorder, text_result("found"))
    assert (await stored(store))[called].tool_call_id == "id-1"
    await talk.call(brought("id-2", "found"), "done")
    row = (await stored(store))[called]
    assert (row.choice, row.tool_call_id) == (1, "id-2")


async def test_a_late_result_finds_its_call_after_a_restart(store: Store, recorder: Recorder, talk: Talk) -> None:
    one, _ = await two_attempts(talk)
    called = await gateway_call(recorder, text_result("late"))
    later = Recorder(store, RecorderSettings())
    await later.start()
    try:
        await Talk(later).call(brought("id-1", "late"), "done")
    finally:
        await later.stop()
    assert (await stored(store))[called].trajectory_id == one


async def test_a_model_call_that_failed_brought_the_result_back_too(
    store: Store, recorder: Recorder, talk: Talk
) -> None:
    one, _ = await two_attempts(talk)
    called = await gateway_call(recorder, text_result("found"))
    failed: dict[str, Any] = {"state": CallState.ERRORED, "error": "the engine is away", "http_status": 503}
    await talk.call(brought("id-1", "found"), [], **failed)
    assert (await stored(store))[called].trajectory_id == one


async def test_a_failure_finds_its_request_by_its_words(store: Store, recorder: Recorder, talk: Talk) -> None:
    one, two = await two_attempts(talk)
    failed = await gateway_call(
        recorder, text_result("no such order", isError=True), outcome=ToolOutcome.FAILED, error="no such order"
    )
    refused = await gateway_call(recorder, None, outcome=ToolOutcome.ERRORED, error="-32602: `a` must be even")
    await talk.call(brought("id-2", "Error: no such order"), "done")
    await talk.call(brought("id-1", "MCP error -32602: `a` must be even"), "done")
    rows = await stored(store)
    assert (rows[failed].trajectory_id, rows[refused].trajectory_id) == (two, one)


async def test_a_redacted_result_is_compared_as_it_is_stored(store: Store) -> None:
    recorder = Recorder(store, RecorderSettings(redact=["email"]))
    await recorder.start()
    try:
        talk = Talk(recorder)
        one, _ = await two_attempts(talk)
        called = await gateway_call(recorder, text_result("anna@example.org is known"))
        await talk.call(brought("id-1", "anna@example.org is known"), "done")
    finally:
        await recorder.stop()
    row = (await stored(store))[called]
    assert row.trajectory_id == one
    assert "anna@" not in json.dumps(row.result)


async def test_another_keys_attempt_never_gets_the_call(store: Store, recorder: Recorder) -> None:
    anna, bert = (Address(access=KeyAccess(key, everywhere=False)) for key in ("anna", "bert"))
    talk = Talk(recorder)
    for number in range(2):
        await talk.call(QUESTION, tool_turn(f"anna-{number}"), anna)
    await talk.call(QUESTION, tool_turn("bert-0"), bert)
    called = await gateway_call(recorder, text_result("7"), access=anna.access)
    await talk.call(brought("bert-0", "7"), "done", bert)
    assert (await stored(store))[called].trajectory_id is None
    await talk.call(brought("anna-1", "7"), "done", anna)
    assert (await stored(store))[called].tool_call_id == "anna-1"


async def test_a_call_before_the_request_is_not_its_answer(store: Store, recorder: Recorder, talk: Talk) -> None:
    """An older call with the same result that nobody brought back."""
    await two_attempts(talk)
    old = await gateway_call(recorder, text_result("7"))
    await talk.call(QUESTION, tool_turn("id-3"))
    await talk.call(brought("id-3", "7"), "done")
    assert (await stored(store))[old].trajectory_id is None


async def test_the_group_and_the_session_tell_equal_requests_apart(
    store: Store, recorder: Recorder, talk: Talk
) -> None:
    await talk.call(QUESTION, tool_turn("id-1"), Address(group="one", trajectory="t"))
    await talk.call(QUESTION, tool_turn("id-2"), Address(group="two", trajectory="t"))
    grouped = await recorder.tools.join(PROJECT, "find", ARGUMENTS, group="two")
    assert grouped.asked is not None
    assert (grouped.asked.tool_call_id, grouped.source, grouped.confidence) == ("id-2", "arguments", Confidence.EXACT)


async def test_an_agent_that_writes_tool_calls_as_text_shows_results_as_text(
    store: Store, recorder: Recorder, talk: Talk
) -> None:
    ids = [f"chatcmpl-tool-{digit * 32}" for digit in "ab"]
    homes = [(await talk.call(QUESTION, tool_turn(id_))).attribution.trajectory.id for id_ in ids]
    calls = [await gateway_call(recorder, text_result(text)) for text in ("7 left", "9 left")]
    for id_, text in zip(ids, ("9 left", "7 left"), strict=True):
        retold = {"role": "assistant", "content": f"Calling tools:\n[{{'id': '{id_}', 'function': 'find'}}]"}
        await talk.call([*QUESTION, retold, user(f"Observation:\n{text}")], "done")
    rows = await stored(store)
    assert [rows[id_].trajectory_id for id_ in calls] == homes[::-1]


async def test_calls_of_one_answer_with_one_id_go_by_their_place(store: Store, recorder: Recorder, talk: Talk) -> None:
    """Some providers number all parallel calls 0."""
    await talk.call(QUESTION, tool_turn("0", "0"), Address("run"))
    second = await gateway_call(recorder, text_result("two"))
    first = await gateway_call(recorder, text_result("one"))
    results = [tool_result("0", "one"), tool_result("0", "two")]
    await talk.call([*QUESTION, tool_turn("0", "0"), *results], "done", Address("run"))
    rows = await stored(store)
    assert [rows[id_].position for id_ in (first, second)] == [0, 1]


async def test_a_call_known_by_its_address_is_preferred_to_an_equal_one(
    store: Store, recorder: Recorder, talk: Talk
) -> None:
    """Both calls returned the same, and only one of them is of this trajectory for certain."""
    made = await talk.call(QUESTION, tool_turn("id-1", "id-2"), Address("run"))
    await talk.call(QUESTION, tool_turn("id-3"))
    stray = await gateway_call(recorder, text_result("same"))
    home = made.attribution.trajectory.id
    known = await gateway_call(recorder, text_result("same"), stated=home, source="path")
    results = [tool_result("id-1", "declined"), tool_result("id-2", "same")]
    await talk.call([*QUESTION, tool_turn("id-1", "id-2"), *results], "done", Address("run"))
    rows = await stored(store)
    assert (rows[known].tool_call_id, rows[known].join_source, rows[known].join_confidence) == (
        "id-2",
        "path",
        "stated",
    )
    assert rows[stray].trajectory_id is None
