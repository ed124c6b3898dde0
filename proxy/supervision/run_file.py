"""run.json: the addresses and pids of a running `hone up`, for other programs on this machine.

Owns: the file's name and fields, and ignoring a file whose writer is gone. Refuses: starting and stopping programs.
`trainer.runtime.services` reads the file by its name, since the trainer does not import the proxy.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import psutil

from recorder.processes import file_modes

RUN_FILE = "run.json"
CLOCKS_DIFFER_S: Final = 2.0  # process start times are exact to 0.01 s, and the clock may be adjusted


def write_run_file(data: Path, *, proxy_url: str, engine_urls: Sequence[str], pids: Mapping[str, int]) -> None:
    """Write the file atomically. `pids`: by program, without this process."""
    found = {
        "proxy_url": proxy_url,
        "engine_url": engine_urls[0],
        "engine_urls": engine_urls,
        "pids": {"up": os.getpid(), **pids},
        "written_at": time.time(),
    }
    path = data / RUN_FILE
    draft = path.with_suffix(".new")
    file_modes.write_private(draft, json.dumps(found, indent=1))
    draft.replace(path)


def remove_run_file(data: Path) -> None:
    """Delete the file, when `hone up` stops."""
    (data / RUN_FILE).unlink(missing_ok=True)


def read_run_file(data: Path) -> dict[str, object] | None:
    """The content written by a running `hone up` of this data folder; None if none runs."""
    found = _read(data)
    return found if found is not None and _lives(found) else None


def find_stale_run(data: Path) -> dict[str, object] | None:
    """The content left by a `hone up` that was killed; None if there is none."""
    found = _read(data)
    return found if found is not None and not _lives(found) else None


def _read(data: Path) -> dict[str, Any] | None:
    try:
        found = json.loads((data / RUN_FILE).read_text())
        return {**found, "pids": found["pids"] | {"up": int(found["pids"]["up"])}, "written_at": found["written_at"]}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _lives(found: Mapping[str, Any]) -> bool:
    """Whether the writer still runs. A process with the same pid that started later is another one."""
    try:
        return bool(psutil.Process(found["pids"]["up"]).create_time() <= found["written_at"] + CLOCKS_DIFFER_S)
    except (psutil.NoSuchProcess, ValueError, OverflowError):
        return False
    except psutil.AccessDenied:
        return True
