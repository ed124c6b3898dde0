"""Is a version's behaviour worse? Held-out scenarios, attempted as it and as the live version, tested pair by pair.

Owns: asking the learner for them through the store, reading pairs as they come, when enough came, and why there are
none. Refuses: attempts and success (the learner's), and a judge: nobody is asked for an opinion.

A live version's attempts for its own gate are not used again: it passed because of them, so they flatter it, and the
test's error rate would not hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Final

from proxy.gate.behaviour import Sides, Won
from recorder.holding import leases
from recorder.states import CampaignState
from recorder.store.changes import Topic
from recorder.store.project import Project
from recorder.work import gates
from recorder.work.gates import Answer, Pair

EVEN: Final = 0.5


async def ask(sides: Sides, most: int, won: Won) -> str:
    """Have at most `most` pairs attempted, until they decide; what is seen stands in `won`. Why there were none, if so.

    A wish that an earlier controller made is gone on with. Raises StoreError.
    """
    wish = await gates.ask(sides.store, sides.version, sides.live, most)
    with sides.store.watch.on(Topic.CAMPAIGNS) as news:
        while True:
            await news.wait()
            found = await gates.answer(sides.store, wish)
            won.values, won.shares = [value(pair) for pair in found.pairs], _shares(found.pairs)
            if won.decided:
                await gates.end(sides.store, wish, CampaignState.FINISHED, gates.DECIDED)
                return ""
            if found.state is not CampaignState.RUNNING:
                return _why_none(found)


def value(pair: Pair) -> float:
    """1 for a scenario at which the version alone succeeded, 0 where the live one alone did, between them a tie."""
    return EVEN + (pair.candidate - pair.live) / 2


def _shares(pairs: Sequence[Pair]) -> dict[str, float]:
    """How often each side succeeded: a test of pairs alone does not tell "both always" from "neither ever"."""
    if not pairs:
        return {}
    return {"success": fmean(pair.candidate for pair in pairs), "success_live": fmean(pair.live for pair in pairs)}


def _why_none(found: Answer) -> str:
    if found.state is CampaignState.FAILED:
        return f"its scenarios could not be attempted: {found.reason}"
    return "" if found.pairs else "no attempt at its scenarios could be measured"


async def give_up(sides: Sides) -> str | None:
    """Wait no longer for what was asked; in words how much of it came. None: it was not asked for."""
    wish = await gates.find(sides.store, sides.version.id)
    if wish is None:
        return None
    await gates.end(sides.store, wish, CampaignState.FINISHED, gates.LATE)
    seen = len((await gates.answer(sides.store, wish)).pairs)
    if await leases.holders(Project(sides.store, sides.alias.project_id), leases.trainer(sides.alias.name)):
        return f"{seen} pairs of attempts were measured"
    return f"{seen} pairs of attempts were measured, and no learner runs (`hone learn`)"
