"""The gate's order: which checks a loaded version must pass before users meet it, and how it then enters service.

Owns: the policies (`aliases.NAME.promote`), the order of the checks, the codes and texts of its verdicts. Refuses:
asking engines and bounds of figures (`proxy.gate.sanity`), judges and scenarios (`proxy.gate.behaviour`), which earlier
versions are compared (`proxy.gate.earlier`), the drift set (`proxy.gate.drift_answers`), how many questions a campaign
allows (`proxy.gate.token_share`), and moving an alias: the controller applies the verdict.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from proxy.engine.answers import EngineQuestion
from proxy.gate import behaviour, sanity
from proxy.gate.behaviour import BehaviourArms, PairWins
from proxy.gate.drift_answers import FORGETTING, ForgettingResult, measure_forgetting
from proxy.gate.earlier import Comparison, HoldVersion, find_earlier
from proxy.gate.sanity import AnswerPair, SanityBounds
from proxy.gate.token_share import plan_questions, sampled_length
from proxy.settings.sections import AliasSettings, GateSettings, Promote
from recorder.queue.training.steps import step_of_version
from recorder.registry.versions import VersionView
from recorder.store.database import Project, Store
from recorder.views.campaigns.tokens import GATE_QUESTIONS, GATE_TOKENS
from recorder.views.trajectories.transcripts import list_first_turns

Next = Literal["live", "canary", "wait", "reject"]

# Codes of a version that passed, stored with its figures.
SANE: Final = "sane"
NOTHING_RECORDED: Final = "nothing_recorded"  # no agent has called yet; files, load and probe decide
UNANSWERED: Final = "unanswered"  # the live version could not answer the questions either; files, load and probe decide
NOT_ASKED_IN_TIME: Final = "not_asked_in_time"  # the engine was too busy; files, load and probe decide
SHARE_SPENT: Final = "share_spent"  # gates took their share of a campaign's tokens; files, load and probe decide
NOT_PROMOTED: Final = "not_promoted"  # code of a version that was not promoted in time


@dataclass(frozen=True, slots=True)
class GateVerdict:
    """The result of the checks. `code`: why it passed or failed; `why`: the details in words."""

    passed: bool
    code: str
    why: str = ""
    figures: Mapping[str, float] = field(default_factory=dict)
    limits: Mapping[str, float] = field(default_factory=dict)  # of the figures, as `gate_limits` returns them

    @property
    def summary(self) -> str:
        """Code and details, as the version's row stores them."""
        return f"{self.code}: {self.why}" if self.why else self.code


async def service_policy(store: Store, version: VersionView, settings: AliasSettings) -> Promote:
    """Return how a version enters service. A campaign's version passes as `auto`: its validation is its gate."""
    step = await step_of_version(store, version.id)
    return "auto" if step is not None and step.campaign_id is not None else settings.promote


def state_after_gate(policy: Promote, waited_s: float, settings: AliasSettings) -> Next:
    """Return the next state of a version that passed its gate `waited_s` ago."""
    if policy in ("auto", "gate"):
        return "live"
    if policy == "canary":
        return "canary"
    return "reject" if waited_s >= settings.canary_max_age_s else "wait"


def gate_limits(settings: GateSettings) -> dict[str, float]:
    """Return the bounds of a gate's figures, by the setting's name; `entropy_times` is no setting."""
    limits = {
        "length_times": settings.length_times,
        "entropy_times": sanity.ENTROPY_TIMES,
        "kl_max": settings.kl_max,
        "win_at_least": settings.win_at_least,
        "forgetting_max": settings.forgetting_max,
    }
    return {name: value for name, value in limits.items() if value is not None}


async def examine_version(
    arms: BehaviourArms, policy: Promote, settings: GateSettings, hold: HoldVersion | None = None
) -> GateVerdict:
    """Run the checks on a loaded version. Raises EngineUnreachable, StoreError.

    `hold`: gives earlier versions a slot of the engines (`gate.earlier`); None: they are not compared.
    """
    recorded = await list_first_turns(Project(arms.store, arms.alias.project_id), arms.alias.id, sanity.QUESTIONS)
    questions = [EngineQuestion(call.messages, call.tools, call.sampling.max_tokens) for call in recorded]
    plan = await plan_questions(
        arms.store, arms.version, questions, [sampled_length(call) for call in recorded], settings.max_share
    )
    held_out = settings.scenarios is not None and policy != "auto"
    if not plan.asked and not held_out:
        return GateVerdict(True, SHARE_SPENT, plan.why) if plan.why else GateVerdict(True, NOTHING_RECORDED)
    verdict = await _examine(arms, policy, settings, plan.asked, hold)
    return replace(verdict, why="; ".join(filter(None, (verdict.why, plan.why))))


async def _examine(
    arms: BehaviourArms,
    policy: Promote,
    settings: GateSettings,
    questions: Sequence[EngineQuestion],
    hold: HoldVersion | None,
) -> GateVerdict:
    sane = GateVerdict(True, NOT_ASKED_IN_TIME)
    examination = _Examination(settings, [Comparison(arms, PairWins(settings.win_at_least))])
    try:
        async with asyncio.timeout(settings.timeout_s):
            names = arms.version.engine_name, arms.live.engine_name
            pairs = await sanity.ask_both(arms.replica, questions, *names)
            sane = await _sanity(arms, pairs, settings) if questions else GateVerdict(True, NOTHING_RECORDED)
            if policy == "auto":
                return replace(sane, figures={**sane.figures, **_cost(pairs)})
            if not sane.passed:
                return sane
            await examination.run(pairs, questions, hold)
    except TimeoutError:
        await examination.give_up()
    return examination.verdict(sane)


@dataclass
class _Examination:
    """What follows sanity: the version beside the live one, beside earlier ones, and on its alias's drift set."""

    settings: GateSettings
    done: list[Comparison]  # the newest may still run
    forgetting: ForgettingResult | None = None  # once it is measured

    @property
    def is_worse(self) -> bool:
        """Whether a comparison shows the version to be worse."""
        return any(one.won.doubt.shown_worse for one in self.done)

    async def run(
        self, pairs: Sequence[AnswerPair], questions: Sequence[EngineQuestion], hold: HoldVersion | None
    ) -> None:
        """Compare with the live version; where that was possible, also with the others, until one decides."""
        live, settings = self.done[0], self.settings
        await self._compare(live, pairs, questions)
        if live.why:
            return
        if hold is not None and settings.earlier:
            await self._compare_earlier(questions, hold)
        if settings.forgetting_answers and not self.is_worse:
            self.forgetting = ForgettingResult()
            most = settings.forgetting_max
            await measure_forgetting(live.arms, self.forgetting, settings.forgetting_answers, most)

    async def _compare(self, one: Comparison, pairs: Sequence[AnswerPair], questions: Sequence[EngineQuestion]) -> None:
        most = self.settings.max_samples
        if self.settings.scenarios is not None:
            one.why = await behaviour.ask_scenarios(one.arms, most, one.won)
        else:
            one.why = await behaviour.ask_first_turns(one.arms, pairs, questions, most, one.won)

    async def _compare_earlier(self, questions: Sequence[EngineQuestion], hold: HoldVersion) -> None:
        """Compare with each earlier version, until one shows the version to be worse.

        Its answers are new here: it passed by those that the live comparison used, and they would favour it.
        """
        arms = self.done[0].arms
        for age, earlier in (await find_earlier(arms.store, arms.live, self.settings.earlier)).items():
            if self.is_worse:
                return
            one = Comparison(replace(arms, live=earlier), PairWins(self.settings.win_at_least), age)
            self.done.append(one)
            async with hold(earlier) as held:
                if held.missing is None:
                    await self._compare(one, [], questions)
                if not one.won.decided:
                    one.why = held.missing or one.why

    async def give_up(self) -> None:
        """Note that what runs now did not end in time."""
        within = f"within {self.settings.timeout_s:g} s (gate.timeout_s)"
        if self.forgetting is not None:
            self.forgetting.why = f"the answers to the drift set were not all judged {within}"
            return
        late = self.done[-1]
        late.why = f"the pairs were not all answered and judged {within}"
        if self.settings.scenarios is not None and (seen := await behaviour.give_up_request(late.arms)) is not None:
            late.why += f": {seen}"

    def verdict(self, sane: GateVerdict) -> GateVerdict:
        """What is decided about a version whose answers are sane."""
        forgetting = self.forgetting or ForgettingResult()
        of_all = [sane.figures, *(one.figures for one in self.done), forgetting.figures]
        figures = {name: value for figures in of_all for name, value in figures.items()}
        for one in self.done:
            if one.won.doubt.shown_worse:
                return GateVerdict(False, one.code, one.worse, figures)
        if forgetting.fall is not None and self.settings.forgetting_max is not None:
            return GateVerdict(False, FORGETTING, forgetting.describe_fall(self.settings.forgetting_max), figures)
        whys = [one.why if one.age is None else f"beside {one.described}: {one.why}" for one in self.done if one.why]
        return replace(sane, why="; ".join([*whys, *([forgetting.why] if forgetting.why else [])]), figures=figures)


def _cost(pairs: Sequence[AnswerPair]) -> dict[str, float]:
    """The figures of what the answers took."""
    answers = [answer for pair in pairs for answer in (pair.candidate, pair.live) if answer is not None]
    return {GATE_QUESTIONS: len(pairs), GATE_TOKENS: sum(len(answer.token_ids) for answer in answers)}


async def _sanity(arms: BehaviourArms, pairs: Sequence[AnswerPair], settings: GateSettings) -> GateVerdict:
    live, alias = arms.live, arms.alias
    against = {"live": live.engine_name} | ({"base": alias.base_model} if live.number > 0 else {})
    bounds = SanityBounds(settings.kl_max or math.inf, settings.length_times)
    result = await sanity.check_sanity(arms.replica, pairs, against, bounds)
    if result.fault is None:
        return GateVerdict(True, SANE if pairs else UNANSWERED, figures=result.figures)
    code, why = result.fault
    return GateVerdict(False, code, why, result.figures)
