"""Estimate a campaign: attempts, judge requests, tokens, and cost where prices are known. Pure.

Owns: counting a plan's rounds, and tokens from what earlier trajectories used, or else from the lengths of scenarios
and `max_tokens`. Refuses: the store and prices (`trainer.runtime.estimate`), and starting anything.

The estimate is an upper bound where possible: a stop rule may end the campaign earlier, and identical trajectories are
not judged. Repeated attempts, and judge requests that are retried or repaired, are not included.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from judge.settings import ONE_BY_ONE, JudgeSettings, RewardSettings
from recorder.llm.rubric import parse_criteria
from recorder.queue.campaigns import Split
from recorder.queue.training.cost_estimates import TrajectoryCost
from recorder.views.campaigns.events import CampaignMeasure
from trainer.agents import answer
from trainer.campaign.record import CampaignPlan
from trainer.campaign_settings import BASE, CampaignSettings
from trainer.measures.arms import baseline_arms
from trainer.measures.campaign_measure import choose_measure
from trainer.tasks.scenarios import Scenario
from trainer.tasks.selection import draw_scenarios, most_refills

CHARS_A_TOKEN: Final = 4
BY_LENGTHS: Final = "from the lengths of the scenarios and the token limit of an answer"


@dataclass(frozen=True, slots=True)
class TokenEstimate:
    """Tokens sent to a model and answered by it; None: unknown. `basis`: the source of the estimate."""

    sent: int | None
    answered: int | None
    basis: str


@dataclass(slots=True)
class CampaignCounts:
    """The counts of a campaign that takes all its steps."""

    training: int = 0  # attempts
    validation: int = 0
    test: int = 0
    judged: int = 0  # attempts that a model judges
    ruler: int = 0  # RULER's requests
    rubric: int = 0  # requests about rubrics
    follow_up: int = 0  # requests about what came next, at most: rules decide without one where they can
    turns: int = 0  # requests for the values of turns
    input_tokens: int = 0  # of all attempts' inputs
    material_tokens: int = 0  # of the judge's input beside the answers
    answers_shown: int = 0  # to the judge; an answer counts each time it is shown
    validations: int = 0
    baselines: int = 0  # version 0 is one of them, and costs nothing if it is live

    @property
    def attempts(self) -> int:
        """All attempts."""
        return self.training + self.validation + self.test

    @property
    def requests(self) -> int:
        """All requests to the judge."""
        return self.ruler + self.rubric + self.follow_up + self.turns


@dataclass(frozen=True, slots=True)
class StrongJudgeEstimate:
    """The usage of the strong judge, which cross-checks one group in `every`: requests, tokens, money."""

    model: str
    every: int
    ruler: int
    rubric: int
    tokens: TokenEstimate
    usd: float | None = None
    follow_up: int = 0
    turns: int = 0

    @property
    def requests(self) -> int:
        """All its requests."""
        return self.ruler + self.rubric + self.follow_up + self.turns


@dataclass(frozen=True, slots=True)
class CampaignEstimate:
    """The estimate of a campaign. `judge_usd` None: no price or no tokens known; without the strong judge's.

    `strong` None: there is none, or it is not asked.
    """

    campaign: str
    recipe: str
    steps: int
    counts: CampaignCounts
    agent: TokenEstimate
    judge: TokenEstimate
    judge_usd: float | None = None
    strong: StrongJudgeEstimate | None = None
    notes: Sequence[str] = field(default_factory=list)


def count_campaign(
    plan: CampaignPlan, rewards: Sequence[RewardSettings], requests: int = 1, *, moving: bool = False
) -> CampaignCounts:
    """Count a plan's rounds. `requests`: RULER's requests about one group.

    `moving`: a judge is asked only for parts with a weight, as the strong one is.
    """
    kinds = [reward.kind for reward in rewards if reward.weight > 0 or not moving]
    rulers, rubrics = requests * kinds.count("ruler"), kinds.count("rubric")
    follow_ups, turns = kinds.count("follow_up"), kinds.count("turns")
    out = CampaignCounts()
    if plan.val:
        out.validations, out.baselines = len(_validated_after(plan.settings)), len(baseline_arms(plan.settings))
    sizes = {scenario.id: _ScenarioSize.of(scenario) for part in plan.parts.values() for scenario in part}
    beside = choose_measure(plan.settings, rewards, validated=bool(plan.val)) is CampaignMeasure.WINS
    for part, scenarios, each in _rounds(plan, against_version_0=beside):
        if part == "train":
            out.training += len(scenarios) * each
        elif part == "val":
            out.validation += len(scenarios) * each
        else:
            out.test += len(scenarios) * each
        for scenario in scenarios:
            _add(out, sizes[scenario.id], each, rulers if each > 1 else 0, rubrics, follow_ups, turns)
    return out


def scale_counts(counts: CampaignCounts, every: int) -> CampaignCounts:
    """The same attempts, of which a judge sees one group in `every` on average."""
    judged = ("judged", "ruler", "rubric", "follow_up", "turns", "material_tokens", "answers_shown")
    return replace(counts, **{name: math.ceil(getattr(counts, name) / every) for name in judged})


@dataclass(frozen=True, slots=True)
class _ScenarioSize:
    """One scenario in tokens, and whether any of its criteria needs a model."""

    input: int
    rubric: int
    asks: bool

    @classmethod
    def of(cls, scenario: Scenario) -> _ScenarioSize:
        listed = parse_criteria(scenario.rubric) if isinstance(scenario.rubric, list) else []
        return cls(_tokens(scenario.input), _tokens(scenario.rubric), any(one.check is None for one in listed))


def _add(
    out: CampaignCounts, size: _ScenarioSize, each: int, rulers: int, rubrics: int, follow_ups: int, turns: int
) -> None:
    """Count the attempts at one scenario. RULER makes `rulers` requests for all of them, the others one for each."""
    rubrics = rubrics if size.asks else 0
    requests = rulers + rubrics + follow_ups + turns
    out.input_tokens += each * size.input
    out.judged += each if requests else 0
    out.ruler += rulers
    out.rubric += each * rubrics
    out.follow_up += each * follow_ups
    out.turns += each * turns
    out.answers_shown += each * requests
    out.material_tokens += requests * each * size.input + (rulers + each * (rubrics + turns)) * size.rubric


def _rounds(plan: CampaignPlan, *, against_version_0: bool) -> Iterator[tuple[Split, Sequence[Scenario], int]]:
    """Each round: its part, its scenarios, and the attempts at each."""
    s, train = plan.settings, plan.train or ()
    each = s.val_attempts + against_version_0
    for step in range(1, s.steps + 1):
        drawn = draw_scenarios(train, s.scenarios_per_step, step, s.seed, s.adversarial_share)
        yield "train", drawn, s.group_size
        # Which ones are attempted besides is not known before: those of the step have their size.
        refills = most_refills(train, s.scenarios_per_step, step, s.adversarial_share, s.refill)
        yield "train", drawn[: min(refills, len(train) - len(drawn))], s.group_size
    for _ in (*_validated_after(s), *baseline_arms(s)):
        yield "val", plan.val, each
    for _ in ("live", *{BASE, *baseline_arms(s)}):
        yield "test", plan.test, each


def _validated_after(settings: CampaignSettings) -> list[int]:
    """The steps that are followed by a validation; 0 is the one before the first step."""
    every = settings.val_every
    between = range(every, settings.steps, every) if every is not None else ()
    return sorted({0, settings.steps, *between})


def _tokens(value: Any) -> int:
    if value is None:
        return 0
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return math.ceil(len(text) / CHARS_A_TOKEN)


def agent_tokens(
    counts: CampaignCounts, settings: CampaignSettings, lately: TrajectoryCost | None, alias: str
) -> TokenEstimate:
    """Tokens that attempts send to the trained model, and that it samples."""
    if lately is not None:
        basis = f"from the newest {lately.runs:,} trajectories of {alias}"
        return TokenEstimate(
            _times(counts.attempts, lately.tokens_in), _times(counts.attempts, lately.tokens_out), basis
        )
    if settings.agent != answer.NAME:
        return TokenEstimate(None, None, f"no trajectory of {alias} has ended yet, so the number of calls is unknown")
    most = None if settings.max_tokens is None else counts.attempts * settings.max_tokens
    return TokenEstimate(
        counts.input_tokens, most, BY_LENGTHS if most is not None else f"{BY_LENGTHS} (campaign.max_tokens)"
    )


def judge_tokens(
    counts: CampaignCounts, recipe: JudgeSettings, agent: TokenEstimate, lately: TrajectoryCost | None, alias: str
) -> TokenEstimate:
    """Tokens of the judge's prompts and answers."""
    requests = counts.requests
    if not requests:
        return TokenEstimate(0, 0, "no judge model is asked")
    if lately is not None:
        basis = f"from the newest {lately.runs:,} trajectories of {alias} that {recipe_judges(recipe)} judged"
        return TokenEstimate(_times(counts.judged, lately.tokens_in), _times(counts.judged, lately.tokens_out), basis)
    most = requests * recipe.max_tokens
    if agent.answered is None:
        return TokenEstimate(None, most, "at most judge.max_tokens an answer; the length of its prompts is unknown")
    shown = counts.material_tokens + _times(counts.answers_shown, agent.answered / counts.attempts)
    return TokenEstimate(
        shown, most, f"{BY_LENGTHS}, at most judge.max_tokens of the judge; its instructions are not counted"
    )


def recipe_judges(recipe: JudgeSettings) -> str:
    """The name of a recipe's judges as scores store it."""
    kinds = {reward.kind for reward in recipe.in_force()}
    asked = [recipe.ranked_by if "ruler" in kinds else "", recipe.model if kinds & ONE_BY_ONE else ""]
    return " + ".join(dict.fromkeys(name for name in asked if name))


def _times(number: int, mean: float) -> int:
    return math.ceil(number * mean)
