"""The form in which an adapter's file holds a LoRA: the trainer's own names and shapes, or those of the engine's class.

Owns: the way there and back, exact bit for bit. Refuses: the names themselves (`recorder.models.experts`), and files
(`trainer.artifacts.adapters`).

In the trainer, n experts of rank r have PEFT's fused matrices: A (r·n, in), B (out, r·n), `experts.base_layer` for gate
and up together, and `experts` for down. For a class that wants one pair for each expert and projection, gate and up get
the same A, and each its half of B: their rank is r like everybody's, and no rank pattern is needed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from recorder.models.experts import ExpertNames, expert_names
from trainer.errors import AdapterInvalid

_FUSED: Final = re.compile(r"(?P<experts>.+\.experts)(?P<gate_up>\.base_layer)?\.lora_(?P<side>[AB])\.weight")

_OF_EXPERTS: Final = frozenset({"experts", "base_layer"})  # the last parts of fused experts' names

Tensors = Mapping[str, Tensor]


@dataclass(frozen=True, slots=True)
class ExpertLayout:
    """The form for one base. `names`: of its class; None: no experts, names as in the trainer. `rank`: trainer.rank."""

    names: ExpertNames | None
    rank: int

    @classmethod
    def of(cls, architecture: str | None, rank: int) -> ExpertLayout:
        """The form for the class that config.json names first."""
        return cls(expert_names(architecture), rank)

    def to_file(self, state: Tensors) -> dict[str, Tensor]:
        """The trainer's tensors under the names and in the shapes of a file."""
        if self.names is None:
            return dict(state)
        found: dict[str, Tensor] = {}
        for name, tensor in state.items():
            fused = _FUSED.fullmatch(name)
            if fused is None or self.names.projections is None:
                found[self._renamed(name)] = tensor
            else:
                found |= {self._renamed(one): part for one, part in self._split(fused, tensor, self.names.projections)}
        return found

    def file_shapes(self, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
        """The shapes of a file's tensors, from the trainer's."""
        state = {name: torch.empty(shape, device="meta") for name, shape in shapes.items()}
        return {name: tuple(tensor.shape) for name, tensor in self.to_file(state).items()}

    def from_file(self, tensors: Tensors) -> dict[str, Tensor]:
        """A file's tensors as the trainer has them. Raises `AdapterInvalid` for experts that Hone did not write."""
        if self.names is None:
            return dict(tensors)
        own = {self._original(name): tensor for name, tensor in tensors.items()}
        if self.names.projections is None:
            return own
        single = re.compile(
            r"(?P<experts>.+\.experts)\.(?P<number>\d+)\.(?P<projection>"
            + "|".join(self.names.projections)
            + r")\.lora_(?P<side>[AB])\.weight"
        )
        found: dict[str, Tensor] = {}
        parts: dict[tuple[str, str], dict[tuple[int, str], Tensor]] = {}
        for name, tensor in own.items():
            match = single.fullmatch(name)
            if match is None:
                found[name] = tensor
            else:
                key = int(match["number"]), match["projection"]
                parts.setdefault((match["experts"], match["side"]), {})[key] = tensor
        for (experts, side), pieces in parts.items():
            found |= dict(_join(experts, side, pieces, self.names.projections))
        return found

    def is_fused_expert(self, name: str) -> bool:
        """Whether a tensor of a file holds all experts of a layer: its rank is theirs together."""
        return self.names is not None and self.names.is_fused and _FUSED.fullmatch(name) is not None

    def target_modules(self, modules: Iterable[str]) -> list[str]:
        """The modules that adapter_config.json names, from the last parts of the trainer's names."""
        plain = set(modules) - _OF_EXPERTS
        has_experts = self.names is not None and not _OF_EXPERTS.isdisjoint(modules)
        return sorted({*plain, *(self.names.projections or () if has_experts and self.names else ())})

    def target_parameters(self, modules: Iterable[str]) -> list[str]:
        """What PEFT needs in adapter_config.json to load fused experts; empty where there are none."""
        has_fused = self.names is not None and self.names.is_fused and not _OF_EXPERTS.isdisjoint(modules)
        return ["experts.down_proj", "experts.gate_up_proj"] if has_fused else []

    def _renamed(self, name: str) -> str:
        for ours, theirs in self.names.renames if self.names else ():
            name = name.replace(ours, theirs, 1)
        return name

    def _original(self, name: str) -> str:
        for ours, theirs in self.names.renames if self.names else ():
            name = name.replace(theirs, ours, 1)
        return name

    def _split(
        self, fused: re.Match[str], tensor: Tensor, projections: tuple[str, str, str]
    ) -> Iterator[tuple[str, Tensor]]:
        """One tensor for each expert and projection."""
        gate, up, down = projections
        for number, piece in enumerate(_pieces(tensor, fused["side"], self.rank)):
            prefix, suffix = f"{fused['experts']}.{number}", f"lora_{fused['side']}.weight"
            if fused["gate_up"] is None:
                yield f"{prefix}.{down}.{suffix}", piece
            elif fused["side"] == "A":
                yield f"{prefix}.{gate}.{suffix}", piece
                yield f"{prefix}.{up}.{suffix}", piece.clone()  # a file holds no tensor twice
            else:
                for name, half in zip((gate, up), piece.chunk(2), strict=True):
                    yield f"{prefix}.{name}.{suffix}", half.contiguous()


def _pieces(tensor: Tensor, side: str, rank: int) -> list[Tensor]:
    """The experts' own matrices of a fused one: A (rank, in), B (out, rank)."""
    if side == "A":
        return [one.clone() for one in torch.split(tensor, rank)]
    experts = tensor.shape[1] // rank
    return [one.contiguous() for one in tensor.reshape(tensor.shape[0], rank, experts).unbind(2)]


def _join(
    experts: str, side: str, pieces: Mapping[tuple[int, str], Tensor], projections: tuple[str, str, str]
) -> Iterator[tuple[str, Tensor]]:
    gate, up, down = projections
    count = 1 + max(number for number, _ in pieces)
    expected = {(number, projection) for number in range(count) for projection in projections}
    if missing := sorted(expected - pieces.keys()):
        number, projection = missing[0]
        raise AdapterInvalid(f"the adapter has no lora_{side} of {experts}.{number}.{projection}")
    suffix = f"lora_{side}.weight"
    downs = [pieces[number, down] for number in range(count)]
    gates = [pieces[number, gate] for number in range(count)]
    ups = [pieces[number, up] for number in range(count)]
    if side == "A":
        if differing := [number for number in range(count) if not gates[number].equal(ups[number])]:
            raise AdapterInvalid(
                f"in the adapter, {gate} and {up} of {experts}.{differing[0]} have different lora_A: it is not Hone's"
            )
        yield f"{experts}.base_layer.{suffix}", torch.cat(gates)
        yield f"{experts}.{suffix}", torch.cat(downs)
    else:
        halves = [torch.cat(pair) for pair in zip(gates, ups, strict=True)]
        yield f"{experts}.base_layer.{suffix}", torch.stack(halves, 2).flatten(1)
        yield f"{experts}.{suffix}", torch.stack(downs, 2).flatten(1)


PLAIN: Final = ExpertLayout(None, 0)
