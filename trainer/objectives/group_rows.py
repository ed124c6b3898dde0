"""Turn scored groups into rows with advantages.

Owns: which members count for a group's mean, which groups are excluded and why, and the ledger rows of exclusions.
Refuses: reading the store, weights (`trainer.objectives.group`), torch.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum

from recorder.messages.trainability import Exclusion
from recorder.queue.training.baselines import Baseline, ComparedReward
from recorder.states import Origin, Purpose, TrajectoryState
from recorder.stats.advantages import ZERO_VARIANCE, AdvantageRule, group_advantages
from recorder.stats.turn_credit import TurnValues, turn_differences
from recorder.store.ledger import LedgerRow
from recorder.views.trajectories.shapes import GroupView, TrajectoryView
from trainer.batch.row_builder import Row
from trainer.batch.rows import RowBasis, SkippedChoice, trajectory_rows
from trainer.batch.turn_mask import CallChoice, MaskedTurn, row_without
from trainer.objectives.pair_weights import pair_weight
from trainer.objectives.running_baseline import running_advantages

TurnId = tuple[str, str]  # (trajectory id, call id)


class UntrainedChoice(StrEnum):
    """Why a trajectory or group is excluded, beside the recorder's `Exclusion` and states."""

    REWARD_MISSING = "reward_missing"  # the judge gave none
    TOO_FEW = "too_few"  # rewards in the group: there is no mean to compare with
    ZERO_VARIANCE = "zero_variance"  # all did equally well
    TOO_CLOSE = "too_close"  # a judge told them apart by less than `trainer.min_spread`
    JUDGE_BY_CHANCE = "judge_by_chance"  # two trajectories, and a judge that orders a pair no better than chance
    NO_BASELINE = "no_baseline"  # too few earlier rewards of its alias and recipe to compare with
    NOTHING_SAMPLED = "nothing_sampled"  # no call of it has a sampled choice
    ENGINE_MISMATCH = "engine_mismatch"  # a turn that is masked, and what has no other turn
    NO_LESSON = "no_lesson"  # steps train on hindsight or distill alone, and no turn had a lesson
    NO_CHANGE = "no_change"  # the step on its group left the parent's adapter as it was


@dataclass(frozen=True, slots=True)
class ExcludedTrajectory:
    """A member without any trained token. `recorded`: the ledger has the reason already, since its group was closed."""

    trajectory_id: str
    code: str
    recorded: bool = False


@dataclass(frozen=True, slots=True)
class GroupRows:
    """One group ready for training. `code` set: it is excluded for that reason, and `rows` is empty."""

    group_id: str
    project_id: str
    rows: Sequence[Row]
    rewards: Mapping[str, float]  # trajectory id → reward of the members that count
    advantages: Mapping[str, float]
    left: Sequence[ExcludedTrajectory]
    skipped: Sequence[SkippedChoice]
    code: str | None = None
    single: frozenset[str] = frozenset()  # the members that are one call, not a whole trajectory
    baselines: Mapping[str, Baseline] = field(default_factory=dict)  # by trajectory id; empty: compared in the group
    pair_weight: float | None = None  # what multiplies the advantages of a pair whose judge was calibrated
    turn_credit: Mapping[TurnId, float] = field(default_factory=dict)  # what a turn adds to its trajectory's advantage

    def rewards_alone(self) -> GroupRows:
        """The group in a step that does not train on rewards: it begins the step, and gives it no rows."""
        return GroupRows(self.group_id, self.project_id, (), self.rewards, {}, (), ())

    @property
    def trained(self) -> set[str]:
        """The trajectories with at least one trained token."""
        return {row.trajectory_id for row in self.rows}

    def without_turns(self, masked: Iterable[MaskedTurn]) -> GroupRows:
        """The group as a step trained on it, that masked these turns among others'."""
        calls: dict[str, set[CallChoice]] = {}
        for one in masked:
            calls.setdefault(one.trajectory_id, set()).add(one.call)
        if not calls.keys() & self.trained:
            return self
        code = UntrainedChoice.ENGINE_MISMATCH
        kept = [row_without(row, calls.get(row.trajectory_id, ())) for row in self.rows]
        rows = [row for row in kept if row is not None]
        lost = self.trained - {row.trajectory_id for row in rows}
        turns = [(row.trajectory_id, call) for row in self.rows for call in row.calls]
        skipped = [SkippedChoice(id_, *call, code) for id_, call in turns if call in calls.get(id_, ())]
        return replace(
            self,
            rows=rows,
            left=[*self.left, *(ExcludedTrajectory(id_, code) for id_ in sorted(lost))],
            skipped=[*self.skipped, *skipped],
            code=None if rows else code,
        )

    def compared(self) -> list[ComparedReward]:
        """The baseline of each trained trajectory's reward, if that was not the group."""
        trained = sorted(self.trained & self.baselines.keys())
        return [ComparedReward(id_, self.rewards[id_], **asdict(self.baselines[id_])) for id_ in trained]

    def ledger_rows(self) -> list[LedgerRow]:
        """The exclusions in a trained group: its members, and single choices of trained members."""
        trained = self.trained
        new = [left for left in self.left if not left.recorded]
        members = [LedgerRow(self.project_id, "trajectory", left.trajectory_id, left.code) for left in new]
        choices = [
            LedgerRow(self.project_id, "call", s.call_id, s.code, {"choice": s.choice, "trajectory": s.trajectory_id})
            for s in self.skipped
            if s.trajectory_id in trained
        ]
        return members + choices


def group_rows(
    group: GroupView,
    rewards: Mapping[str, float | None],
    basis: RowBasis,
    *,
    rule: AdvantageRule = "mean",
    baselines: Mapping[str, Baseline] | None = None,
    min_spread: float = 0.0,
    agreement: float | None = None,
    turns: TurnValues | None = None,
    turn_weight: float = 0.0,
) -> GroupRows:
    """Decide which parts of a scored group are trained on. `rewards` is trajectory id → reward of its current score.

    `baselines`: the baseline of each member's reward, as far as there is one; None: the group's mean. `min_spread`: the
    smallest difference of a group's rewards that is trained on, unless they have baselines. `agreement`: how often the
    judge in the rewards orders a pair as people do, if it was measured. `turns`: the values of single turns, whose
    differences count `turn_weight` times. A group whose trajectories tell nothing is trained on if its turns differ.
    """
    left = [one for member in group.members if (one := _excluded(member, rewards, baselines))]
    excluded = {one.trajectory_id for one in left}
    counted = [member for member in group.members if member.id not in excluded]
    scored = {member.id: reward for member in counted if (reward := rewards[member.id]) is not None}
    advantages = _advantages(scored, baselines, rule)
    weight = pair_weight(agreement) if agreement is not None and baselines is None and len(scored) == 2 else None
    if advantages is None:
        why: UntrainedChoice | None = _why_nothing(scored, left, baselines)
    else:
        why = _why_unclear(scored.values(), 0.0 if baselines is not None else min_spread, weight)
    credit = _turn_credit(counted, turns or {}, turn_weight)
    if why is not None and any(credit.values()):
        advantages, why = dict.fromkeys(scored, 0.0), None
    if advantages is None or why is not None:
        return GroupRows(group.id, group.project_id, (), scored, {}, left, (), why, pair_weight=weight)
    if weight is not None:
        advantages = {id_: weight * advantage for id_, advantage in advantages.items()}
    rows, skipped, without_rows = [], [], []
    leaves = {member.main_path[-1] for member in group.members if member.main_path}
    for member in counted:
        own, without = trajectory_rows(member, basis)
        # A choice that is a sibling's leaf belongs to the sibling, and is trained or reported there.
        without = [s for s in without if s.code != Exclusion.NOT_SELECTED or (s.call_id, s.choice) not in leaves]
        rows += own
        skipped += without
        if not own:
            without_rows.append(ExcludedTrajectory(member.id, _why_untrained(without)))
    code = None if rows else _commonest(one.code for one in without_rows)
    left += without_rows
    single = frozenset(member.id for member in counted if member.origin is Origin.SHADOW)
    return GroupRows(
        group.id,
        group.project_id,
        rows,
        scored,
        advantages,
        left,
        skipped,
        code,
        single,
        baselines or {},
        weight,
        credit,
    )


def _turn_credit(counted: Sequence[TrajectoryView], turns: TurnValues, turn_weight: float) -> dict[TurnId, float]:
    """What each turn of the members that count adds to its trajectory's advantage."""
    if turn_weight == 0:
        return {}
    differences = turn_differences({one.id: turns[one.id] for one in counted if one.id in turns})
    return {
        (one.id, call_id): turn_weight * differences[one.id][number]
        for one in counted
        for number, (call_id, _) in enumerate(one.main_path, 1)
        if number in differences.get(one.id, {})
    }


def _advantages(
    rewards: Mapping[str, float], baselines: Mapping[str, Baseline] | None, rule: AdvantageRule
) -> dict[str, float] | None:
    if baselines is None:
        return group_advantages(rewards, rule)
    return running_advantages(rewards, baselines, rule)


def _why_unclear(rewards: Collection[float], min_spread: float, weight: float | None) -> UntrainedChoice | None:
    """Why a difference of rewards is not one to learn from, if so. One by rounding alone does not exclude a group."""
    if max(rewards) - min(rewards) < min_spread - ZERO_VARIANCE:
        return UntrainedChoice.TOO_CLOSE
    return UntrainedChoice.JUDGE_BY_CHANCE if weight == 0 else None


def _why_nothing(
    scored: Mapping[str, float], left: Sequence[ExcludedTrajectory], baselines: Mapping[str, Baseline] | None
) -> UntrainedChoice:
    if len(scored) > (1 if baselines is None else 0):
        return UntrainedChoice.ZERO_VARIANCE
    lacking = any(one.code == UntrainedChoice.NO_BASELINE for one in left)
    return UntrainedChoice.NO_BASELINE if lacking else UntrainedChoice.TOO_FEW


def _excluded(
    member: TrajectoryView, rewards: Mapping[str, float | None], baselines: Mapping[str, Baseline] | None
) -> ExcludedTrajectory | None:
    """Why a member does not even count for the mean, if so."""
    if member.state is not TrajectoryState.COMPLETED:
        return ExcludedTrajectory(member.id, member.state, recorded=True)
    if member.selection is not None:
        return ExcludedTrajectory(member.id, Exclusion.NOT_SELECTED, recorded=True)
    if member.purpose is not Purpose.TRAIN:
        return ExcludedTrajectory(member.id, Exclusion.PURPOSE, recorded=member.purpose is Purpose.NONE)
    reward = rewards.get(member.id)
    if reward is None or not math.isfinite(reward):
        return ExcludedTrajectory(member.id, UntrainedChoice.REWARD_MISSING)
    if baselines is not None and member.id not in baselines:
        return ExcludedTrajectory(member.id, UntrainedChoice.NO_BASELINE)
    return None


def _why_untrained(skipped: Sequence[SkippedChoice]) -> str:
    """The code for a whole trajectory: that of the choices on its main path."""
    chosen = [one.code for one in skipped if one.code != Exclusion.NOT_SELECTED]
    return _commonest(chosen) or _commonest(one.code for one in skipped) or UntrainedChoice.NOTHING_SAMPLED


def _commonest(codes: Iterable[str]) -> str | None:
    ranked = Counter(codes).most_common(1)
    return ranked[0][0] if ranked else None
