"""What a round came to: the share of successes, and the mean reward; apart, those of scenarios that tempt to cheat.

Owns: success by a reward part or by the user's function (run in the user's Python), what an attempt that the agent
spoilt counts as, and what each attempt of a group was worth in it. Refuses: scoring, and comparing versions.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from recorder.groups.readiness import usable
from recorder.reading import transcripts
from recorder.reading.views import GroupView, TrajectoryView
from recorder.states import TrajectoryState
from recorder.store.database import Store
from recorder.work import scores
from recorder.work.campaigns import GroupStatus
from recorder.work.scores import REWARD, StoredScore
from trainer.agents.agent import Agent, Ending
from trainer.agents.attempts import AGENTS_OWN
from trainer.campaign.sampling import place_of
from trainer.campaign_settings import CampaignSettings
from trainer.measuring.wins import Worth
from trainer.progress import Progress, Said

FUNCTION_TIMEOUT_S = 30.0
# Ended by the agent without a model's answer: a failure, not a fault of somebody else's.
_SPOILT = AGENTS_OWN | {"no_complete_call"}


@dataclass(frozen=True, slots=True)
class Measured:
    """Over `attempts` that could be measured; None: nothing could.

    `adversarial`: the same measure over the `adversarial_attempts` at scenarios that tempt to cheat, which are in
    nothing else here.
    """

    success: float | None
    reward: float | None
    attempts: int
    adversarial: float | None = None
    adversarial_attempts: int = 0
    succeeded: Mapping[str, bool] = field(default_factory=dict)  # by the attempts' ids, as far as success was measured
    agent_failures: int = 0  # attempts that their agents spoilt, among those that did not succeed

    @property
    def value(self) -> float | None:
        """What stop rules look at."""
        return self.reward if self.success is None else self.success


@dataclass(frozen=True, slots=True)
class Loaded:
    """A round's groups with their attempts, and their scores by the scores' ids."""

    views: Sequence[GroupView]
    scores: Mapping[str, StoredScore]


class Measurer:
    """Measures rounds. `function` runs the success function where there is one."""

    def __init__(self, store: Store, settings: CampaignSettings, function: Agent | None, progress: Progress) -> None:
        self._store = store
        self._part = settings.success if function is None else None
        self._threshold = settings.success_threshold
        self._function = function
        self._progress = progress

    @property
    def needs_scores(self) -> bool:
        """Whether nothing can be said before the judge has spoken."""
        return self._function is None

    async def load(self, groups: Sequence[GroupStatus]) -> Loaded:
        """A round's attempts, and what they were given."""
        views = await transcripts.load_groups(self._store, [group.group_id for group in groups])
        ids = [group.current_score_id for group in groups if group.current_score_id is not None]
        return Loaded(views, await scores.get_scores(self._store, ids))

    async def measure(self, groups: Sequence[GroupStatus]) -> Measured:
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

    async def _measured(self, groups: Sequence[GroupStatus]) -> Measured:
        by_group = {group.group_id: group.current_score_id for group in groups}
        found = await scores.get_scores(self._store, [id_ for id_ in by_group.values() if id_ is not None])
        rewards = [value for score in found.values() for value in _values(score, REWARD).values()]
        successes: dict[str, bool] = {}
        failures = 0
        if self._function is not None or self._part is not None:
            for view in await transcripts.load_groups(self._store, list(by_group)):
                successes |= await self._successes(view, found.get(by_group[view.id] or ""))
                failures += sum(map(spoilt, view.members))
        success = statistics.fmean(successes.values()) if successes else None
        reward = statistics.fmean(rewards) if rewards else None
        count = len(successes or rewards)
        return Measured(success, reward, count, succeeded=successes, agent_failures=failures)

    async def _successes(self, view: GroupView, score: StoredScore | None) -> dict[str, bool]:
        parts = _values(score, self._part) if self._part is not None else {}
        found = {member.id: await self.success(member, parts) for member in view.members}
        return {id_: solved for id_, solved in found.items() if solved is not None}

    async def success(self, member: TrajectoryView, parts: Mapping[str, float]) -> bool | None:
        """Whether a run succeeded; None where nobody can tell. `parts`: the measured part's values, by run."""
        if spoilt(member):
            return False
        if not usable(member.state, member.purpose, member.selection):
            return None
        value = await self._value(member) if self._function is not None else parts.get(member.id)
        return None if value is None else value >= self._threshold

    async def _value(self, member: TrajectoryView) -> float | None:
        assert self._function is not None
        outcome = await self._function.run(shown(member), {}, FUNCTION_TIMEOUT_S)
        answer = outcome.answer.get("score") if isinstance(outcome.answer, dict) else outcome.answer
        if outcome.ending is Ending.DONE and isinstance(answer, int | float) and math.isfinite(answer):
            return float(answer)
        why = outcome.error or (f"it returned {answer!r}" if outcome.ending is Ending.DONE else outcome.ending)
        text = f"success of {member.id} is unknown: {self._function.spec.target} gave no number: {why[:300]}"
        self._progress.tell(Said(text, warning=True))
        return None


def spoilt(member: TrajectoryView) -> bool:
    """Whether an attempt came to nothing by its agent's own fault."""
    return member.state is TrajectoryState.ERRORED and member.end_reason in _SPOILT


def rewards_of(loaded: Loaded) -> dict[str, float | None]:
    """What a round's attempts were given, by their ids."""
    parts = (part for score in loaded.scores.values() for part in score.parts if part.part == REWARD)
    return {part.trajectory_id: part.value for part in parts}


def worths(view: GroupView, rewards: Mapping[str, float | None]) -> dict[int, Worth]:
    """What a group's attempts were worth in it, by their places; of one that was run again, the one that counts.

    Those of which nobody can tell are absent.
    """
    each = {place_of(member): Worth(rewards.get(member.id), spoilt(member)) for member in counting(view)}
    return {place: worth for place, worth in each.items() if worth.value is not None}


def counting(view: GroupView) -> list[TrajectoryView]:
    """A group's attempts without those that were made again."""
    return [member for member in view.members if member.state is not TrajectoryState.ABANDONED]


def _values(score: StoredScore | None, name: str | None) -> dict[str, float]:
    """A part's values by run, without those that nobody was asked for: they would draw every mean to the middle."""
    if score is None:
        return {}
    return {
        part.trajectory_id: part.value
        for part in score.parts
        if part.part == name and part.value is not None and not part.unasked
    }


def shown(trajectory: TrajectoryView) -> dict[str, Any]:
    """A trajectory as a success function sees it: the same as a reward function."""
    return {
        "id": trajectory.id,
        "messages": [dict(message) for message in trajectory.messages],
        "tools": [dict(tool) for tool in trajectory.tools or ()],
        "answer": trajectory.answer,
        "scenario": asdict(trajectory.scenario) if trajectory.scenario else None,
        "tags": dict(trajectory.tags),
    }
