"""Where a campaign stands, and why it stopped, in a word and a sentence. Pure.

Owns: these words. Refuses: deciding it (`trainer.campaign.stop`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from recorder.learned.campaign_events import Alarm, CampaignEnded
from recorder.states import CampaignState
from recorder.work.campaigns import CampaignView
from trainer.report.shapes import Stands

PAUSED: Final = "paused"
INTERRUPTED: Final = "interrupted"
_ENDS: Final[Mapping[str, str]] = {
    "target": "the target was reached",
    "plateau": "nothing rose any more",
    "budget": "its budget is spent",
    "steps": "all its steps are done",
    "epochs": "all its epochs are done",
    "converged": "the reward rises, and what is measured does not any more",
}


def stands(campaign: CampaignView, ended: CampaignEnded | None, alarms: Sequence[Alarm], *, held: bool) -> Stands:
    """Of one campaign. `held`: some process runs it now."""
    again = f"`hone train --resume {campaign.name}`"
    if campaign.state is CampaignState.RUNNING:
        done = f"{campaign.steps_done} steps are done"
        if held:
            return Stands("running", f"it runs; {done}")
        return Stands("left", f"no process runs it: it was killed, or its machine went down; {done}", again)
    if campaign.state is CampaignState.FAILED:
        return Stands("failed", campaign.reason or "nobody wrote down why", again)
    if campaign.state is CampaignState.STOPPED:
        return _stopped(campaign, ended, alarms, again)
    code = campaign.reason or "finished"
    told = ended.detail if ended is not None and ended.reason == code else ""
    return Stands(code, ": ".join(part for part in (_ENDS.get(code, ""), told) if part) or code)


def _stopped(campaign: CampaignView, ended: CampaignEnded | None, alarms: Sequence[Alarm], again: str) -> Stands:
    if campaign.reason != PAUSED:
        by_hand = campaign.reason in (None, INTERRUPTED)
        return Stands(INTERRUPTED, "it was stopped by hand" if by_hand else str(campaign.reason), again)
    why = next((alarm for alarm in reversed(alarms) if alarm.then == "pause"), None)
    if why is not None:
        words = f"{why.rule} after step {why.step}: {why.detail}"
    else:
        words = ended.detail if ended is not None and ended.detail else "a health rule spoke"
    way = f"add a rule or change the recipe, then `hone score --all --campaign {campaign.name}`, then {again}"
    return Stands(PAUSED, words, way)
