"""What the Tinker API cannot compute as this trainer does: each case is refused with one sentence. Pure.

Owns: the cases that settings and a base's configuration show. Refuses: what only rows show
(`trainer.step.tinker.rows`), and what only the service shows (`trainer.step.tinker.remote_core`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from recorder.models.experts import expert_names
from trainer.errors import TinkerUnsupported
from trainer.settings import TrainerSettings

_TARGETS: Final = ("all-linear", "attention")
_LOCAL: Final = 'or set trainer.backend = "local"'


def find_unsupported(settings: TrainerSettings, share: str = "split") -> str | None:
    """Why these settings cannot be used with `trainer.backend = "tinker"`, in one sentence; None: they can.

    `share`: `engine.share`.
    """
    if settings.kl_coef > 0:
        return (
            "trainer.kl_coef needs the base's logprobs at every step, and a session at the Tinker API trains one model "
            f"that cannot leave its LoRA out: set trainer.kl_coef = 0, {_LOCAL}"
        )
    if settings.drift_trajectories > 0:
        return (
            "trainer.drift_trajectories compares whole distributions of tokens, and the Tinker API returns logprobs of "
            f"single tokens: set it to 0, {_LOCAL}"
        )
    if settings.quantize is not None:
        return f"trainer.quantize is for a base in this machine's memory: remove it, {_LOCAL}"
    if share != "split":
        return (
            f'engine.share = "{share}" makes room for a trainer on the engine\'s GPU, and a training service needs '
            f'none: set engine.share = "split", {_LOCAL}'
        )
    if settings.gpus:
        return f"trainer.gpus are GPUs of this machine, and a training service uses none of them: remove it, {_LOCAL}"
    if settings.processes > 1:
        return f"trainer.processes are processes of this machine, and a service has its own: set it to 1, {_LOCAL}"
    if any(one.name != "group" for one in settings.objectives):
        return (
            f'trainer.objectives has more than "group", which was never tried with the Tinker API: remove it, {_LOCAL}'
        )
    if settings.rehearsal > 0:
        return f"trainer.rehearsal imitates, which was never tried with the Tinker API: set it to 0, {_LOCAL}"
    if settings.target not in _TARGETS:
        return (
            f"trainer.target {settings.target!r} is more than the Tinker API can express, which has switches for "
            f'attention and MLPs: set "all-linear" or "attention", {_LOCAL}'
        )
    return None


def require_supported(settings: TrainerSettings, share: str = "split") -> None:
    """Raise `TinkerUnsupported` for settings that cannot be used with `trainer.backend = "tinker"`."""
    if (reason := find_unsupported(settings, share)) is not None:
        raise TinkerUnsupported(reason)


def require_dense(base: Path, architecture: str | None) -> None:
    """Raise `TinkerUnsupported` for a mixture of experts: the service's LoRA shares matrices between experts."""
    if expert_names(architecture) is not None:
        raise TinkerUnsupported(
            f"the base {base} is a mixture of experts, whose LoRA a Tinker service divides in another way than Hone "
            f"and engines do: train a dense base, {_LOCAL}"
        )


def require_base(known: Mapping[str, int | None], name: str, token_budget: int) -> int | None:
    """The longest row that a service takes of a base, in tokens; None: it does not say.

    `known`: the bases that it trains, with this length. Raises `TinkerUnsupported` if it does not train the base, or
    takes no rows of `trainer.token_budget`.
    """
    if name not in known:
        raise TinkerUnsupported(
            f"the training service trains no base {name!r}: set trainer.tinker.base_model to one of "
            f"{', '.join(sorted(known)) or 'none'}, the same as the engine serves"
        )
    longest = known[name]
    if longest is not None and token_budget > longest:
        raise TinkerUnsupported(
            f"trainer.token_budget is {token_budget}, and the training service takes rows of at most {longest} tokens "
            f"of {name}: lower it to that"
        )
    return longest


def base_name(settings: TrainerSettings) -> str:
    """The service's name of the base. Raises `TinkerUnsupported` if it is not known."""
    if settings.tinker.base_model is not None:
        return settings.tinker.base_model
    base = settings.base or ""
    if not base or Path(base).is_dir():
        raise TinkerUnsupported(
            f"the training service's name of the base {base!r} is not known: set trainer.tinker.base_model, or "
            "trainer.base to its Hugging Face id"
        )
    return base
