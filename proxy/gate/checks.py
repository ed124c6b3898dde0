"""What the gate asks an engine: openings answered by a version and by the live one, and how far apart the two are.

Owns: how many are asked, in which order, and what a refusal means. Refuses: choosing openings
(`recorder.reading.openings`), what is out of bounds (`proxy.gate.sanity`), and moving versions.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from proxy.engine.answers import Answered, Question
from proxy.engine.replica import Replica
from proxy.errors import EngineError, EngineUnreachable
from proxy.gate import sanity
from proxy.gate.sanity import Answer, Bounds, Sanity

QUESTIONS: Final = 16  # openings: enough for figures that chance moves little, and seconds of a small engine
# Answers: two cores and a small model give so many in half the time that 4 at a time take, and what agents ask
# meanwhile waits for no more prompts than these.
AT_ONCE: Final = 16
DISTANCES: Final = 8  # answers on which the distance is measured, one request at a time


@dataclass(frozen=True, slots=True)
class Pair:
    """One opening, answered twice."""

    question: Question
    candidate: Answered | None  # None: the engine could not answer as this version
    live: Answered


async def answers(replica: Replica, questions: Sequence[Question], candidate: str, live: str) -> list[Pair]:
    """Ask every question as both versions, by their engine names; one that the live version can't answer says nothing.

    Raises EngineUnreachable.
    """
    room = asyncio.Semaphore(AT_ONCE)

    async def ask(name: str, question: Question) -> Answered | None:
        async with room:
            try:
                return await replica.answer(name, question)
            except EngineUnreachable:
                raise
            except EngineError:
                return None

    asked = [asyncio.create_task(ask(name, q)) for q in questions for name in (candidate, live)]
    try:
        said = await asyncio.gather(*asked)
    finally:
        for task in asked:
            task.cancel()
    both = zip(questions, said[::2], said[1::2], strict=True)
    return [Pair(q, new, old) for q, new, old in both if old is not None and _answer(old).finite]


async def sane(replica: Replica, pairs: Sequence[Pair], against: Mapping[str, str], bounds: Bounds) -> Sanity:
    """Whether a version's answers are sane. `against`: engine names by what they are, from which the distance is asked
    where that is bounded.

    Raises EngineUnreachable.
    """
    asked = against if math.isfinite(bounds.kl_max) else {}
    kl = {name: await _distance(replica, pairs, engine_name) for name, engine_name in asked.items()}
    known = {name: value for name, value in kl.items() if value is not None}
    return sanity.judge([_answer(p.candidate) for p in pairs], [_answer(p.live) for p in pairs], known, bounds)


def _answer(answered: Answered | None) -> Answer:
    if answered is None:
        return Answer(())
    return Answer(answered.logprobs, answered.begins_call, answered.has_parsed_calls)


async def _distance(replica: Replica, pairs: Sequence[Pair], name: str) -> float | None:
    """KL of the candidate's answers from the model `name`; None where the engine told none."""
    own, others = [], []
    for said in [p.candidate for p in pairs if p.candidate is not None and p.candidate.token_ids][:DISTANCES]:
        try:
            known = await replica.logprobs_of(name, [*said.prompt_ids, *said.token_ids])
        except EngineUnreachable:
            raise
        except EngineError:  # longer than the engine takes once a token is to follow, say: the others tell
            continue
        own.append(said.logprobs)
        others.append(known[len(said.prompt_ids) - 1 :])
    return sanity.kl(own, others) if own else None
