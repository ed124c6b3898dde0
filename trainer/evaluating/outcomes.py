"""What came of each attempt of an evaluation: as whom it was made, what it was worth, what it took.

Owns: reading that out of groups and their scores. Pure. Refuses: success (`trainer.campaign.measure`), and what follows
for the versions (`trainer.evaluating.figures`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from recorder.reading.views import CallView, GroupView, TrajectoryView
from recorder.states import CallState, TrajectoryState
from trainer.campaign.measure import Loaded, counting, rewards_of, worths
from trainer.campaign.sampling import place_of
from trainer.measuring.wins import Worth, compare


@dataclass(frozen=True, slots=True)
class Took:
    """What an attempt took: tokens as the engine counts them, dollars where a provider tells a price, seconds."""

    tokens_in: float | None = None
    tokens_out: float | None = None
    usd: float | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """One attempt. `side`: the place of its version. None: not measured, or nobody can tell.

    `wins`: against each attempt of the first version in the same group, 1 for a win, a half for a tie, 0 for a loss.
    """

    side: int
    scenario: str
    errored: bool
    success: bool | None
    reward: float | None
    wins: tuple[float, ...]
    took: Took
    adversarial: bool = False


def outcomes(
    loaded: Loaded, success: Mapping[str, bool], each: int, adversarial: Iterable[str] = ()
) -> Iterator[Outcome]:
    """What came of the attempts of some groups, in which each version made `each` of them, the first one's first.

    `success` by their ids; `adversarial`: the ids of groups whose scenarios tempt to cheat.
    """
    rewards, tempting = rewards_of(loaded), frozenset(adversarial)
    for view in loaded.views:
        worth = worths(view, rewards)
        first = [worth[place] for place in range(each) if place in worth]
        for member in _made(view):
            side = place_of(member) // each
            yield Outcome(
                side,
                view.scenario.id if view.scenario is not None else "",
                member.state is TrajectoryState.ERRORED,
                success.get(member.id),
                rewards.get(member.id),
                _wins(worth.get(place_of(member)), first) if side else (),
                took(member),
                view.id in tempting,
            )


def _made(view: GroupView) -> Iterable[TrajectoryView]:
    """The attempts of a group, each once."""
    return {place_of(member): member for member in counting(view) if place_of(member) >= 0}.values()


def _wins(ours: Worth | None, theirs: Iterable[Worth]) -> tuple[float, ...]:
    if ours is None:
        return ()
    return tuple(won for one in theirs if (won := compare(ours, one)) is not None)


def took(member: TrajectoryView) -> Took:
    """What an attempt took, its sub-agents' calls and errands among it."""
    answered = [call for call in member.calls if call.state is CallState.COMPLETE and call.superseded_by is None]
    seconds = None if member.ended_at is None else max(0.0, member.ended_at - member.started_at)
    costs = [cost for call in answered if (cost := _cost(call)) is not None]
    return Took(
        _tokens(answered, "prompt_tokens"),
        _tokens(answered, "completion_tokens"),
        sum(costs) if costs else None,
        seconds,
    )


def _tokens(calls: Iterable[CallView], name: str) -> int | None:
    counts = [count for call in calls if isinstance(count := (call.usage or {}).get(name), int)]
    return sum(counts) if counts else None


def _cost(call: CallView) -> float | None:
    found: Any = (call.response_meta or {}).get("cost_usd")
    return float(found) if isinstance(found, int | float) else None
