"""A deleted trajectory is gone, byte for byte, and no other trajectory shows that it was there."""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import func, select

from recorder.capture.recorder import Recorder
from recorder.errors import Conflict, NotFound
from recorder.maintenance.deletion import delete_trajectory, erase_deleted_words, trajectory_ids
from recorder.maintenance.sweep import sweep
from recorder.messages.calls import Address, RecordedCall
from recorder.messages.tokens import pack_ids
from recorder.queue import feedback
from recorder.queue.judging import scores
from recorder.queue.judging.records import NewReply, ReplyVerdict, load_prompts
from recorder.registry import keys
from recorder.settings import RecorderSettings
from recorder.states import CallState
from recorder.store import ledger
from recorder.store.database import Project, Store
from recorder.store.schema import (
    attempts,
    blobs,
    calls,
    choices,
    groups,
    issued,
    metadata,
    node_blobs,
    nodes,
    prompts,
    score_parts,
    trajectories,
)
from recorder.store.schema import keys as key_rows
from recorder.store.sql import now
from recorder.views.trajectories.shapes import TrajectoryView
from recorder.views.trajectories.transcripts import load_trajectory
from tests.effort import scaled
from tests.recorder.rows import Rows
from tests.recorder.talk import PROJECT, Talk, assistant, choice, tool_turn, user
from tests.stores import Stores, opened

PICTURE = "data:image/png;base64," + "A" * 5000


def picture(seed: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "image_url", "image_url": {"url": PICTURE + seed}}]}


async def count(store: Store, table: Any) -> int:
    async with store.read() as conn:
        return int((await conn.execute(select(func.count()).select_from(table))).scalar_one())


async def close(talk: Talk, turn: RecordedCall) -> str:
    id_ = turn.attribution.trajectory.id
    await talk.recorder.close(PROJECT, id_)
    return id_


@asynccontextmanager
async def a_store(stores: Stores) -> AsyncIterator[tuple[Path, Store]]:
    with tempfile.TemporaryDirectory() as name:
        async with opened(stores, Path(name)) as store:
            yield Path(name), store


async def test_nothing_of_a_deleted_trajectory_is_in_any_table(store: Store, talk: Talk, rows: Rows) -> None:
    said = choice(tool_turn("call_unique_1"), token_ids=list(range(300)), logprobs=[-0.5] * 300)
    more: dict[str, Any] = {"tools": [{"type": "function"}], "rest": {"x": 1}, "response_format": {"type": "text"}}
    made = await talk.call([picture("1")], [said], Address(trajectory="run", group="g"), **more)
    id_ = await close(talk, made)
    await feedback.add_feedback(Project(store, PROJECT), id_, "solved", 1, call_id=made.call_id)
    await keys.create_key(Project(store, PROJECT), "run", ["infer"], "g/run")
    gone = await delete_trajectory(Project(store, PROJECT), id_)
    assert (gone.calls, gone.nodes, gone.blobs) == (1, 2, 4)
    left = {t.name for t in metadata.sorted_tables if await count(store, t)}
    assert left == {"projects", "groups", "ledger", "changes"}  # which counts, and holds nothing of anybody
    assert [(e.code, e.detail) for e in await ledger.object_entries(store, "trajectory", id_)] == [
        ("deleted", {"why": "asked", "calls": 1})
    ]
    with pytest.raises(NotFound):
        await delete_trajectory(Project(store, PROJECT), id_)


@pytest.mark.sqlite_only("its files' bytes")
@pytest.mark.parametrize("ids", ["token ids", "text", "media"])
async def test_the_bytes_are_gone_from_the_files(stores: Stores, ids: str) -> None:
    secret = list(range(900_000, 900_200))
    said = choice(assistant("the secret answer"), token_ids=secret, logprobs=[-0.5] * 200)
    marks = {"token ids": pack_ids(secret[20:40]), "text": b"the secret", "media": b"AAAAA-secret-picture"}

    def where(folder: Path) -> list[str]:
        return [f.name for f in folder.iterdir() if marks[ids] in f.read_bytes()]

    async with a_store(stores) as (folder, store):
        recorder = Recorder(store, RecorderSettings())
        await recorder.start()
        talk = Talk(recorder)
        for number in range(30):  # neighbours, so that pages split and merge around it
            await talk.call([user(f"other {number} " * 40)], f"answer {number} " * 40)
        made = await talk.call([picture("-secret-picture"), user("the secret question")], [said])
        for number in range(30):
            await talk.call([user(f"later {number} " * 40)], f"answer {number} " * 40)
        assert where(folder)
        await close(talk, made)
        await delete_trajectory(Project(store, PROJECT), made.attribution.trajectory.id)
        assert await erase_deleted_words(store)
        assert where(folder) == []
        await recorder.stop()
        assert where(folder) == []


@pytest.mark.sqlite_only("its files' bytes")
@pytest.mark.parametrize("about", ["group", "another run"])
async def test_the_bytes_of_what_a_judge_was_asked_are_gone_from_the_files(stores: Stores, about: str) -> None:
    from recorder.queue import claims

    asked = random.Random(4821).randbytes(3000).hex()  # so that no two prompts are packed alike
    async with a_store(stores) as (folder, store):
        rows = Rows(store)
        group = await rows.ready_group(2)
        claim = await claims.claim_one_for_judging(store, group, "judge", 60)
        assert claim is not None
        of_run = {(await rows.members(group))[1]: [{"role": "user", "content": asked}]}
        given = {"prompt": of_run.popitem()[1]} if about == "group" else {"run_prompts": of_run}
        await scores.record_score(store, claim, await rows.judgement(claim, **given))
        [row] = await rows.all(prompts)
        mark = row["packed"][100:160]

        def there() -> bool:
            return any(mark in f.read_bytes() for f in folder.iterdir())

        assert there()
        await delete_trajectory(Project(store, PROJECT), (await rows.members(group))[0])
        assert await erase_deleted_words(store)
        assert await rows.all(prompts) == []
        assert not there()


async def test_a_run_that_may_grow_again_is_not_deleted(store: Store, talk: Talk, rows: Rows) -> None:
    made = await talk.call([user("hi")], "hello")
    with pytest.raises(Conflict, match="still open"):
        await delete_trajectory(Project(store, PROJECT), made.attribution.trajectory.id)
    ended = await rows.trajectory(state="completed")
    await rows.call(ended, state="open", sampled=0)
    with pytest.raises(Conflict, match="still being answered"):
        await delete_trajectory(Project(store, PROJECT), ended)
    for state in ("judging", "training"):
        held = await rows.trajectory(await rows.group(state=state), state="completed")
        with pytest.raises(Conflict, match=f"is {state}"):
            await delete_trajectory(Project(store, PROJECT), held)
    async with store.read() as conn:  # and a refusal leaves no mark
        assert (await conn.execute(select(func.count()).select_from(metadata.tables["ledger"]))).scalar_one() == 0


async def test_a_writer_that_remembers_what_was_deleted_writes_it_again(store: Store, talk: Talk) -> None:
    tools = [{"type": "function", "function": {"name": "f", "description": "x" * 500}}]
    long = list(range(1000))
    history = [user("the same beginning"), picture("1")]
    first = await talk.call(history, "a", tools=tools, prompt_token_ids=long)
    await close(talk, first)
    await delete_trajectory(Project(store, PROJECT), first.attribution.trajectory.id)
    assert [await count(store, t) for t in (nodes, blobs, node_blobs)] == [0, 0, 0]
    # the next call has the same nodes, tools and picture, and goes on from what is gone
    later = [*history, assistant("a"), user("more")]
    second = await talk.call(later, "b", tools=tools, prompt_token_ids=[*long, 7, 8, 9, 4])
    home = second.attribution.trajectory.id
    views = [v for v in await all_views(store) if second.call_id in {c.id for c in v.calls}]
    assert [v.messages for v in views] == [[*later, assistant("b")]]
    assert views[0].calls[0].tools == tools
    assert list(views[0].calls[0].prompt_token_ids or ()) == [*long, 7, 8, 9, 4]
    assert first.attribution.trajectory.id not in {home, views[0].id} | {v.id for v in await all_views(store)}


async def test_what_waits_to_be_written_while_something_is_deleted_is_prepared_anew(store: Store) -> None:
    """Another process has deleted: this one hears of it in its own transaction."""
    recorder = Recorder(store, RecorderSettings())
    await recorder.start()
    talk = Talk(recorder)
    first = await talk.call([user("shared"), picture("1")], "a")
    await close(talk, first)
    attributed = [
        await talk.attributed(
            [user("shared"), picture("1"), assistant("a"), user(f"{n}")], [choice(assistant("b"))], Address()
        )
        for n in range(3)
    ]
    committing = [asyncio.ensure_future(recorder.commit(turn)) for turn in attributed]
    await asyncio.sleep(0)  # they are prepared and queued, none is written
    other = Store(store.url.render_as_string(hide_password=False))
    await delete_trajectory(Project(other, PROJECT), first.attribution.trajectory.id)
    await other.close()
    await asyncio.gather(*committing)
    await recorder.stop()
    views = await all_views(store)
    assert sorted(c.id for v in views for c in v.calls) == sorted(t.call_id for t in attributed)
    assert all(len(c.messages) == 4 for v in views for c in v.calls)
    assert recorder.stats().unrecorded_turns == 0


async def test_a_call_at_the_address_of_a_deleted_run_begins_a_new_one(store: Store, talk: Talk) -> None:
    at = Address(trajectory="run")
    first = await talk.call([user("q")], "a", at)
    in_flight = await talk.attributed([user("r")], [choice(assistant("b"))], at)
    await close(talk, first)
    await delete_trajectory(Project(store, PROJECT), first.attribution.trajectory.id)
    await talk.recorder.commit(in_flight)
    again = await talk.call([user("s")], "c", at)
    [view] = await all_views(store)
    assert [c.id for c in view.calls] == [in_flight.call_id, again.call_id]
    assert view.id != first.attribution.trajectory.id
    assert (view.external_id, view.continues) == ("run", None)


async def test_issued_ids_of_a_deleted_run_prove_nothing(store: Store, talk: Talk) -> None:
    first = await talk.call([user("q")], tool_turn("call_unique_1"))
    await close(talk, first)
    await delete_trajectory(Project(store, PROJECT), first.attribution.trajectory.id)
    later = [user("q"), tool_turn("call_unique_1"), {"role": "tool", "tool_call_id": "call_unique_1", "content": "x"}]
    await talk.call(later, "done")
    [view] = await all_views(store)
    assert view.id != first.attribution.trajectory.id
    assert view.messages == [*later, assistant("done")]


async def all_views(store: Store) -> list[TrajectoryView]:
    async with store.read() as conn:
        ids = list((await conn.execute(select(trajectories.c.id).order_by(trajectories.c.id))).scalars())
    return [await load_trajectory(store, id_, with_tokens=True) for id_ in ids]


# --- siblings


async def siblings(store: Store, talk: Talk) -> list[str]:
    """Three trajectories of one n=3 call, the one that has the call first."""
    said = [
        choice({**assistant(f"answer {i}"), "reasoning": f"thought {i}"}, i, token_ids=[i] * 200, logprobs=[-0.5] * 200)
        for i in range(3)
    ]
    made = await talk.call([user("q")], said, Address(group="g", trajectory="run"))
    await close(talk, made)
    async with store.read() as conn:
        query = select(trajectories.c.id).order_by(trajectories.c.leaf_choice)
        return list((await conn.execute(query)).scalars())


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0)])
async def test_a_sibling_takes_its_choice_along_and_leaves_the_call_to_the_others(
    store: Store, talk: Talk, order: Sequence[int]
) -> None:
    ids = await siblings(store, talk)
    left = dict(enumerate(ids))
    for index in order[:2]:
        await delete_trajectory(Project(store, PROJECT), left.pop(index))
        for kept, id_ in left.items():
            view = await load_trajectory(store, id_, with_tokens=True)
            [call] = view.calls
            assert view.messages == [user("q"), assistant(f"answer {kept}")]
            assert [list(c.token_ids or ()) for c in call.choices] == [[i] * 200 if i in left else [] for i in range(3)]
            assert [c.trainable for c in call.choices] == [i == kept for i in range(3)]
            assert [(c.message or {}).get("reasoning") for c in call.choices] == [
                f"thought {i}" if i in left else None for i in range(3)
            ]
    [last] = left.values()
    await delete_trajectory(Project(store, PROJECT), last)
    assert [await count(store, t) for t in (calls, choices, nodes, blobs, issued)] == [0] * 5


# --- groups, scores, attempts


async def test_a_judged_group_keeps_its_numbers_and_loses_the_judges_words(store: Store, rows: Rows) -> None:
    group = await rows.ready_group(3)
    claim = await scores_of(store, rows, group)
    [gone, *kept] = await rows.members(group)
    await delete_trajectory(Project(store, PROJECT), gone)
    score = await scores.get_score(store, claim)
    assert (score.reply, score.prompt_hash) == (None, None)
    assert [(one.reply, one.failed, one.verdicts, one.tokens_in) for one in score.replies] == [
        (None, None, (), 7), (None, None, (), 5),
    ]  # fmt: skip
    assert await load_prompts(store, claim) == []
    assert {(p.trajectory_id, p.value, p.explanation) for p in score.parts} == {
        (kept[0], 0.5, None),
        (kept[1], 1.0, None),
    }
    assert await rows.state(groups, group) == "scored"
    await delete_trajectory(Project(store, PROJECT), kept[0])
    row = await rows.get(groups, group)
    assert (row["state"], row["reason"]) == ("left_out", "too_few")
    assert [e.code for e in await ledger.object_entries(store, "trajectory", kept[1])] == ["too_few"]


async def scores_of(store: Store, rows: Rows, group: str) -> str:
    from recorder.queue import claims

    claim = await claims.claim_one_for_judging(store, group, "judge", 60)
    assert claim is not None
    judged = await rows.judgement(claim, reply="the first said …", prompt=[{"role": "user", "content": "which?"}])
    parts = [replace(p, explanation="better than the first") for p in judged.parts]
    said = [ReplyVerdict(id_, 0.5, "as good as the first") for id_ in {p.trajectory_id for p in parts}]
    replies = [
        NewReply(0, "a", "a-1", 1.0, "the first said …", None, said, tokens_in=7),
        NewReply(1, "b", None, 1.0, None, "judge_unreadable: of the first …", tokens_in=5),
    ]
    return await scores.record_score(store, claim, replace(judged, parts=parts, replies=replies))


async def test_a_trained_group_stays_trained(store: Store, rows: Rows) -> None:
    group = await rows.scored_group(2)
    await rows.set(groups, group, state="trained")
    for id_ in await rows.members(group):
        await delete_trajectory(Project(store, PROJECT), id_)
    assert await rows.state(groups, group) == "trained"
    assert await rows.all(score_parts) == []


async def test_the_key_of_a_run_goes_with_the_last_of_it(store: Store, talk: Talk, rows: Rows) -> None:
    at = Address(trajectory="run")
    await keys.create_key(Project(store, PROJECT), "run", ["infer"], "run")
    first = await talk.call([user("q")], "a", at)
    await close(talk, first)
    second = await talk.call([user("q"), assistant("a"), user("r")], "b", at)
    await close(talk, second)
    newest, oldest = await trajectory_ids(Project(store, PROJECT), "run")
    assert (oldest, newest) == (first.attribution.trajectory.id, second.attribution.trajectory.id) or newest != oldest
    await delete_trajectory(Project(store, PROJECT), oldest)
    assert len(await rows.all(key_rows)) == 1
    await delete_trajectory(Project(store, PROJECT), newest)
    assert await rows.all(key_rows) == []
    with pytest.raises(NotFound):
        await trajectory_ids(Project(store, PROJECT), "run")


# --- retention


async def test_retention_deletes_what_ended_long_ago(store: Store, rows: Rows) -> None:
    kept = RecorderSettings(retention_days=1)
    old: dict[str, Any] = {"ended_at": now() - 90_000}
    new: dict[str, Any] = {"ended_at": now() - 80_000}
    fine = [await rows.trajectory(state="completed", **old), await rows.trajectory(state="errored", **old)]
    fine.append(await rows.trajectory(await rows.group(state="trained"), state="completed", **old))
    stay = [
        await rows.trajectory(state="completed", **new),
        await rows.trajectory(await rows.group(state="judging"), state="completed", **old),
        await rows.trajectory(last_call_at=now() - 90_000, origin="campaign"),
    ]
    assert (await sweep(Project(store, PROJECT), RecorderSettings())).trajectories_deleted == 0
    assert (await sweep(Project(store, PROJECT), kept)).trajectories_deleted == 3
    assert sorted(r["id"] for r in await rows.all(trajectories)) == sorted(stay)
    assert {(await ledger.object_entries(store, "trajectory", id_))[-1].detail["why"] for id_ in fine} == {"retention"}  # type: ignore[index]


# --- any store


@dataclass(frozen=True)
class Step:
    """A call: it goes on from an earlier one (of whatever run), or begins; and whether its run ends after it."""

    after: int | None
    choice: int
    question: int
    tools: int | None
    sampled: int
    keep: int
    add: int
    ends: bool
    address: int | None
    failed: bool


steps = st.builds(
    Step,
    after=st.none() | st.integers(0, 9),
    choice=st.integers(0, 1),
    question=st.integers(0, 2),
    tools=st.none() | st.integers(0, 1),
    sampled=st.sampled_from((1, 1, 2, 3)),
    keep=st.integers(0, 900),
    add=st.integers(0, 300),
    ends=st.booleans(),
    address=st.none() | st.integers(0, 1),
    failed=st.booleans(),
)


@dataclass
class Made:
    turn: RecordedCall
    prompt: list[int]
    answers: list[Any]
    ids: list[list[int]]


async def perform(talk: Talk, step: Step, before: Sequence[Made], number: int) -> Made:
    after = before[step.after] if step.after is not None and step.after < len(before) else None
    at = step.choice % len(after.answers) if after else 0
    base = [*after.prompt, *after.ids[at]] if after else []
    history = [*after.turn.request.messages, after.answers[at]] if after else []
    asked = picture(str(step.question)) if step.question == 2 else user(f"question {step.question}")
    prompt = [*base[: max(step.keep, len(base) - 50)], *range(number * 10_000, number * 10_000 + step.add)]
    answers = [assistant(f"answer {number}.{i}") for i in range(step.sampled)]
    ids = [list(range(i, i + 150)) for i in range(step.sampled)]
    said = [choice(a, i, token_ids=ids[i], logprobs=[-0.5] * 150) for i, a in enumerate(answers)]
    address = Address(trajectory=f"run-{step.address}", group="g") if step.address is not None else Address()
    more: dict[str, Any] = {} if step.tools is None else {"tools": [{"type": "function", "n": step.tools}]}
    if step.failed:
        more |= {"state": CallState.ERRORED}
        said = said[:0] if step.sampled == 1 else said
    turn = await talk.call([*history, asked], said, address, prompt_token_ids=prompt, **more)
    if step.ends:
        await talk.recorder.close(PROJECT, turn.attribution.trajectory.id)
    return Made(turn, prompt, answers, ids)


def shown(view: TrajectoryView) -> Any:
    """What a trajectory says of itself: of a call that it shares with siblings, its own choice."""
    own = set(view.main_path)
    calls_ = [
        replace(
            call,
            trajectory_id="",
            choices=[c for c in call.choices if len(call.choices) == 1 or (call.id, c.index) in own],
        )
        for call in view.calls
    ]
    return replace(view, calls=calls_)


@pytest.mark.slow
@settings(max_examples=scaled(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(steps, min_size=2, max_size=9), st.lists(steps, max_size=2), st.data())
def test_every_other_trajectory_reads_back_as_before(
    stores: Stores, plan: list[Step], afterwards: list[Step], data: st.DataObject
) -> None:
    async def run() -> None:
        async with a_store(stores) as (_, store):
            recorder = Recorder(store, RecorderSettings())
            await recorder.start()
            talk = Talk(recorder)
            made: list[Made] = []
            for number, step in enumerate(plan):
                made.append(await perform(talk, step, made, number))
            views = {v.id: v for v in await all_views(store)}
            ended = sorted(id_ for id_, v in views.items() if v.state != "open")
            for id_ in data.draw(st.permutations(ended)) if ended else ():
                if not data.draw(st.booleans()):
                    continue
                await delete_trajectory(Project(store, PROJECT), id_)
                del views[id_]
                now_there = {v.id: shown(v) for v in await all_views(store)}
                assert now_there == {kept: shown(v) for kept, v in views.items()}
            # and the process that remembers all of it goes on
            for number, step in enumerate(afterwards):
                made.append(await perform(talk, step, made, 100 + number))
                call = next(c for v in await all_views(store) for c in v.calls if c.id == made[-1].turn.call_id)
                assert list(call.prompt_token_ids or ()) == made[-1].prompt
                assert call.messages == made[-1].turn.request.messages
            for v in await all_views(store):
                if v.state == "open":
                    await recorder.close(PROJECT, v.id)
            await recorder.stop()
            for v in await all_views(store):
                await delete_trajectory(Project(store, PROJECT), v.id)
            for table in (calls, choices, nodes, blobs, node_blobs, issued, trajectories, attempts):
                assert await count(store, table) == 0, table.name

    asyncio.run(run())
