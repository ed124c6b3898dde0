"""What a version's checkpoint folder holds after a step at a training service: where its state is there.

Owns: the file, written completely or not at all. Refuses: the state itself, which the service keeps.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from recorder.processes import durable_folders
from trainer.errors import CheckpointInvalid

FILE: Final = "tinker.json"
_PATH: Final = "path"


def write_state_path(checkpoints: Path, name: str, path: str) -> Path:
    """Write the path of a version's state under the version's directory name. Returns the folder."""
    with durable_folders.unfinished_folder(checkpoints, name.rpartition("@")[0]) as folder:
        (folder / FILE).write_text(json.dumps({_PATH: path}) + "\n", encoding="utf-8")
        return durable_folders.finish_folder(folder, name)


def read_state_path(folder: Path, version: str) -> str:
    """The path of a version's state at the service. Raises `CheckpointInvalid` if it has none there."""
    try:
        path = json.loads((folder / FILE).read_text("utf-8"))[_PATH]
    except FileNotFoundError:
        raise CheckpointInvalid(
            f"the version {version} was not trained at a training service, which takes no weights from files: set "
            'trainer.backend = "local", or begin at a version that it has'
        ) from None
    except (OSError, ValueError, KeyError, TypeError) as e:
        raise CheckpointInvalid(f"{folder / FILE} cannot be read: {e}") from e
    if not isinstance(path, str) or not path.startswith("tinker://"):
        raise CheckpointInvalid(f"{folder / FILE} holds no path of a training service")
    return path
