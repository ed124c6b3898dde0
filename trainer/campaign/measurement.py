"""Measure a round: the share of successes, and the mean reward.

Owns: success by a reward part or by the user's function (run in the user's Python), the value of an attempt that failed
by the agent's fault, and separate figures for adversarial scenarios. Refuses: scoring, comparing versions, and the
figures that health rules read (`trainer.measures.round_figures`).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from recorder.queue.campaigns import GroupStatus
from recorder.queue.groups.readiness import is_usable
from recorder.queue.judging import scores
from recorder.queue.judging.scores import REWARD, StoredScore
from recorder.states import TrajectoryState
from recorder.store.database import Store
from recorder.views.trajectories import transcripts
from recorder.views.trajectories.shapes import GroupView, TrajectoryView
from trainer.agents.attempts import AGENTS_OWN
from trainer.agents.user_agent import AttemptEnding, UserAgent
from trainer.campaign.sampling import attempt_number
from trainer.campaign_settings import CampaignSettings
from trainer.measures.campaign_measure import AttemptValue
from trainer.progress import Notice, Progress

FUNCTION_TIMEOUT_S = 30.0
# Includes an end without any complete answer of the model: that is the agent's own failure.
_SPOILT = AGENTS_OWN | {"no_complete_call"}


@dataclass(frozen=True, slots=True)
class RoundMeasure:
    """The measures of a round over `attempts` measured attempts; None: nothing could be measured.

    `adversarial`: the same measure over the `adversarial_attempts` at adversarial scenarios, which no other figure
    includes.
    """

    success: float | None
    reward: float | None
    attempts: int
    adversarial: float | None = None
    adversarial_attempts: int = 0
    succeeded: Mapping[str, bool] = field(default_factory=dict)  # by attempt id, where success was measured
    agent_failures: int = 0  # those that failed by their agent's own fault

    @property
    def value(self) -> float | None:
        """The value that stop rules use."""
        return self.reward if self.success is None else self.success


@dataclass(frozen=True, slots=True)
class LoadedRound:
    """A round's groups with their attempts, and their scores by score id."""

    views: Sequence[GroupView]
    scores: Mapping[str, StoredScore]


class RoundMeasurer:
    """Measures rounds. `function` runs the success function, if there is one."""

    def __init__(
        self, store: Store, settings: CampaignSettings, function: UserAgent | None, progress: Progress
    ) -> None:
        self._store = store
        self._part = settings.success if function is None else None
        self._threshold = settings.success_threshold
        self._function = function
        self._progress = progress

    @property
    def needs_scores(self) -> bool:
        """Whether nothing can be measured before groups are scored."""
        return self._function is None

    async def load(self, groups: Sequence[GroupStatus]) -> LoadedRound:
        """A round's attempts and their scores."""
        views = await transcripts.load_groups(self._store, [group.group_id for group in groups])
        ids = [group.current_score_id for group in groups if group.current_score_id is not None]
        return LoadedRound(views, await scores.get_scores(self._store, ids))

    async def measure(self, groups: Sequence[GroupStatus]) -> RoundMeasure:
        """Measure a round by its groups."""
        found = await self._measured([group for group in groups if not group.adversarial])
        apart = await self._measured([group for group in groups if group.adversarial])
        succeeded = {**found.succeeded, **apart.succeeded}
        return replace(
            found,
            adversarial=apart.value,
            adversarial_attempts=apart.attempts,
            succeeded=succeeded,
            agent_failures=found.agent_failures + apart.agent_failures,
        )

    async def _measured(self, groups: Sequence[GroupStatus]) -> RoundMeasure:
        by_group = {group.group_id: group.current_score_id for group in groups}
        found = await scores.get_scores(self._store, [id_ for id_ in by_group.values() if id_ is not None])
        rewards = [value for score in found.values() for value in _values(score, REWARD).values()]
        successes: dict[str, bool] = {}
        failures = 0
        if self._function is not None or self._part is not None:
            for view in await transcripts.load_groups(self._store, list(by_group)):
                successes |= await self._successes(view, found.get(by_group[view.id] or ""))
                failures += sum(map(is_spoilt, view.members))
        success = statistics.fmean(successes.values()) if successes else None
        reward = statistics.fmean(rewards) if rewards else None
        count = len(successes or rewards)
        return RoundMeasure(success, reward, count, succeeded=successes, agent_failures=failures)

    async def _successes(self, view: GroupView, score: StoredScore | None) -> dict[str, bool]:
        parts = _values(score, self._part) if self._part is not None else {}
        found = {member.id: await self.success(member, parts) for member in view.members}
        return {id_: solved for id_, solved in found.items() if solved is not None}

    async def success(self, member: TrajectoryView, parts: Mapping[str, float]) -> bool | None:
        """Whether a trajectory succeeded; None if unknown. `parts`: the measured part's values, by trajectory."""
        if is_spoilt(member):
            return False
        if not is_usable(member.state, member.purpose, member.selection):
            return None
        value = await self._value(member) if self._function is not None else parts.get(member.id)
        return None if value is None else value >= self._threshold

    async def _value(self, member: TrajectoryView) -> float | None:
        assert self._function is not None
        outcome = await self._function.run(function_view(member), {}, FUNCTION_TIMEOUT_S)
        answer = outcome.answer.get("score") if isinstance(outcome.answer, dict) else outcome.answer
        if outcome.ending is AttemptEnding.DONE and isinstance(answer, int | float) and math.isfinite(answer):
            return float(answer)
        why = outcome.error or (f"it returned {answer!r}" if outcome.ending is AttemptEnding.DONE else outcome.ending)
        text = f"success of {member.id} is unknown: {self._function.spec.target} returned no number: {why[:300]}"
        self._progress.tell(Notice(text, warning=True))
        return None


def scenario_figures(
    groups: Sequence[GroupStatus], loaded: LoadedRound, success: Mapping[str, bool], *, averaged: bool
) -> dict[str, tuple[int, float, float]]:
    """Attempts, mean and standard deviation of each scenario's rewards, by its id; adversarial ones are omitted.

    If the rewards only compare attempts (`averaged` false), those of `success`, by attempt id.
    """
    views = {view.id: view for view in loaded.views}
    found: dict[str, tuple[int, float, float]] = {}
    for group in (one for one in groups if not one.adversarial and one.group_id in views):
        rewards = _values(loaded.scores.get(group.current_score_id or ""), REWARD)
        successes = {one.id: float(success[one.id]) for one in views[group.group_id].members if one.id in success}
        if values := list((rewards if averaged else successes).values()):
            found[group.scenario_external_id] = len(values), statistics.fmean(values), statistics.pstdev(values)
    return found


def is_spoilt(member: TrajectoryView) -> bool:
    """Whether an attempt failed by its agent's own fault."""
    return member.state is TrajectoryState.ERRORED and member.end_reason in _SPOILT


def attempt_rewards(loaded: LoadedRound) -> dict[str, float | None]:
    """The rewards of a round's attempts, by id."""
    parts = (part for score in loaded.scores.values() for part in score.parts if part.part == REWARD)
    return {part.trajectory_id: part.value for part in parts}


def attempt_values(view: GroupView, rewards: Mapping[str, float | None]) -> dict[int, AttemptValue]:
    """The values of a group's attempts, by position; of a repeated attempt, the one that counts.

    Unknown ones are absent.
    """
    each = {
        attempt_number(member): AttemptValue(rewards.get(member.id), is_spoilt(member))
        for member in counted_attempts(view)
    }
    return {place: worth for place, worth in each.items() if worth.value is not None}


def counted_attempts(view: GroupView) -> list[TrajectoryView]:
    """A group's attempts without those that were repeated."""
    return [member for member in view.members if member.state is not TrajectoryState.ABANDONED]


def _values(score: StoredScore | None, name: str | None) -> dict[str, float]:
    """A part's values by trajectory, without those assigned without a judge, which would bias every mean."""
    if score is None:
        return {}
    return {
        part.trajectory_id: part.value
        for part in score.parts
        if part.part == name and part.value is not None and not part.unasked
    }


def function_view(trajectory: TrajectoryView) -> dict[str, Any]:
    """A trajectory as a success function receives it: the same as a reward function."""
    return {
        "id": trajectory.id,
        "messages": [dict(message) for message in trajectory.messages],
        "tools": [dict(tool) for tool in trajectory.tools or ()],
        "answer": trajectory.answer,
        "scenario": asdict(trajectory.scenario) if trajectory.scenario else None,
        "tags": dict(trajectory.tags),
    }


def is_all_judged(views: Iterable[GroupView], scores: Mapping[str, StoredScore]) -> bool:
    """Whether each group with attempts has a score."""
    return all(view.current_score_id in scores for view in views if view.members)
