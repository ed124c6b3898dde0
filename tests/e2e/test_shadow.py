"""Live turns answered again before a real vLLM: the very prompt, tool calls parsed, and nothing sampled that bends."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from sqlalchemy import select

from recorder.queue.groups.same_request import FORKED
from recorder.states import GroupState, Origin
from recorder.store.bootstrap import open_store
from recorder.store.schema import groups, trajectories
from recorder.views.trajectories.shapes import GroupView
from recorder.views.trajectories.transcripts import load_groups
from tests.e2e.conftest import CONFIG, Stack, served_beside, wait_for
from tests.e2e.test_capture import QUESTION, TOOLS
from tests.stores import Stores
from trainer.batch.rows import RowBasis, trajectory_rows

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

RUNS = 4


@pytest.fixture(scope="module")
def shadowed(stack: Stack, stores: Stores, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    settings = CONFIG + "\n[aliases.helpdesk.shadow]\nshare = 1.0\nn = 4\n"
    folder = tmp_path_factory.mktemp("shadowed")
    with (
        stores.unmade(folder / "data") as recording,
        served_beside(stack, folder, recording, settings) as running,
    ):
        yield running


async def _closed(stack: Stack) -> list[GroupView]:
    store = await open_store(stack.data, stack.recording, migrate=False)
    try:
        of_shadows = select(trajectories.c.group_id).where(trajectories.c.origin == Origin.SHADOW)
        query = select(groups.c.id).where(groups.c.id.in_(of_shadows), groups.c.state != GroupState.OPEN)
        async with store.read() as conn:
            ids = list((await conn.execute(query)).scalars())
        return await load_groups(store, ids, with_tokens=True)
    finally:
        await store.close()


def test_turns_are_answered_again_on_their_very_ids_with_tool_calls_read(shadowed: Stack) -> None:
    with shadowed.proxy() as http:
        for run in range(RUNS):
            body = {"model": "helpdesk", "messages": QUESTION, "tools": TOOLS, "max_tokens": 120}
            http.post(f"/t/{run}/v1/chat/completions", json=body).raise_for_status()
            http.post(f"/t/{run}/hone/v1/done", json={}).raise_for_status()

    def all_closed() -> list[GroupView]:
        found = asyncio.run(_closed(shadowed))
        return found if len(found) == RUNS else []

    found = wait_for("the shadow groups", all_closed, 120)
    said = []
    for group in found:
        assert (group.state, len(group.members)) == (GroupState.READY, 4)
        assert [m.end_reason == FORKED for m in group.members] == [True, False, False, False]
        turns = [member.calls[0] for member in group.members]
        assert len({tuple(turn.prompt_token_ids or ()) for turn in turns}) == 1
        assert len({turn.base_fingerprint for turn in turns}) == 1
        basis = RowBasis(turns[0].base_fingerprint, [str(turns[0].version_id)], 0, 10_000)
        for member in group.members:
            rows, skipped = trajectory_rows(member, basis)
            assert len(rows) + len(skipped) == 1
            assert not rows or rows[0].trained_tokens == len(member.calls[0].choices[0].token_ids or ())
            said.append(member.messages[-1])
    assert any(message.get("tool_calls") for message in said)
    assert not any("<tool_call>" in str(message.get("content")) for message in said if message.get("tool_calls"))
    assert len({str(message) for message in said}) > RUNS  # sampled, not repeated
