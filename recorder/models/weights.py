"""How large each part of a model is, by the headers of its safetensors files; whether all are there, and quantised.

Only headers are read: a few hundred KB of a model of any size. Refuses: the weights themselves.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

# the first pair with a match is used
WEIGHTS: Final = (("*.safetensors", "*.safetensors.index.json"), ("*.bin", "*.bin.index.json"))
DTYPE_BYTES: Final = {"float64": 8.0, "float32": 4.0, "bfloat16": 2.0, "float16": 2.0, "int8": 1.0, "uint8": 1.0}
# Methods of `quantization_config` that the trainer's library dequantises without a GPU and without further packages.
# The engine serves quantised weights as they are; the trainer computes with the same weights as plain numbers. The
# step's check of logprobs bounds what remains between the two (`trainer.step.engine_gap`).
DEQUANTIZED: Final = ("fp8", "mxfp4")
_PART: Final = re.compile(r"(.+)-\d{5}-of-(\d{5})(\.\w+)")  # the file names of sharded weights
_MAX_HEADER_BYTES: Final = 100_000_000  # safetensors' own limit


@dataclass(frozen=True, slots=True)
class PartSizes:
    """One number for each part of a model: parameters, or bytes. Routers and shared experts belong to `mlp`."""

    embedding: int = 0
    head: int = 0
    attention: int = 0
    mlp: int = 0
    experts: int = 0
    norms: int = 0
    other: int = 0

    @property
    def total(self) -> int:
        """The sum of all parts."""
        return sum(getattr(self, one.name) for one in fields(self))

    def times(self, factor: float) -> PartSizes:
        """Each part times a factor, such as the bytes of a parameter."""
        return PartSizes(**{one.name: round(getattr(self, one.name) * factor) for one in fields(self)})


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor of a file: its shape, and how many bytes it takes there."""

    shape: tuple[int, ...]
    size_bytes: int


def part_of(name: str) -> str:
    """The part of `PartSizes` to which a tensor belongs, by its name in a checkpoint."""
    if "vision" in name or "audio" in name or "multi_modal" in name or name.startswith("visual."):
        return "other"
    if ".embed_tokens." in f".{name}" or name.endswith("wte.weight"):
        return "embedding"
    if "lm_head" in name:
        return "head"
    module = name.rsplit(".", 2)[-2] if "." in name else name
    if "norm" in module or re.search(r"\bln_\w+$", module):
        return "norms"
    if ".experts." in name:
        return "experts"
    if re.search(r"\.(self_attn|attention|attn|linear_attn|mixer)\.", name):
        return "attention"
    if re.search(r"\.(mlp|feed_forward|block_sparse_moe|ffn)\.", name):
        return "mlp"
    return "other"


def sum_parts(sizes: Mapping[str, int]) -> PartSizes:
    """The sum of each part. `sizes`: one number for each tensor, by its name."""
    sums: dict[str, int] = {}
    for name, size in sizes.items():
        sums[part_of(name)] = sums.get(part_of(name), 0) + size
    return PartSizes(**sums)


def count(shape: Iterable[int]) -> int:
    """How many numbers a tensor of this shape has."""
    return math.prod(shape)


def stored_tensors(folder: Path) -> dict[str, StoredTensor]:
    """The tensors in a folder's safetensors files, by name; empty if it has none.

    Raises ValueError, naming the file, if a header cannot be read, and OSError.
    """
    found: dict[str, StoredTensor] = {}
    for file in sorted(folder.glob("*.safetensors")):
        for name, tensor in _header(file).items():
            if name == "__metadata__":
                continue
            try:
                begin, end = tensor["data_offsets"]
                found[name] = StoredTensor(tuple(tensor["shape"]), end - begin)
            except (KeyError, TypeError, ValueError) as e:
                raise ValueError(f"{file.name} has no safetensors header") from e
    return found


def indexed_bytes(folder: Path) -> int | None:
    """The bytes of all weights by the index of sharded safetensors files; None without an index that says it."""
    for index in sorted(folder.glob("*.safetensors.index.json")):
        try:
            total = json.loads(index.read_bytes())["metadata"]["total_size"]
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if isinstance(total, int | float) and total > 0:  # some writers make it a float
            return int(total)
    return None


def _header(file: Path) -> Mapping[str, Any]:
    with file.open("rb") as opened:
        start = opened.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
        text = opened.read(length) if 0 < length <= _MAX_HEADER_BYTES else b""
    try:
        header = json.loads(text)
    except ValueError as e:
        raise ValueError(f"{file.name} has no safetensors header") from e
    if len(text) != length or not isinstance(header, dict):
        raise ValueError(f"{file.name} has no safetensors header")
    ends = [one["data_offsets"][1] for name, one in header.items() if name != "__metadata__" and "data_offsets" in one]
    if file.stat().st_size < 8 + length + max(ends, default=0):
        raise ValueError(f"{file.name} is shorter than its header says")
    return header


def weight_files(folder: Path) -> set[str]:
    """The names of the files with weights that are in a folder."""
    return {path.name for path in _listed(folder) if path.suffix != ".json"}


def missing_weights(folder: Path) -> list[str]:
    """The names of the files with weights that the index or the numbers of the others name, and that are not there.

    During a download each file appears when it is complete, the index first. An index that cannot be read is missing.
    """
    present, named = weight_files(folder), set[str]()
    for index in (path for path in _listed(folder) if path.suffix == ".json"):
        try:
            named |= set(json.loads(index.read_bytes())["weight_map"].values())
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            named.add(index.name)
    for part in map(_PART.fullmatch, present):
        if part is not None:
            named |= {f"{part[1]}-{n:05}-of-{part[2]}{part[3]}" for n in range(1, int(part[2]) + 1)}
    return sorted(named - present)


def is_whole(folder: Path) -> bool:
    """Whether a folder has weights, and none of their files is missing."""
    return bool(weight_files(folder)) and not missing_weights(folder)


def _listed(folder: Path) -> list[Path]:
    for patterns in WEIGHTS:
        if found := [path for pattern in patterns for path in folder.glob(pattern) if path.is_file()]:
            return found
    return []


def quantization_method(config: Mapping[str, Any]) -> str | None:
    """The method of a config.json's `quantization_config`, in lower case; None: the weights are not quantised."""
    found = config.get("quantization_config") or _of_text(config)
    return str(found.get("quant_method") or "unknown").lower() if isinstance(found, Mapping) else None


def _of_text(config: Mapping[str, Any]) -> object:
    text = config.get("text_config")
    return text.get("quantization_config") if isinstance(text, Mapping) else None
