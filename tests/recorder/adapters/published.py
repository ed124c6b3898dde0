"""Adapter folders with their right names, of a few bytes."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

FILES = {"adapter_model.safetensors": b"weights" * 900, "adapter_config.json": b"{}", "probe.json": b'{"contexts": []}'}


def make_folder(parent: Path, name: str = "helpdesk@1", *, salt: str = "") -> Path:
    """A folder as a trainer leaves it: `<name>-<12 of its manifest's sha256>`."""
    files = FILES | {"adapter_model.safetensors": FILES["adapter_model.safetensors"] + f"{name}{salt}".encode()}
    manifest = json.dumps({"files": {one: hashlib.sha256(raw).hexdigest() for one, raw in files.items()}}).encode()
    folder = parent / f"{name}-{hashlib.sha256(manifest).hexdigest()[:12]}"
    folder.mkdir(parents=True)
    for one, raw in (*files.items(), ("manifest.json", manifest)):
        (folder / one).write_bytes(raw)
    return folder


def content(folder: Path) -> dict[str, bytes]:
    """Every file of a folder."""
    return {one.name: one.read_bytes() for one in folder.iterdir()}
