"""Ask one or several judges about a group, concurrently, and combine their replies into one verdict.

Owns: which judge gets which prompt, reuse of stored replies, the outcome of each request, the quorum, the mean and the
median of scores, and the agreement of replies. Refuses: one request (`judge.llm.ruler`), and what follows from
disagreement (`judge.rewards.kinds`).
"""

from __future__ import annotations

import asyncio
import math
import statistics
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Final

from judge.errors import JudgeFailed, JudgeUsage, QuorumMissed
from judge.llm import prompt as parts
from judge.llm.prompt import GroupPrompt
from judge.llm.repair import Ask
from judge.llm.reply_reader import Subscore, TrajectoryVerdict
from judge.llm.ruler import GroupRuling, rank_group, recall_ruling
from judge.panel_settings import Combine, SubscoreSettings
from recorder.stats.agreement import compare_rewards

_MOST_LISTED: Final = 3  # failures in a message


@dataclass(frozen=True, slots=True)
class PanelJudge:
    """One judge of a panel. `weight`: the weight of its replies."""

    name: str
    weight: float
    ask: Ask


@dataclass(frozen=True, slots=True)
class StoredReply:
    """A judge's reply from the store."""

    text: str
    version: str | None


@dataclass(frozen=True, slots=True)
class PanelReply:
    """The outcome of one request: a ruling, or why there is none. `prompt` holds the number of the request."""

    judge: str
    weight: float
    prompt: GroupPrompt
    ruling: GroupRuling | None
    failed: JudgeFailed | None = None

    @property
    def spent(self) -> JudgeUsage:
        """Its usage."""
        if self.ruling is not None:
            return self.ruling.spent
        return self.failed.spent if self.failed else JudgeUsage()


Keep = Callable[[GroupPrompt, GroupRuling], Awaitable[None]]


async def ask_panel(
    prompts: Sequence[GroupPrompt], judges: Sequence[PanelJudge], at_hand: Mapping[int, StoredReply], keep: Keep
) -> list[PanelReply]:
    """Send each prompt to its judge, except where a stored reply exists (by the request's number).

    A judge's failure does not stop the others, and each reply is kept as soon as it arrives. Any other exception
    (`RequestNotSent`, a bug) is raised after all have been asked.
    """
    asking = (_ask_judge(one, judges[one.turn.member], at_hand.get(one.turn.number), keep) for one in prompts)
    answers = await asyncio.gather(*asking, return_exceptions=True)
    found: list[PanelReply] = []
    for prompt, answer in zip(prompts, answers, strict=True):
        judge = judges[prompt.turn.member]
        if isinstance(answer, JudgeFailed):
            found.append(PanelReply(judge.name, judge.weight, prompt, None, answer))
        elif isinstance(answer, BaseException):
            raise answer
        else:
            found.append(PanelReply(judge.name, judge.weight, prompt, answer))
    return found


async def _ask_judge(prompt: GroupPrompt, judge: PanelJudge, at_hand: StoredReply | None, keep: Keep) -> GroupRuling:
    if at_hand is not None:
        recalled = await recall_ruling(prompt, at_hand.text, at_hand.version)
        if recalled is not None:
            return recalled
    ruling = await rank_group(prompt, judge.ask)
    await keep(prompt, ruling)
    return ruling


def require_quorum(replies: Sequence[PanelReply], needed: int) -> None:
    """Raise if fewer than `needed` replies could be read: the only failure itself, or one that lists several."""
    failed = [(one.judge, one.failed) for one in replies if one.failed is not None]
    if len(replies) - len(failed) >= needed:
        return
    if len(replies) == 1:
        raise failed[0][1]
    listed = "; ".join(f"{judge}: {why} ({why.code})" for judge, why in failed[:_MOST_LISTED])
    more = f"; and {len(failed) - _MOST_LISTED} more" if len(failed) > _MOST_LISTED else ""
    waits = [why.wait_s for _, why in failed if why.wait_s is not None]
    raise QuorumMissed(
        "judge_quorum",
        f"{len(replies) - len(failed)} of {len(replies)} replies could be read, and {needed} are needed "
        f"(judge.quorum): {listed}{more}. Readable replies are kept: the next try requests only the others.",
        spent=total_usage(replies),
        wait_s=max(waits, default=None),
    )


def total_usage(replies: Sequence[PanelReply]) -> JudgeUsage:
    """The usage of all requests; they run concurrently, so the time is that of the longest."""
    whole = sum((one.spent for one in replies), JudgeUsage())
    return replace(whole, latency_s=max((one.spent.latency_s for one in replies), default=0.0))


Verdicts = Mapping[str, TrajectoryVerdict]  # by trajectory id
WeightedValues = Sequence[tuple[float, float]]  # weight and value
DIGITS: Final = 12  # rounds means, so that the order of equal replies does not change a score


def weighted_mean(weighed: WeightedValues) -> float:
    """The weighted mean."""
    heaviest = max(weight for weight, _ in weighed)
    shares = [(weight / heaviest, value) for weight, value in weighed]  # so no sum of weights overflows
    found = math.fsum(share * value for share, value in shares) / math.fsum(share for share, _ in shares)
    values = [value for _, value in weighed]
    return min(max(round(found, DIGITS), min(values)), max(values))


def weighted_median(weighed: WeightedValues) -> float:
    """The weighted median; the mean of two values if each side has half of the weight."""
    ordered = sorted((value, weight) for weight, value in weighed)
    half = math.fsum(weight for _, weight in ordered) / 2
    below = 0.0
    for place, (value, weight) in enumerate(ordered):
        below += weight
        if math.isclose(below, half) and place + 1 < len(ordered):
            return (value + ordered[place + 1][0]) / 2
        if below >= half:
            return value
    return ordered[-1][0]


COMBINE: Final[Mapping[Combine, Callable[[WeightedValues], float]]] = {"mean": weighted_mean, "median": weighted_median}


def combine_verdicts(
    replies: Sequence[tuple[float, Verdicts]], how: Combine, subscores: Sequence[SubscoreSettings] = ()
) -> dict[str, TrajectoryVerdict]:
    """One verdict for each trajectory that all replies (weight, verdicts) score; at least one reply is needed.

    Sub-scores are combined one by one, and make the score. The explanation is that of the reply nearest to the result.
    """
    if len(replies) == 1:
        return dict(replies[0][1])
    runs = [run for run in replies[0][1] if all(run in verdicts for _, verdicts in replies)]
    return {run: _one([(weight, verdicts[run]) for weight, verdicts in replies], how, subscores) for run in runs}


def _one(
    replies: Sequence[tuple[float, TrajectoryVerdict]], how: Combine, subscores: Sequence[SubscoreSettings]
) -> TrajectoryVerdict:
    subs = {sub.name: _sub([(weight, one.subs[sub.name]) for weight, one in replies], how) for sub in subscores}
    if subs:
        score = parts.mean_score(subscores, {name: sub.score for name, sub in subs.items()})
    else:
        score = COMBINE[how]([(weight, one.score) for weight, one in replies])
    nearest = min((one for _, one in replies), key=lambda one: abs(one.score - score))
    scores = [one.score for _, one in replies]
    why = f"{nearest.explanation} [{len(replies)} replies: {min(scores):.2f} to {max(scores):.2f}]".strip()
    return TrajectoryVerdict(score, why, subs)


def _sub(replies: Sequence[tuple[float, Subscore]], how: Combine) -> Subscore:
    score = COMBINE[how]([(weight, sub.score) for weight, sub in replies])
    return Subscore(score, min((sub for _, sub in replies), key=lambda sub: abs(sub.score - score)).reason)


def reply_agreement(replies: Sequence[Verdicts]) -> float | None:
    """The mean of Kendall's tau-b over all pairs of replies, -1 to 1; None: no pair has two orders.

    Trajectories that a reply ties count as ties in its tau; a reply that ties all of them has no order, and is in no
    pair.
    """
    scores = [{run: verdict.score for run, verdict in verdicts.items()} for verdicts in replies]
    taus = [tau for one, other in combinations(scores, 2) if (tau := compare_rewards(one, other).tau) is not None]
    return statistics.fmean(taus) if taus else None
