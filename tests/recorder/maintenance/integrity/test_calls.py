"""Each check of calls and choices finds what is planted, and just that."""

from __future__ import annotations

import math

import pytest

from recorder.maintenance.integrity import calls as checks
from recorder.messages.tokens import pack_logprobs
from recorder.store.schema import calls, choices, trajectories
from recorder.store.sql import now
from tests.recorder.maintenance.integrity.sound import LONG, Sound

pytestmark = [pytest.mark.slow, pytest.mark.repeats_statements]  # those of test_invariants.py


async def test_a_call_that_a_dead_process_left_open(sound: Sound) -> None:
    run = await sound.rows.trajectory(answered=False)
    lost = await sound.rows.call(run, state="open", process="gone", sampled=0)
    await sound.finds(checks.no_call_is_open_behind_a_process_that_is_gone, f"call {lost}")


@pytest.mark.parametrize("state", ["open", "completed"])
async def test_a_run_whose_end_does_not_fit_its_state(sound: Sound, state: str) -> None:
    ended_at = now() if state == "open" else None
    run = await sound.rows.trajectory(answered=False, state=state, ended_at=ended_at)
    await sound.finds(checks.trajectories_end_once_and_say_when, f"trajectory {run}")


async def test_calls_that_go_round_in_a_circle(sound: Sound) -> None:
    run = await sound.rows.trajectory(answered=False)
    one = await sound.rows.call(run, sampled=0)
    other = await sound.rows.call(run, sampled=0, parent_call_id=one)
    for call in (one, other):
        await sound.rows.insert(choices, {"call_id": call, "index": 0, "trainable": False, "untrainable_reason": "x"})
    await sound.rows.set(calls, one, parent_call_id=other)
    await sound.finds(checks.the_calls_of_a_trajectory_form_a_tree, f"call {one}", f"call {other}")


@pytest.mark.parametrize("gone", ["call", "choice"])
async def test_a_call_that_goes_on_from_nothing(sound: Sound, gone: str) -> None:
    first, second, _ = await sound.calls_of(sound.runs[0])
    parent = {"parent_call_id": "call_nowhere"} if gone == "call" else {"parent_choice": 7}
    alone = await sound.rows.call(sound.runs[0], sampled=0, **{"parent_call_id": first.id, **parent})
    assert second.parent_call_id == first.id
    await sound.finds(checks.every_parent_is_there, f"call {alone}")


@pytest.mark.parametrize(
    "changes",
    [
        {"logprobs": pack_logprobs([-0.5] * LONG)},
        {"logprobs": pack_logprobs([math.nan, *[-0.5] * LONG])},
        {"logprobs": None},
        {"logprobs": b"abc"},
        {"trainable": False},
    ],
    ids=["one too few", "nan", "none", "damaged", "no reason"],
)
async def test_a_choice_that_may_not_be_trained_on_and_is_marked_so(sound: Sound, changes: dict[str, object]) -> None:
    call = (await sound.calls_of(sound.runs[1]))[-1].id
    await sound.change(choices, choices.c.call_id == call, **changes)
    await sound.finds(checks.what_may_be_trained_on_is_whole, f"choice {call}/0")


async def test_a_choice_of_an_aborted_call_that_is_marked_as_trainable(sound: Sound) -> None:
    call = (await sound.calls_of(sound.runs[1]))[-1].id
    await sound.change(calls, calls.c.id == call, state="aborted")
    await sound.finds(checks.what_may_be_trained_on_is_whole, f"choice {call}/0")


async def test_a_run_is_there_to_be_checked(sound: Sound) -> None:
    assert {row.state for row in await sound.rows.all(trajectories)} == {"completed"}
