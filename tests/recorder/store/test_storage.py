"""Tokens in the store: what a call adds, however long its conversation is, and that it is read back exactly."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Text, cast, func, select

from recorder.capture.recorder import Recorder
from recorder.messages.calls import Address, Attribution, ParentCall
from recorder.messages.tokens import BLOCK
from recorder.settings import RecorderSettings
from recorder.states import Confidence
from recorder.store.database import Store
from recorder.store.schema import blobs, calls, choices, nodes
from recorder.views.trajectories import transcripts
from tests.effort import scaled
from tests.recorder.talk import PROJECT, Talk, assistant, choice, request, turn, user
from tests.stores import Stores, opened

AT = Address(trajectory="run")


async def stored_bytes(store: Store) -> int:
    """The bytes of everything that grows with a conversation."""
    columns = [
        cast(nodes.c.message, Text),
        blobs.c.content,
        *(calls.c[name] for name in ("prompt_delta", "prompt_hashes")),
        *(cast(calls.c[name], Text) for name in ("sampling", "usage", "response_meta")),
        *(choices.c[name] for name in ("token_ids", "logprobs", "hashes")),
    ]
    async with store.read() as conn:
        sums = [(await conn.execute(select(func.sum(func.length(column))))).scalar_one() for column in columns]
    return sum(int(size or 0) for size in sums)


async def converse(store: Store, talk: Talk, turns: int, *, thinking: bool) -> list[int]:
    """Bytes in the store after each turn of a conversation with 20 KB of tools.

    The template puts the tools first; `thinking` strips what the model thought from every earlier turn, as some do.
    """
    tools = [{"type": "function", "function": {"name": "f", "description": "x" * 20_000}}]
    prompt = list(range(5_000))  # the tools, as tokens
    history: list[dict[str, Any]] = []
    sizes = []
    for number in range(turns):
        asked, thought, said = [1, number] * 30, [2, number] * 100, [3, number] * 40
        history.append(user(f"question {number} " + "q" * 100))
        prompt = prompt + asked
        sampled = choice(assistant(f"answer {number} " + "a" * 100))
        sampled = choice(sampled.message, token_ids=thought + said, logprobs=[-0.5] * 280)
        await talk.call(history, [sampled], AT, tools=tools, prompt_token_ids=prompt)
        assert sampled.message is not None
        history = [*history, dict(sampled.message)]
        prompt = prompt + (said if thinking else thought + said)
        sizes.append(await stored_bytes(store))
    return sizes


async def test_a_conversation_with_20_kb_of_tools_grows_linearly(store: Store, talk: Talk) -> None:
    sizes = await converse(store, talk, 30, thinking=False)
    steps = [later - earlier for earlier, later in pairwise(sizes)]
    assert sizes[0] > 40_000
    # 340 ids and 280 logprobs are 2,480 bytes; what was cut off inside a block is stored again with the next turn
    assert max(steps) < 2_480 + 4 * BLOCK + 1_500
    assert max(steps[20:]) <= max(steps[:10]) + 4 * BLOCK


async def test_a_template_that_strips_thinking_grows_linearly(store: Store, talk: Talk) -> None:
    sizes = await converse(store, talk, 30, thinking=True)
    steps = [later - earlier for earlier, later in pairwise(sizes)]
    # every prompt breaks where the last turn's thinking was: stored from the last common block
    assert max(steps) < 2_480 + 4 * (80 + 2 * BLOCK) + 1_500
    assert max(steps[20:]) <= max(steps[:10]) + 4 * BLOCK


async def test_a_prompt_that_goes_on_exactly_stores_what_is_new(store: Store, talk: Talk) -> None:
    prompt, sampled = list(range(1000)), list(range(2000, 2300))
    said = choice(assistant("a"), token_ids=sampled, logprobs=[-0.5] * 300)
    first = await talk.call([user("q")], [said], AT, prompt_token_ids=prompt)
    later = prompt + sampled + [1, 2, 3]
    second = await talk.call([user("q"), assistant("a"), user("r")], "b", AT, prompt_token_ids=later)
    async with store.read() as conn:
        row = (await conn.execute(select(calls).where(calls.c.id == second.call_id))).one()
    assert row.prompt_len == 1303
    assert row.prompt_shared == 1300 // BLOCK * BLOCK
    assert len(row.prompt_delta) == 4 * (1303 - row.prompt_shared)
    view = await transcripts.load_trajectory(store, first.attribution.trajectory.id, with_tokens=True)
    assert [list(c.prompt_token_ids or ()) for c in view.calls] == [prompt, later]


async def test_differences_do_not_need_the_process_that_wrote_the_parent(store: Store, talk: Talk) -> None:
    prompt = list(range(1000))
    history = [user("q")]
    for number in range(4):
        recorder = Recorder(store, RecorderSettings())
        await recorder.start()
        await Talk(recorder).call(history, f"a{number}", AT, prompt_token_ids=prompt)
        await recorder.stop()
        history = [*history, assistant(f"a{number}"), user("more")]
        prompt = [*prompt, 7, 8, 9, *[number] * 200]
    async with store.read() as conn:
        shared = list((await conn.execute(select(calls.c.prompt_shared).order_by(calls.c.started_at))).scalars())
    assert shared == [0, 1003 // BLOCK * BLOCK, 1206 // BLOCK * BLOCK, 1409 // BLOCK * BLOCK]


async def test_a_call_without_ids_is_recorded_without_them(store: Store, talk: Talk) -> None:
    said = choice(assistant("a"), token_ids=None, logprobs=None)
    first = await talk.call([user("q")], [said], AT, prompt_token_ids=None)
    await talk.call([user("q"), assistant("a"), user("r")], "b", AT, prompt_token_ids=list(range(200)))
    view = await transcripts.load_trajectory(store, first.attribution.trajectory.id, with_tokens=True)
    assert view.calls[0].prompt_token_ids is None
    assert view.calls[0].choices[0].token_ids is None
    assert list(view.calls[1].prompt_token_ids or ()) == list(range(200))


# Any tree of calls, with prompts that go on from their parents', break somewhere, or have nothing to do with them.
@dataclass(frozen=True)
class Grown:
    parent: int | None
    choice: int
    keep: int  # how much of the parent's prompt and ids the prompt keeps
    add: Sequence[int]
    sampled: Sequence[Sequence[int]]


ids = st.lists(st.integers(0, 2), max_size=3 * BLOCK)
grown = st.builds(
    Grown,
    parent=st.none() | st.integers(0, 5),
    choice=st.integers(0, 1),
    keep=st.integers(0, 6 * BLOCK),
    add=ids,
    sampled=st.lists(ids, min_size=2, max_size=2),
)


@pytest.mark.slow
@settings(max_examples=scaled(30), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(grown, min_size=1, max_size=6), st.booleans())
def test_any_tree_of_prompts_is_read_back_exactly(stores: Stores, tree: list[Grown], forgetful: bool) -> None:
    async def run() -> None:
        with tempfile.TemporaryDirectory() as folder:
            async with opened(stores, Path(folder)) as store:
                prompts, made = await write(store, tree, forgetful)
                view = await transcripts.load_trajectory(store, made[0].attribution.trajectory.id, with_tokens=True)
            by_id = {c.id: c for c in view.calls}
            for prompt, step, one in zip(prompts, tree, made, strict=True):
                call = by_id[one.call_id]
                assert list(call.prompt_token_ids or ()) == prompt
                assert [list(c.token_ids or ()) for c in call.choices] == [list(s) for s in step.sampled]

    asyncio.run(run())


async def write(store: Store, tree: Sequence[Grown], forgetful: bool) -> tuple[list[list[int]], list[Any]]:
    recorder = Recorder(store, RecorderSettings())
    await recorder.start()
    ref = await recorder.trajectory_at(PROJECT, None, AT, request([user("q")]), None)
    prompts: list[list[int]] = []
    made: list[Any] = []
    for number, step in enumerate(tree):
        if forgetful and number:
            await recorder.stop()
            recorder = Recorder(store, RecorderSettings())
            await recorder.start()
        above = step.parent if step.parent is not None and step.parent < number else None
        base = [*prompts[above], *tree[above].sampled[step.choice]] if above is not None else []
        prompts.append([*base[: step.keep], *step.add])
        parent = ParentCall(made[above].call_id, step.choice) if above is not None else None
        sampled = [
            choice(assistant(f"{number}.{i}"), i, token_ids=s, logprobs=[-0.5] * len(s))
            for i, s in enumerate(step.sampled)
        ]
        one = turn(ref, request([user(f"q{number}")]), sampled, parent=parent, prompt_token_ids=prompts[-1])
        assert one.attribution == Attribution("path", Confidence.STATED, ref, parent)
        await recorder.commit(one)
        made.append(one)
    await recorder.stop()
    return prompts, made
