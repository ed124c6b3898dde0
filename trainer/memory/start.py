"""The check before a trainer loads its base: a card that cannot hold a pass is refused with what to do.

Refuses: a plan that is only tight. The trainer lowers the tokens of a pass where several rows do not fit.
"""

from __future__ import annotations

from pathlib import Path

import torch

from recorder.errors import BaseInvalid
from recorder.models.base_model import read_base_model
from trainer.errors import DoesNotFit, PlanInvalid, UnsupportedModel
from trainer.memory.cards import Card, card_of
from trainer.memory.needs import CONTEXT_BYTES, GIB, EngineFacts
from trainer.memory.planner import make_plan
from trainer.policy.base_model import choose_device
from trainer.settings import TrainerSettings


def require_room(base: Path, settings: TrainerSettings, card: Card | None = None) -> None:
    """Raise `DoesNotFit` if one pass of `trainer.token_budget` holds more than the whole card.

    `card`: the device's [found by torch]; on a CPU nothing is checked. What cannot be computed is left to the loader.
    """
    card = card or _own_card(settings)
    if card is None:
        return
    try:
        profile = read_base_model(base, needs_weights=False)
        plan = make_plan(profile, card, settings, EngineFacts(elsewhere=True), search=False)
        if plan.chosen.trainer.held + CONTEXT_BYTES <= card.gib * GIB:
            return
        plan = make_plan(profile, card, settings, EngineFacts(elsewhere=True), cards=settings.processes)
    except (BaseInvalid, PlanInvalid, UnsupportedModel):
        return
    raise DoesNotFit(plan.sentence)


def _own_card(settings: TrainerSettings) -> Card | None:
    if choose_device(settings).type != "cuda":
        return None
    found = torch.cuda.get_device_properties(0)
    return card_of(found.name, found.total_memory / GIB)
