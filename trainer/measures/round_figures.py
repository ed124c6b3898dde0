"""Figures of trajectories that health rules read: lengths, turns, tool use, repetition, and the spread of rewards.

Owns: these figures, of a campaign's round and of a step of `hone learn`. Pure. Refuses: success and scoring
(`trainer.campaign.measurement`), and what is unhealthy (`trainer.campaign.health`).
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Protocol

from recorder.messages import plain_text
from recorder.messages.calls import Message
from recorder.messages.plain_text import ToolCall
from recorder.queue.groups.readiness import is_usable
from recorder.queue.judging.scores import REWARD, NewPart
from recorder.states import CallKind, CallState
from recorder.views.trajectories.shapes import CallView, GroupView, TrajectoryView


class ScoreParts(Protocol):
    """A score as far as figures need it."""

    @property
    def parts(self) -> Sequence[NewPart]:
        """Its parts."""


PHRASE: Final = 4  # words
ALIKE: Final = 1e-6  # rewards that differ by less count as equal


def round_figures(
    groups: Sequence[GroupView],
    scores: Mapping[str, ScoreParts],
    success: Mapping[str, bool] | None = None,
    *,
    highest: float = 1.0,
) -> dict[str, float]:
    """The figures of a round's usable attempts; a figure without data is absent.

    `scores` by id, those of the groups. `success` by attempt id, where it was measured. `highest`: the maximum reward.

    Means over attempts: health.length (sampled tokens), health.turns (the model's, on the main path),
    health.tool_calls, health.seconds, health.repetition [`repetition`], part.NAME. Shares: health.perfect (attempts
    with the highest reward), health.zero_variance (groups whose rewards are all equal), health.judge_agreement (pairs
    of a success and a failure in a group that the reward orders correctly).
    """
    attempts = [member for group in groups for member in group.members if _counts(member)]
    of_groups = [_rewards(scores.get(group.current_score_id or "")) for group in groups]
    return {
        **_means("health.length", map(sampled_tokens, attempts)),
        **_means("health.turns", (len(one.main_path) for one in attempts)),
        **_means("health.tool_calls", (sum(1 for _ in _tool_calls(one)) for one in attempts)),
        **_means("health.seconds", map(_seconds, attempts)),
        **_means("health.repetition", (repetition(list(_written_texts(one))) for one in attempts)),
        **_means("health.perfect", (value >= highest - ALIKE for value in _assigned_rewards(scores.values()))),
        **_means("health.zero_variance", (_spread(rewards) <= ALIKE for rewards in of_groups if len(rewards) > 1)),
        **_means("health.judge_agreement", (one for rewards in of_groups for one in _ordered(rewards, success or {}))),
        **_parts(scores.values()),
    }


def health_figures(groups: Sequence[GroupView], scores: Mapping[str, ScoreParts]) -> dict[str, float]:
    """The figures of a step of `hone learn` with the prefix `health.`, and health.attempts: how many are in them."""
    usable = sum(_counts(member) for group in groups for member in group.members)
    of_round = round_figures(groups, scores)
    figures = {name: value for name, value in of_round.items() if name.startswith("health.")}
    return figures | ({"health.attempts": float(usable)} if usable else {})


def repetition(texts: Sequence[str]) -> float | None:
    """The share of four-word phrases that occurred before in the same attempt: 1 - distinct / all.

    This is seq-rep-4 of Welleck et al., "Neural text generation with unlikelihood training", 2019, over words. A phrase
    lies in one text, but may repeat a phrase of another. None: no text has a phrase.
    """
    phrases = [
        tuple(words[at : at + PHRASE]) for words in map(str.split, texts) for at in range(len(words) - PHRASE + 1)
    ]
    return 1 - len(set(phrases)) / len(phrases) if phrases else None


def sampled_tokens(attempt: TrajectoryView) -> int | None:
    """All tokens that the agent and its sub-agents sampled, by the engine's count; None: unknown."""
    counts = [(call.usage or {}).get("completion_tokens") for call in attempt.calls if _is_a_turn(call)]
    known = [count for count in counts if isinstance(count, int)]
    return sum(known) if known else None


def _is_a_turn(call: CallView) -> bool:
    return call.state is CallState.COMPLETE and call.call_kind is not CallKind.AUX and call.superseded_by is None


def _counts(member: TrajectoryView) -> bool:
    return is_usable(member.state, member.purpose, member.selection)


def _seconds(attempt: TrajectoryView) -> float | None:
    return None if attempt.ended_at is None else max(0.0, attempt.ended_at - attempt.started_at)


def _answers(attempt: TrajectoryView) -> Iterator[Message]:
    return (message for message in attempt.messages if message.get("role") == "assistant")


def _tool_calls(attempt: TrajectoryView) -> Iterator[ToolCall]:
    return (call for message in _answers(attempt) for call in plain_text.tool_calls(message))


def _written_texts(attempt: TrajectoryView) -> Iterator[str]:
    """The model's texts and tool calls."""
    for message in _answers(attempt):
        yield plain_text.thinking_text(message)
        yield from plain_text.text_parts(message)
    for call in _tool_calls(attempt):
        yield f"{call.name} {call.arguments}"


def _rewards(score: ScoreParts | None) -> dict[str, float]:
    parts = score.parts if score else ()
    return {one.trajectory_id: one.value for one in parts if one.part == REWARD and one.value is not None}


def _assigned_rewards(scores: Iterable[ScoreParts]) -> Iterator[float]:
    """The rewards that a judge or code assigned."""
    parts = (part for score in scores for part in score.parts if part.part == REWARD and not part.unasked)
    return (part.value for part in parts if part.value is not None)


def _spread(rewards: Mapping[str, float]) -> float:
    return max(rewards.values()) - min(rewards.values())


def _ordered(rewards: Mapping[str, float], success: Mapping[str, bool]) -> Iterator[float]:
    """For each pair of a success and a failure: 1 if the success has the higher reward, one half if equal."""
    won = [value for id_, value in rewards.items() if success.get(id_) is True]
    lost = [value for id_, value in rewards.items() if success.get(id_) is False]
    return (0.5 if abs(a - b) <= ALIKE else float(a > b) for a in won for b in lost)


def _parts(scores: Iterable[ScoreParts]) -> dict[str, float]:
    """The mean of each part of the rewards; a part's own name has no dot, an extra value's name has one."""
    values: dict[str, list[float]] = defaultdict(list)
    for one in (part for score in scores for part in score.parts):
        if one.part != REWARD and "." not in one.part and one.value is not None and not one.unasked:
            values[one.part].append(one.value)
    return {f"part.{name}": statistics.fmean(found) for name, found in sorted(values.items())}


def _means(name: str, values: Iterable[float | None]) -> dict[str, float]:
    known = [float(value) for value in values if value is not None]
    return {name: statistics.fmean(known)} if known else {}
