"""How many questions the gate of a campaign's version may ask: its gates take a bounded share of the sampled tokens.

Owns: the bound, which first turns are asked within it, and the words for what is not asked. Refuses: counting tokens
(`recorder.views.campaigns.tokens`), asking, and what few answers decide (`proxy.gate.sanity`).

The share is of all tokens that are sampled for a campaign: by its attempts and by its gates. The length of an answer is
expected to be that of the recorded one, so a gate may take a little more or less than is left. The next gate has the
difference: what counts is what was sampled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final

from proxy.engine.answers import ANSWER_TOKENS, EngineQuestion
from recorder.queue.training.steps import step_of_version
from recorder.registry.versions import VersionView
from recorder.store.database import Store
from recorder.views.campaigns.tokens import CampaignTokens, load_campaign_tokens
from recorder.views.trajectories.shapes import CallView

ARMS: Final = 2  # the version and the live one answer each question


@dataclass(frozen=True, slots=True)
class QuestionPlan:
    """The questions that are asked. `why`: in words, why they are fewer than there are; "": they are all."""

    asked: Sequence[EngineQuestion]
    why: str = ""


async def plan_questions(
    store: Store, version: VersionView, questions: Sequence[EngineQuestion], lengths: Sequence[int | None], share: float
) -> QuestionPlan:
    """The questions that a version's gate may ask: all, unless it is of a campaign whose share does not allow them.

    `lengths`: the sampled tokens of the recorded answers, None where they are unknown. `share`: `gate.max_share`.
    """
    step = await step_of_version(store, version.id) if share < 1 and questions else None
    if step is None or step.campaign_id is None:
        return QuestionPlan(questions)
    return limit_questions(questions, lengths, share, await load_campaign_tokens(store, step.campaign_id))


def limit_questions(
    questions: Sequence[EngineQuestion], lengths: Sequence[int | None], share: float, sampled: CampaignTokens
) -> QuestionPlan:
    """The first questions whose answers are expected to fit into the share, which is below 1."""
    left = share / (1 - share) * sampled.attempts - sampled.of_gates
    number = 0
    for tokens in expected_lengths(questions, lengths):
        left -= ARMS * tokens
        if left < 0:
            break
        number += 1
    if number == len(questions):
        return QuestionPlan(questions)
    taken = sampled.gate_share or 0.0
    return QuestionPlan(
        questions[:number],
        f"{number} of {len(questions)} first turns were asked: the campaign's gates have taken {taken:.1%} of its "
        f"{sampled.attempts + sampled.of_gates:,} sampled tokens, and may take {share:.1%} (gate.max_share)",
    )


def expected_lengths(questions: Sequence[EngineQuestion], lengths: Sequence[int | None]) -> list[float]:
    """The expected tokens of an answer to each question: the recorded length, else the mean of the known ones.

    Where none is known, the most that an answer may have.
    """
    most = [min(question.max_tokens or ANSWER_TOKENS, ANSWER_TOKENS) for question in questions]
    known = [length for length in lengths if length is not None]
    mean = fmean(known) if known else float(ANSWER_TOKENS)
    return [float(min(cap, mean if own is None else own)) for cap, own in zip(most, lengths, strict=True)]


def sampled_length(call: CallView) -> int | None:
    """The sampled tokens of a recorded call, by the engine's count; None: unknown."""
    count = (call.usage or {}).get("completion_tokens")
    return count if isinstance(count, int) else None
