"""The gate: what a loaded version must pass before any user meets it, and what becomes of one that did.

Owns: the policies (`aliases.NAME.promote`), the order of the checks, the codes and words of its verdicts. Refuses:
asking engines (`proxy.versions.checks`), judging figures (`proxy.versions.sanity`), and moving anything: the controller
does what the verdict says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from proxy.engine.answers import Question
from proxy.engine.replica import Replica
from proxy.settings.sections import AliasSettings, Promote
from proxy.versions import checks
from proxy.versions.sanity import Bounds
from recorder.reading.openings import recent_openings
from recorder.registry.aliases import AliasView
from recorder.registry.versions import VersionView
from recorder.store.database import Store
from recorder.work.steps import step_of_version

Next = Literal["live", "canary", "wait", "reject"]

# What the row says of a version that passed, beside its figures.
SANE: Final = "sane"
NOTHING_RECORDED: Final = "nothing_recorded"  # no agent asked anything yet: files, load and probe decided
UNANSWERED: Final = "unanswered"  # the live version could not answer them either: as above
NOT_ASKED_IN_TIME: Final = "not_asked_in_time"  # the engine was too busy: as above
NOT_PROMOTED: Final = "not_promoted"  # of one that nobody promoted in time


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the checks found. `code`: why it passed, or what it failed by; `why` in words."""

    passed: bool
    code: str
    why: str = ""
    figures: Mapping[str, float] = field(default_factory=dict)

    @property
    def said(self) -> str:
        """Code and words, as a row has them."""
        return f"{self.code}: {self.why}" if self.why else self.code


async def policy_of(store: Store, version: VersionView, settings: AliasSettings) -> Promote:
    """How a version comes into service. One of a campaign's passes as `auto`: its validation is its gate."""
    step = await step_of_version(store, version.id)
    return "auto" if step is not None and step.campaign_id is not None else settings.promote


def after_gate(policy: Promote, waited_s: float, settings: AliasSettings) -> Next:
    """What becomes of a version that passed its gate `waited_s` ago."""
    if policy in ("auto", "gate"):
        return "live"
    if policy == "canary":
        return "canary"
    return "reject" if waited_s >= settings.canary_max_age_s else "wait"


async def examine(
    store: Store, replica: Replica, alias: AliasView, version: VersionView, live: VersionView, settings: AliasSettings
) -> Verdict:
    """Ask what is to be asked of a loaded version. Raises EngineUnreachable, StoreError."""
    questions = await _questions(store, alias)
    if not questions:
        return Verdict(True, NOTHING_RECORDED)
    try:
        async with asyncio.timeout(settings.gate.timeout_s):
            return await _sanity(replica, questions, alias, version, live, settings)
    except TimeoutError:
        return Verdict(True, NOT_ASKED_IN_TIME, f"not answered within {settings.gate.timeout_s:g} s (gate.timeout_s)")


async def _questions(store: Store, alias: AliasView) -> list[Question]:
    calls = await recent_openings(store, alias.project_id, alias.id, checks.QUESTIONS)
    return [Question(call.messages, call.tools, call.sampling.max_tokens) for call in calls]


async def _sanity(
    replica: Replica,
    questions: Sequence[Question],
    alias: AliasView,
    version: VersionView,
    live: VersionView,
    settings: AliasSettings,
) -> Verdict:
    against = {"live": live.engine_name} | ({"base": alias.base_model} if live.number > 0 else {})
    bounds = Bounds(settings.gate.kl_max, settings.gate.length_times)
    found = await checks.ask_sanity(replica, questions, version.engine_name, against, bounds)
    if found.fault is None:
        return Verdict(True, SANE if found.figures else UNANSWERED, figures=found.figures)
    code, why = found.fault
    return Verdict(False, code, why, found.figures)
