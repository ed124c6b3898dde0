"""Test whether a version is sane, by figures of its answers to recorded first turns and of the live version's.

Owns: how many first turns are asked and in which order, the figures, their bounds, the code of the first violation, and
what an engine's refusal means. Refuses: choosing first turns (`recorder.views.trajectories.transcripts`), how good the
answers are (`proxy.gate.behaviour`), and moving versions.

One training step moves a model little; a version that fails here is broken: it repeats a token, rambles, breaks its
tool calls or stops making them, or is far from where it started. Few answers carry little information, so below
`ENOUGH` only certain faults are checked: missing or non-finite logprobs, and the distance.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

import numpy as np

from proxy.engine.answers import EngineAnswer, EngineQuestion
from proxy.engine.replica import Replica
from proxy.errors import EngineError, EngineUnreachable
from recorder.stats.significance_tests import test_mean

ENOUGH: Final = 8  # answers per arm
ALPHA: Final = 0.05  # per test
LESS_OFTEN: Final = 0.1  # tolerated drop in the share of parsable tool calls
CALLS_LOST: Final = 0.5  # share of answers that may lose the tool call that the live version makes
ENTROPY_TIMES: Final = 4.0  # the tolerated ratio of entropies …
ENTROPY_SLACK: Final = 0.1  # … and the slack in nats per token
PAIRS: Final = 16  # as many as are sampled; all 65,536 sign patterns are enumerated


@dataclass(frozen=True, slots=True)
class SampledAnswer:
    """One sampled answer. `logprobs`: of its tokens, NaN where the engine gave none.

    `begun`: it begins a tool call; `parsed`: the engine parsed its calls, and their arguments are JSON.
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
    """The bounds in the settings: KL in nats per token, and the ratio of lengths."""

    kl_max: float
    length_times: float


@dataclass(frozen=True, slots=True)
class SanityResult:
    """The figures, and code and text of the fault; None: no fault."""

    figures: dict[str, float] = field(default_factory=dict)
    fault: tuple[str, str] | None = None


def judge_answers(
    candidate: Sequence[SampledAnswer], live: Sequence[SampledAnswer], kl: dict[str, float], bounds: SanityBounds
) -> SanityResult:
    """Check the answers to the same prompts, in one order. `kl`: KL from each named model, in nats per token."""
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
    """Return the KL from another model in nats per token, on answers sampled by the first; infinite if a number is
    missing.
    """
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
    """Nats per token: the logprobs of the sampled tokens estimate the entropy."""
    return -sum(answer.logprobs) / len(answer.logprobs)


def _mean(each: Sequence[float]) -> float:
    """The mean in which every answer counts the same, so that one long rambling answer does not dominate."""
    return sum(each) / len(each) if each else math.nan


def _far(kl: dict[str, float], bounds: SanityBounds) -> tuple[str, str] | None:
    for name, value in kl.items():
        if not value <= bounds.kl_max:
            return "kl", f"KL of {value:.3g} nats per token from {name}, above {bounds.kl_max:g} (gate.kl_max)"
    return None


def _length(figures: dict[str, float], bounds: SanityBounds) -> tuple[str, str] | None:
    times = figures.get("times_as_long", 1.0)
    if not 1 / bounds.length_times <= times <= bounds.length_times:
        return "length", f"its answers are {times:.2f} times as long as the live version's (gate.length_times)"
    return None


def _unsure(
    candidate: Sequence[SampledAnswer], live: Sequence[SampledAnswer], figures: dict[str, float]
) -> tuple[str, str] | None:
    """A fault if its entropy is much higher or lower, and not by chance."""
    entropy, before = figures.get("entropy", math.nan), figures.get("entropy_live", math.nan)
    if math.isnan(entropy) or math.isnan(before):
        return None
    more = entropy > before * ENTROPY_TIMES + ENTROPY_SLACK
    if not more and entropy >= before / ENTROPY_TIMES - ENTROPY_SLACK:
        return None
    gaps = [_entropy(a) - _entropy(b) for a, b in zip(candidate, live, strict=True) if b.finite]
    gaps = [gap if abs(gap) > ENTROPY_SLACK else 0.0 for gap in gaps]  # a little less certain everywhere is no evidence
    if _chance_of_such(gaps if more else [-gap for gap in gaps]) >= ALPHA:
        return None
    return "entropy", f"entropy of {entropy:.3g} nats per token, the live version has {before:.3g}"


def _chance_of_such(gaps: Sequence[float]) -> float:
    """The probability of a sum this large if both versions were one model: an exact sign-flip test.

    With short, certain answers a single long one dominates a mean, and whether a small sample holds one is chance.
    """
    signed = np.zeros(1)
    for gap in gaps[:PAIRS]:
        signed = np.concatenate((signed + gap, signed - gap))
    return float(np.mean(signed >= signed[0] - 1e-9))  # the first has the observed signs


def _chance_of_so_few(good: int, of: int, claim: float) -> float:
    """The probability of at most `good` successes if each has the probability `claim`: the exact binomial test.

    All answers exist when this is called. A sequential test would depend on their order.
    """
    return sum(math.comb(of, n) * claim**n * (1 - claim) ** (of - n) for n in range(good + 1))


def _calls(candidate: Sequence[SampledAnswer], live: Sequence[SampledAnswer]) -> tuple[str, str] | None:
    """A fault if fewer of its tool calls can be parsed, or if it no longer makes them."""
    begun, before = [a for a in candidate if a.begun], [a for a in live if a.begun]
    as_before = sum(a.parsed for a in before) / len(before) if before else 1.0
    claim = min(max(as_before - LESS_OFTEN, 0.05), 0.95)
    good = sum(a.parsed for a in begun)
    if _chance_of_so_few(good, len(begun), claim) < ALPHA:
        return (
            "tool_calls_broken",
            f"{good} of {len(begun)} tool calls can be parsed; the live version has {as_before:.0%}",
        )
    shares = [(1.0 + a.begun - b.begun) / 2 for a, b in zip(candidate, live, strict=True)]
    if test_mean(shares, at_least=(1 - CALLS_LOST) / 2, alpha=ALPHA).shown_worse:
        return (
            "tool_calls_lost",
            f"it calls a tool in {len(begun)} of {len(candidate)} answers, the live version in {len(before)}",
        )
    return None


QUESTIONS: Final = 16  # first turns: enough for stable figures, and seconds on a small engine
# Answers at a time: twice as fast as 4 at a time on two cores with a small model, and agents' calls
# wait for no more prompts than these.
AT_ONCE: Final = 16
DISTANCES: Final = 8  # answers on which the distance is measured, one request each


@dataclass(frozen=True, slots=True)
class AnswerPair:
    """One first turn, answered by both versions."""

    question: EngineQuestion
    candidate: EngineAnswer | None  # None: the engine could not answer with this version
    live: EngineAnswer


async def ask_both(
    replica: Replica, questions: Sequence[EngineQuestion], candidate: str, live: str
) -> list[AnswerPair]:
    """Ask every question of both versions, by their engine names. Questions that the live version cannot answer are
    dropped.

    All answers of a version to a question that comes several times (the same object) are asked for in one request, so
    that the engine computes the first turns once. Raises EngineUnreachable.
    """
    room = asyncio.Semaphore(AT_ONCE)
    times = Counter(map(id, questions))
    different = list({id(question): question for question in questions}.values())

    async def ask(name: str, question: EngineQuestion) -> Sequence[EngineAnswer | None]:
        number = times[id(question)]
        async with room:
            try:
                return await replica.answers(name, question, number)
            except EngineUnreachable:
                raise
            except EngineError:
                return [None] * number

    tasks = [asyncio.create_task(ask(name, q)) for q in different for name in (candidate, live)]
    try:
        answers = await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
    of_each = zip(different, answers[::2], answers[1::2], strict=True)
    both = ((q, *pair) for q, new, old in of_each for pair in zip(new, old, strict=True))
    return [AnswerPair(q, new, old) for q, new, old in both if old is not None and _answer(old).finite]


async def check_sanity(
    replica: Replica, pairs: Sequence[AnswerPair], against: Mapping[str, str], bounds: SanityBounds
) -> SanityResult:
    """Check a version's answers. `against`: models by name → engine name, from which the KL is measured if it is
    bounded.

    Raises EngineUnreachable.
    """
    models = against if math.isfinite(bounds.kl_max) else {}
    kl = {name: await _distance(replica, pairs, engine_name) for name, engine_name in models.items()}
    known = {name: value for name, value in kl.items() if value is not None}
    return judge_answers([_answer(p.candidate) for p in pairs], [_answer(p.live) for p in pairs], known, bounds)


def _answer(answered: EngineAnswer | None) -> SampledAnswer:
    if answered is None:
        return SampledAnswer(())
    return SampledAnswer(answered.logprobs, answered.begins_call, answered.has_parsed_calls)


async def _distance(replica: Replica, pairs: Sequence[AnswerPair], name: str) -> float | None:
    """KL of the candidate's answers from the model `name`; None if the engine gave no logprobs."""
    own, others = [], []
    for answer in [p.candidate for p in pairs if p.candidate is not None and p.candidate.token_ids][:DISTANCES]:
        try:
            known = await replica.logprobs_of(name, [*answer.prompt_ids, *answer.token_ids])
        except EngineUnreachable:
            raise
        except EngineError:  # for example too long for the engine with one more token: the others suffice
            continue
        own.append(answer.logprobs)
        others.append(known[len(answer.prompt_ids) - 1 :])
    return mean_kl(own, others) if own else None
