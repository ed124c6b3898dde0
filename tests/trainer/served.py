"""What an engine computes with an adapter: the plain model, each weight plus scale·B·A of the file's own matrices.

Written from vLLM's rules (`recorder.models.experts`), apart from the trainer's code, and differentiable.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.func import functional_call

from recorder.models.experts import ExpertNames

_MATRIX = re.compile(r"base_model\.model\.(?P<module>.+)\.lora_A\.weight")
_SINGLE = re.compile(r"(?P<experts>.+\.experts)\.(?P<number>\d+)\.(?P<projection>\w+)")


def served_logits(
    model: nn.Module, file: Mapping[str, Tensor], names: ExpertNames | None, rank: int, scale: float, ids: list[int]
) -> Tensor:
    """Logits (tokens, vocabulary) of a row, with gradients to the file's matrices."""
    deltas: dict[str, Tensor] = {}
    for name, a in file.items():
        match = _MATRIX.fullmatch(name)
        if match is not None:
            b = file[name.replace(".lora_A.", ".lora_B.")]
            _add(model, deltas, _own_name(match["module"], names), a, b, names, rank)
    own = dict(model.named_parameters())
    weights = {name: own[name].detach() + scale * delta for name, delta in deltas.items()}
    logits: Tensor = functional_call(
        model, weights, kwargs={"input_ids": torch.tensor([ids]), "use_cache": False}
    ).logits
    return logits[0]


def _own_name(name: str, names: ExpertNames | None) -> str:
    for ours, theirs in names.renames if names else ():
        name = f"base_model.model.{name}".replace(theirs, ours, 1).removeprefix("base_model.model.")
    return name


def _add(
    model: nn.Module, deltas: dict[str, Tensor], module: str, a: Tensor, b: Tensor, names: ExpertNames | None, rank: int
) -> None:
    single = _SINGLE.fullmatch(module)
    if single is None and not module.endswith((".experts", ".experts.base_layer")):
        deltas[f"{module}.weight"] = b @ a
        return
    if single is None:  # fused: A is (experts·rank, in), B is (out, rank·experts)
        experts, is_gate_up = module.removesuffix(".base_layer"), module.endswith(".base_layer")
        count = a.shape[0] // rank
        each = [b[:, number::count] @ a[number * rank : (number + 1) * rank] for number in range(count)]
        parameter = f"{experts}.{'gate_up_proj' if is_gate_up else 'down_proj'}"
        deltas[parameter] = _turned(torch.stack(each), model.get_parameter(parameter), is_gate_up)
        return
    assert names is not None
    assert names.projections is not None
    gate, up, down = names.projections
    experts, number, projection = single["experts"], int(single["number"]), single["projection"]
    parameter = f"{experts}.{'down_proj' if projection == down else 'gate_up_proj'}"
    weight = model.get_parameter(parameter)
    is_turned = weight.shape[1] != b.shape[0] * (1 if projection == down else 2)
    delta = b @ a
    if projection != down:  # gate above, up below
        empty = torch.zeros_like(delta)
        delta = torch.cat([delta, empty] if projection == gate else [empty, delta])
        assert projection in (gate, up)
    delta = delta.T if is_turned else delta
    place = torch.nn.functional.one_hot(torch.tensor(number), weight.shape[0]).to(delta.dtype)
    whole = place[:, None, None] * delta
    deltas[parameter] = deltas[parameter] + whole if parameter in deltas else whole


def _turned(delta: Tensor, weight: Tensor, is_gate_up: bool) -> Tensor:
    """(experts, out, in), turned where the weight is (experts, in, out)."""
    is_turned = delta.shape[1:] != weight.shape[1:]
    assert is_turned or is_gate_up or delta.shape == weight.shape
    return delta.transpose(1, 2) if is_turned else delta
