"""What a campaign's step did before its program was killed: told from the store as if the trainer had just said it.

Owns: finding the version that was made of a round's groups, and which groups were left out before it. Refuses: training
(`trainer.step.alias_trainer`), and waiting for the version.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from recorder.learned.taught import Taught, taught
from recorder.registry import versions
from recorder.registry.descent import OF_VERSIONS
from recorder.states import GroupState, StepState, VersionState
from recorder.store.database import Store
from recorder.work import steps
from recorder.work.campaigns import GroupStatus
from recorder.work.steps import StepView
from trainer.step.report import STEP_FAILED, StepReport

_FAILED = (*OF_VERSIONS, STEP_FAILED)  # why groups are left out after their step began: no report has these
_GAVE_NOTHING = (VersionState.REJECTED, VersionState.ABANDONED)


async def report_of_earlier(
    store: Store, alias_id: str, campaign_id: str, groups: Sequence[GroupStatus]
) -> StepReport | None:
    """What was made of a round's groups before now; None: nothing was. Masked choices and seconds are not told again.

    `groups` as they stood before anybody trained on them now.
    """
    step = await _step_of(store, alias_id, campaign_id, {group.group_id for group in groups})
    left = [group.group_id for group in groups if _left_out(group)]
    if step is None and not left:
        return None
    without = (await taught(store, None, left)).left_out
    if step is None or step.version_id is None:
        return StepReport(None, None, left_out=without)
    version = await versions.get_version(store, step.version_id)
    made = await taught(store, step.id, list(await steps.groups_of(store, step.id)))
    if version.state in _GAVE_NOTHING:
        made = Taught(0, {})
    return StepReport(step, version, None, step.metrics, made.trained, _sum(made.left_out, without))


def together(earlier: StepReport | None, now: StepReport | None) -> StepReport | None:
    """What one step did in two runs of its program. The newer version and its figures count, where both made one."""
    if earlier is None or now is None:
        return earlier or now
    newer = now if now.version is not None or earlier.version is None else earlier
    left_out = _sum(earlier.left_out, now.left_out)
    return replace(newer, trained=earlier.trained + now.trained, left_out=left_out)


async def _step_of(store: Store, alias_id: str, campaign_id: str, group_ids: set[str]) -> StepView | None:
    """The newest step, if it was made of groups of this round: rounds come one after the other."""
    newest = await steps.list_steps(store, alias_id, state=StepState.DONE, campaign_id=campaign_id, limit=1)
    if newest and group_ids & set(await steps.groups_of(store, newest[0].id)):
        return newest[0]
    return None


def _left_out(group: GroupStatus) -> bool:
    """Whether a trainer left it out, and not whoever could not score it."""
    scored = group.current_score_id is not None
    return scored and group.state is GroupState.LEFT_OUT and group.reason not in _FAILED


def _sum(some: Mapping[str, int], more: Mapping[str, int]) -> dict[str, int]:
    return dict(sorted((Counter(some) + Counter(more)).items()))
