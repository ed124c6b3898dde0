"""Running baselines of a step, read from the store, for rewards that are not compared within their group.

Owns: which groups have one. Refuses: the figures (`trainer.objectives.running_baseline`), and which earlier rewards
count (`recorder.queue.training.baselines`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from recorder.queue.groups.readiness import is_one_enough
from recorder.queue.judging import scores
from recorder.queue.judging.scores import StoredScore
from recorder.queue.training import baselines as stored
from recorder.queue.training.baselines import Baseline, EarlierReward
from recorder.states import Origin
from recorder.store.database import Store
from recorder.views.trajectories.shapes import GroupView
from trainer.objectives.running_baseline import running_baseline


async def load_baselines(store: Store, groups: Sequence[GroupView]) -> dict[str, Mapping[str, Baseline]]:
    """Group id → trajectory id → the baseline of its reward; without groups that compare their own members.

    These are groups of campaigns, of aliases without a running baseline, those with a ranking in their reward (which is
    meaningless outside its group), and shadow answers.
    """
    alone = [group for group in groups if _needs_baseline(group)]
    current = await scores.get_scores(store, [g.current_score_id for g in alone if g.current_score_id is not None])
    histories: dict[tuple[str, str], list[EarlierReward]] = {}
    found: dict[str, Mapping[str, Baseline]] = {}
    for group in alone:
        score = current.get(group.current_score_id or "")
        if score is None or not score.absolute or group.alias_id is None:
            continue
        key = (group.alias_id, score.recipe_hash)
        if key not in histories:
            histories[key] = await stored.list_earlier_rewards(store, *key)
        found[group.id] = await _of_members(store, group, score, histories[key])
    return found


def _needs_baseline(group: GroupView) -> bool:
    shadow = any(member.origin is Origin.SHADOW for member in group.members)
    return is_one_enough(group.baseline, group.campaign_id) and not shadow


async def _of_members(
    store: Store, group: GroupView, score: StoredScore, history: Sequence[EarlierReward]
) -> dict[str, Baseline]:
    tools = await stored.tool_names(store, [member.id for member in group.members])
    each = {
        member.id: running_baseline(history, member.id, score.created_at, tools.get(member.id))
        for member in group.members
    }
    return {id_: baseline for id_, baseline in each.items() if baseline is not None}
