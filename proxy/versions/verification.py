"""Verification of a version: its adapter's folder before an engine loads it, and the probe after the load.

Owns: the manifest's hashes, the safetensors header, finite values, ranks, and shapes if the base is local; reading
probe.json, and judging the engine's answers to it. Engines load some wrong shapes silently, and may crash on a folder
with missing files. Refuses: torch, and asking the engine (the controller does).

A folder holds adapter_model.safetensors, adapter_config.json (PEFT), manifest.json and probe.json. The probe shows
whether the engine's answers really come from the new version. It holds a few contexts in which the version and its
parent differ most, with the trainer's logprobs of named tokens under both. The engine's logprobs must be nearer to the
new version's by `FACTOR`. If the two differ by less than the engine's noise, path and manifest are the proof
(`identity`).
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from proxy.errors import AdapterError

MANIFEST = "manifest.json"
WEIGHTS = "adapter_model.safetensors"
CONFIG = "adapter_config.json"
PROBE = "probe.json"
MAX_HEADER_BYTES = 100 * 1024 * 1024  # safetensors' own limit
_PREFIX = "base_model.model."  # PEFT's name of the wrapped model
_CHUNK_BYTES = 8 * 1024 * 1024

# dtype → (numpy's unsigned integer of that width, the exponent's bits, those of the first refused value).
# Values of 2^16 and more, float16's limit, are refused too: no training yields them, and their products are NaN.
_FLOATS: Mapping[str, tuple[str, int, int]] = {
    "F64": ("<u8", 0x7FF0_0000_0000_0000, 0x40F0_0000_0000_0000),
    "F32": ("<u4", 0x7F80_0000, 0x4780_0000),
    "F16": ("<u2", 0x7C00, 0x7C00),
    "BF16": ("<u2", 0x7F80, 0x4780),
}

FACTOR = 3.0
# Mean |engine - trainer| in logprobs. float32: 8e-8 measured, plus a margin for other kernels; 16 bits: 1.5e-3.
NOISE = {"float32": 1e-6, "float16": 1.5e-3, "bfloat16": 1.5e-3}
# A right answer passes FACTOR if new and parent differ by at least this many times the noise.
ABOVE_NOISE = FACTOR + 1.0

Verified = Literal["logprobs", "identity"]


@dataclass(frozen=True, slots=True)
class Tensor:
    """One entry of a safetensors header. `start` and `stop` are byte offsets in the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int


def verify_adapter(
    folder: Path, *, manifest_sha256: str | None, max_rank: int, base_shapes: Mapping[str, tuple[int, ...]] | None
) -> None:
    """Raise AdapterError unless the folder is complete and its weights can be loaded.

    `base_shapes`: the base's parameter shapes by name, if they are known.
    """
    _check_manifest(folder, manifest_sha256)
    rank = _rank(folder, max_rank)
    tensors = read_header(folder / WEIGHTS)
    _check_shapes(folder, tensors, rank, base_shapes)
    for tensor in tensors:
        _check_finite(folder / WEIGHTS, tensor)


def _check_manifest(folder: Path, expected: str | None) -> None:
    path = folder / MANIFEST
    raw = _read(path)
    if expected is not None and hashlib.sha256(raw).hexdigest() != expected:
        raise AdapterError("manifest_mismatch", f"{path} is not the published manifest")
    files = _json(path, raw).get("files")
    if not isinstance(files, dict) or not {WEIGHTS, CONFIG} <= files.keys():
        raise AdapterError("manifest_mismatch", f"{path} does not list {WEIGHTS} and {CONFIG}")
    for name, digest in files.items():
        if Path(name).name != name:
            raise AdapterError("manifest_mismatch", f"{path} lists {name!r}, which is outside of its folder")
        if _sha256(folder / name) != digest:
            raise AdapterError("manifest_mismatch", f"{folder / name} differs from its manifest's hash")


def _rank(folder: Path, max_rank: int) -> int:
    rank = _json(folder / CONFIG, _read(folder / CONFIG)).get("r")
    if not isinstance(rank, int) or not 0 < rank <= max_rank:
        raise AdapterError(
            "rank", f"{folder / CONFIG}: rank {rank!r} is not within 1 … {max_rank} (engine.max_lora_rank)"
        )
    return rank


def read_header(path: Path) -> list[Tensor]:
    """Return the tensors of a safetensors file, in file order. Raises AdapterError if header and file disagree."""
    size = _size(path)
    with path.open("rb") as f:
        length = int.from_bytes(f.read(8), "little")
        if not 2 <= length <= min(size - 8, MAX_HEADER_BYTES):
            raise AdapterError("not_safetensors", f"{path} is not a safetensors file, or is truncated")
        header = _json(path, f.read(length), "not_safetensors")
    header.pop("__metadata__", None)
    tensors = sorted((_tensor(path, name, entry, 8 + length) for name, entry in header.items()), key=lambda t: t.start)
    at = 8 + length
    for tensor in tensors:
        if tensor.start != at:
            raise AdapterError("not_safetensors", f"{path}: {tensor.name} does not begin where the one before it ends")
        at = tensor.stop
    if at != size:
        raise AdapterError("not_safetensors", f"{path} has {size} bytes, but its header lists {at}")
    return tensors


def _tensor(path: Path, name: str, entry: Any, base: int) -> Tensor:
    try:
        start, stop = entry["data_offsets"]
        tensor = Tensor(name, str(entry["dtype"]), tuple(int(n) for n in entry["shape"]), base + start, base + stop)
    except (KeyError, TypeError, ValueError) as e:
        raise AdapterError("not_safetensors", f"{path}: the header's entry {name!r} cannot be read") from e
    if tensor.dtype not in _FLOATS:
        raise AdapterError("dtype", f"{path}: {name} is {tensor.dtype}; adapters are {', '.join(_FLOATS)}")
    item_bytes = np.dtype(_FLOATS[tensor.dtype][0]).itemsize
    if math.prod(tensor.shape) * item_bytes != tensor.stop - tensor.start:
        raise AdapterError("shape", f"{path}: {name} of shape {list(tensor.shape)} does not match its number of bytes")
    return tensor


def _check_shapes(
    folder: Path, tensors: list[Tensor], rank: int, base_shapes: Mapping[str, tuple[int, ...]] | None
) -> None:
    """A is [rank, in] and B is [out, rank], in pairs, for a base weight of [out, in]."""
    shapes = {t.name: t.shape for t in tensors}
    pairs = list(_pairs(folder, shapes))
    if not pairs:
        raise AdapterError("shape", f"{folder / WEIGHTS} holds no LoRA weights")
    for module, a, b in pairs:
        if len(a) != 2 or len(b) != 2 or a[0] != rank or b[1] != rank:
            raise AdapterError(
                "shape",
                f"{folder}: {module} has A {list(a)} and B {list(b)}; rank {rank} needs [{rank}, in], [out, {rank}]",
            )
        base = (base_shapes or {}).get(module + ".weight")
        if base is not None and base != (b[0], a[1]):
            raise AdapterError(
                "shape", f"{folder}: {module} is for a weight of {[b[0], a[1]]}, the base's is {list(base)}"
            )


def _pairs(
    folder: Path, shapes: Mapping[str, tuple[int, ...]]
) -> Iterator[tuple[str, tuple[int, ...], tuple[int, ...]]]:
    """(the base module's name, A's shape, B's shape) of every LoRA pair."""
    for name, shape in shapes.items():
        stem, sign, _ = name.partition(".lora_A.")
        partner = name.replace(".lora_A.", ".lora_B.") if sign else name.replace(".lora_B.", ".lora_A.")
        if partner == name or partner not in shapes:
            raise AdapterError("shape", f"{folder / WEIGHTS}: {name} is not part of a pair of LoRA weights")
        if sign:
            yield stem.removeprefix(_PREFIX), shape, shapes[partner]


def _check_finite(path: Path, tensor: Tensor) -> None:
    """Raise AdapterError if a value is NaN, infinite or too large; reads in chunks."""
    width, exponent, refused = _FLOATS[tensor.dtype]
    with path.open("rb") as f:
        f.seek(tensor.start)
        left = tensor.stop - tensor.start
        while left:
            piece = np.frombuffer(f.read(min(left, _CHUNK_BYTES)), dtype=width)
            left -= piece.nbytes
            if bool(np.any((piece & exponent) >= refused)):
                raise AdapterError(
                    "not_finite", f"{path}: {tensor.name} has values that are NaN, infinite, or at least 65,536"
                )


def base_shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a local base's parameters by name, from its safetensors headers; empty if it has none."""
    shapes: dict[str, tuple[int, ...]] = {}
    for path in sorted(folder.glob("*.safetensors")):
        with path.open("rb") as f:
            header = json.loads(f.read(int.from_bytes(f.read(8), "little")))
        shapes |= {name: tuple(entry["shape"]) for name, entry in header.items() if name != "__metadata__"}
    return shapes


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError as e:
        raise AdapterError("file_missing", f"{path} cannot be read: {e.strerror}") from e


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as e:
        raise AdapterError("file_missing", f"{path} cannot be read: {e.strerror}") from e


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as f:
            return hashlib.file_digest(f, "sha256").hexdigest()
    except OSError as e:
        raise AdapterError("file_missing", f"{path} cannot be read: {e.strerror}") from e


def _json(path: Path, raw: bytes, code: str = "manifest_mismatch") -> dict[str, Any]:
    try:
        value = json.loads(raw)
    except ValueError as e:
        raise AdapterError(code, f"{path} is not JSON: {e}") from e
    if not isinstance(value, dict):
        raise AdapterError(code, f"{path} holds a {type(value).__name__}, not an object")
    return value


class ProbeContext(BaseModel):
    """One context: prompt ids, the named tokens, their logprobs under the new version and under its parent."""

    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)

    prompt_token_ids: list[int]
    token_ids: list[int]
    new: list[float]
    parent: list[float]

    @model_validator(mode="after")
    def _even(self) -> ProbeContext:
        if not self.prompt_token_ids or not self.token_ids:
            raise ValueError("a context needs prompt ids and named tokens")
        if not len(self.token_ids) == len(self.new) == len(self.parent):
            raise ValueError("token_ids, new and parent differ in length")
        return self


class Probe(BaseModel):
    """The probe of one version."""

    model_config = ConfigDict(extra="ignore")

    contexts: list[ProbeContext]
    noise: float = 0.0
    """Mean |engine − trainer| that the trainer expects beyond rounding, in nats: it computed on a quantised copy."""

    @property
    def separation(self) -> float:
        """Mean |new - parent| over all named tokens."""
        return logprob_distance([c.new for c in self.contexts], [c.parent for c in self.contexts])


@dataclass(frozen=True, slots=True)
class ProbeVerdict:
    """Distances of the engine's logprobs from the new version's and its parent's: mean absolute differences."""

    to_new: float
    to_parent: float

    @property
    def accepted(self) -> bool:
        """Whether the answer is nearer to the new version by the factor."""
        return math.isfinite(self.to_new) and self.to_new * FACTOR <= self.to_parent


def read_probe(folder: Path) -> Probe | None:
    """Return the probe of an adapter's folder; None if it has none or an empty one. Raises AdapterError."""
    try:
        raw = (folder / PROBE).read_bytes()
    except FileNotFoundError:
        return None
    try:
        probe = Probe.model_validate(json.loads(raw))
    except (ValueError, ValidationError) as e:
        raise AdapterError("probe_unreadable", f"{folder / PROBE}: {e}") from e
    return probe if probe.contexts else None


def is_distinguishable(probe: Probe, dtype: str) -> bool:
    """Whether new and parent differ by more than the noise of the engine's precision (unknown: 16 bits), and of the
    trainer's.
    """
    return probe.separation >= ABOVE_NOISE * max(NOISE.get(dtype, NOISE["bfloat16"]), probe.noise)


def judge_probe(probe: Probe, answers: Sequence[Sequence[float]]) -> ProbeVerdict:
    """Compare the engine's logprobs, one list per context, with the trainer's."""
    return ProbeVerdict(
        to_new=logprob_distance(answers, [c.new for c in probe.contexts]),
        to_parent=logprob_distance(answers, [c.parent for c in probe.contexts]),
    )


def logprob_distance(a: Sequence[Sequence[float]], b: Sequence[Sequence[float]]) -> float:
    """Return the mean absolute difference of two ragged lists of equal shape; infinite if a value is not finite."""
    gaps = [abs(x - y) for row_a, row_b in zip(a, b, strict=True) for x, y in zip(row_a, row_b, strict=True)]
    return sum(gaps) / len(gaps) if all(map(math.isfinite, gaps)) else math.inf
