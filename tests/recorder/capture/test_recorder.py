"""Calls committed through the recorder and read back: conversations, tokens, states, what is trained on."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import select

from recorder.capture.recorder import Recorder
from recorder.errors import NotFound, StoreUnavailable
from recorder.messages.calls import Address, SamplingParameters
from recorder.messages.trainability import Exclusion
from recorder.settings import RecorderSettings
from recorder.states import CallKind, CallState, Confidence, Purpose, TrajectoryState
from recorder.store.database import Project, Store
from recorder.store.schema import blobs, calls, groups, nodes, trajectories
from recorder.views.trajectories import transcripts
from tests.recorder.talk import PROJECT, Talk, assistant, choice, request, tool_result, tool_turn, turn, user

AT = Address(trajectory="run-1")


async def rows_of(store: Store, table: Any) -> list[Any]:
    async with store.read() as conn:
        return list((await conn.execute(select(table))).all())


async def test_a_conversation_is_read_back_as_it_was(store: Store, talk: Talk) -> None:
    system, asked = {"role": "system", "content": "You help."}, user("Where is order 4821?")
    first = await talk.call([system, asked], tool_turn("id-1"), AT, tools=[{"type": "function"}])
    going_on = [system, asked, tool_turn("id-1"), tool_result("id-1", "shipped")]
    last = await talk.call(going_on, "It was shipped.", AT, tools=[{"type": "function"}])
    view = await transcripts.load_trajectory(store, last.attribution.trajectory.id)
    assert list(view.messages) == [*going_on, assistant("It was shipped.")]
    assert view.answer == "It was shipped."
    assert view.tools == [{"type": "function"}]
    assert view.main_path == [(first.call_id, 0), (last.call_id, 0)]
    assert (view.external_id, view.state, view.purpose) == ("run-1", TrajectoryState.OPEN, Purpose.TRAIN)
    assert [c.parent_call_id for c in view.calls] == [None, first.call_id]
    assert view.calls[0].attribution_source == "path"


async def test_a_call_is_read_back_with_every_detail(store: Store, talk: Talk) -> None:
    said = {"role": "assistant", "content": "42", "reasoning_content": "hm", "refusal": None}
    made = await talk.call(
        [user("?")],
        [choice(said, token_ids=[5, 6], logprobs=[-0.5, -1.5], finish_reason="stop")],
        replace(AT, tags={"team": "a"}),
        response_format={"type": "text"},
        rest={"user": "u", "seed": 3},
        sampling=SamplingParameters(temperature=0.7, seed=2**70, stop=("x",), distorting=("logit_bias",)),
        prompt_token_ids=list(range(300)),
        response_meta={"system_fingerprint": "fp"},
        base_fingerprint="base",
    )
    view = await transcripts.load_trajectory(store, made.attribution.trajectory.id, with_tokens=True)
    (call,) = view.calls
    assert view.tags == {"team": "a"}
    assert call.sampling == made.request.sampling
    assert (call.response_format, call.rest) == ({"type": "text"}, {"user": "u", "seed": 3})
    assert call.response_meta == {"system_fingerprint": "fp"}
    assert call.usage == made.usage
    assert (call.state, call.http_status, call.error, call.base_fingerprint) == (CallState.COMPLETE, 200, None, "base")
    assert (call.started_at, call.finished_at) == (made.started_at, made.finished_at)
    assert call.prompt_token_ids is not None
    assert list(call.prompt_token_ids) == list(range(300))
    (sampled,) = call.choices
    assert sampled.message == {"role": "assistant", "content": "42", "reasoning_content": "hm"}
    assert sampled.token_ids is not None
    assert sampled.logprobs is not None
    assert (list(sampled.token_ids), list(sampled.logprobs)) == ([5, 6], [-0.5, -1.5])
    assert (sampled.trainable, sampled.untrainable_reason) == (False, Exclusion.DISTORTED)


async def test_tokens_are_only_read_where_asked_for(store: Store, talk: Talk) -> None:
    made = await talk.call([user("?")], "!", AT)
    view = await transcripts.load_trajectory(store, made.attribution.trajectory.id)
    assert view.calls[0].prompt_token_ids is None
    assert view.calls[0].choices[0].token_ids is None
    assert view.calls[0].choices[0].trainable


async def test_messages_and_tools_are_stored_once(store: Store, talk: Talk) -> None:
    tools = [{"type": "function", "function": {"name": "f", "description": "x" * 20_000}}]
    history: list[dict[str, Any]] = []
    for number in range(10):
        history.append(user(f"question {number}"))
        await talk.call(history, f"answer {number}", AT, tools=tools, rest={"user": "u"})
        history = [*history, assistant(f"answer {number}")]
    assert len(await rows_of(store, nodes)) == 20
    assert sorted(row.kind for row in await rows_of(store, blobs)) == ["request", "tools"]


async def test_media_is_stored_once_and_read_back(store: Store, talk: Talk) -> None:
    picture = "data:image/png;base64," + "A" * 10_000
    shown = {"role": "user", "content": [{"type": "text", "text": "?"}, {"image_url": {"url": picture}, "type": "i"}]}
    first = await talk.call([shown], "a cat", AT)
    await talk.call([user("look"), assistant("yes"), shown], "a dog", Address(trajectory="run-2"))
    assert [row.kind for row in await rows_of(store, blobs)] == ["media"]
    view = await transcripts.load_trajectory(store, first.attribution.trajectory.id)
    assert view.messages[0] == shown


async def test_text_that_looks_like_a_mark_stays_as_it_is(store: Store, talk: Talk) -> None:
    odd = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "hone-blob:00ff"}}]}
    made = await talk.call([odd], "?", AT)
    view = await transcripts.load_trajectory(store, made.attribution.trajectory.id)
    assert view.messages[0] == odd


async def test_branches_are_branches(store: Store, talk: Talk) -> None:
    root = await talk.call([user("plan")], "two ways", AT)
    trunk = [user("plan"), assistant("two ways")]
    left = await talk.call([*trunk, user("left")], "went left", AT)
    right = await talk.call([*trunk, user("right")], "went right", AT)
    view = await transcripts.load_trajectory(store, root.attribution.trajectory.id)
    assert [c.parent_call_id for c in view.calls] == [None, root.call_id, root.call_id]
    assert view.main_path == [(root.call_id, 0), (right.call_id, 0)]
    assert view.answer == "went right"
    assert all(choice.trainable for call in view.calls for choice in call.choices)
    assert left.call_id in {c.id for c in view.calls}


async def test_auxiliary_and_broken_calls_do_not_move_the_main_leaf(store: Store, talk: Talk) -> None:
    main = await talk.call([user("hi")], "hello", AT)
    title = replace(AT, call_kind=CallKind.AUX)
    await talk.call([user("a title for: hi")], "Greeting", title)
    await talk.call(
        [user("hi"), assistant("hello"), user("more")], [], AT, state=CallState.ERRORED, error="engine died"
    )
    gone = [choice(assistant("par"), finish_reason=None)]
    await talk.call([user("hi"), assistant("hello"), user("more")], gone, AT, state=CallState.ABORTED)
    view = await transcripts.load_trajectory(store, main.attribution.trajectory.id)
    assert view.main_path == [(main.call_id, 0)]
    assert [c.state for c in view.calls] == ["complete", "complete", "errored", "aborted"]
    reasons = [[choice.untrainable_reason for choice in call.choices] for call in view.calls]
    assert reasons == [[None], [Exclusion.AUXILIARY], [], [Exclusion.NOT_COMPLETE]]
    (row,) = await rows_of(store, trajectories)
    assert row.call_count == 4


async def test_without_a_complete_call_the_conversation_is_what_was_asked(store: Store, talk: Talk) -> None:
    made = await talk.call([user("hi")], [], AT, state=CallState.ERRORED)
    view = await transcripts.load_trajectory(store, made.attribution.trajectory.id)
    assert list(view.messages) == [user("hi")]
    assert (view.main_path, view.answer) == ([], None)


async def test_of_several_choices_the_one_that_was_gone_on_with_is_selected(store: Store, talk: Talk) -> None:
    three = [choice(assistant(text), index) for index, text in enumerate(["a", "b", "c"])]
    first = await talk.call([user("?")], three, AT)
    await talk.call([user("?"), assistant("b"), user("more")], "done", AT)
    view = await transcripts.load_trajectory(store, first.attribution.trajectory.id)
    assert view.main_path[0] == (first.call_id, 1)
    reasons = [choice.untrainable_reason for choice in view.calls[0].choices]
    assert reasons == [Exclusion.NOT_SELECTED, None, Exclusion.NOT_SELECTED]


async def test_a_sibling_of_a_split_call_shows_its_own_choice(store: Store, talk: Talk) -> None:
    # several choices that nobody went on with: closing makes each a trajectory of the group
    three = [choice(assistant(text), index) for index, text in enumerate(["a", "b", "c"])]
    made = await talk.call([user("?")], three, replace(AT, done=True))
    group_id = (await rows_of(store, groups))[0].id
    group = await transcripts.load_group(store, group_id, with_tokens=True)
    assert sorted(member.answer or "" for member in group.members) == ["a", "b", "c"]
    for member in group.members:
        (call,) = member.calls
        assert call.id == made.call_id
        assert [choice.message for choice in call.choices if choice.trainable] == [assistant(member.answer or "")]
        assert list(call.prompt_token_ids or ()) == [1, 2, 3]


async def test_a_group_is_read_with_its_members(store: Store, talk: Talk) -> None:
    for run in ("1", "2", "3"):
        await talk.call([user("same")], f"answer {run}", Address(group="g", trajectory=run, group_size=3))
    (row,) = await rows_of(store, groups)
    group = await transcripts.load_group(store, row.id)
    assert (group.external_id, group.declared_size, group.state) == ("g", 3, "open")
    assert {(m.external_id, m.answer) for m in group.members} == {(r, f"answer {r}") for r in ("1", "2", "3")}
    assert [m.started_at for m in group.members] == sorted(m.started_at for m in group.members)


async def test_many_groups_are_read_at_once(store: Store, talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transcripts, "PAGE", 3)  # several pages
    for name in "cab":
        for run in range(3):
            await talk.call([user(f"task {name}")], f"{name}{run}", Address(group=name, trajectory=str(run)))
    ids = [row.id for row in await rows_of(store, groups)]
    loaded = await transcripts.load_groups(store, ids, with_tokens=True)
    assert [group.id for group in loaded] == ids
    assert loaded == [await transcripts.load_group(store, id_, with_tokens=True) for id_ in ids]
    for group in loaded:
        assert {m.answer for m in group.members} == {f"{group.external_id}{run}" for run in range(3)}
    assert await transcripts.load_groups(store, []) == []


async def test_trajectories_are_found_by_either_id(store: Store, talk: Talk) -> None:
    a = await talk.call([user("?")], "!", Address(group="a", trajectory="1"))
    b = await talk.call([user("?")], "!", Address(group="b", trajectory="1"))
    id_a, id_b = a.attribution.trajectory.id, b.attribution.trajectory.id
    assert id_a != id_b
    assert await transcripts.find_trajectory(Project(store, PROJECT), id_a) == id_a
    assert await transcripts.find_trajectory(Project(store, PROJECT), "1", group="a") == id_a
    assert await transcripts.find_trajectory(Project(store, PROJECT), "1") == id_b
    assert await transcripts.trajectory_of_call(Project(store, PROJECT), a.call_id) == id_a
    assert await transcripts.trajectory_of_call(Project(store, "other"), a.call_id) is None
    with pytest.raises(NotFound):
        await transcripts.find_trajectory(Project(store, "other"), id_a)
    with pytest.raises(NotFound):
        await transcripts.load_trajectory(store, "traj_none")
    with pytest.raises(NotFound):
        await transcripts.load_group(store, "group_none")


# --- closing and going on


async def test_done_closes_in_the_same_transaction(store: Store, talk: Talk) -> None:
    made = await talk.call([user("?")], "!", replace(AT, done=True))
    view = await transcripts.load_trajectory(store, made.attribution.trajectory.id)
    assert (view.state, view.end_reason) == (TrajectoryState.COMPLETED, "done")


async def test_a_last_call_that_failed_may_be_sent_again(store: Store, talk: Talk) -> None:
    last = replace(AT, done=True)
    broken = await talk.call([user("?")], [choice(None)], last, state=CallState.ERRORED)
    view = await transcripts.load_trajectory(store, broken.attribution.trajectory.id)
    assert view.state is TrajectoryState.OPEN
    retry = await talk.call([user("?")], "whole", last, retry_count=1)
    assert retry.attribution.trajectory.id == broken.attribution.trajectory.id
    assert (await transcripts.load_trajectory(store, view.id)).state is TrajectoryState.COMPLETED


async def test_close_waits_for_queued_turns(store: Store, talk: Talk) -> None:
    made = await talk.attributed([user("?")], [choice(assistant("!"))], AT)
    committing = asyncio.ensure_future(talk.recorder.commit(made))
    await asyncio.sleep(0)  # queued, not yet written
    await talk.recorder.close(PROJECT, made.attribution.trajectory.id, reason="by api")
    await committing
    view = await transcripts.load_trajectory(store, made.attribution.trajectory.id)
    assert (view.state, view.end_reason, len(view.calls)) == (TrajectoryState.COMPLETED, "by api", 1)
    await talk.recorder.close(PROJECT, view.id)  # closing twice changes nothing


async def test_closing_what_is_not_there_is_an_error(talk: Talk) -> None:
    with pytest.raises(NotFound):
        await talk.recorder.close(PROJECT, "traj_none")


async def test_a_call_after_the_end_opens_a_continuation(store: Store, talk: Talk) -> None:
    first = await talk.call([user("?")], "!", AT, prompt_token_ids=list(range(400)))
    sealed = first.attribution.trajectory
    await talk.recorder.close(PROJECT, sealed.id)
    history = [user("?"), assistant("!"), user("more")]
    later = await talk.call(history, "!!", AT, prompt_token_ids=[*range(400), 7, 8, 9, *range(50)])
    assert later.attribution.trajectory.id != sealed.id
    view = await transcripts.load_trajectory(store, later.attribution.trajectory.id, with_tokens=True)
    assert (view.continues, view.external_id, view.state) == (sealed.id, "run-1", TrajectoryState.OPEN)
    assert later.attribution.parent is not None
    assert view.calls[0].parent_call_id == first.call_id
    assert list(view.calls[0].prompt_token_ids or ()) == [*range(400), 7, 8, 9, *range(50)]
    assert list(view.messages) == [*history, assistant("!!")]
    assert await transcripts.find_trajectory(Project(store, PROJECT), "run-1") == view.id


async def test_a_call_that_was_under_way_when_its_trajectory_was_sealed_goes_to_a_continuation(
    store: Store, talk: Talk
) -> None:
    # sealed behind the recorder's back, as the sweep or another process does
    first = await talk.call([user("?")], "!", AT)
    sealed = first.attribution.trajectory.id
    later = await talk.attributed([user("?"), assistant("!"), user("more")], [choice(assistant("!!"))], AT)
    other = await talk.attributed([user("?"), assistant("!"), user("else")], [choice(assistant("??"))], AT)
    await _seal(store, sealed)
    await asyncio.gather(talk.recorder.commit(later), talk.recorder.commit(other))
    homes = {row.id: row.trajectory_id for row in await rows_of(store, calls)}
    assert homes[first.call_id] == sealed
    assert homes[later.call_id] == homes[other.call_id] != sealed
    view = await transcripts.load_trajectory(store, homes[later.call_id])
    assert (view.continues, view.state) == (sealed, TrajectoryState.OPEN)
    third = await talk.call([user("?"), assistant("!"), user("more"), assistant("!!"), user("3")], "!!!", AT)
    assert third.attribution.trajectory.id == view.id


async def test_an_unaddressed_trajectory_sealed_under_way_is_continued_once(store: Store, talk: Talk) -> None:
    first = await talk.call([user("?")], tool_turn("id-1"))
    sealed = first.attribution.trajectory.id
    history = [user("?"), tool_turn("id-1"), tool_result("id-1")]
    later = await talk.attributed(history, [choice(tool_turn("id-2"))], Address())
    await _seal(store, sealed)
    await talk.recorder.commit(later)
    last = await talk.call([*history, tool_turn("id-2"), tool_result("id-2")], "done")
    homes = {row.id: row.trajectory_id for row in await rows_of(store, calls)}
    assert homes[later.call_id] == homes[last.call_id] != sealed
    assert [row.continues for row in await rows_of(store, trajectories) if row.id != sealed] == [sealed]


@pytest.mark.parametrize("remembered", [True, False], ids=["still remembered", "forgotten"])
async def test_a_call_with_another_purpose_continues_a_sealed_trajectory_with_that_purpose(
    store: Store, talk: Talk, remembered: bool
) -> None:
    asked = [user("?"), tool_turn("id-1"), tool_result("id-1")]
    await talk.call(asked[:1], tool_turn("id-1"))
    answered = await talk.call(asked, "!")
    sealed = answered.attribution.trajectory.id
    await _seal(store, sealed) if remembered else await talk.recorder.close(PROJECT, sealed)
    aside = Address(purpose=Purpose.NONE)
    await talk.call([*asked, assistant("!"), user("No.")], "Sorry.", aside)
    [later] = [row for row in await rows_of(store, trajectories) if row.id != sealed]
    assert (later.continues, later.purpose, later.group_id) == (sealed, Purpose.NONE, None)


async def test_a_call_that_states_no_purpose_continues_with_that_of_the_sealed_trajectory(
    store: Store, talk: Talk
) -> None:
    measured = Address(trajectory="run-1", purpose=Purpose.VAL)
    first = await talk.call([user("?")], "!", measured)
    await _seal(store, first.attribution.trajectory.id)
    await talk.call([user("?"), assistant("!"), user("more")], "!!", AT)
    assert [row.purpose for row in await rows_of(store, trajectories)] == [Purpose.VAL, Purpose.VAL]


async def test_a_restarted_recorder_continues_what_was_closed(store: Store, talk: Talk) -> None:
    first = await talk.call([user("?")], "unique answer")
    await talk.recorder.close(PROJECT, first.attribution.trajectory.id)
    again = Recorder(store, RecorderSettings())
    await again.start()
    try:
        history = [user("?"), assistant("unique answer"), user("more")]
        later = await Talk(again).call(history, "!!")
    finally:
        await again.stop()
    assert (later.attribution.source, later.attribution.confidence) == ("lineage", Confidence.EXACT)
    view = await transcripts.load_trajectory(store, later.attribution.trajectory.id)
    assert view.continues == first.attribution.trajectory.id
    assert view.calls[0].parent_call_id == first.call_id


async def _seal(store: Store, trajectory_id: str) -> None:
    from recorder.queue.groups.closure import close_trajectory

    async with store.write() as conn:
        assert await close_trajectory(conn, trajectory_id, TrajectoryState.COMPLETED, "idle")


# --- what runs long


async def test_a_long_call_is_shown_as_open_with_the_process_that_runs_it_and_then_ends(store: Store) -> None:
    recorder = Recorder(store, RecorderSettings(open_row_after_s=0.0), process="here:1:ab")
    await recorder.start()
    try:
        talk = Talk(recorder)
        made = await talk.attributed([user("?")], [choice(assistant("!"))], Address())
        recorder.begin(replace(made, state=CallState.OPEN, choices=(), finished_at=None, prompt_token_ids=None))
        async with asyncio.timeout(10):
            while not (shown := await rows_of(store, calls)):
                await asyncio.sleep(0.001)
        assert [(r.id, r.state, r.process) for r in shown] == [(made.call_id, CallState.OPEN, "here:1:ab")]
        await recorder.commit(made)
        assert [row.process for row in await rows_of(store, calls)] == [None]
    finally:
        await recorder.stop()
    view = await transcripts.load_trajectory(store, made.attribution.trajectory.id)
    assert [(c.id, c.state, len(c.choices)) for c in view.calls] == [(made.call_id, CallState.COMPLETE, 1)]
    (row,) = await rows_of(store, trajectories)
    assert row.call_count == 1


async def test_a_call_whose_process_ends_stays_open(store: Store) -> None:
    recorder = Recorder(store, RecorderSettings(open_row_after_s=0.0))
    await recorder.start()
    made = await Talk(recorder).attributed([user("?")], [choice(assistant("!"))], Address())
    recorder.begin(replace(made, state=CallState.OPEN, choices=()))
    async with asyncio.timeout(10):
        while not await rows_of(store, calls):
            await asyncio.sleep(0.001)
    await recorder.stop()
    (row,) = await rows_of(store, calls)
    (home,) = await rows_of(store, trajectories)
    assert (row.state, home.state, home.call_count, home.leaf_call_id) == (CallState.OPEN, "open", 0, None)


async def test_a_call_that_ends_soon_is_written_once(store: Store, talk: Talk) -> None:
    made = await talk.attributed([user("?")], [choice(assistant("!"))], Address())
    talk.recorder.begin(replace(made, state=CallState.OPEN, choices=()))
    await talk.recorder.commit(made)
    assert talk.recorder.stats().commits == 1


# --- retries


async def test_an_sdks_retry_is_the_same_turn(store: Store, talk: Talk) -> None:
    asked = [user("?")]
    broken = await talk.call(asked, [choice(assistant("par"), finish_reason=None)], AT, state=CallState.ABORTED)
    retry = await talk.call(asked, "whole", AT, retry_count=1)
    await talk.call([*asked, assistant("whole"), user("more")], "done", AT)
    view = await transcripts.load_trajectory(store, retry.attribution.trajectory.id)
    assert {c.id: c.superseded_by for c in view.calls}[broken.call_id] == retry.call_id
    assert view.main_path[0] == (retry.call_id, 0)
    assert view.calls[0].choices[0].untrainable_reason == Exclusion.SUPERSEDED


async def test_an_unaddressed_retry_belongs_where_the_first_attempt_does(store: Store, talk: Talk) -> None:
    first = await talk.attributed([user("?")], [choice(assistant("slow"))], Address())
    talk.recorder.begin(replace(first, state=CallState.OPEN, choices=()))
    retry = await talk.call([user("?")], "quick", retry_count=1)
    assert retry.attribution.trajectory.id == first.attribution.trajectory.id
    assert (retry.attribution.source, retry.attribution.confidence) == ("retry", Confidence.EXACT)
    await talk.recorder.commit(replace(first, state=CallState.ABORTED))
    view = await transcripts.load_trajectory(store, first.attribution.trajectory.id)
    assert {c.id: c.superseded_by for c in view.calls} == {first.call_id: retry.call_id, retry.call_id: None}
    assert view.main_path == [(retry.call_id, 0)]
    assert len(await rows_of(store, trajectories)) == 1


async def test_an_attempt_that_turns_out_to_be_gone_on_with_is_the_turn(store: Store, talk: Talk) -> None:
    first = await talk.call([user("?")], "first", AT)
    retry = await talk.call([user("?")], "second", AT, retry_count=1)
    view = await transcripts.load_trajectory(store, first.attribution.trajectory.id)
    assert {c.id: c.superseded_by for c in view.calls} == {first.call_id: retry.call_id, retry.call_id: None}
    await talk.call([user("?"), assistant("first"), user("more")], "done", AT)
    view = await transcripts.load_trajectory(store, first.attribution.trajectory.id)
    assert {c.id: c.superseded_by for c in view.calls[:2]} == {first.call_id: None, retry.call_id: first.call_id}


async def test_equal_requests_without_a_retry_are_separate_samples(store: Store, talk: Talk) -> None:
    made = [await talk.call([user("?")], "same", AT) for _ in range(3)]
    view = await transcripts.load_trajectory(store, made[0].attribution.trajectory.id)
    assert [c.superseded_by for c in view.calls] == [None, None, None]


# --- refusals


async def test_a_turn_that_no_row_can_hold_is_refused_alone(store: Store, talk: Talk) -> None:
    good = await talk.attributed([user("?")], [choice(assistant("!"))], AT)
    bad = turn(good.attribution.trajectory, request([user("?")]), [choice({"role": "assistant", "content": {1}})])
    results = await asyncio.gather(talk.recorder.commit(good), talk.recorder.commit(bad), return_exceptions=True)
    assert results[0] is None
    assert isinstance(results[1], StoreUnavailable)
    assert bad.call_id in str(results[1])
    assert [row.id for row in await rows_of(store, calls)] == [good.call_id]
    assert talk.recorder.stats().unrecorded_turns == 1


NO_IDS: list[Any] = [[7, -1, 9], [7, 8.5, 9], [7, "8", 9], [7, None, 9], [7, 2**40, 9], [[7, 8, 9]], "789"]


@pytest.mark.parametrize("ids", [*NO_IDS, [7, True, 9]])
async def test_a_turn_whose_ids_are_none_is_kept_with_its_text(store: Store, talk: Talk, ids: Any) -> None:
    made = await talk.call([user("?")], [choice(assistant("42"), token_ids=ids)], AT)
    view = await transcripts.load_trajectory(store, made.attribution.trajectory.id, with_tokens=True)
    [said] = view.calls[0].choices
    assert (said.message, said.trainable, said.untrainable_reason) == (assistant("42"), False, Exclusion.IDS_MALFORMED)
    going_on = [user("?"), assistant("42"), user("sure?")]
    assert (await talk.call(going_on, "yes", AT)).attribution.parent is not None


@pytest.mark.parametrize("ids", NO_IDS)
async def test_a_turn_whose_prompts_ids_are_none_is_kept_with_its_text(store: Store, talk: Talk, ids: Any) -> None:
    made = await talk.call([user("?")], [choice(assistant("42"))], AT, prompt_token_ids=ids)
    view = await transcripts.load_trajectory(store, made.attribution.trajectory.id, with_tokens=True)
    assert view.calls[0].prompt_token_ids is None
    [said] = view.calls[0].choices
    assert (said.message, said.trainable, said.untrainable_reason) == (assistant("42"), False, Exclusion.IDS_MALFORMED)
    going_on = [user("?"), assistant("42"), user("sure?")]
    assert (await talk.call(going_on, "yes", AT)).attribution.parent is not None


async def test_an_unknown_project_is_refused(talk: Talk) -> None:
    made = turn(talk.recorder.new_trajectory(Address(), None), request([user("?")]), [], project_id="none")
    with pytest.raises(StoreUnavailable, match="no project 'none'"):
        await talk.recorder.commit(made)


async def test_a_stopped_recorder_refuses(store: Store) -> None:
    recorder = Recorder(store, RecorderSettings())
    await recorder.start()
    made = turn(recorder.new_trajectory(Address(), None), request([user("?")]), [])
    await recorder.commit(made)
    await recorder.stop()
    with pytest.raises(StoreUnavailable):
        await recorder.commit(replace(made, call_id="call_later"))
