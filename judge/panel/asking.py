"""Asking about one group as often as the settings say: each judge, each repeat, side by side.

Owns: who is asked which prompt, replies that are at hand, what each request came to, and how many must be readable.
Refuses: one request (`judge.llm.ruler`), making one score of replies (`judge.panel.combining`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from judge.errors import JudgeFailed, QuorumMissed, Spent
from judge.llm.prompt import Prompt
from judge.llm.ruler import Ask, Ruling, rank, recall

_TOLD: Final = 3  # failures in a message


@dataclass(frozen=True, slots=True)
class Judge:
    """One who is asked. `weight`: how much its replies count beside the others'."""

    name: str
    weight: float
    ask: Ask


@dataclass(frozen=True, slots=True)
class Reply:
    """A judge's reply that is at hand."""

    text: str
    version: str | None


@dataclass(frozen=True, slots=True)
class Said:
    """What one request came to: a ruling, or why there is none. `prompt` says which turn it was."""

    judge: str
    weight: float
    prompt: Prompt
    ruling: Ruling | None
    failed: JudgeFailed | None = None

    @property
    def spent(self) -> Spent:
        """What it used up."""
        if self.ruling is not None:
            return self.ruling.spent
        return self.failed.spent if self.failed else Spent()


Keep = Callable[[Prompt, Ruling], Awaitable[None]]


async def consult(
    prompts: Sequence[Prompt], judges: Sequence[Judge], at_hand: Mapping[int, Reply], keep: Keep
) -> list[Said]:
    """Send each prompt to the judge whose turn it is, except where its reply is at hand (by the turns' numbers).

    A judge that fails keeps no other from being asked, and what was said is kept as soon as it is said.
    Raises what is no failure of a judge (`NotAsked`, a bug) once all have been asked.
    """
    asking = (_said(one, judges[one.turn.member], at_hand.get(one.turn.number), keep) for one in prompts)
    answers = await asyncio.gather(*asking, return_exceptions=True)
    found: list[Said] = []
    for prompt, answer in zip(prompts, answers, strict=True):
        judge = judges[prompt.turn.member]
        if isinstance(answer, JudgeFailed):
            found.append(Said(judge.name, judge.weight, prompt, None, answer))
        elif isinstance(answer, BaseException):
            raise answer
        else:
            found.append(Said(judge.name, judge.weight, prompt, answer))
    return found


async def _said(prompt: Prompt, judge: Judge, at_hand: Reply | None, keep: Keep) -> Ruling:
    if at_hand is not None:
        recalled = await recall(prompt, at_hand.text, at_hand.version)
        if recalled is not None:
            return recalled
    ruling = await rank(prompt, judge.ask)
    await keep(prompt, ruling)
    return ruling


def require_quorum(said: Sequence[Said], needed: int) -> None:
    """Raise where fewer replies than `needed` could be read: the one failure there is, or one that tells of all."""
    failed = [(one.judge, one.failed) for one in said if one.failed is not None]
    if len(said) - len(failed) >= needed:
        return
    if len(said) == 1:
        raise failed[0][1]
    told = "; ".join(f"{judge}: {why} ({why.code})" for judge, why in failed[:_TOLD])
    more = f"; and {len(failed) - _TOLD} more" if len(failed) > _TOLD else ""
    waits = [why.wait_s for _, why in failed if why.wait_s is not None]
    raise QuorumMissed(
        "judge_quorum",
        f"{len(said) - len(failed)} of {len(said)} replies could be had, and {needed} are needed (judge.quorum): "
        f"{told}{more}. Those that were read are kept: the next try asks for the others alone.",
        spent=spent(said),
        wait_s=max(waits, default=None),
    )


def spent(said: Sequence[Said]) -> Spent:
    """What all requests used up; they run side by side, so their time is that of the longest."""
    whole = sum((one.spent for one in said), Spent())
    return replace(whole, latency_s=max((one.spent.latency_s for one in said), default=0.0))
