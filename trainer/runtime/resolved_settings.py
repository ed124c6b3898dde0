"""The trainer's settings with what the engine's settings say of the same base. It imports nothing heavy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from recorder.models.context import stated_context
from trainer.settings import TrainerSettings

if TYPE_CHECKING:
    from proxy.settings.hone import HoneSettings


def trainer_settings(everything: HoneSettings) -> TrainerSettings:
    """The trainer's settings, with the engine's base, precision and context as defaults."""
    settings, engine = everything.trainer, everything.engine
    same: dict[str, Any] = {"base": settings.base or engine.base}
    same["max_model_len"] = settings.max_model_len or stated_context(engine.max_model_len, engine.args)
    if settings.dtype == "auto" and engine.dtype in ("float32", "bfloat16"):
        same["dtype"] = engine.dtype
    return settings.model_copy(update=same)
