"""A prompt that does not resolve, or is not the one that was hashed, is found; one that does is not."""

from __future__ import annotations

import pytest

from recorder.maintenance.integrity.calls import prompts_resolve_and_their_hashes_agree
from recorder.messages.tokens import pack_ids
from recorder.store.schema import calls, choices
from tests.recorder.maintenance.integrity.sound import LONG, Sound

pytestmark = [pytest.mark.slow, pytest.mark.repeats_statements]  # those of test_invariants.py


async def test_prompts_are_stored_as_differences_here(sound: Sound) -> None:
    first, second, third = await sound.calls_of(sound.runs[0])
    assert (first.prompt_shared, second.prompt_shared, third.prompt_shared) == (0, 512, 896)


async def test_other_ids_than_were_hashed(sound: Sound) -> None:
    *_, last = await sound.calls_of(sound.runs[0])
    await sound.change(calls, calls.c.id == last.id, prompt_hashes=b"12345678")
    await sound.finds(prompts_resolve_and_their_hashes_agree, f"call {last.id}")


async def test_a_length_that_is_not_that_of_the_ids(sound: Sound) -> None:
    *_, last = await sound.calls_of(sound.runs[0])
    await sound.change(calls, calls.c.id == last.id, prompt_len=last.prompt_len + 1)
    await sound.finds(prompts_resolve_and_their_hashes_agree, f"call {last.id}")


async def test_sampled_ids_that_were_changed_are_found_in_all_that_goes_on_from_them(sound: Sound) -> None:
    first, second, third = await sound.calls_of(sound.runs[0])
    await sound.change(choices, choices.c.call_id == first.id, token_ids=pack_ids([9] * (LONG + 1)))
    found = [f"call {call.id}" for call in (first, second, third)]
    await sound.finds(prompts_resolve_and_their_hashes_agree, *found)


async def test_a_prompt_that_is_a_difference_to_itself(sound: Sound) -> None:
    first, _, third = await sound.calls_of(sound.runs[0])
    await sound.change(calls, calls.c.id == first.id, prompt_shared=128, parent_call_id=third.id, parent_choice=0)
    broken = await sound.broken()
    assert len(broken.pop(prompts_resolve_and_their_hashes_agree.__name__)) == 3
    assert list(broken) == ["the_calls_of_a_trajectory_form_a_tree"]
