"""Packed ids, chained block hashes, and prompts put together from what they share with their parents."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.errors import CorruptRecord
from recorder.messages.tokens import (
    BLOCK,
    HASH_BYTES,
    ID_BYTES,
    block_hashes,
    chain_seed,
    extend_hashes,
    join_ids,
    pack_heard_ids,
    pack_ids,
    pack_logprobs,
    shared_prefix,
    unpack_ids,
    unpack_logprobs,
)

SEED = chain_seed(b"k" * 32)
ids_lists = st.lists(st.integers(0, 3), max_size=5 * BLOCK)  # few ids: long common beginnings are found


@given(st.lists(st.integers(-(2**31), 2**31 - 1)))
def test_ids_survive_packing(ids: list[int]) -> None:
    assert list(unpack_ids(pack_ids(ids))) == ids


@given(st.lists(st.floats(width=32, allow_nan=False)))
def test_logprobs_survive_packing(logprobs: list[float]) -> None:
    assert list(unpack_logprobs(pack_logprobs(logprobs))) == logprobs


def test_packed_bytes_are_little_endian() -> None:
    assert pack_ids([1, 258]) == b"\x01\0\0\0\x02\x01\0\0"
    assert pack_logprobs([1.0]) == b"\0\0\x80?"


@pytest.mark.parametrize("bad", [[2**31], [1.5], ["1"]])
def test_ids_that_are_none_are_refused(bad: list[int]) -> None:
    with pytest.raises((OverflowError, TypeError)):
        pack_ids(bad)


@pytest.mark.parametrize("bad", [[2**31], [2**64], [1.5], ["1"], [None], [[1]], [-1], [5, -(2**31)], 5, "12", {"a": 1}])
def test_what_an_engine_said_may_be_no_ids(bad: list[int]) -> None:
    assert pack_heard_ids(bad) is None


@given(st.lists(st.integers(0, 2**31 - 1)))
def test_what_an_engine_said_is_packed_as_ids(ids: list[int]) -> None:
    assert pack_heard_ids(ids) == pack_ids(ids)


def test_bytes_that_are_no_ids_are_refused() -> None:
    with pytest.raises(CorruptRecord):
        unpack_ids(b"123")
    with pytest.raises(CorruptRecord):
        unpack_logprobs(b"12345")


@given(ids_lists, st.integers(0, 5 * BLOCK))
def test_hashes_of_a_sequence_do_not_depend_on_where_it_is_cut(ids: list[int], cut: int) -> None:
    prompt, sampled = pack_ids(ids[:cut]), pack_ids(ids[cut:])
    prompt_hashes = block_hashes(prompt, SEED)
    whole = prompt_hashes + extend_hashes(prompt, prompt_hashes, sampled, SEED)
    assert whole == block_hashes(pack_ids(ids), SEED)
    assert len(whole) == len(ids) // BLOCK * HASH_BYTES


@given(ids_lists, ids_lists, st.integers(0, 5 * BLOCK))
def test_the_shared_prefix_is_the_last_common_block(a: list[int], b: list[int], common: int) -> None:
    b = a[:common] + b
    expected = 0
    while expected < min(len(a), len(b)) and a[expected] == b[expected]:
        expected += 1
    found = shared_prefix(block_hashes(pack_ids(a), SEED), block_hashes(pack_ids(b), SEED))
    assert found == min(expected // BLOCK, len(a) // BLOCK, len(b) // BLOCK) * BLOCK


def test_equal_ids_of_two_projects_have_unlinkable_hashes() -> None:
    ids = pack_ids(range(BLOCK))
    assert block_hashes(ids, SEED) != block_hashes(ids, chain_seed(b"j" * 32))


@given(ids_lists, ids_lists, st.integers(0, 5 * BLOCK))
def test_a_prompt_is_put_together_from_its_parents_and_its_own_ids(a: list[int], b: list[int], common: int) -> None:
    prompt = a[:common] + b
    shared = shared_prefix(block_hashes(pack_ids(prompt), SEED), block_hashes(pack_ids(a), SEED))
    delta = pack_ids(prompt)[shared * ID_BYTES :]
    assert list(join_ids(array("i", a), shared, delta, len(prompt))) == prompt


def test_a_parent_too_short_or_a_length_that_does_not_fit_is_corrupt() -> None:
    with pytest.raises(CorruptRecord):
        join_ids(array("i", [1]), BLOCK, b"", BLOCK)
    with pytest.raises(CorruptRecord):
        join_ids(None, 0, pack_ids([1, 2]), 3)
