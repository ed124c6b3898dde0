"""What a round's attempts looked like: lengths, turns, tools, repetition, and how its rewards were spread. Pure.

Owns: the figures that health rules look at, and their names. Refuses: what is unhealthy (`trainer.health`), and
measuring success (`trainer.campaign.measure`).
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from recorder.content import said
from recorder.content.said import ToolCall
from recorder.content.turns import Message
from recorder.groups.readiness import usable
from recorder.reading.views import CallView, GroupView, TrajectoryView
from recorder.states import CallState, TurnKind
from recorder.work.scores import REWARD, StoredScore

PHRASE: Final = 4  # words
ALIKE: Final = 1e-6  # rewards that differ by less are the same


def figures_of(
    groups: Sequence[GroupView],
    scores: Mapping[str, StoredScore],
    success: Mapping[str, bool] | None = None,
    *,
    highest: float = 1.0,
) -> dict[str, float]:
    """The figures of a round, of its usable attempts; one that nothing was found for is absent.

    `scores` by their ids, those of the groups. `success` by the attempts' ids, where it was measured. `highest`: the
    most that a reward may be worth.

    Means of an attempt: health.length (sampled tokens), health.turns (the model's, on the main path),
    health.tool_calls, health.seconds, health.repetition [`repetition`], part.NAME. Shares: health.perfect (of the
    attempts: those with the highest reward), health.zero_variance (of the groups: those whose rewards are all the
    same), health.judge_agreement (of the pairs in a group, one a success and one not, that the reward orders rightly).
    """
    attempts = [member for group in groups for member in group.members if _counts(member)]
    of_groups = [_rewards(scores.get(group.current_score_id or "")) for group in groups]
    return {
        **_means("health.length", map(sampled_tokens, attempts)),
        **_means("health.turns", (len(one.main_path) for one in attempts)),
        **_means("health.tool_calls", (sum(1 for _ in _tool_calls(one)) for one in attempts)),
        **_means("health.seconds", map(_seconds, attempts)),
        **_means("health.repetition", (repetition(list(_said(one))) for one in attempts)),
        **_means("health.perfect", (value >= highest - ALIKE for value in _asked(scores.values()))),
        **_means("health.zero_variance", (_spread(rewards) <= ALIKE for rewards in of_groups if len(rewards) > 1)),
        **_means("health.judge_agreement", (one for rewards in of_groups for one in _ordered(rewards, success or {}))),
        **_parts(scores.values()),
    }


def repetition(texts: Sequence[str]) -> float | None:
    """The share of phrases of four words that were said before in the same attempt: 1 - distinct / all.

    This is seq-rep-4 of Welleck et al., "Neural text generation with unlikelihood training", 2019, over words. A phrase
    lies in one text, but may have been said in another. None: no text has a phrase.
    """
    phrases = [
        tuple(words[at : at + PHRASE]) for words in map(str.split, texts) for at in range(len(words) - PHRASE + 1)
    ]
    return 1 - len(set(phrases)) / len(phrases) if phrases else None


def sampled_tokens(attempt: TrajectoryView) -> int | None:
    """All tokens that the agent and its sub-agents sampled, by the engine's own count; None: nobody counted."""
    counts = [(call.usage or {}).get("completion_tokens") for call in attempt.calls if _is_a_turn(call)]
    known = [count for count in counts if isinstance(count, int)]
    return sum(known) if known else None


def _is_a_turn(call: CallView) -> bool:
    return call.state is CallState.COMPLETE and call.turn_kind is not TurnKind.AUX and call.superseded_by is None


def _counts(member: TrajectoryView) -> bool:
    return usable(member.state, member.purpose, member.selection)


def _seconds(attempt: TrajectoryView) -> float | None:
    return None if attempt.ended_at is None else max(0.0, attempt.ended_at - attempt.started_at)


def all_judged(views: Iterable[GroupView], scores: Mapping[str, StoredScore]) -> bool:
    """Whether each group with attempts has its score."""
    return all(view.current_score_id in scores for view in views if view.members)


def _answers(attempt: TrajectoryView) -> Iterator[Message]:
    return (message for message in attempt.messages if message.get("role") == "assistant")


def _tool_calls(attempt: TrajectoryView) -> Iterator[ToolCall]:
    return (call for message in _answers(attempt) for call in said.tool_calls(message))


def _said(attempt: TrajectoryView) -> Iterator[str]:
    """What the model said, and asked tools for."""
    for message in _answers(attempt):
        yield said.thinking(message)
        yield from said.text_parts(message)
    for call in _tool_calls(attempt):
        yield f"{call.name} {call.arguments}"


def _rewards(score: StoredScore | None) -> dict[str, float]:
    parts = score.parts if score else ()
    return {one.trajectory_id: one.value for one in parts if one.part == REWARD and one.value is not None}


def _asked(scores: Iterable[StoredScore]) -> Iterator[float]:
    """The rewards that somebody was asked for."""
    parts = (part for score in scores for part in score.parts if part.part == REWARD and not part.unasked)
    return (part.value for part in parts if part.value is not None)


def _spread(rewards: Mapping[str, float]) -> float:
    return max(rewards.values()) - min(rewards.values())


def _ordered(rewards: Mapping[str, float], success: Mapping[str, bool]) -> Iterator[float]:
    """For every success beside a failure: 1 where its reward is higher, a half where they are the same."""
    won = [value for id_, value in rewards.items() if success.get(id_) is True]
    lost = [value for id_, value in rewards.items() if success.get(id_) is False]
    return (0.5 if abs(a - b) <= ALIKE else float(a > b) for a in won for b in lost)


def _parts(scores: Iterable[StoredScore]) -> dict[str, float]:
    """The mean of each part of the rewards; a part's own name has no dot, what was given beside it has one."""
    values: dict[str, list[float]] = defaultdict(list)
    for one in (part for score in scores for part in score.parts):
        if one.part != REWARD and "." not in one.part and one.value is not None and not one.unasked:
            values[one.part].append(one.value)
    return {f"part.{name}": statistics.fmean(found) for name, found in sorted(values.items())}


def _means(name: str, values: Iterable[float | None]) -> dict[str, float]:
    known = [float(value) for value in values if value is not None]
    return {name: statistics.fmean(known)} if known else {}
