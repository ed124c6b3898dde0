"""Is a version still the model that it was? Its answers to recorded prompts, by figures, beside the live version's.

Owns: which figures are looked at, their bounds, and the code of the first that is out of them. Refuses: asking an
engine, and whether the answers are good.

One step moves a model little; what fails here is broken: it repeats a token, rambles, breaks its tool calls or no
longer makes them, or went far from where it began. Few answers say little, so below `ENOUGH` only what no chance makes
is looked at: numbers that are none, and the distance.

What the gate asks an engine: openings answered by a version and by the live one, and how far apart the two are.

Owns: how many are asked, in which order, and what a refusal means. Refuses: choosing openings
(`recorder.views.trajectories.first_turns`), what is out of bounds (`proxy.gate.sanity`), and moving versions.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

import numpy as np

from proxy.engine.answers import EngineAnswer, EngineQuestion
from proxy.engine.replica import Replica
from proxy.errors import EngineError, EngineUnreachable
from recorder.stats.sequential_tests import test_mean

ENOUGH: Final = 8  # answers a side
ALPHA: Final = 0.05  # of each test
LESS_OFTEN: Final = 0.1  # of tool calls: by how much fewer may be parsable
CALLS_LOST: Final = 0.5  # of answers: how many may stop to call a tool where the live version calls one
ENTROPY_TIMES: Final = 4.0  # how many times as sure, or as unsure, of its words a version may be …
ENTROPY_SLACK: Final = 0.1  # … and nats a token in which that is not told apart
PAIRS: Final = 16  # as many as are asked; of so many all 65,536 ways are looked at


@dataclass(frozen=True, slots=True)
class SampledAnswer:
    """One sampled answer. `logprobs` are its own tokens', NaN where the engine had none.

    `begun`: it begins a tool call, `parsed`: the engine made calls of it whose arguments are JSON.
    """

    logprobs: Sequence[float]
    begun: bool = False
    parsed: bool = False

    @property
    def finite(self) -> bool:
        """Whether it has tokens, and a probability for each."""
        return bool(self.logprobs) and all(map(math.isfinite, self.logprobs))


@dataclass(frozen=True, slots=True)
class SanityBounds:
    """What a version's owner sets: nats a token, and times as long or as short."""

    kl_max: float
    length_times: float


@dataclass(frozen=True, slots=True)
class SanityResult:
    """The figures, and the code and the words for what is wrong; None: nothing is."""

    figures: dict[str, float] = field(default_factory=dict)
    fault: tuple[str, str] | None = None


def judge_answers(
    candidate: Sequence[SampledAnswer], live: Sequence[SampledAnswer], kl: dict[str, float], bounds: SanityBounds
) -> SanityResult:
    """Judge answers to the same prompts in one order. `mean_kl`: nats a token from each named model that was asked."""
    broken = [answer for answer in candidate if not answer.finite]
    if broken:
        return SanityResult(
            {"not_finite": float(len(broken))},
            ("not_finite", f"{len(broken)} of {len(candidate)} answers are empty or have no probabilities"),
        )
    figures = {f"kl_{name}": value for name, value in kl.items()}
    if len(candidate) >= ENOUGH:
        figures |= _compared(candidate, live)
    fault = _far(kl, bounds) or _length(figures, bounds) or _unsure(candidate, live, figures) or _calls(candidate, live)
    return SanityResult(figures, fault)


def mean_kl(own: Sequence[Sequence[float]], others: Sequence[Sequence[float]]) -> float:
    """KL from another model, nats a token, over answers that the first sampled; infinite where a number is missing."""
    gaps = [a - b for a, b in zip(chain(*own), chain(*others), strict=True)]
    return sum(gaps) / len(gaps) if all(map(math.isfinite, gaps)) else math.inf


def _compared(candidate: Sequence[SampledAnswer], live: Sequence[SampledAnswer]) -> dict[str, float]:
    doublings = [
        math.log2(len(a.logprobs)) - math.log2(max(1, len(b.logprobs))) for a, b in zip(candidate, live, strict=True)
    ]
    return {
        "times_as_long": 2 ** (sum(doublings) / len(doublings)),
        "entropy": _mean([_entropy(answer) for answer in candidate]),
        "entropy_live": _mean([_entropy(answer) for answer in live if answer.finite]),
    }


def _entropy(answer: SampledAnswer) -> float:
    """Nats a token: what was sampled says how unsure the sampler was."""
    return -sum(answer.logprobs) / len(answer.logprobs)


def _mean(each: Sequence[float]) -> float:
    """Every answer counts the same: where most are a word, one that rambles has more tokens than all others."""
    return sum(each) / len(each) if each else math.nan


def _far(kl: dict[str, float], bounds: SanityBounds) -> tuple[str, str] | None:
    for name, value in kl.items():
        if not value <= bounds.kl_max:
            return "kl", f"{value:.3g} nats a token from {name}, at most {bounds.kl_max:g} (gate.kl_max)"
    return None


def _length(figures: dict[str, float], bounds: SanityBounds) -> tuple[str, str] | None:
    times = figures.get("times_as_long", 1.0)
    if not 1 / bounds.length_times <= times <= bounds.length_times:
        return "length", f"its answers are {times:.2f} times as long as the live version's (gate.length_times)"
    return None


def _unsure(
    candidate: Sequence[SampledAnswer], live: Sequence[SampledAnswer], figures: dict[str, float]
) -> tuple[str, str] | None:
    """Whether it is much more, or much less, sure of its words, and not by chance."""
    entropy, before = figures.get("entropy", math.nan), figures.get("entropy_live", math.nan)
    if math.isnan(entropy) or math.isnan(before):
        return None
    more = entropy > before * ENTROPY_TIMES + ENTROPY_SLACK
    if not more and entropy >= before / ENTROPY_TIMES - ENTROPY_SLACK:
        return None
    gaps = [_entropy(a) - _entropy(b) for a, b in zip(candidate, live, strict=True) if b.finite]
    if _chance_of_such(gaps if more else [-gap for gap in gaps]) >= ALPHA:
        return None
    return "entropy", f"{entropy:.3g} nats a token, the live version has {before:.3g}"


def _chance_of_such(gaps: Sequence[float]) -> float:
    """The probability of a sum so large, were both versions one model: each gap could as well be the other way round.

    An exact test. Where answers are a few sure words, one that goes astray is most of a mean, and whether there is one
    among so few is chance.
    """
    signed = np.zeros(1)
    for gap in gaps[:PAIRS]:
        signed = np.concatenate((signed + gap, signed - gap))
    return float(np.mean(signed >= signed[0] - 1e-9))  # the first has every sign as it was


def _chance_of_so_few(good: int, of: int, claim: float) -> float:
    """The probability of at most so many `good`, were each with a probability of `claim`: the exact binomial test.

    All answers are there when it is asked. Betting looks after each, and would refute by which of them came first.
    """
    return sum(math.comb(of, n) * claim**n * (1 - claim) ** (of - n) for n in range(good + 1))


def _calls(candidate: Sequence[SampledAnswer], live: Sequence[SampledAnswer]) -> tuple[str, str] | None:
    """Whether fewer of the tool calls that it begins can be parsed, or it no longer begins any."""
    begun, before = [a for a in candidate if a.begun], [a for a in live if a.begun]
    as_before = sum(a.parsed for a in before) / len(before) if before else 1.0
    claim = min(max(as_before - LESS_OFTEN, 0.05), 0.95)
    good = sum(a.parsed for a in begun)
    if _chance_of_so_few(good, len(begun), claim) < ALPHA:
        return (
            "tool_calls_broken",
            f"{good} of {len(begun)} tool calls can be parsed, of the live version's {as_before:.0%}",
        )
    kept = [(1.0 + a.begun - b.begun) / 2 for a, b in zip(candidate, live, strict=True)]
    if test_mean(kept, at_least=(1 - CALLS_LOST) / 2, alpha=ALPHA).shown_worse:
        return (
            "tool_calls_lost",
            f"it calls a tool in {len(begun)} of {len(candidate)} answers, the live version in {len(before)}",
        )
    return None


QUESTIONS: Final = 16  # openings: enough for figures that chance moves little, and seconds of a small engine
# Answers: two cores and a small model give so many in half the time that 4 at a time take, and what agents ask
# meanwhile waits for no more prompts than these.
AT_ONCE: Final = 16
DISTANCES: Final = 8  # answers on which the distance is measured, one request at a time


@dataclass(frozen=True, slots=True)
class AnswerPair:
    """One opening, answered twice."""

    question: EngineQuestion
    candidate: EngineAnswer | None  # None: the engine could not answer as this version
    live: EngineAnswer


async def ask_both(
    replica: Replica, questions: Sequence[EngineQuestion], candidate: str, live: str
) -> list[AnswerPair]:
    """Ask every question as both versions, by their engine names; one that the live version can't answer says nothing.

    Raises EngineUnreachable.
    """
    room = asyncio.Semaphore(AT_ONCE)

    async def ask(name: str, question: EngineQuestion) -> EngineAnswer | None:
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
    return [AnswerPair(q, new, old) for q, new, old in both if old is not None and _answer(old).finite]


async def check_sanity(
    replica: Replica, pairs: Sequence[AnswerPair], against: Mapping[str, str], bounds: SanityBounds
) -> SanityResult:
    """Whether a version's answers are sane. `against`: engine names by what they are, from which the distance is asked
    where that is bounded.

    Raises EngineUnreachable.
    """
    asked = against if math.isfinite(bounds.kl_max) else {}
    kl = {name: await _distance(replica, pairs, engine_name) for name, engine_name in asked.items()}
    known = {name: value for name, value in kl.items() if value is not None}
    return judge_answers([_answer(p.candidate) for p in pairs], [_answer(p.live) for p in pairs], known, bounds)


def _answer(answered: EngineAnswer | None) -> SampledAnswer:
    if answered is None:
        return SampledAnswer(())
    return SampledAnswer(answered.logprobs, answered.begins_call, answered.has_parsed_calls)


async def _distance(replica: Replica, pairs: Sequence[AnswerPair], name: str) -> float | None:
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
    return mean_kl(own, others) if own else None
