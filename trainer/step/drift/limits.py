"""What follows from an update that goes too far from its parent: half of it, and then no version.

Owns: half an update, when a divergence is too large, and its sentence. Refuses: measuring
(`trainer.step.drift.measure`), and what happens to the groups (`trainer.step.runner`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from torch import Tensor

from trainer.policy.model import Policy
from trainer.settings import TrainerSettings
from trainer.step.drift.measure import LoraState, measure_drift
from trainer.step.drift.request import PARENT, PREFIX, DriftJob

KL_PARENT_MAX: Final = "kl_parent_max"  # the ledger's code of a step whose update goes too far, and of its groups
_KL_PARENT: Final = f"{PREFIX}kl_{PARENT}"
_WHOLE: Final = f"{PREFIX}kl_parent_whole"  # the metric of an update that was halved, before that


def halve_update(parent: LoraState, new: LoraState) -> dict[str, Tensor]:
    """Return the weights in the middle between two states: parent + ½ (new − parent)."""
    return {name: earlier + 0.5 * (new[name] - earlier) for name, earlier in parent.items()}


def measure_within(
    policy: Policy, job: DriftJob, parent: LoraState, settings: TrainerSettings, stopped: Callable[[], bool]
) -> dict[str, float]:
    """`measure_drift` of an update that is halved once if it goes too far. The optimizer's moments stay as they are."""
    found = measure_drift(policy, job, parent, settings, stopped)
    if not is_too_far(found, settings):
        return found
    policy.load_state(halve_update(parent, policy.state()))
    return {**measure_drift(policy, job, parent, settings, stopped), _WHOLE: found[_KL_PARENT]}


def is_too_far(metrics: Mapping[str, float], settings: TrainerSettings) -> bool:
    """Whether a measured update is above `trainer.kl_parent_max`; also if its divergence is not a number."""
    if settings.kl_parent_max is None or _KL_PARENT not in metrics:
        return False
    return not metrics[_KL_PARENT] <= settings.kl_parent_max


def explain_refusal(metrics: Mapping[str, float], settings: TrainerSettings) -> str | None:
    """Return why no version is made of an update that was halved, in words; None: it is near enough."""
    if not is_too_far(metrics, settings):
        return None
    return (
        f"the update goes too far from its parent: KL {metrics[_WHOLE]:.3g} nats a token on the drift set, and "
        f"{metrics[_KL_PARENT]:.3g} after half of it, where trainer.kl_parent_max is {settings.kl_parent_max:g}. If "
        "steps go on like this, lower trainer.lr"
    )
