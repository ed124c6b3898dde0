"""The adapter that a training service wrote as files: downloaded, and named as the trainer names it.

Owns: which files are fetched, the names of tensors there and here, and refusing an adapter of another shape or scale.
Refuses: publishing it (`trainer.artifacts.adapters`), and links (`trainer.step.tinker.session`).

Links are signed: no key is sent with them, and they are masked in errors.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import httpx
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from trainer.artifacts.adapters import CONFIG, WEIGHTS
from trainer.errors import AdapterInvalid, TinkerUnavailable, TinkerUnsupported
from trainer.step.tinker.failures import describe_error
from trainer.step.tinker.secret import ServiceKey

_OUR_PREFIX: Final = "base_model.model."
_PEFT_ADAPTER: Final = ".default."
_TIMEOUT_S: Final = 60.0  # for the next bytes

Shapes = Mapping[str, tuple[int, ...]]


class AdapterFiles:
    """An adapter as the service wrote it: its tensors, under our names, and its scale (alpha / rank)."""

    def __init__(self, tensors: Mapping[str, Tensor], config: Mapping[str, Any]) -> None:
        self.tensors = {_our_name(name): tensor.float().contiguous() for name, tensor in tensors.items()}
        self.rank, self.alpha = config.get("r"), config.get("lora_alpha")

    def require_match(self, shapes: Shapes, rank: int, alpha: float) -> dict[str, Tensor]:
        """The tensors, if they are those of our LoRA. Raises `TinkerUnsupported` for another rank, scale or module."""
        if self.rank != rank:
            raise TinkerUnsupported(f"the training service trains a LoRA of rank {self.rank}, not trainer.rank {rank}")
        if self.alpha != alpha:
            raise TinkerUnsupported(
                f"the training service's LoRA has alpha {self.alpha} at rank {rank}, and the API cannot set it: set "
                f'trainer.alpha to {self.alpha}, or trainer.backend to "local"'
            )
        found = {name: tuple(tensor.shape) for name, tensor in self.tensors.items()}
        if (difference := _difference(shapes, found)) is not None:
            raise TinkerUnsupported(
                f"the training service adapts other weights than trainer.target selects: {difference}"
            )
        return dict(self.tensors)


def download_adapter(links: Mapping[str, str], key: ServiceKey) -> AdapterFiles:
    """Fetch an adapter's two files. Raises `TinkerUnavailable`, and `AdapterInvalid` for files that are no adapter."""
    missing = [name for name in (WEIGHTS, CONFIG) if name not in links]
    if missing:
        raise AdapterInvalid(f"the training service wrote an adapter without {', '.join(missing)}")
    with TemporaryDirectory(prefix="hone-adapter-") as folder, httpx.Client(timeout=_TIMEOUT_S) as client:
        try:
            for name in (WEIGHTS, CONFIG):
                _fetch(client, links[name], Path(folder) / name)
        except httpx.HTTPError as e:
            raise TinkerUnavailable(
                f"the adapter's files cannot be downloaded from the training service ({describe_error(e, key)}). The "
                "groups are given back"
            ) from None
        try:
            tensors: dict[str, Tensor] = load_file(Path(folder) / WEIGHTS)
            config = json.loads((Path(folder) / CONFIG).read_text("utf-8"))
        except (OSError, ValueError, SafetensorError) as e:
            raise AdapterInvalid(f"the training service's adapter cannot be read: {e}") from e
    if not isinstance(config, dict):
        raise AdapterInvalid(f"the training service's {CONFIG} is no JSON object")
    return AdapterFiles(tensors, config)


def _fetch(client: httpx.Client, link: str, path: Path) -> None:
    with client.stream("GET", link, follow_redirects=True) as answer:
        answer.raise_for_status()
        with path.open("wb") as file:
            for part in answer.iter_bytes():
                file.write(part)


def _our_name(name: str) -> str:
    """The name of a tensor in an adapter of ours: PEFT's, without the name of PEFT's own adapter."""
    named = name.replace(_PEFT_ADAPTER, ".")
    named = named if named.startswith(_OUR_PREFIX) else f"{_OUR_PREFIX}{named}"
    return named if named.endswith(".weight") else f"{named}.weight"


def _difference(expected: Shapes, found: Shapes) -> str | None:
    for name in sorted(expected.keys() | found.keys()):
        if name not in found:
            return f"it has no {name}"
        if name not in expected:
            return f"it has {name}"
        if expected[name] != found[name]:
            return f"{name} has shape {found[name]}, not {expected[name]}"
    return None
