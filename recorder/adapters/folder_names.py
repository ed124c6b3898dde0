"""The names of adapters' folders, and the manifest that their names are made of. Pure, but for reading a file's hash.

    <slug>@<number>-<first 12 of the manifest's sha256>     a version
    <slug>@trial-<first 12 of the manifest's sha256>        an adapter that a trainer lets engines try

The manifest lists the sha256 of every other file of its folder. So a folder's name proves its content.

Refuses: writing a manifest (`trainer.artifacts.adapters`).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from recorder.errors import AdapterDamaged
from recorder.processes import durable_folders

MANIFEST: Final = "manifest.json"
_NAME: Final = re.compile(r"(?P<slug>[A-Za-z0-9_-][A-Za-z0-9._-]*)@(?P<number>[0-9]+|trial)-(?P<digest>[0-9a-f]{12})")
_FILE: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


def is_folder_name(name: str) -> bool:
    """Whether a folder of this name is an adapter's, complete under this name."""
    return _NAME.fullmatch(name) is not None


def order_to_fetch(names: Iterable[str]) -> list[str]:
    """Return folder names in the order in which a host should have them: trials, each alias's newest version, each
    alias's second newest, and so on.
    """
    by_slug: dict[str, list[tuple[float, str]]] = defaultdict(list)
    for name in names:
        if match := _NAME.fullmatch(name):
            number = float("inf") if match["number"] == "trial" else float(match["number"])
            by_slug[match["slug"]].append((number, name))
    ranked: list[tuple[int, str]] = []
    for of_slug in by_slug.values():
        trials = [name for number, name in of_slug if number == float("inf")]
        made = [name for number, name in sorted(of_slug, reverse=True) if number != float("inf")]
        ranked += [(-1, name) for name in trials] + list(enumerate(made))
    return [name for _, name in sorted(ranked)]


def listed_files(raw: bytes, name: str, where: str, manifest_sha256: str | None = None) -> Mapping[str, str]:
    """Return the sha256 of each file that a manifest lists, by name.

    `name`: of its folder. `where`: the manifest's place, for errors. Raises `AdapterDamaged` if the manifest is not the
    one of this name, or of this sha256.
    """
    digest = hashlib.sha256(raw).hexdigest()
    match = _NAME.fullmatch(name)
    if match is None or match["digest"] != digest[:12] or manifest_sha256 not in (None, digest):
        raise AdapterDamaged(f"{where} is not the manifest that {name} was published with: its sha256 differs")
    try:
        files = json.loads(raw)["files"]
        is_valid = bool(files) and all(_FILE.fullmatch(one) and _SHA256.fullmatch(sha) for one, sha in files.items())
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        raise AdapterDamaged(f"{where} cannot be read: {e}") from e
    if not is_valid or MANIFEST in files:
        raise AdapterDamaged(f"{where} does not list the sha256 of its folder's files")
    return dict(files)


def require_sha256(file: Path, sha256: str, where: str) -> None:
    """Raise `AdapterDamaged` if a file has another sha256. `where`: its place, for the error."""
    if durable_folders.file_sha256(file) != sha256:
        size = file.stat().st_size
        raise AdapterDamaged(f"{where} does not match its manifest: {size:,} bytes, of another sha256")
