"""Making a plan: for a base and cards, and where it does not fit, with shares of the base or the nearest set-up.

Refuses: what a plan says (`trainer.memory.plan`), and the search itself (`trainer.memory.nearest`).
"""

from __future__ import annotations

from dataclasses import replace

from recorder.models.base_model import ModelProfile
from trainer.errors import PlanInvalid
from trainer.memory.cards import Card
from trainer.memory.nearest import nearest_setups
from trainer.memory.needs import EngineFacts
from trainer.memory.placement import Machine
from trainer.memory.plan import Plan, plan_base, share_base
from trainer.settings import TrainerSettings


def make_plan(
    profile: ModelProfile,
    card: Card,
    settings: TrainerSettings,
    engine: EngineFacts,
    *,
    cards: int = 1,
    row_tokens: int | None = None,
    host_bytes: float | None = None,
    search: bool = True,
) -> Plan:
    """Plan engine and trainer on `cards` cards of a kind. `row_tokens`: the longest row that must be trained; above
    `trainer.token_budget` it has a pass of its own. `host_bytes`: free memory of the machine; None: not known.

    `search`: where it does not fit, look for the nearest set-up that does. Raises `PlanInvalid` and `UnsupportedModel`.
    """
    machine, longest = Machine(card, cards, host_bytes), profile.context_length
    tokens = min(settings.token_budget, row_tokens or settings.token_budget, longest or settings.token_budget)
    if row_tokens is not None and longest is not None and row_tokens > longest:
        raise PlanInvalid(f"a row of {row_tokens} tokens is longer than the context of {profile.name} ({longest}).")
    plan = plan_base(profile, machine, settings, engine, tokens, row_tokens)
    if plan.fits or not search:
        return plan
    if (among := share_base(plan)) is not None and among.fits:
        return among
    return replace(plan, nearest=tuple(nearest_setups(plan, row_tokens)))


def plan_without_quantize(plan: Plan, row_tokens: int | None) -> Plan | None:
    """The same plan on the base itself; None: the plan is so already."""
    if plan.settings.quantize is None:
        return None
    changed = plan.settings.model_copy(update={"quantize": None})
    return plan_base(plan.base.profile, plan.machine, changed, plan.engine, plan.tokens, row_tokens)
