"""The gate's order: which checks a loaded version must pass before users meet it, and how it then enters service.

Owns: the policies (`aliases.NAME.promote`), the order of the checks, the codes and texts of its verdicts. Refuses:
asking engines and bounds of figures (`proxy.gate.sanity`), judges and scenarios (`proxy.gate.behaviour`), and moving an
alias: the controller applies the verdict.
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
from proxy.gate.sanity import AnswerPair, SanityBounds
from proxy.settings.sections import AliasSettings, GateSettings, Promote
from recorder.queue.training.steps import step_of_version
from recorder.registry.aliases import AliasView
from recorder.registry.versions import VersionView
from recorder.store.database import Project, Store
from recorder.views.trajectories.transcripts import list_first_turns

Next = Literal["live", "canary", "wait", "reject"]

# Codes of a version that passed, stored with its figures.
SANE: Final = "sane"
NOTHING_RECORDED: Final = "nothing_recorded"  # no agent has called yet; files, load and probe decide
UNANSWERED: Final = "unanswered"  # the live version could not answer the questions either; files, load and probe decide
NOT_ASKED_IN_TIME: Final = "not_asked_in_time"  # the engine was too busy; files, load and probe decide
WORSE: Final = "behaviour"  # code of a version that was shown to be worse than the live one
NOT_PROMOTED: Final = "not_promoted"  # code of a version that was not promoted in time


@dataclass(frozen=True, slots=True)
class GateVerdict:
    """The result of the checks. `code`: why it passed or failed; `why`: the details in words."""

    passed: bool
    code: str
    why: str = ""
    figures: Mapping[str, float] = field(default_factory=dict)

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


async def examine_version(arms: BehaviourArms, policy: Promote, settings: GateSettings) -> GateVerdict:
    """Run the checks on a loaded version. Raises EngineUnreachable, StoreError."""
    questions = await _questions(arms.store, arms.alias)
    held_out = settings.scenarios is not None and policy != "auto"
    if not questions and not held_out:
        return GateVerdict(True, NOTHING_RECORDED)
    won, sane = PairWins(settings.win_at_least), GateVerdict(True, NOT_ASKED_IN_TIME)
    try:
        async with asyncio.timeout(settings.timeout_s):
            names = arms.version.engine_name, arms.live.engine_name
            pairs = await sanity.ask_both(arms.replica, questions, *names)
            sane = await _sanity(arms, pairs, settings) if questions else GateVerdict(True, NOTHING_RECORDED)
            if not sane.passed or policy == "auto":
                return sane
            most = settings.max_samples
            comparison = (
                behaviour.ask_scenarios(arms, most, won)
                if held_out
                else behaviour.ask_first_turns(arms, pairs, questions, most, won)
            )
            why = await comparison
    except TimeoutError:
        why = f"the pairs were not all answered and judged within {settings.timeout_s:g} s (gate.timeout_s)"
        if held_out and (seen := await behaviour.give_up_request(arms)) is not None:
            why += f": {seen}"
    return _behaved(sane, won, why)


def _behaved(sane: GateVerdict, won: PairWins, why: str) -> GateVerdict:
    figures = {**sane.figures, **won.figures}
    if won.doubt.shown_worse:
        why = f"it wins {won.doubt.mean:.0%} of {len(won.values)} pairs, below {won.at_least:.0%} (gate.win_at_least)"
        return GateVerdict(False, WORSE, why, figures)
    return replace(sane, why=why, figures=figures)


async def _questions(store: Store, alias: AliasView) -> list[EngineQuestion]:
    calls = await list_first_turns(Project(store, alias.project_id), alias.id, sanity.QUESTIONS)
    return [EngineQuestion(call.messages, call.tools, call.sampling.max_tokens) for call in calls]


async def _sanity(arms: BehaviourArms, pairs: Sequence[AnswerPair], settings: GateSettings) -> GateVerdict:
    live, alias = arms.live, arms.alias
    against = {"live": live.engine_name} | ({"base": alias.base_model} if live.number > 0 else {})
    bounds = SanityBounds(settings.kl_max or math.inf, settings.length_times)
    result = await sanity.check_sanity(arms.replica, pairs, against, bounds)
    if result.fault is None:
        return GateVerdict(True, SANE if result.figures else UNANSWERED, figures=result.figures)
    code, why = result.fault
    return GateVerdict(False, code, why, result.figures)
