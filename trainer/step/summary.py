"""The report of one step, for its caller and for the store, and the protocol of a trainer for its callers.

Owns: the report, its counts, and reading back the report of a step that finished before its process was killed: the
version made of a round's groups, and the groups excluded before it. Refuses: training (`trainer.step.alias_trainer`),
and importing torch: code that waits for steps need not load it.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from recorder.queue.campaigns import GroupStatus
from recorder.queue.claims import GroupClaim
from recorder.queue.judging.scores import REWARD, NewPart
from recorder.queue.training import steps
from recorder.queue.training.steps import StepView
from recorder.registry import versions
from recorder.registry.ancestry import OF_VERSIONS
from recorder.registry.versions import VersionView
from recorder.states import GroupState, StepState, VersionState
from recorder.store.database import Store
from recorder.views.versions.steps import StepTrajectories, load_step_trajectories
from trainer.batch.weights import WeightedRow
from trainer.objectives.group_rows import GroupRows

STEP_FAILED: Final = "step_failed"  # the ledger's code of a group in an abandoned step
MOST_EXTRAS: Final = 100  # a step's scenarios may have thousands of criteria, each with a name of its own


@dataclass(frozen=True, slots=True)
class StepReport:
    """The result of `train_once`. No version means that nothing was trained; `reason` then says why.

    Metrics of every step: reward_mean and reward_std (of rewards that a judge or code assigned; absent if there are
    none), groups, groups_trained, pair_weight (mean weight of the groups of two whose judge was calibrated), and
    credited_turns (turns whose own value changed their advantage, with `turn_weight`). Of a
    step that made a version also: loss, kl_engine (KL(engine ‖ trainer) over tokens sampled by the parent version: the
    numerical difference of the two), logprob_gap and logprob_gap_max (mean and maximum of |Δlogprob| of the same
    tokens), fresh_tokens (their number), logprob_gap_bound (the largest mean that is accepted; absent if the two were
    not compared), probe_gap and probe_gap_bound (of few fresh tokens: the engine's over the parent's probe, and the
    largest that is accepted), ratio_mean, ratio_max, clip_fraction, entropy, kl_base (if `kl_coef` > 0), grad_norm,
    grad_norm_limit (with `grad_clip_recent`), lr, rows, rows_per_trajectory, tokens (of all rows), trained_tokens,
    forward_tokens (shared prefixes once, and padding), tokens_per_s, probe_separation, optimizer_fresh (1 if the parent
    had no state),
    engine_mismatch (share of the compared turns that is masked, with `mask_ratio`), copy_gap (of a quantised copy to
    the base after the fixed text), text_contradictions (answers whose text is not in their ids, for parsers that are
    not proven) and seconds.PHASE (of each phase before the commit); and over the trained trajectories the mean of each
    part of their rewards (part.NAME) and of its extra values (part.NAME.EXTRA).
    With a drift set also its size (drift.trajectories, drift.tokens), the new version's entropy on it (drift.entropy),
    and its divergence from the base, the parent, and the versions of a day and of a week ago as far as there are any:
    drift.kl_base, drift.kl_parent, drift.kl_day, drift.kl_week (`trainer.step.drift`). If the update was halved, also
    drift.kl_parent_whole, from before that.
    Of live learning also the figures health.* (`trainer.measures.round_figures`) of the trajectories that were read.
    With `follow_up_share` below 1 and rewards by follow-ups: follow_up_share (the largest share of one key's among the
    trained trajectories) and follow_ups_waiting (trajectories that were read, and wait for a later step because of it).
    With more objectives than `group` also: demonstrations, pairs, rendered_tokens (their tokens that are not recorded
    ids), and of each objective objective.NAME.tokens, objective.NAME.loss and objective.NAME.gradient_share. With
    `trainer.rehearsal` also rehearsal (the earlier trajectories that the step repeated) and these of it. Of pairs
    also objective.prefer.margin and objective.prefer.accuracy, from before the update. Of hindsight and distill also
    objective.NAME.turns (answers with a lesson), objective.NAME.excluded (answers that could not have one),
    objective.NAME.advantage (its mean over their tokens, in nats) and objective.NAME.clipped (the share of tokens whose
    advantage is bounded).
    """

    step: StepView | None
    version: VersionView | None  # state `written`: the proxy's controller takes it from here
    reason: str | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    trained: int = 0  # trajectories
    left_out: Mapping[str, int] = field(default_factory=dict)  # trajectories by ledger code
    masked: Mapping[str, int] = field(default_factory=dict)  # choices of trained trajectories by ledger code
    seconds: Mapping[str, float] = field(default_factory=dict)  # read, rows, load, probe, train, publish, commit
    note: str = ""  # about the step's version
    code: str | None = None  # why a step that was trained made no version: `no_change`, `logprob_gap`, `kl_parent_max`
    notice: str | None = None  # for a person: something about this step that is not as configured

    @property
    def is_fault(self) -> bool:
        """Whether there is no version because of a fault, and not because there was nothing to train on."""
        return self.code is not None


class StepTrainer(Protocol):
    """The trainer's interface for a campaign and the learner."""

    @property
    def owner(self) -> str:
        """The holder of the alias."""

    @property
    def target_note(self) -> str | None:
        """Which share of the base's weights is adapted, in one sentence; None: nothing is."""

    async def train_once(self, claims: Sequence[GroupClaim], *, campaign_id: str | None = None) -> StepReport:
        """Train one step and publish its version."""


def reward_metrics(groups: Sequence[GroupRows], unasked: Collection[str] = ()) -> dict[str, float]:
    """Mean and standard deviation of all rewards that counted, the number of groups, and the mean weight of pairs.

    Rewards of the trajectories `unasked` are not comparable with other groups: neither figure includes them.
    """
    rewards = [reward for group in groups for id_, reward in group.rewards.items() if id_ not in unasked]
    metrics = {"groups": float(len(groups)), "groups_trained": float(sum(group.code is None for group in groups))}
    if credited := sum(bool(added) for group in groups for added in group.turn_credit.values()):
        metrics["credited_turns"] = float(credited)
    weighed = [group.pair_weight for group in groups if group.pair_weight is not None]
    if weighed:
        metrics["pair_weight"] = statistics.fmean(weighed)
    if rewards:
        metrics |= {"reward_mean": statistics.fmean(rewards), "reward_std": statistics.pstdev(rewards)}
    return metrics


def part_metrics(groups: Sequence[GroupRows], parts: Iterable[NewPart]) -> dict[str, float]:
    """Means over the trained trajectories: of each part of their rewards, and of at most `MOST_EXTRAS` extra values.

    Beyond that, the extra values of the fewest trajectories are omitted. A missing part, or one that no judge was asked
    for, is not in its mean.
    """
    trained = {id_ for group in groups for id_ in group.trained}
    values: dict[str, list[float]] = defaultdict(list)
    for one in parts:
        if one.trajectory_id in trained and one.part != REWARD and one.value is not None and not one.unasked:
            values[one.part].append(one.value)
    extras = [name for name in values if "." in name]  # a part's own name has none
    few = sorted(extras, key=lambda name: (-len(values[name]), name))[MOST_EXTRAS:]
    return {f"part.{name}": _mean(values[name]) for name in sorted(values.keys() - set(few))}


def _mean(values: Sequence[float]) -> float:
    """The mean of finite numbers without overflow, whatever users' functions return."""
    return math.fsum(value / len(values) for value in values)


def row_metrics(rows: Sequence[WeightedRow], train_s: float) -> dict[str, float]:
    """Metrics of the amount trained on, and of the speed."""
    tokens = sum(len(one.row) for one in rows)
    trajectories = len({one.row.trajectory_id for one in rows})
    return {
        "rows": float(len(rows)),
        "rows_per_trajectory": len(rows) / max(1, trajectories),
        "tokens": float(tokens),
        "tokens_per_s": tokens / train_s if train_s > 0 else 0.0,
    }


def excluded_counts(groups: Sequence[GroupRows]) -> dict[str, int]:
    """Trajectories without a trained token, by ledger code; for an excluded group, by the group's code."""
    counted: Counter[str] = Counter()
    for group in groups:
        counted.update(str(one.code) for one in group.left)
        if group.code is not None:
            others = group.rewards.keys() - {one.trajectory_id for one in group.left}
            counted[str(group.code)] += len(others)
    return {code: number for code, number in sorted(counted.items()) if number}


def excluded_as(code: str, groups: Sequence[GroupRows]) -> dict[str, int]:
    """The trained trajectories of groups that were excluded after their step, under the code of the exclusion."""
    return {code: sum(len(group.trained) for group in groups)}


def masked_counts(groups: Sequence[GroupRows]) -> dict[str, int]:
    """Choices that are context in trained trajectories, by ledger code."""
    counted = Counter(str(one.code) for g in groups for one in g.skipped if one.trajectory_id in g.trained)
    return dict(sorted(counted.items()))


_FAILED = (*OF_VERSIONS, STEP_FAILED)  # reasons to exclude groups after their step began: no report has these
_GAVE_NOTHING = (VersionState.REJECTED, VersionState.ABANDONED)


async def load_earlier_report(
    store: Store, alias_id: str, campaign_id: str, groups: Sequence[GroupStatus]
) -> StepReport | None:
    """The report of an earlier step on a round's groups; None: there is none. Without masked choices and seconds.

    `groups`: their state before this process trained on them.
    """
    step = await _step_of(store, alias_id, campaign_id, {group.group_id for group in groups})
    left = [group.group_id for group in groups if _left_out(group)]
    if step is None and not left:
        return None
    without = (await load_step_trajectories(store, None, left)).excluded
    if step is None or step.version_id is None:
        return StepReport(None, None, left_out=without)
    version = await versions.get_version(store, step.version_id)
    made = await load_step_trajectories(store, step.id, list(await steps.list_step_groups(store, step.id)))
    if version.state in _GAVE_NOTHING:
        made = StepTrajectories(0, {})
    return StepReport(step, version, None, step.figures, made.trained, add_counts(made.excluded, without))


def merge_reports(earlier: StepReport | None, now: StepReport | None) -> StepReport | None:
    """One step's report from those of two processes. If both made a version, the newer one counts."""
    if earlier is None or now is None:
        return earlier or now
    newer = now if now.version is not None or earlier.version is None else earlier
    left_out = add_counts(earlier.left_out, now.left_out)
    return replace(newer, trained=earlier.trained + now.trained, left_out=left_out)


async def _step_of(store: Store, alias_id: str, campaign_id: str, group_ids: set[str]) -> StepView | None:
    """The newest step, if it was made of groups of this round: rounds are sequential."""
    newest = await steps.list_steps(store, alias_id, state=StepState.DONE, campaign_id=campaign_id, limit=1)
    if newest and group_ids & set(await steps.list_step_groups(store, newest[0].id)):
        return newest[0]
    return None


def _left_out(group: GroupStatus) -> bool:
    """Whether a trainer excluded it, and not a judge."""
    scored = group.current_score_id is not None
    return scored and group.state is GroupState.LEFT_OUT and group.reason not in _FAILED


def add_counts(some: Mapping[str, int], more: Mapping[str, int]) -> dict[str, int]:
    """The sum of two counts by ledger code, sorted."""
    return dict(sorted((Counter(some) + Counter(more)).items()))
