"""Whose call is it? Found in a real store, without addresses: issued ids, exact lineage, separate samples."""

from __future__ import annotations

import asyncio
import base64
import random
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import select, update

from recorder.capture.lookups import recorded_calls
from recorder.capture.lookups.statements import MOST_EQUAL
from recorder.capture.recorder import Recorder
from recorder.capture.resolver import NOTHING_FOUND
from recorder.maintenance.deletion import delete_trajectory
from recorder.messages import content_hashes
from recorder.messages.calls import ANYBODY, Address, ParentCall, TrajectoryRef
from recorder.settings import RecorderSettings
from recorder.states import CallState, Confidence
from recorder.store.database import Project, Store
from recorder.store.schema import calls, trajectories
from recorder.views.trajectories import transcripts
from tests.effort import scaled
from tests.recorder.messages.test_content_hashes import SAMPLED, echoes
from tests.recorder.rows import Rows
from tests.recorder.talk import PROJECT, Talk, assistant, choice, request, tool_result, tool_turn, turn, user
from tests.stores import Stores, opened


async def count(store: Store, table: Any) -> int:
    async with store.read() as conn:
        return len((await conn.execute(select(table))).all())


async def test_a_first_turn_is_a_new_run_whatever_its_words(store: Store, talk: Talk) -> None:
    for _ in range(3):
        made = await talk.call([user("Where is order 4821?")], "answer")
        assert made.attribution.confidence is Confidence.NEW
    assert await count(store, trajectories) == 3


@pytest.mark.parametrize("echo", echoes(SAMPLED))
async def test_every_echo_is_the_same_lineage(store: Store, talk: Talk, echo: dict[str, Any]) -> None:
    # by the words alone: the ids are not among the issued ones
    first = await talk.call([user("?")], SAMPLED, issued_ids=())
    second = await talk.call([user("?"), echo, tool_result("call_1")], "done")
    assert (second.attribution.source, second.attribution.confidence) == ("lineage", Confidence.EXACT)
    assert second.attribution.parent == ParentCall(first.call_id, 0)
    assert await count(store, trajectories) == 1


async def test_ids_of_any_length_are_recorded_and_known_again(store: Store, recorder: Recorder, talk: Talk) -> None:
    long = "call_1__thought__" + base64.b64encode(random.Random(1).randbytes(9_000)).decode()
    first = await talk.call([user("?")], tool_turn(long))
    again = Talk(Recorder(store, RecorderSettings()))  # it remembers nothing
    await again.recorder.start()
    for talker in (talk, again):
        found = await talker.recorder.find.issued(PROJECT, [user("other words"), tool_turn(long), tool_result(long)])
        assert found.parent == ParentCall(first.call_id, 0)
    other = await talk.recorder.find.issued(PROJECT, [user("?"), tool_turn(long[:-9]), tool_result(long[:-9])])
    assert other.confidence is not Confidence.EXACT
    await again.recorder.stop()


async def test_issued_ids_tell_identical_runs_apart(store: Store, talk: Talk) -> None:
    runs = [await talk.call([user("?")], tool_turn(f"id-{n}")) for n in range(4)]
    for n, run in enumerate(runs):
        going_on = await talk.call([user("?"), tool_turn(f"id-{n}"), tool_result(f"id-{n}")], "same answer")
        assert (going_on.attribution.source, going_on.attribution.confidence) == ("tool_call_id", Confidence.EXACT)
        assert going_on.attribution.trajectory.id == run.attribution.trajectory.id
        assert going_on.attribution.parent == ParentCall(run.call_id, 0)


async def test_issued_ids_survive_a_rewritten_history(talk: Talk) -> None:
    first = await talk.call([user("a long question")], tool_turn("id-1"))
    later = await talk.call([user("(shortened)"), tool_turn("id-1"), tool_result("id-1")], "done")
    assert later.attribution.source == "tool_call_id"
    assert later.attribution.parent == ParentCall(first.call_id, 0)


async def test_the_deepest_sampled_turn_is_the_parent(talk: Talk) -> None:
    history = [user("?"), tool_turn("id-1"), tool_result("id-1")]
    await talk.call(history[:1], tool_turn("id-1"))
    middle = await talk.call(history, "a plain answer")
    last = await talk.call([*history, assistant("a plain answer"), user("more")], "done")
    assert (last.attribution.source, last.attribution.parent) == ("tool_call_id", ParentCall(middle.call_id, 0))


async def test_an_id_that_was_issued_twice_proves_nothing(store: Store, talk: Talk) -> None:
    await talk.call([user("a")], tool_turn("functions.find:0"))
    await talk.call([user("b")], tool_turn("functions.find:0"))
    strange = [user("c"), tool_turn("functions.find:0"), tool_result("functions.find:0")]
    assert await talk.recorder.find.run(PROJECT, strange) == NOTHING_FOUND
    # and no later process is fooled either
    again = Recorder(store, RecorderSettings())
    await again.start()
    try:
        assert await again.find.run(PROJECT, strange) == NOTHING_FOUND
        known = [user("b"), tool_turn("functions.find:0"), tool_result("functions.find:0")]
        found = await again.find.run(PROJECT, known)
        assert (found.source, found.confidence) == ("lineage", Confidence.EXACT)
    finally:
        await again.stop()


async def test_runs_that_are_equal_so_far_are_ambiguous_until_they_diverge(store: Store, talk: Talk) -> None:
    asked = [user("?")]
    runs = [await talk.call(asked, "Hello") for _ in range(2)]
    homes = {run.attribution.trajectory.id for run in runs}
    assert len(homes) == 2
    seconds = [await talk.call([*asked, assistant("Hello"), user("more")], f"answer {n}") for n in range(2)]
    assert [s.attribution.confidence for s in seconds] == [Confidence.AMBIGUOUS] * 2
    assert {s.attribution.trajectory.id for s in seconds} == homes  # dealt out, not piled up
    for n, second in enumerate(seconds):
        history = [*asked, assistant("Hello"), user("more"), assistant(f"answer {n}"), user("and?")]
        third = await talk.call(history, "done")
        assert third.attribution.confidence is Confidence.EXACT
        assert third.attribution.trajectory.id == second.attribution.trajectory.id
    view = await transcripts.load_trajectory(store, seconds[0].attribution.trajectory.id)
    assert [c.choices[0].untrainable_reason for c in view.calls] == [None, "ambiguous_attribution", None]


async def test_parallel_equal_follow_ups_go_to_different_runs(talk: Talk) -> None:
    await asyncio.gather(*(talk.call([user("?")], "Hello") for _ in range(4)))
    history = [user("?"), assistant("Hello"), user("more")]
    made = await asyncio.gather(*(talk.call(history, "same") for _ in range(4)))
    assert len({m.attribution.trajectory.id for m in made}) == 4


async def test_addresses_keep_identical_runs_apart(store: Store, talk: Talk) -> None:
    addresses = [Address(trajectory=str(n)) for n in range(3)]
    for address in addresses:
        await talk.call([user("?")], "same", address)
    for address in addresses:
        made = await talk.call([user("?"), assistant("same"), user("more")], "same again", address)
        view = await transcripts.load_trajectory(store, made.attribution.trajectory.id)
        assert view.external_id == address.trajectory
        assert len(view.calls) == 2
        assert made.attribution.parent == ParentCall(view.calls[0].id, 0)
        assert all(c.choices[0].trainable for c in view.calls)


SMOL = "chatcmpl-tool-0123456789abcdef"


async def test_ids_that_come_back_as_text_name_the_run(talk: Talk) -> None:
    runs = [await talk.call([user("?")], tool_turn(f"{SMOL[:-1]}{n}")) for n in range(3)]
    for n, run in enumerate(runs):
        text = f"Calling tools:\n[{{'id': '{SMOL[:-1]}{n}', 'type': 'function'}}]"
        going_on = await talk.call([user("?"), assistant(text), user("Observation:\nfound")], "done")
        assert (going_on.attribution.source, going_on.attribution.confidence) == ("tool_call_id", Confidence.EXACT)
        assert going_on.attribution.parent == ParentCall(run.call_id, 0)


async def test_a_turn_of_ours_that_speaks_of_anothers_id_stays_in_its_run(talk: Talk) -> None:
    await talk.call([user("?")], tool_turn(SMOL))
    spoken = await talk.call([user("What is in the log?")], f"It says {SMOL}.")
    history = [user("What is in the log?"), assistant(f"It says {SMOL}."), user("more")]
    going_on = await talk.call(history, "done")
    assert (going_on.attribution.source, going_on.attribution.parent) == ("lineage", ParentCall(spoken.call_id, 0))


CODE = "Thought: I look.\n<code>\nfind(4821)\n"


@pytest.mark.parametrize(
    ("sampled", "told"),
    [
        (CODE, CODE + "</code>"),
        (CODE.strip(), CODE.strip() + "</code>\nCalling tools:\n[{'id': 'call_2'}]"),
        (CODE, CODE.strip() + "</code>"),
        ("Look\n", "Look"),
        ("\n\nLook ", "Look"),
        ("\n\nLook ", "\n\nLook"),
        ("Look", "Look\nObservation: found"),
    ],
)
async def test_what_a_framework_trims_or_appends_leaves_the_lineage_exact(
    store: Store, talk: Talk, sampled: str, told: str
) -> None:
    first = await talk.call([user("?")], sampled)
    history = [user("?"), assistant(told), user("more")]
    second = await talk.call(history, sampled)
    assert (second.attribution.source, second.attribution.confidence) == ("lineage", Confidence.EXACT)
    assert second.attribution.parent == ParentCall(first.call_id, 0)
    third = await talk.call([*history, assistant(told), user("more")], "done")
    assert third.attribution.parent == ParentCall(second.call_id, 0)
    assert await count(store, trajectories) == 1
    addressed = await talk.recorder.find.parent_in(first.attribution.trajectory, history)
    assert addressed == ParentCall(first.call_id, 0)


async def test_a_retold_turn_is_ambiguous_where_several_runs_fit(talk: Talk) -> None:
    for _ in range(2):
        await talk.call([user("?")], CODE)
    found = await talk.recorder.find.run(PROJECT, [user("?"), assistant(CODE + "</code>"), user("more")])
    assert (found.source, found.confidence) == ("lineage", Confidence.AMBIGUOUS)


async def test_the_run_that_said_most_of_a_retold_turn_is_meant(talk: Talk) -> None:
    await talk.call([user("?")], "Look")
    longer = await talk.call([user("?")], "Look at this")
    found = await talk.recorder.find.run(PROJECT, [user("?"), assistant("Look at this</code>"), user("more")])
    assert (found.confidence, found.parent) == (Confidence.EXACT, ParentCall(longer.call_id, 0))


async def test_a_text_that_may_be_anothers_trimmed_one_is_ambiguous(talk: Talk) -> None:
    for text in ("Look", "Look\n"):
        await talk.call([user("?")], text)
    trimmed = await talk.recorder.find.run(PROJECT, [user("?"), assistant("Look"), user("more")])
    assert trimmed.confidence is Confidence.AMBIGUOUS
    kept = await talk.recorder.find.run(PROJECT, [user("?"), assistant("Look\n"), user("more")])
    assert kept.confidence is Confidence.EXACT


@pytest.mark.parametrize("told", ["Looks", "Look!", "Look at", "Loo", "A Look", "look", ""])
async def test_another_text_is_no_retold_turn(talk: Talk, told: str) -> None:
    await talk.call([user("?")], "Look")
    assert await talk.recorder.find.run(PROJECT, [user("?"), assistant(told), user("more")]) == NOTHING_FOUND


async def test_a_retold_turn_needs_the_history_in_front_of_it(talk: Talk) -> None:
    await talk.call([user("?")], CODE)
    assert await talk.recorder.find.run(PROJECT, [user("!"), assistant(CODE.strip()), user("more")]) == NOTHING_FOUND
    assert await talk.recorder.find.run(PROJECT, [assistant(CODE.strip()), user("more")]) == NOTHING_FOUND


async def test_a_retold_turn_is_found_within_its_session(store: Store, talk: Talk) -> None:
    first = await talk.call([user("?")], CODE)
    async with store.write() as conn:
        await conn.execute(update(trajectories).values(session="x-session-id:s"))
    history = [user("?"), assistant(CODE + "</code>"), user("more")]
    found = await talk.recorder.find.in_session(PROJECT, "x-session-id:s", None, request(history))
    assert found is not None
    assert (found.confidence, found.parent) == (Confidence.STATED, ParentCall(first.call_id, 0))


async def test_a_conversation_that_the_client_made_up_is_a_new_run(talk: Talk) -> None:
    await talk.call([user("?")], "Hello")
    found = await talk.recorder.find.run(PROJECT, [user("?"), assistant("Hello!"), user("more")])
    assert found == NOTHING_FOUND
    other = await talk.recorder.find.run(PROJECT, [user("??"), assistant("Hello"), user("more")])
    assert other == NOTHING_FOUND


async def test_another_project_sees_nothing(store: Store, talk: Talk) -> None:
    from recorder.store.bootstrap import ensure_project

    await ensure_project(Project(store, "other"))
    await talk.call([user("?")], tool_turn("id-1"))
    history = [user("?"), tool_turn("id-1"), tool_result("id-1")]
    assert await talk.recorder.find.run("other", history) == NOTHING_FOUND


async def test_a_parent_is_only_looked_for_in_the_trajectory_that_was_named(talk: Talk) -> None:
    await talk.call([user("?")], "Hello", Address(trajectory="1"))
    ref = await talk.recorder.trajectory_at(PROJECT, None, Address(trajectory="2"), request([user("?")]), None)
    assert await talk.recorder.find.parent_in(ref, [user("?"), assistant("Hello"), user("more")]) is None
    assert await talk.recorder.find.parent_in(ref, [user("?")]) is None
    assert await talk.recorder.find.parent_in(TrajectoryRef("traj_none", None), [assistant("Hello")]) is None


async def test_an_addressed_agent_that_numbers_its_tool_calls_itself_goes_on_from_its_own_turns(talk: Talk) -> None:
    address = Address(trajectory="run")
    first = await talk.call([user("?")], tool_turn("issued-1"), address)
    history = [user("?"), tool_turn("call_0"), tool_result("call_0")]
    second = await talk.call(history, tool_turn("issued-2"), address)
    history += [tool_turn("call_1"), tool_result("call_1", "more")]
    third = await talk.call(history, "done", address)
    assert second.attribution.parent == ParentCall(first.call_id, 0)
    assert third.attribution.parent == ParentCall(second.call_id, 0)


@pytest.mark.parametrize("address", [Address(), Address(trajectory="run")])
async def test_a_retold_turn_is_the_parent_and_not_the_one_before_it(talk: Talk, address: Address) -> None:
    history = [user("?")]
    await talk.call(history, tool_turn("id-1"), address)
    history += [tool_turn("id-1"), tool_result("id-1")]
    answer = await talk.call(history, "On Monday\n", address)
    history += [assistant("On Monday"), user("Thanks")]
    thanked = await talk.call(history, "Welcome", address)
    assert thanked.attribution.parent == ParentCall(answer.call_id, 0)
    history += [assistant("Welcome"), user("Bye")]
    assert (await talk.call(history, "Bye", address)).attribution.parent == ParentCall(thanked.call_id, 0)


async def test_a_retry_among_equal_requests_is_as_uncertain_as_they_are_and_joins_none(
    store: Store, talk: Talk
) -> None:
    runs = {(await talk.call([user("?")], "Hello")).attribution.trajectory.id for _ in range(2)}
    retry = await talk.call([user("?")], "Hi", retry_count=1)
    assert (retry.attribution.source, retry.attribution.confidence) == ("retry", Confidence.AMBIGUOUS)
    assert retry.attribution.trajectory.id not in runs
    on = await talk.call([user("?"), assistant("Hi"), user("!")], "Bye")
    assert on.attribution.trajectory.id == retry.attribution.trajectory.id
    for view in await transcripts.load_trajectories(store, sorted(runs)):
        assert [call.superseded_by for call in view.calls] == [None]


async def test_an_attempt_that_a_stray_retry_may_have_answered_for_is_nobodys(talk: Talk) -> None:
    broken = await talk.call([user("?")], [choice(None)], state=CallState.ABORTED)
    other = await talk.attributed([user("?")], [choice(assistant("lost"))], Address())
    talk.recorder.begin(replace(other, state=CallState.OPEN, choices=()))
    stray = await talk.call([user("?")], "Hi", retry_count=1)  # of one of the two
    await talk.recorder.commit(other)
    retry = await talk.call([user("?")], "Hello", retry_count=1)
    assert (retry.attribution.source, retry.attribution.confidence) == ("retry", Confidence.AMBIGUOUS)
    runs = {made.attribution.trajectory.id for made in (broken, other, stray, retry)}
    assert len(runs) == 4


async def test_a_retry_of_what_broke_in_a_closed_run_is_told_the_run_it_is_recorded_in(
    store: Store, talk: Talk
) -> None:
    broken = await talk.call([user("?")], [choice(None)], state=CallState.ABORTED)
    await talk.recorder.close(PROJECT, broken.attribution.trajectory.id)
    retry = await talk.call([user("?")], "Hello", retry_count=1)
    [view] = await transcripts.load_trajectories(store, [retry.attribution.trajectory.id])
    assert view.continues == broken.attribution.trajectory.id
    assert [call.id for call in view.calls] == [retry.call_id]


async def test_of_very_many_equal_runs_the_newest_are_looked_at(talk: Talk) -> None:
    runs = await asyncio.gather(*(talk.call([user("ping")], "pong") for _ in range(MOST_EQUAL + 20)))
    ends = content_hashes.chain_node_ids(await talk.recorder._key(PROJECT), [user("ping"), assistant("pong")])[1:]
    found = await talk.recorder._backend.read(
        lambda ex: recorded_calls.find_deepest_sampled(ex, PROJECT, ends, ANYBODY)
    )
    assert [m.call_id for m in found] == sorted((run.call_id for run in runs), reverse=True)[:MOST_EQUAL]
    parent = await talk.recorder.find.parent_in(
        runs[0].attribution.trajectory, [user("ping"), assistant("pong"), user("!")]
    )
    assert parent == ParentCall(runs[0].call_id, 0)


async def test_what_one_process_wrote_another_finds(store: Store, talk: Talk) -> None:
    first = await talk.call([user("?")], tool_turn("id-1"))
    addressed = await talk.call([user("?")], "Hello", Address(trajectory="run", group="g", group_size=2))
    other = Recorder(store, RecorderSettings())
    await other.start()
    try:
        there = Talk(other)
        second = await there.call([user("?"), tool_turn("id-1"), tool_result("id-1")], "done")
        assert second.attribution.trajectory.id == first.attribution.trajectory.id
        assert second.attribution.parent == ParentCall(first.call_id, 0)
        later = await there.call(
            [user("?"), assistant("Hello"), user("more")], "done", Address(trajectory="run", group="g", group_size=2)
        )
        assert later.attribution.trajectory.id == addressed.attribution.trajectory.id
        assert later.attribution.parent == ParentCall(addressed.call_id, 0)
    finally:
        await other.stop()
    back = await talk.call(
        [user("?"), assistant("Hello"), user("more"), assistant("done"), user("3")],
        "!",
        Address(trajectory="run", group="g", group_size=2),
    )
    assert back.attribution.parent == ParentCall(later.call_id, 0)


def placed(talk: Talk, *traces: str) -> TrajectoryRef:
    """A run whose first call was placed, with these traces."""
    made = talk.recorder.new_trajectory(Address(), None)
    talk.recorder.find.note_traces(PROJECT, traces, made.id)
    return made


async def test_a_trace_tells_its_run_once_that_has_a_row(talk: Talk) -> None:
    find, made = talk.recorder.find, placed(talk, "span", "trace")
    assert find.run_of_trace(PROJECT, "trace") is None
    await talk.recorder.commit(turn(made, request([user("?")]), []))
    assert [find.run_of_trace(PROJECT, name) for name in ("span", "trace", "other")] == [made.id, made.id, None]
    assert find.run_of_trace("other", "trace") is None


async def test_a_trace_of_two_runs_tells_neither_and_their_spans_do(talk: Talk) -> None:
    find, runs = talk.recorder.find, [placed(talk, f"span {n}", "trace") for n in range(2)]
    for made in runs:
        await talk.recorder.commit(turn(made, request([user("?")]), []))
    find.note_traces(PROJECT, ["trace"], runs[0].id)  # and it stays so
    assert find.run_of_trace(PROJECT, "trace") is None
    assert [find.run_of_trace(PROJECT, f"span {n}") for n in range(2)] == [made.id for made in runs]
    history = [user("?"), assistant("edited"), user("!")]
    assert await find.traced(PROJECT, ["trace"], history) == NOTHING_FOUND
    found = await find.traced(PROJECT, ["trace", "span 1"], history)
    assert found.trajectory is not None
    assert (found.trajectory.id, found.confidence) == (runs[1].id, Confidence.HINT)


async def test_a_deleted_runs_trace_tells_nothing(store: Store, talk: Talk) -> None:
    made = placed(talk, "trace")
    await talk.recorder.commit(turn(made, request([user("?")]), []))
    await talk.recorder.close(PROJECT, made.id)
    await delete_trajectory(Project(store, PROJECT), made.id)
    await talk.call([user("!")], "!")  # by which this process hears of it
    assert talk.recorder.find.run_of_trace(PROJECT, "trace") is None
    found = await talk.recorder.find.traced(PROJECT, ["trace"], [user("?"), assistant("!"), user("so?")])
    assert found == NOTHING_FOUND


# Any interleaving of any runs, each with its own words: every call is found to be exactly where it came from.
Step = tuple[int, int]  # the run, and how far back from its newest turn the call branches


@settings(max_examples=scaled(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=14), st.booleans())
def test_any_runs_are_told_apart_and_their_trees_are_found(stores: Stores, steps: list[Step], restart: bool) -> None:
    async def play(new: Callable[[], Recorder]) -> None:
        talk = Talk(new())
        await talk.recorder.start()
        made: dict[int, list[tuple[list[dict[str, Any]], str]]] = {}
        for number, (run, back) in enumerate(steps):
            if restart and number % 5 == 4:
                await talk.recorder.stop()
                talk = Talk(new())
                await talk.recorder.start()
            turns = made.setdefault(run, [])
            history, parent = turns[max(0, len(turns) - 1 - back)] if turns else ([], None)
            asked = [*history, user(f"run {run}, question {number}")]
            call = await talk.call(asked, f"run {run}, answer {number}")
            expected = Confidence.NEW if parent is None else Confidence.EXACT
            assert call.attribution.confidence is expected
            assert call.attribution.parent == (ParentCall(parent, 0) if parent is not None else None)
            turns.append(([*asked, assistant(f"run {run}, answer {number}")], call.call_id))
        await talk.recorder.stop()

    async def run() -> None:
        with tempfile.TemporaryDirectory() as folder:
            async with opened(stores, Path(folder)) as store:
                await play(lambda: Recorder(store, RecorderSettings()))
                assert await count(store, trajectories) == len({run for run, _ in steps})
                assert await count(store, calls) == len(steps)

    asyncio.run(run())


async def test_a_run_that_fell_silent_may_be_gone_on_with(store: Store, talk: Talk, rows: Rows) -> None:
    silent = await talk.call([user("?")], "Hello.")
    await rows.set(trajectories, silent.attribution.trajectory.id, state="completed", end_reason="idle")
    await talk.call([user("?")], "Hello.")
    more = await talk.call([user("?"), assistant("Hello."), user("more")], "!")
    assert more.attribution.confidence is Confidence.AMBIGUOUS


@pytest.mark.parametrize("how", [{"end_reason": "closed"}, {"end_reason": "idle", "last_call_at": 0.0}])
async def test_a_run_that_was_ended_or_fell_silent_long_ago_is_not_in_question(
    store: Store, talk: Talk, rows: Rows, how: dict[str, Any]
) -> None:
    ended = await talk.call([user("?")], "Hello.")
    await rows.set(trajectories, ended.attribution.trajectory.id, state="completed", **how)
    running = await talk.call([user("?")], "Hello.")
    more = await talk.call([user("?"), assistant("Hello."), user("more")], "!")
    assert more.attribution.confidence is Confidence.EXACT
    assert more.attribution.trajectory.id == running.attribution.trajectory.id
