"""The check after the campaign: which recorded attempts were right, by the committed warehouse.

Owns: reading a finished campaign's attempts from the store, and counting. Refuses: any influence on the campaign, which
has ended and was measured by wins alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from examples.mcp_rl import facts
from examples.mcp_rl.warehouse import Item
from recorder.queue import campaigns
from recorder.queue.groups.readiness import is_usable
from recorder.settings import RecorderSettings
from recorder.states import Purpose
from recorder.stats.means import share_interval
from recorder.store.bootstrap import open_store
from recorder.store.database import Project, Store
from recorder.views.trajectories.shapes import TrajectoryView
from recorder.views.trajectories.transcripts import load_groups
from trainer.campaign_settings import CampaignSettings
from trainer.measures.arms import Arm, campaign_arms

PROJECT: Final = "default"
_SIDES: Final = campaign_arms(CampaignSettings(), "")  # without further baselines, these are all


@dataclass(frozen=True, slots=True)
class Right:
    """The number of attempts, and of right ones."""

    right: int
    attempts: int

    def told(self) -> dict[str, Any]:
        """Return it in a summary's format, with Wilson's 95 % interval."""
        if not self.attempts:
            return {"success": None, "attempts": 0, "low": None, "high": None}
        share = self.right / self.attempts
        sure = share_interval(share, self.attempts)
        assert sure is not None
        return {
            "success": round(share, 4),
            "attempts": self.attempts,
            "low": round(sure.low, 4),
            "high": round(sure.high, 4),
        }


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result: for the test part by version 0 and by the version in service, and for each step's attempts."""

    before: Right
    after: Right
    steps: Mapping[int, Right]


async def checked(
    data: Path, recording: RecorderSettings, name: str, items: Sequence[Item], *, steps: Sequence[int], each: int
) -> CheckResult:
    """Check a finished campaign's attempts. `each`: a version's own attempts in a test group; version 0's follows."""
    by_name = {item.name: item for item in items}
    store = await open_store(data, recording, migrate=False)
    try:
        campaign = await campaigns.find_campaign(Project(store, PROJECT), name)
        if campaign is None:
            raise LookupError(f"there is no campaign {name!r} in {data}")
        tested = await _attempts(store, campaign.id, max(steps, default=0), Purpose.EVAL)
        own = {group: [one for one in members if _place(one) < each] for group, members in tested.items()}
        learnt = {step: await _attempts(store, campaign.id, step, Purpose.TRAIN) for step in steps}
    finally:
        await store.close()
    return CheckResult(
        before=_counted(_of(_SIDES.base, own), by_name),
        after=_counted(_of(_SIDES.live, own), by_name),
        steps={step: _counted([o for m in groups.values() for o in m], by_name) for step, groups in learnt.items()},
    )


async def _attempts(store: Store, campaign_id: str, step: int, purpose: Purpose) -> dict[str, list[TrajectoryView]]:
    """Return a step's completed attempts, by the name of their group."""
    found = await campaigns.group_states(store, campaign_id, step, purpose)
    views = await load_groups(store, [one.group_id for one in found])
    members = {view.id: [m for m in view.members if is_usable(m.state, m.purpose, m.selection)] for view in views}
    return {one.external_id: members.get(one.group_id, []) for one in found}


def _of(side: Arm, tested: Mapping[str, Sequence[TrajectoryView]]) -> list[TrajectoryView]:
    """Return an arm's attempts at the test part, by the campaign's group names."""
    return [one for group, members in tested.items() if f".test-side{side.place}." in group for one in members]


def _counted(attempts: Sequence[TrajectoryView], items: Mapping[str, Item]) -> Right:
    return Right(sum(_right(one, items) for one in attempts), len(attempts))


def _right(attempt: TrajectoryView, items: Mapping[str, Item]) -> bool:
    assert attempt.scenario is not None
    return facts.right(str(attempt.scenario.input), attempt.messages, items)


def _place(attempt: TrajectoryView) -> int:
    """Return an attempt's number in its group, from the campaign's name for it."""
    return int((attempt.external_id or "").partition("~")[0])
