"""run.json: where the programs of a running `hone up` are, for others on this machine to find them.

Owns: its name, its fields, and not believing one whose writer is gone. Refuses: starting and ending what it names.
`trainer.runtime.services` reads it too, by its name: the trainer imports nothing of the proxy.
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
CLOCKS_DIFFER_S: Final = 2.0  # the kernel tells when a process began to a hundredth, by a clock that may be set


def write_run_file(data: Path, *, proxy_url: str, engine_urls: Sequence[str], pids: Mapping[str, int]) -> None:
    """Say where everything is; who reads meanwhile sees the old file or the new one. `pids` by program, without us."""
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
    """Say that nothing runs any more."""
    (data / RUN_FILE).unlink(missing_ok=True)


def read_run_file(data: Path) -> dict[str, object] | None:
    """What `hone up` of this data folder wrote while it runs; None where none runs."""
    found = _read(data)
    return found if found is not None and _lives(found) else None


def find_stale_run(data: Path) -> dict[str, object] | None:
    """What a `hone up` wrote that is gone and did not take it away: it was killed."""
    found = _read(data)
    return found if found is not None and not _lives(found) else None


def _read(data: Path) -> dict[str, Any] | None:
    try:
        found = json.loads((data / RUN_FILE).read_text())
        return {**found, "pids": found["pids"] | {"up": int(found["pids"]["up"])}, "written_at": found["written_at"]}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _lives(found: Mapping[str, Any]) -> bool:
    """Whether its writer is there; a process of the same number that began later is another."""
    try:
        return bool(psutil.Process(found["pids"]["up"]).create_time() <= found["written_at"] + CLOCKS_DIFFER_S)
    except (psutil.NoSuchProcess, ValueError, OverflowError):
        return False
    except psutil.AccessDenied:
        return True
