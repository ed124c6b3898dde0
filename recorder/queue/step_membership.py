"""Which attempts belong to a step of a campaign: those planned for it, or those that entered it.

Owns: this condition. Refuses: which groups enter a step (`trainer.campaign.pipeline`), and writing it
(`recorder.queue.entered_steps`).

A campaign that samples ahead (`campaign.max_lag`) writes the step of each group once the step takes it. From then on
the step's attempts are those, whichever step they were planned for.
"""

from __future__ import annotations

from sqlalchemy import ColumnElement, and_, exists, or_

from recorder.states import Purpose
from recorder.store.schema import attempts


def is_of_step(campaign_id: str, step: int) -> ColumnElement[bool]:
    """Whether an attempt belongs to a campaign's step: it entered it, or it was planned for it, and nothing entered."""
    a, other = attempts.c, attempts.alias("entered").c
    taken = exists().where(other.campaign_id == campaign_id, other.entered_step == step)
    planned = and_(a.step_number == step, a.entered_step.is_(None), or_(a.purpose != Purpose.TRAIN, ~taken))
    return and_(a.campaign_id == campaign_id, or_(a.entered_step == step, planned))
