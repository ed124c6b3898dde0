"""What `trainer.target` selects in a model: the modules and expert parameters that get a LoRA, by their full names.

Owns: the meaning of each word and of a list, what is never adapted, and the shares of weights. Refuses: putting a LoRA
on anything (`trainer.policy.base_model`), and the engine's names (`recorder.models.experts`).

- `all-linear`: every linear layer of the language model except output head and routers, with the experts, and without
  the layers on which vLLM or PEFT takes no LoRA
- `attention`: the linear layers of attention and of layers with a state; `experts`: the experts alone
- a list: modules by full name or its end; `experts` in it are the experts of all layers

A router decides which experts compute a token. Its LoRA would move tokens between experts whose LoRA never saw them, so
it gets one only where a list names it. gate, up and down of an expert are adapted together: vLLM refuses less.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from torch import nn
from transformers import PreTrainedModel

from recorder.models.experts import WeightShares, expert_names
from trainer.errors import TrainerError

EXPERTS: Final = "experts"
EXPERT_PARAMETERS: Final = ("gate_up_proj", "down_proj")  # transformers' names, each (experts, …, …)
_ROUTERS: Final = frozenset({"gate", "router", "shared_expert_gate"})
_ATTENTION: Final = frozenset({"self_attn", "attn", "attention", "linear_attn", "mamba"})
# vLLM multiplies these weights into others when it loads the base (`mla_attention.py`, W_UK and W_UV): while decoding,
# it would leave their LoRA out.
_ABSORBED: Final = frozenset({"kv_b_proj"})
# Mamba's fused kernel multiplies by these weights itself and would leave a LoRA out, so PEFT refuses one on them in
# models of these types (`_check_lora_target_modules_mamba`).
_FUSED: Final = frozenset({"out_proj", "conv1d"})
_FUSED_TYPES: Final = frozenset({"falcon_h1", "falcon_mamba", "mamba", "mamba2", "nemotron_h"})


@dataclass(frozen=True, slots=True)
class LoraTargets:
    """Full names. `modules`: linear layers (or what a list names); `routers`: of a list; `experts`: fused experts."""

    modules: tuple[str, ...]
    experts: tuple[str, ...] = ()
    routers: tuple[str, ...] = ()

    @property
    def parameters(self) -> tuple[str, ...]:
        """The parameters that are adapted without being a linear layer's weight."""
        fused = [f"{name}.{parameter}" for name in self.experts for parameter in EXPERT_PARAMETERS]
        return (*fused, *(f"{name}.weight" for name in self.routers))


def choose_targets(
    model: PreTrainedModel, target: str | Sequence[str], architecture: str | None, base: str
) -> LoraTargets:
    """Return what `trainer.target` selects. `architecture`: of config.json; `base`: the model's name in errors.

    Raises `TrainerError` for a name that selects nothing, and for experts whose LoRA no engine loads.
    """
    experts = tuple(name for name, module in model.named_modules() if is_fused_experts(module))
    if not isinstance(target, str):
        return _listed(model, target, experts, architecture, base)
    linear = tuple(name for name, _ in _linear_layers(model))
    if target == "attention":
        return LoraTargets(_attention_of(linear, base))
    if target == EXPERTS:
        _require_experts(experts, architecture, base)
        return LoraTargets((), experts)
    return LoraTargets(linear, experts if expert_names(architecture) is not None else ())


def _attention_of(linear: Sequence[str], base: str) -> tuple[str, ...]:
    found = tuple(name for name in linear if _ATTENTION & set(name.split(".")))
    if not found:
        raise TrainerError(
            f'trainer.target "attention" selects nothing: the base {base} has no module of the names '
            f'{", ".join(sorted(_ATTENTION))}. Set trainer.target = "all-linear", or a list of its linear layers: '
            f"{', '.join(sorted({name.rsplit('.', 1)[-1] for name in linear}))}."
        )
    return found


def is_fused_experts(module: nn.Module) -> bool:
    """Whether a module holds the weights of all experts of a layer as two parameters of three dimensions."""
    return all(getattr(getattr(module, name, None), "ndim", 0) == 3 for name in EXPERT_PARAMETERS)


def is_router(name: str) -> bool:
    """Whether a full name is a router's, or of a part of one."""
    return not _ROUTERS.isdisjoint(name.split("."))


def _linear_layers(model: PreTrainedModel) -> Iterator[tuple[str, nn.Linear]]:
    """The linear layers of the language model that a word may select: no head, router, or vision tower."""
    decoder = model.get_decoder()
    within = next(name for name, module in model.named_modules() if module is decoder)
    head = model.get_output_embeddings()
    for name, module in decoder.named_modules(prefix=within):
        skipped = name.rsplit(".", 1)[-1] in _ABSORBED | _fused_modules(model)
        if isinstance(module, nn.Linear) and module is not head and not is_router(name) and not skipped:
            yield name, module


def _fused_modules(model: PreTrainedModel) -> frozenset[str]:
    """The last parts of the names of modules on which PEFT refuses a LoRA in this model."""
    return _FUSED if model.config.model_type in _FUSED_TYPES else frozenset()


def _listed(
    model: PreTrainedModel, target: Sequence[str], experts: Sequence[str], architecture: str | None, base: str
) -> LoraTargets:
    names = [name for name, _ in model.named_modules() if name]
    selected = {one: [name for name in names if name == one or name.endswith(f".{one}")] for one in target}
    lacking = [one for one, found in selected.items() if not found]
    if lacking or not target:
        raise TrainerError(
            f"trainer.target: {', '.join(map(repr, lacking)) or 'an empty list'} selects no module of the base {base}. "
            f"{_explain_choices(model, experts)}"
        )
    found = {name for part in selected.values() for name in part}
    if absorbed := sorted({name.rsplit(".", 1)[-1] for name in found} & _ABSORBED):
        raise TrainerError(
            f"trainer.target: vLLM leaves a LoRA on {', '.join(absorbed)} out while it decodes, because it multiplies "
            "these weights into others when it loads the base. Remove it from the list."
        )
    if fused := sorted({name.rsplit(".", 1)[-1] for name in found} & _fused_modules(model)):
        raise TrainerError(
            f"trainer.target: PEFT puts no LoRA on {', '.join(fused)} of the base {base} (model type "
            f"{model.config.model_type}), because Mamba's fused kernel would leave it out. Remove it from the list."
        )
    chosen = [name for name in experts if name in found]
    if chosen:
        _require_experts(chosen, architecture, base)
    plain = [name for name in names if name in found and name not in chosen]
    routers = [name for name in plain if _is_weight_router(model, name)]
    return LoraTargets(tuple(name for name in plain if name not in routers), tuple(chosen), tuple(routers))


def _is_weight_router(model: nn.Module, name: str) -> bool:
    """Whether a module is a router that is no linear layer but has a linear layer's weight."""
    module = model.get_submodule(name)
    weight = getattr(module, "weight", None)
    return is_router(name) and not isinstance(module, nn.Linear) and getattr(weight, "ndim", 0) == 2


def _require_experts(experts: Collection[str], architecture: str | None, base: str) -> None:
    if not experts:
        raise TrainerError(f'trainer.target "{EXPERTS}" selects nothing: the base {base} has no fused experts.')
    if expert_names(architecture) is None:
        raise TrainerError(
            f"trainer.target selects experts of the base {base}, and no LoRA on experts of {architecture} is known to "
            'load into vLLM. Set trainer.target = "attention", or "all-linear", which leaves these experts frozen.'
        )


def _explain_choices(model: nn.Module, experts: Collection[str]) -> str:
    """What a list may name."""
    with_experts = f" Its experts are {EXPERTS!r} (gate, up and down together)." if experts else ""
    return (
        f"Its linear layers are {', '.join(linear_modules(model))}; 'all-linear' is all but the output head and "
        f"routers.{with_experts}"
    )


def linear_modules(model: nn.Module) -> list[str]:
    """Return the last parts of the names of the model's linear layers (q_proj, down_proj …), sorted."""
    return sorted({name.rsplit(".", 1)[-1] for name, module in model.named_modules() if isinstance(module, nn.Linear)})


def measure_shares(model: PreTrainedModel, targets: LoraTargets) -> WeightShares:
    """Count the parameters of a model that get a LoRA, and of those that do not, experts and routers."""
    adapted_names = {f"{name}.weight" for name in targets.modules} | set(targets.parameters)
    total = adapted = experts = routers = 0
    modules: dict[str, Any] = dict(model.named_modules())
    for name, parameter in model.named_parameters():
        size, owner = parameter.numel(), name.rpartition(".")[0]
        total += size
        if name in adapted_names:
            adapted += size
        elif is_fused_experts(modules[owner]):
            experts += size
        elif is_router(owner):
            routers += size
    return WeightShares(total, adapted, experts, routers)
