"""Messages and blobs that are missing, or that nobody needs, are found."""

from __future__ import annotations

import pytest

from recorder.maintenance.integrity import calls as checks
from recorder.store.schema import blobs, calls, choices, node_blobs, nodes, said
from tests.recorder.maintenance.integrity.sound import Sound
from tests.recorder.rows import PROJECT

pytestmark = [pytest.mark.slow, pytest.mark.repeats_statements]  # those of test_invariants.py


async def test_a_message_that_is_not_there(sound: Sound) -> None:
    *_, last = await sound.calls_of(sound.runs[0])
    [sampled] = [row for row in await sound.rows.all(choices) if row.call_id == last.id]
    await sound.take(nodes, nodes.c.id == sampled.node_id)
    await sound.finds(checks.messages_that_are_referred_to_exist, f"call {last.id}")


async def test_a_message_whose_predecessor_is_not_there(sound: Sound) -> None:
    *_, last = await sound.calls_of(sound.runs[0])
    await sound.change(nodes, nodes.c.id == last.prompt_node_id, parent_id=b"nowhere")
    broken = await sound.broken()
    assert broken.pop("messages_that_are_referred_to_exist") == [f"node {last.prompt_node_id.hex()}"]
    assert broken == {}  # what was above it is an answer that a choice ends in


async def test_a_blob_that_is_not_there(sound: Sound) -> None:
    first, *_ = await sound.calls_of(sound.runs[0])
    await sound.change(calls, calls.c.id == first.id, request_blob_id=b"nowhere")
    await sound.finds(checks.blobs_that_are_referred_to_exist, f"call {first.id}")


async def test_media_that_are_not_there(sound: Sound) -> None:
    first, *_ = await sound.calls_of(sound.runs[0])
    await sound.rows.insert(node_blobs, {"node_id": first.prompt_node_id, "blob_id": b"nowhere"})
    await sound.finds(checks.blobs_that_are_referred_to_exist, f"node {first.prompt_node_id.hex()}")


async def test_a_message_that_no_conversation_has(sound: Sound) -> None:
    row = {"id": b"alone", "project_id": PROJECT, "depth": 0, "role": "user", "message": {"role": "user"}}
    await sound.rows.insert(nodes, row)
    await sound.finds(checks.every_message_is_needed, f"node {b'alone'.hex()}")


async def test_a_blob_that_nothing_refers_to(sound: Sound) -> None:
    await sound.rows.insert(blobs, {"id": b"alone", "project_id": PROJECT, "kind": "media", "content": b"x"})
    await sound.finds(checks.every_blob_is_needed, f"blob {b'alone'.hex()}")


async def test_what_is_searched_without_a_call(sound: Sound) -> None:
    words = {"project_id": PROJECT, "trajectory_id": sound.runs[0], "words": "zanzibar"}
    await sound.rows.insert(said, {"id": 1, "call_id": "call_gone", **words})
    await sound.finds(checks.what_is_searched_was_said_in_a_call, "call call_gone")
