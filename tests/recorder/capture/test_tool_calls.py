"""A tool call is written where it belongs: to the request of the one run that waits for it, or to none."""

from __future__ import annotations

import json
import time
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import select

from recorder.base import terminal
from recorder.capture.recorder import Recorder
from recorder.capture.tool_calls import ToolCall, ToolCallAttribution, ToolRequest, choose_request
from recorder.commands import transcript
from recorder.ids import first_id_at, new_id
from recorder.maintenance.deletion import delete_trajectory
from recorder.maintenance.export import raw_lines, tool_lines
from recorder.messages.calls import Address
from recorder.messages.plain_text import match_key, parse_tool_requests
from recorder.settings import RecorderSettings
from recorder.states import Confidence, ToolOutcome, TrajectoryState
from recorder.store.database import Project, Store
from recorder.store.schema import tool_requests, trajectories
from recorder.views.trajectories.transcripts import load_trajectory
from tests.recorder.rows import Rows
from tests.recorder.talk import PROJECT, Talk, assistant, request, tool_result, tool_turn, user

ARGUMENTS = {"a": 2, "b": 1}  # as talk.tool_turn asks `find`
KEY = b"k" * 32


def done(joined: ToolCallAttribution, **changes: Any) -> ToolCall:
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
        "result": {"content": [{"type": "text", "text": "found"}]},
        "error": None,
        "annotations": {"readOnlyHint": True},
        "started_at": now,
        "finished_at": now + 0.25,
    }
    return ToolCall(**values | changes)


async def call(recorder: Recorder, **where: Any) -> ToolCallAttribution:
    joined = await recorder.tools.join(PROJECT, "find", ARGUMENTS, **where)
    await recorder.tools.commit(done(joined))
    return joined


async def test_the_only_run_that_waits_for_a_call_gets_it(recorder: Recorder, talk: Talk) -> None:
    asked = await talk.call([user("?")], tool_turn("id-1"))
    joined = await call(recorder)
    assert (joined.source, joined.confidence) == ("arguments", Confidence.EXACT)
    assert joined.trajectory_id == asked.attribution.trajectory.id
    assert joined.asked == ToolRequest(asked.call_id, 0, 0, "id-1", asked.attribution.trajectory.id)


async def test_a_request_is_answered_once(recorder: Recorder, talk: Talk) -> None:
    await talk.call([user("?")], tool_turn("id-1"))
    await call(recorder)
    again = await call(recorder)
    assert (again.source, again.trajectory_id) == ("none", None)


async def test_equal_requests_of_two_runs_are_given_to_neither(recorder: Recorder, talk: Talk) -> None:
    await talk.call([user("?")], tool_turn("id-1"))
    await talk.call([user("?")], tool_turn("id-2"))
    joined = await call(recorder)
    assert (joined.source, joined.confidence) == ("arguments", Confidence.AMBIGUOUS)
    assert (joined.trajectory_id, joined.asked) == (None, None)


async def test_the_address_tells_equal_requests_apart(recorder: Recorder, talk: Talk) -> None:
    one, two = Address("one"), Address("two")
    await talk.call([user("?")], tool_turn("id-1"), one)
    second = await talk.call([user("?")], tool_turn("id-2"), two)
    home = await recorder.tools.run_at(PROJECT, two)
    joined = await call(recorder, stated=home, source="path")
    assert joined.trajectory_id == home == second.attribution.trajectory.id
    assert joined.asked is not None
    assert joined.asked.tool_call_id == "id-2"
    assert (joined.source, joined.confidence) == ("path", Confidence.STATED)


async def test_equal_requests_of_one_turn_are_answered_in_order(recorder: Recorder, talk: Talk) -> None:
    await talk.call([user("?")], tool_turn("id-1", "id-2"))
    answered = [(await call(recorder)).asked for _ in range(3)]
    assert [a and a.tool_call_id for a in answered] == ["id-1", "id-2", None]


async def test_a_turn_that_was_gone_on_with_waits_no_longer(recorder: Recorder, talk: Talk) -> None:
    await talk.call([user("?")], tool_turn("id-1"))
    await talk.call([user("?"), tool_turn("id-1"), tool_result("id-1")], "done")
    assert (await call(recorder)).asked is None


async def test_a_tool_that_asks_something_first_leaves_the_request_open(recorder: Recorder, talk: Talk) -> None:
    await talk.call([user("?")], tool_turn("id-1"))
    first = await recorder.tools.join(PROJECT, "find", ARGUMENTS)
    await recorder.tools.commit(done(first, outcome=ToolOutcome.INPUT_REQUIRED))
    assert (await call(recorder)).asked == first.asked


async def test_other_arguments_are_another_call(recorder: Recorder, talk: Talk) -> None:
    await talk.call([user("?")], tool_turn("id-1"))
    assert (await recorder.tools.join(PROJECT, "find", {"a": 2})).asked is None
    assert (await recorder.tools.join(PROJECT, "look", ARGUMENTS)).asked is None


async def test_a_call_to_an_address_without_a_run_opens_it(recorder: Recorder, talk: Talk, rows: Rows) -> None:
    address = Address("fresh", "g", group_size=2)
    home = await recorder.tools.run_at(PROJECT, address)
    await call(recorder, stated=home, source="path")
    alias = await rows.alias("helpdesk")
    turn = await talk.call([user("?")], "hi", address, alias_id=alias.id, version_id="v")
    assert turn.attribution.trajectory.id == home
    row = await rows.get(trajectories, home)
    assert (row["state"], row["version_id"], row["call_count"]) == ("open", "v", 1)


async def test_a_run_that_a_tool_call_opened_joins_its_implicit_group(
    store: Store, recorder: Recorder, rows: Rows
) -> None:
    alias = await rows.alias("helpdesk")
    first = Address("tools-first")
    await call(recorder, stated=await recorder.tools.run_at(PROJECT, first), source="path")
    for address in (first, Address("model-first")):
        ref = await recorder.trajectory_at(PROJECT, alias.id, address, request([user("same question")]), None)
        assert ref.group_id is not None
    groups = {
        (await load_trajectory(store, id_)).group_id for id_ in await homes(recorder, "tools-first", "model-first")
    }
    assert len(groups) == 1
    assert groups != {None}


async def homes(recorder: Recorder, *names: str) -> list[str]:
    return [await recorder.tools.run_at(PROJECT, Address(name)) for name in names]


async def test_a_late_call_stays_with_the_run_that_ended(recorder: Recorder, talk: Talk, store: Store) -> None:
    turn = await talk.call([user("?")], "hi", Address("run"))
    await recorder.close(PROJECT, turn.attribution.trajectory.id)
    home = await recorder.tools.run_at(PROJECT, Address("run"))
    await call(recorder, stated=home, source="path")
    view = await load_trajectory(store, home)
    assert (home, view.state) == (turn.attribution.trajectory.id, TrajectoryState.COMPLETED)
    assert len(view.tool_calls) == 1


async def test_an_address_has_ended_when_its_newest_run_has(recorder: Recorder, talk: Talk) -> None:
    ended, anew, live = Address("ended", "g"), Address("anew"), Address("live", "g")
    for address in (ended, anew, live):
        turn = await talk.call([user("?")], "hi", address)
        if address is not live:
            await recorder.close(PROJECT, turn.attribution.trajectory.id)
    await talk.call([user("and now?")], "hi", anew)
    asked = [("g", "ended"), ("", "ended"), ("", "anew"), ("g", "live"), ("g", "nobody")]
    assert await recorder.tools.ended(PROJECT, asked) == {("g", "ended")}


async def test_a_run_reads_as_one_timeline(recorder: Recorder, talk: Talk, store: Store) -> None:
    asked = await talk.call([user("?")], tool_turn("id-1"))
    await call(recorder)
    await talk.call([user("?"), tool_turn("id-1"), tool_result("id-1")], "done")
    stray = await recorder.tools.join(PROJECT, "look", {}, stated=asked.attribution.trajectory.id, source="path")
    failed: dict[str, Any] = {"outcome": ToolOutcome.ERRORED, "result": None, "error": "\x1b[2Jgone", "name": "look"}
    await recorder.tools.commit(done(stray, **failed))
    view = await load_trajectory(store, asked.attribution.trajectory.id)
    assert [(t.name, t.tool_call_id, t.outcome) for t in view.tool_calls] == [
        ("find", "id-1", "complete"),
        ("look", None, "errored"),
    ]
    console = terminal.console()
    with console.capture() as shown:
        console.print(transcript.render_trajectory(view, None, {}))
    text = shown.get()
    assert "⚒ find · by orders · complete · 0.25 s · read-only · arguments/exact" in text
    assert text.index("→ find(") < text.index("⚒ find") < text.index("found")
    assert "tool calls outside the main path" in text
    assert "\x1b[2J" not in text
    lines = [line async for line in raw_lines(Project(store, PROJECT))]
    assert [[t["tool_call_id"] for t in line["tool_calls"]] for line in lines] == [["id-1"], []]
    tools = [line async for line in tool_lines(Project(store, PROJECT))]
    assert [(t["name"], t["status"], t["annotations"]) for t in tools] == [
        ("find", "complete", {"readOnlyHint": True}),
        ("look", "errored", {"readOnlyHint": True}),
    ]
    assert tools[0]["result"] == {"content": [{"type": "text", "text": "found"}]}


async def test_the_tools_of_nobody_are_exported_too(recorder: Recorder, talk: Talk, store: Store) -> None:
    for _ in range(25):  # more than a page
        await call(recorder)
    lines = [line async for line in tool_lines(Project(store, PROJECT))]
    assert len({line["started_at"] for line in lines}) == len(lines) == 25
    assert {line["trajectory_id"] for line in lines} == {None}


# --- the pure parts

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**40), 2**40)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), JSON, max_size=4), st.randoms())
def test_a_request_and_its_call_match_however_the_arguments_are_spelled(arguments: dict[str, Any], order: Any) -> None:
    keys = list(arguments)
    order.shuffle(keys)
    text = json.dumps(
        {k: arguments[k] for k in keys}, indent=order.choice([None, 2]), ensure_ascii=order.random() < 0.5
    )
    message = {"role": "assistant", "tool_calls": [{"id": "i", "function": {"name": "f", "arguments": text}}]}
    assert parse_tool_requests(KEY, message) == [(0, "i", match_key(KEY, "f", arguments))]


def test_numbers_are_equal_as_javascript_has_them() -> None:
    assert match_key(KEY, "f", {"n": [1.0]}) == match_key(KEY, "f", {"n": [1]})
    assert match_key(KEY, "f", {"n": True}) != match_key(KEY, "f", {"n": 1})
    assert match_key(KEY, "f", {}) == match_key(KEY, "f", None)
    assert match_key(b"other" * 4, "f", {}) != match_key(KEY, "f", {})


def test_a_clients_own_prefix_is_no_part_of_a_name() -> None:
    assert match_key(KEY, "mcp__hone__orders__find", {}) == match_key(KEY, "orders__find", {})
    assert match_key(KEY, "mcp__hone__", {}) != match_key(KEY, "", {})


def test_what_is_no_request_is_none() -> None:
    hostile: list[Any] = [None, 1, {}, {"function": 1}, {"function": {"name": 3}}]
    hostile.append({"function": {"name": "f", "arguments": "{"}})
    assert parse_tool_requests(KEY, {"tool_calls": hostile}) == []
    assert (
        parse_tool_requests(KEY, {"tool_calls": 7})
        == parse_tool_requests(KEY, None)
        == parse_tool_requests(KEY, assistant("x"))
        == []
    )


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 2), st.integers(0, 2)), max_size=6, unique=True))
def test_several_runs_that_wait_get_nothing(waiting: list[tuple[str, int, int]]) -> None:
    asked = [
        ToolRequest(f"call_{choice_}{position}", choice_, position, None, run) for run, choice_, position in waiting
    ]
    confidence, found = choose_request(asked)
    runs = {a.trajectory_id for a in asked}
    assert (found is not None) == (len(runs) == 1)
    assert confidence == [Confidence.NEW, Confidence.EXACT, Confidence.AMBIGUOUS][len(runs)]
    if found is not None:
        assert all((found.call_id, found.choice, found.position) <= (a.call_id, a.choice, a.position) for a in asked)


def test_the_first_id_of_a_moment_is_no_later_than_any_made_in_it() -> None:
    before = time.time()
    made = new_id("call")
    assert first_id_at("call", before) <= made < first_id_at("call", time.time() + 1)


# --- what is taken out, and what is deleted


async def test_a_redacted_request_is_answered_by_its_redacted_call(store: Store) -> None:
    recorder = Recorder(store, RecorderSettings(redact=["email"]))
    await recorder.start()
    try:
        asked = {"to": "anna@example.org"}
        function = {"name": "find", "arguments": json.dumps(asked)}
        turn = {"role": "assistant", "tool_calls": [{"id": "id-1", "type": "function", "function": function}]}
        await Talk(recorder).call([user("?")], turn, Address("run"))
        joined = await recorder.tools.join(PROJECT, "find", asked)
        assert joined.asked is not None
        result = {"content": [{"type": "text", "text": "anna@example.org is known"}]}
        await recorder.tools.commit(done(joined, arguments=asked, result=result, error="no anna@example.org"))
    finally:
        await recorder.stop()
    [line] = [line async for line in tool_lines(Project(store, PROJECT))]
    assert "anna@" not in json.dumps(line)
    assert line["arguments"] == {"to": "[redacted:email]"}


async def test_a_deleted_runs_tool_calls_go_with_it(store: Store, recorder: Recorder, talk: Talk) -> None:
    made = await talk.call([user("?")], tool_turn("id-1"), Address("one"))
    other = await talk.call([user("!")], tool_turn("id-2"), Address("two"))
    gone, stays = made.attribution.trajectory.id, other.attribution.trajectory.id
    await call(recorder, stated=gone)
    await call(recorder, stated=stays)
    await recorder.close(PROJECT, gone)
    await delete_trajectory(Project(store, PROJECT), gone)
    assert [line["trajectory_id"] async for line in tool_lines(Project(store, PROJECT))] == [stays]
    async with store.read() as conn:
        left = [row.trajectory_id for row in await conn.execute(select(tool_requests))]
    assert left == [stays]
