"""The base model's fingerprint: two bases with the same fingerprint give every token the same probability.

Owns: which files count and how they are hashed. Refuses: loading a model (no torch here), and what is no base
(`recorder.models.refusals`).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from recorder.errors import NotFound
from recorder.models.context import longrope_factors, tempers_attention
from recorder.models.families import text_config
from recorder.models.refusals import load_config, load_generation_config
from recorder.models.weights import WEIGHTS

OTHERS: Final = (
    "config.json",
    "tokenizer*",
    "vocab.*",
    "merges.txt",
    "added_tokens.json",
    "special_tokens_map.json",
    "chat_template*",
    "chat_templates/*",
)
CACHED_FROM_BYTES: Final = 64 * 1024 * 1024  # smaller files are hashed quickly enough without a cache
_DTYPES: Final = {"fp32": "float32", "float": "float32", "bf16": "bfloat16", "fp16": "float16", "half": "float16"}


def base_fingerprint(
    model_dir: Path, dtype: str, max_model_len: int | None = None, *, cache: Path | None = None
) -> str:
    """Return the sha256 over names, sizes and contents of weights, tokenizer, chat template and config, and the dtype.

    With longrope also over the factors that an engine takes with the context `max_model_len` (None: its default), and
    of Llama 4 over whether it scales late queries.

    Hashes of large files are stored in `cache` (default: the user's cache folder) by path, size and modification time.
    Raises NotFound if the folder has no model.
    """
    files = _files(model_dir)
    known = _Cache(cache or default_cache())
    digest = hashlib.sha256(f"hone-base-1\0{normal_dtype(dtype)}\0".encode())
    for path in files:
        name = path.relative_to(model_dir).as_posix()
        digest.update(f"{name}\0{path.stat().st_size}\0{known.sha256(path)}\0".encode())
    for name, choice in _engine_choices(model_dir, max_model_len).items():
        digest.update(f"{name}\0{choice}\0".encode())
    known.save()
    return digest.hexdigest()


def _engine_choices(model_dir: Path, max_model_len: int | None) -> dict[str, str]:
    """What an engine computes otherwise by its context, of the models where it does."""
    try:
        config = text_config(load_config(model_dir))
    except (OSError, ValueError):  # no engine loads it
        return {}
    factors = longrope_factors(config, max_model_len)
    tempered = tempers_attention(config, load_generation_config(model_dir), max_model_len)
    choices = {"longrope": factors, "tempered": None if tempered is None else str(tempered)}
    return {name: choice for name, choice in choices.items() if choice is not None}


def normal_dtype(dtype: str) -> str:
    """Return the canonical name of a dtype: `bf16` and `torch.bfloat16` are `bfloat16`."""
    bare = dtype.removeprefix("torch.")
    return _DTYPES.get(bare, bare)


def default_cache() -> Path:
    """Return the path of the cache of large files' hashes."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hone" / "file-hashes.json"


def _files(model_dir: Path) -> list[Path]:
    if not model_dir.is_dir():
        raise NotFound(f"no model folder {model_dir}: name the folder with config.json and the weights")
    weights = next(filter(None, (_matching(model_dir, patterns) for patterns in WEIGHTS)), None)
    if not weights:
        raise NotFound(f"the model folder {model_dir} has no weights (*.safetensors)")
    return sorted({*weights, *_matching(model_dir, OTHERS)})


def _matching(folder: Path, patterns: Iterable[str]) -> list[Path]:
    return [path for pattern in patterns for path in folder.glob(pattern) if path.is_file()]


class _Cache:
    """Hashes of files by real path, size and modification time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._changed = False
        self._hashes = _read(path)

    def sha256(self, path: Path) -> str:
        stat = path.stat()
        if stat.st_size < CACHED_FROM_BYTES:
            return _sha256(path)
        key = f"{path.resolve()}\n{stat.st_size}\n{stat.st_mtime_ns}"
        if key not in self._hashes:
            self._hashes[key] = _sha256(path)
            self._changed = True
        return self._hashes[key]

    def save(self) -> None:
        if not self._changed:
            return
        draft = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            draft.write_text(json.dumps(self._hashes))
            draft.replace(self._path)
        except OSError:
            with contextlib.suppress(OSError):  # without a writable cache, hashing only takes longer
                draft.unlink()


def _read(path: Path) -> dict[str, str]:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return {str(k): str(v) for k, v in found.items()} if isinstance(found, dict) else {}


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
