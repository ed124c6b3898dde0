"""What a version is asked to see what it has forgotten: the first turns of its alias's drift set."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from recorder.capture.recorder import Recorder
from recorder.messages.calls import Address, ParentCall
from recorder.queue import campaigns
from recorder.registry.aliases import AliasView
from recorder.settings import RecorderSettings
from recorder.store.database import Project
from recorder.store.schema import groups, trajectories
from recorder.store.sql import now
from recorder.views.trajectories.drift_turns import load_drift_turns
from tests.recorder.rows import PROJECT, Rows
from tests.recorder.talk import assistant, choice, request, turn, user

pytestmark = pytest.mark.slow


class Members:
    """Records members of the drift set."""

    def __init__(self, rows: Rows, alias: AliasView, recorder: Recorder) -> None:
        self.rows = rows
        self.alias = alias
        self._recorder = recorder

    async def record(self, task: str, *, scored: bool | None = None) -> str:
        """A member of two turns; its id. `scored`: its group has a score, which is absolute or not."""
        alias = self.alias
        for side in "ab":
            address = Address(trajectory=f"{task}-{side}", group=task, group_size=2, done=True)
            asked = [user(f"Where is {task}?")]
            ref = await self._recorder.trajectory_at(PROJECT, alias.id, address, request(asked), alias.live_version_id)
            parent = None
            for said in ("Which one?", "On its way."):
                answers = [choice(assistant(said))]
                made = turn(
                    ref, request(asked), answers, address=address, alias_id=alias.id, parent=parent,
                    version_id=alias.live_version_id, base_fingerprint=alias.base_fingerprint,
                )  # fmt: skip
                await self._recorder.commit(made)
                parent = ParentCall(made.call_id, 0)
                asked = [*asked, assistant(said), user("The last one.")]
        await self.rows.set(trajectories, ref.id, drift_set_at=now())
        if scored is not None:
            await self.rows.set(groups, ref.group_id or "", state="ready")
            await self.rows.score(ref.group_id or "", prompt_hash=None if scored else "prompt", absolute=scored)
        return ref.id


@pytest.fixture
async def members(rows: Rows) -> AsyncIterator[Members]:
    recorder = Recorder(rows.store, RecorderSettings())
    await recorder.start()
    yield Members(rows, await rows.alias(), recorder)
    await recorder.stop()


async def test_the_first_turn_of_each_member_is_asked_with_its_recorded_answer(members: Members) -> None:
    first, second = await members.record("order-1"), await members.record("order-2")
    found = await load_drift_turns(members.rows.store, members.alias, 8)
    assert [one.member for one in found.turns] == [first, second]
    [turn_of_first, _] = found.turns
    assert turn_of_first.call.messages == [user("Where is order-1?")]
    assert turn_of_first.answer.message == assistant("Which one?")
    assert list(turn_of_first.call.prompt_token_ids or ()) == [1, 2, 3]
    assert turn_of_first.version_id == members.alias.live_version_id
    assert [one.member for one in (await load_drift_turns(members.rows.store, members.alias, 1)).turns] == [first]


async def test_rewards_hold_alone_only_where_no_ranking_is_in_them(members: Members) -> None:
    await members.record("order-1", scored=True)
    await members.record("order-2")
    assert (await load_drift_turns(members.rows.store, members.alias, 8)).absolute
    await members.record("order-3", scored=False)
    assert not (await load_drift_turns(members.rows.store, members.alias, 8)).absolute


async def test_members_without_any_score_are_compared_with_their_recorded_answers(members: Members) -> None:
    await members.record("order-1")
    assert not (await load_drift_turns(members.rows.store, members.alias, 8)).absolute


async def test_members_of_campaigns_are_not_asked(members: Members) -> None:
    store = members.rows.store
    member = await members.record("order-1")
    campaign = await campaigns.create_campaign(Project(store, PROJECT), members.alias.id, "spring", {})
    async with store.write() as conn:
        await conn.execute(groups.update().values(campaign_id=campaign.id))
    assert member
    assert (await load_drift_turns(store, members.alias, 8)).turns == []
