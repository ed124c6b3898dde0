"""Whether a trainer's base is the one that serves its alias, by their fingerprints.

Refuses: what a fingerprint is (`recorder.registry.fingerprint`).
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from recorder.registry.aliases import AliasView
from recorder.registry.fingerprint import base_fingerprint
from trainer.errors import BaseMismatch
from trainer.policy.base_model import dtype_name
from trainer.settings import TrainerSettings


async def check_base(alias: AliasView, base: Path, settings: TrainerSettings) -> str:
    """Return the base's fingerprint. Raises `BaseMismatch` if another one is recorded for the alias."""
    found = await asyncio.to_thread(base_fingerprint, base, dtype_name(settings), settings.max_model_len)
    if alias.base_fingerprint is not None:  # otherwise the engine still starts, and the first step checks again
        require_same_base(alias, found, settings)
    return found


def require_same_base(alias: AliasView, fingerprint: str, settings: TrainerSettings) -> None:
    """Raise `BaseMismatch` unless the alias's recorded base has this fingerprint. `settings`: the trainer's."""
    if alias.base_fingerprint is None:
        raise BaseMismatch(
            f"the base of the alias {alias.name!r} is not recorded yet, so none of its tokens may be "
            "trained on: set engine.base to the engine's model and restart the proxy."
        )
    if alias.base_fingerprint != fingerprint:
        raise BaseMismatch(
            f"the alias {alias.name!r} is served by another base than {settings.base} in "
            f"{dtype_name(settings)}: weights, dtype, tokenizer, chat template, the factors of longrope or Llama 4's "
            "scale of late queries differ. Set trainer.base, trainer.dtype and trainer.max_model_len to the engine's "
            "values."
        )
