"""Adapters on disk: written once, validated before they become visible, never changed.

Owns: the layout of a version's directory, its manifest, and the checks an adapter must pass to be served. Refuses: the
store, the engine, and whether an adapter is an improvement.

    <slug>@<number>-<first 12 of the manifest's sha256>/
        adapter_model.safetensors   LoRA matrices, float32, named as PEFT names them
        adapter_config.json         PEFT's configuration, only what every engine knows
        probe.json                  contexts that tell this version from its parent (`trainer.artifacts.probe`)
        manifest.json               sha256 of the three above, alias, number, parent, base, rank
"""

from __future__ import annotations

import glob
import json
import math
import re
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from recorder.processes import durable_folders
from recorder.registry.engine_names import alias_slug, trial_prefix
from trainer.errors import AdapterInvalid
from trainer.lora.file_layout import PLAIN, ExpertLayout

WEIGHTS = "adapter_model.safetensors"
CONFIG = "adapter_config.json"
PROBE = "probe.json"
MANIFEST = "manifest.json"

_MATRIX = re.compile(r"(?P<module>base_model\.model\..+)\.lora_(?P<side>[AB])\.weight")
# What vLLM refuses or, worse, ignores: each must be absent or false.
_REFUSED = (
    "use_dora", "lora_bias", "modules_to_save", "alora_invocation_tokens", "layer_replication", "use_bdlora",
    "use_qalora", "rank_pattern", "alpha_pattern", "trainable_token_indices", "fan_in_fan_out", "use_rslora",
)  # fmt: skip

Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class LoraShape:
    """The shape of a LoRA as its files state it: rank, scale, and modules."""

    rank: int
    alpha: float
    modules: tuple[str, ...]  # last parts of the modules' names: q_proj, down_proj …
    layout: ExpertLayout = PLAIN


@dataclass(frozen=True, slots=True)
class AdapterOrigin:
    """The origin of a version. `parent` is the parent's name (helpdesk@3).

    `number` None: no version, but an adapter that is tried and removed.
    """

    alias: str
    number: int | None
    parent: str
    base: str
    base_fingerprint: str | None


@dataclass(frozen=True, slots=True)
class PublishedAdapter:
    """A version's directory, complete and durable. Its name is also the engine's name for it."""

    path: Path
    manifest_sha256: str

    @property
    def engine_name(self) -> str:
        """The model name to request from the engine."""
        return self.path.name


def publish_adapter(
    adapters: Path, origin: AdapterOrigin, lora: LoraShape, state: Mapping[str, Tensor], shapes: Shapes, probe: Any
) -> PublishedAdapter:
    """Write a version's directory into `adapters`, check it, and rename it into place atomically.

    `state` and `shapes` are the trainer's tensors and their expected shapes by name. Raises `AdapterInvalid`; then no
    folder remains.
    """
    layout = lora.layout
    with durable_folders.unfinished_folder(adapters, alias_slug(origin.alias)) as folder:
        save_file(layout.to_file(state), folder / WEIGHTS, metadata={"format": "pt"})
        _write_json(folder / CONFIG, _config(origin, lora))
        _write_json(folder / PROBE, probe)
        hashes = {name: durable_folders.file_sha256(folder / name) for name in (WEIGHTS, CONFIG, PROBE)}
        manifest = {"files": hashes, **asdict(origin), "rank": lora.rank, "created_at": time.time()}
        _write_json(folder / MANIFEST, manifest)
        check_adapter(folder, shapes, lora.rank, layout)
        digest = durable_folders.file_sha256(folder / MANIFEST)
        is_trial = origin.number is None
        prefix = trial_prefix(origin.alias) if is_trial else f"{alias_slug(origin.alias)}@{origin.number}-"
        return PublishedAdapter(durable_folders.finish_folder(folder, f"{prefix}{digest[:12]}"), digest)


def list_trials(adapters: Path, alias: str) -> list[Path]:
    """Return the folders of an alias's adapters that were only tried, left by a killed process."""
    return sorted(adapters.glob(f"{glob.escape(trial_prefix(alias))}*"))


def check_adapter(folder: Path, shapes: Shapes, rank: int, layout: ExpertLayout = PLAIN) -> dict[str, Tensor]:
    """Return the adapter's tensors, as the trainer has them, if it may be served on a base with these LoRA shapes.

    Raises `AdapterInvalid`: a file missing or changed since the manifest, a feature engines refuse, a tensor that is
    not finite, of another shape or rank, or on a module that the base does not have.
    """
    _check_manifest(folder)
    _check_config(folder, rank)
    tensors = _read_tensors(folder)
    _check_tensors(folder, tensors, layout.file_shapes(shapes), rank, layout)
    return layout.from_file(tensors)


def unservable_modules(shapes: Shapes, rank: int, layout: ExpertLayout = PLAIN) -> list[str]:
    """Return the modules whose LoRA is not a pair of matrices of this rank, by the last part of their names, sorted.

    No engine loads an adapter with them: embeddings.
    """
    found = set()
    for name, shape in layout.file_shapes(shapes).items():
        if not _is_of_rank(name, shape, rank, layout):
            module = name.split(".lora_")[0].removesuffix(".base_layer")
            found.add(module.rsplit(".", 1)[-1])
    return sorted(found)


def read_adapter(folder: Path, manifest_sha256: str | None, layout: ExpertLayout = PLAIN) -> dict[str, Tensor]:
    """Return a published adapter's tensors, as the trainer has them.

    Raises `AdapterInvalid` if its files do not match the manifest.
    """
    _check_manifest(folder)
    if manifest_sha256 is not None and durable_folders.file_sha256(folder / MANIFEST) != manifest_sha256:
        raise AdapterInvalid(
            f"{folder / MANIFEST} is not the manifest that the store recorded: was the folder replaced?"
        )
    return layout.from_file(_read_tensors(folder))


def is_same_adapter(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    """Whether two states of one LoRA are equal bit for bit, or differ only in modules to which neither adds anything.

    A module adds nothing while its B is zero, as at first; then its A may be anything.
    """
    differing = {name for name, tensor in one.items() if not tensor.equal(other[name])}
    added = {name.replace(".lora_A.", ".lora_B.") for name in differing}
    return not any(bool(state[name].any()) for name in added for state in (one, other))


def lora_alpha(folder: Path) -> float:
    """The LoRA's alpha (its scale times its rank), from a published adapter's configuration."""
    return float(_read_json(folder / CONFIG)["lora_alpha"])


def lora_rank(folder: Path) -> int:
    """The LoRA's rank, from a published adapter's configuration."""
    return int(_read_json(folder / CONFIG)["r"])


def _config(origin: AdapterOrigin, lora: LoraShape) -> dict[str, Any]:
    fused = lora.layout.target_parameters(lora.modules)
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": origin.base,
        "r": lora.rank,
        "lora_alpha": int(lora.alpha) if lora.alpha == int(lora.alpha) else lora.alpha,
        "target_modules": lora.layout.target_modules(lora.modules),
        **({"target_parameters": fused} if fused else {}),
        "lora_dropout": 0.0,
        "bias": "none",
        "use_dora": False,
        "use_rslora": False,
        "modules_to_save": None,
        "fan_in_fan_out": False,
        "init_lora_weights": True,
        "inference_mode": True,
    }


def _write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=1, sort_keys=True, allow_nan=False) + "\n", encoding="utf-8")


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as e:
        raise AdapterInvalid(f"{path} cannot be read: {e}") from e
    if not isinstance(content, dict):
        raise AdapterInvalid(f"{path} is not a JSON object")
    return content


def _check_manifest(folder: Path) -> None:
    files = _read_json(folder / MANIFEST).get("files", {})
    for name in (WEIGHTS, CONFIG, PROBE):
        if not (folder / name).is_file():
            raise AdapterInvalid(f"{folder / name} is missing")
        if files.get(name) != durable_folders.file_sha256(folder / name):
            raise AdapterInvalid(f"{folder / name} does not match the manifest: its sha256 differs")


def _check_config(folder: Path, rank: int) -> None:
    config = _read_json(folder / CONFIG)
    wrong = [name for name in _REFUSED if config.get(name)]
    if config.get("bias", "none") != "none":
        wrong.append("bias")
    if isinstance(config.get("init_lora_weights", True), str):
        wrong.append("init_lora_weights")  # PiSSA, OLoRA …: the base's own weights would have to change
    if wrong:
        raise AdapterInvalid(f"{folder / CONFIG} has features that engines do not serve: {', '.join(wrong)}")
    if config.get("peft_type") != "LORA" or config.get("r") != rank:
        raise AdapterInvalid(f"{folder / CONFIG} says {config.get('peft_type')} of rank {config.get('r')}, not {rank}")
    alpha = config.get("lora_alpha")
    if not isinstance(alpha, int | float) or not math.isfinite(alpha) or alpha <= 0:
        raise AdapterInvalid(f"{folder / CONFIG} has lora_alpha {alpha!r}, not a positive number")


def _read_tensors(folder: Path) -> dict[str, Tensor]:
    try:
        tensors: dict[str, Tensor] = load_file(folder / WEIGHTS)
    except (OSError, SafetensorError) as e:
        raise AdapterInvalid(f"{folder / WEIGHTS} cannot be read: {e}") from e
    return tensors


def _is_of_rank(name: str, shape: tuple[int, ...], rank: int, layout: ExpertLayout) -> bool:
    """Whether a tensor is one of a pair of matrices of this rank."""
    match = _MATRIX.fullmatch(name)
    if match is None:
        return False
    found = shape[0 if match["side"] == "A" else 1]
    return found % rank == 0 if layout.is_fused_expert(name) else found == rank


def _check_tensors(
    folder: Path, tensors: Mapping[str, Tensor], shapes: Shapes, rank: int, layout: ExpertLayout
) -> None:
    where = folder / WEIGHTS
    for name in sorted(shapes.keys() - tensors.keys()):
        raise AdapterInvalid(f"{where} has no tensor {name}")
    for name, tensor in sorted(tensors.items()):
        if _MATRIX.fullmatch(name) is None or name not in shapes:
            raise AdapterInvalid(f"{where}: {name} is not on a trained module of the base")
        if tuple(tensor.shape) != shapes[name]:
            raise AdapterInvalid(f"{where}: {name} has shape {tuple(tensor.shape)}, not {shapes[name]}")
        if not _is_of_rank(name, tuple(tensor.shape), rank, layout):
            raise AdapterInvalid(f"{where}: {name} of shape {tuple(tensor.shape)} is not of rank {rank}")
        if not bool(torch.isfinite(tensor).all()):
            raise AdapterInvalid(f"{where}: {name} has values that are not finite")
