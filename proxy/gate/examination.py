"""The gate: what a loaded version must pass before any user meets it, and what becomes of one that did.

Owns: the policies (`aliases.NAME.promote`), the order of the checks, the codes and words of its verdicts. Refuses:
asking engines (`proxy.gate.sanity`), judges (`proxy.gate.behaviour`) and learners (`proxy.gate.behaviour`), judging
figures (`proxy.gate.sanity`), and moving anything: the controller does what the verdict says.
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
from recorder.views.trajectories.first_turns import list_first_turns

Next = Literal["live", "canary", "wait", "reject"]

# What the row says of a version that passed, beside its figures.
SANE: Final = "sane"
NOTHING_RECORDED: Final = "nothing_recorded"  # no agent asked anything yet: files, load and probe decided
UNANSWERED: Final = "unanswered"  # the live version could not answer them either: as above
NOT_ASKED_IN_TIME: Final = "not_asked_in_time"  # the engine was too busy: as above
WORSE: Final = "behaviour"  # of one that was shown worse than the live version
NOT_PROMOTED: Final = "not_promoted"  # of one that nobody promoted in time


@dataclass(frozen=True, slots=True)
class GateVerdict:
    """What the checks found. `code`: why it passed, or what it failed by; `why` in words."""

    passed: bool
    code: str
    why: str = ""
    figures: Mapping[str, float] = field(default_factory=dict)

    @property
    def said(self) -> str:
        """Code and words, as a row has them."""
        return f"{self.code}: {self.why}" if self.why else self.code


async def service_policy(store: Store, version: VersionView, settings: AliasSettings) -> Promote:
    """How a version comes into service. One of a campaign's passes as `auto`: its validation is its gate."""
    step = await step_of_version(store, version.id)
    return "auto" if step is not None and step.campaign_id is not None else settings.promote


def state_after_gate(policy: Promote, waited_s: float, settings: AliasSettings) -> Next:
    """What becomes of a version that passed its gate `waited_s` ago."""
    if policy in ("auto", "gate"):
        return "live"
    if policy == "canary":
        return "canary"
    return "reject" if waited_s >= settings.canary_max_age_s else "wait"


async def examine_version(sides: BehaviourArms, policy: Promote, settings: GateSettings) -> GateVerdict:
    """Ask what is to be asked of a loaded version. Raises EngineUnreachable, StoreError."""
    questions = await _questions(sides.store, sides.alias)
    held_out = settings.scenarios is not None and policy != "auto"
    if not questions and not held_out:
        return GateVerdict(True, NOTHING_RECORDED)
    won, sane = PairWins(settings.win_at_least), GateVerdict(True, NOT_ASKED_IN_TIME)
    try:
        async with asyncio.timeout(settings.timeout_s):
            names = sides.version.engine_name, sides.live.engine_name
            pairs = await sanity.ask_both(sides.replica, questions, *names)
            sane = await _sanity(sides, pairs, settings) if questions else GateVerdict(True, NOTHING_RECORDED)
            if not sane.passed or policy == "auto":
                return sane
            most = settings.max_samples
            asked = (
                behaviour.ask_scenarios(sides, most, won)
                if held_out
                else behaviour.ask_first_turns(sides, pairs, questions, most, won)
            )
            why = await asked
    except TimeoutError:
        why = f"not all was answered and judged within {settings.timeout_s:g} s (gate.timeout_s)"
        if held_out and (seen := await behaviour.give_up_request(sides)) is not None:
            why += f": {seen}"
    return _behaved(sane, won, why)


def _behaved(sane: GateVerdict, won: PairWins, why: str) -> GateVerdict:
    figures = {**sane.figures, **won.figures}
    if won.doubt.shown_worse:
        why = (
            f"it wins {won.doubt.mean:.0%} of {len(won.values)} pairs, less than {won.at_least:.0%} (gate.win_at_least)"
        )
        return GateVerdict(False, WORSE, why, figures)
    return replace(sane, why=why, figures=figures)


async def _questions(store: Store, alias: AliasView) -> list[EngineQuestion]:
    calls = await list_first_turns(Project(store, alias.project_id), alias.id, sanity.QUESTIONS)
    return [EngineQuestion(call.messages, call.tools, call.sampling.max_tokens) for call in calls]


async def _sanity(sides: BehaviourArms, pairs: Sequence[AnswerPair], settings: GateSettings) -> GateVerdict:
    live, alias = sides.live, sides.alias
    against = {"live": live.engine_name} | ({"base": alias.base_model} if live.number > 0 else {})
    bounds = SanityBounds(settings.kl_max or math.inf, settings.length_times)
    found = await sanity.check_sanity(sides.replica, pairs, against, bounds)
    if found.fault is None:
        return GateVerdict(True, SANE if found.figures else UNANSWERED, figures=found.figures)
    code, why = found.fault
    return GateVerdict(False, code, why, found.figures)
