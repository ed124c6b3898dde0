"""The nearest set-ups that fit where a plan does not: each changes one thing, the cheapest change first.

Refuses: computing a plan (`trainer.memory.plan`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from recorder.models.base_model import ModelProfile, read_base_model
from recorder.models.shipped_configs import SHIPPED, shipped_names
from trainer.errors import PlanInvalid, UnsupportedModel
from trainer.memory.cards import CARDS
from trainer.memory.needs import (
    BFLOAT16,
    CONTEXT_BYTES,
    ENGINE_EXTRA_BYTES,
    GIB,
    LEAST_TOKENS,
    RESERVED,
    TrainerNeed,
)
from trainer.memory.placement import Machine
from trainer.memory.plan import STEP, Plan, plan_base, plan_for, plan_measured
from trainer.quantization.nf4 import NF4

_LEAST_OF_OTHERS: Final = 4096  # the smallest budget for which another model is offered
NF4_SHARE: Final = 0.25  # of a base's bytes in bfloat16: a copy in nf4 takes more in any case
_CANDIDATES: Final = 2  # smaller models that are measured


def nearest_setups(plan: Plan, row_tokens: int | None) -> Iterator[str]:
    """The set-ups that fit, each changing one thing, the cheapest change first."""
    card, cards = plan.machine.card, plan.machine.cards
    if 1 <= plan.trainer_cards < plan.settings.processes:
        fewer = plan.settings.model_copy(update={"processes": plan.trainer_cards})
        if plan_measured(replace(plan.base, settings=fewer), plan.machine, fewer, plan.engine, plan.tokens).fits:
            yield f"trainer.processes = {plan.trainer_cards}"
    if plan.settings.gradient_checkpointing is False:
        changed = plan.settings.model_copy(update={"gradient_checkpointing": True})
        if plan_base(plan.base.profile, plan.machine, changed, plan.engine, plan.tokens, row_tokens).fits:
            yield "trainer.gradient_checkpointing = true"
    if (budget := largest_budget(plan, LEAST_TOKENS)) is not None:
        yield f"trainer.token_budget = {budget} (a longer row has a pass of its own where it fits)"
    if not plan.engine.elsewhere and plan.engine.share == "split":
        yield from _take_turns(plan)
    if _may_fit_quantized(plan):
        changed = plan.settings.model_copy(update={"quantize": NF4})
        if plan_base(plan.base.profile, plan.machine, changed, plan.engine, plan.tokens, row_tokens).fits:
            yield f'trainer.quantize = "{NF4}" (logprobs differ more from the engine\'s)'
    if cards == 1 and not plan.engine.elsewhere:
        two = _on(plan, replace(plan.machine, cards=2), plan.tokens)
        if two.fits:
            yield f"engine and trainer on {two.chosen.where}, one each"
    if (smaller := _smaller_model(plan, row_tokens)) is not None:
        yield smaller
    bigger = sorted((one for one in CARDS if one.gib > card.gib), key=lambda one: one.gib)
    for count in {1, cards}:
        for one in bigger:
            if (larger := _on(plan, replace(plan.machine, card=one, cards=count), plan.tokens)).fits:
                yield larger.chosen.where
                break


def _on(plan: Plan, machine: Machine, tokens: int) -> Plan:
    """The same base on another machine, or with another budget."""
    return plan_measured(plan.base, machine, plan.settings, plan.engine, tokens)


def _take_turns(plan: Plan) -> Iterator[str]:
    """The way to share one card with which it fits and that moves the least, if there is one."""
    for share in ("cache", "sleep"):
        engine = replace(plan.engine, share=share)
        if plan_measured(plan.base, replace(plan.machine, cards=1), plan.settings, engine, plan.tokens).fits:
            yield f'engine.share = "{share}"'
            return


def _may_fit_quantized(plan: Plan) -> bool:
    """Whether it is worth measuring: the base is not quantised, and the least that its copy takes would fit."""
    if plan.settings.quantize is not None or plan.base.profile.quantization is not None:
        return False
    least = TrainerNeed(plan.tokens, round(plan.base.high.weights * NF4_SHARE))
    return plan_for(least, plan.base, plan.machine, plan.settings, plan.engine).fits


def largest_budget(plan: Plan, least: int) -> int | None:
    """The largest budget below the plan's with which it fits, and which is not below `least`; None: none is."""
    low, high = math.ceil(least / STEP), (plan.tokens - 1) // STEP
    weights = TrainerNeed(least, plan.base.high.weights - plan.base.saved_by_shares)
    if not plan_for(weights, plan.base, plan.machine, plan.settings, plan.engine).fits:
        return None  # no pass is short enough; a measurement of few tokens would take a second to say so
    found = None
    while low <= high:
        middle = (low + high) // 2
        tokens = middle * STEP
        if _on(plan, plan.machine, tokens).fits:
            found, low = tokens, middle + 1
        else:
            high = middle - 1
    return found


def _smaller_model(plan: Plan, row_tokens: int | None) -> str | None:
    """The largest model of the family that fits, with the budget at which it does."""
    profile = plan.base.profile
    family = profile.family.removesuffix("_moe")
    others = [read_base_model(SHIPPED / name, name=name, needs_weights=False) for name in shipped_names()]
    size = profile.parameters.total if profile.parameters is not None else math.inf
    smaller = [
        (one.parameters.total, one)
        for one in others
        if one.family.removesuffix("_moe") == family and one.parameters is not None and one.parameters.total < size
    ]
    room = plan.machine.card.gib * GIB
    hopeful = [
        (total, one)
        for total, one in smaller
        if _least_bytes(one, total, plan) < room and (row_tokens or 0) <= (one.context_length or math.inf)
    ]
    for _, one in sorted(hopeful, key=lambda pair: pair[0], reverse=True)[:_CANDIDATES]:
        tokens = min(plan.tokens, one.context_length or plan.tokens)
        try:
            other = plan_base(one, plan.machine, plan.settings, plan.engine, tokens, row_tokens)
        except (PlanInvalid, UnsupportedModel):
            continue
        if other.fits:
            return f"{one.name} on {other.chosen.where}"
        if (budget := largest_budget(other, _LEAST_OF_OTHERS)) is not None:
            return f"{one.name} with trainer.token_budget = {budget} on {other.chosen.where}"
    return None


def _least_bytes(profile: ModelProfile, parameters: int, plan: Plan) -> float:
    """What a model needs in any case, without a measurement: its weights, and three copies of a chunk of logits."""
    weights = parameters * BFLOAT16
    logits = 3 * 4 * plan.settings.logprob_chunk * (profile.vocab_size or 0)
    held = weights * NF4_SHARE if plan.settings.quantize else weights
    trainer = RESERVED * (held + logits) + CONTEXT_BYTES
    return trainer if plan.machine.cards > 1 or plan.engine.elsewhere else trainer + weights + ENGINE_EXTRA_BYTES
