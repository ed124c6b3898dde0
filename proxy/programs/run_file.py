"""run.json: where the programs of a running `hone up` are, for others on this machine to find them.

Owns: its name, its fields, and not believing one whose writer is gone. Refuses: starting and ending what it names.
`trainer.programs.services` reads it too, by its name: the trainer imports nothing of the proxy.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from recorder import private

RUN_FILE = "run.json"


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
    private.write(draft, json.dumps(found, indent=1))
    draft.replace(path)


def remove_run_file(data: Path) -> None:
    """Say that nothing runs any more."""
    (data / RUN_FILE).unlink(missing_ok=True)


def read_run_file(data: Path) -> dict[str, object] | None:
    """What `hone up` of this data folder wrote while it runs; None where none runs."""
    try:
        found = json.loads((data / RUN_FILE).read_text())
        os.kill(int(found["pids"]["up"]), 0)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return dict(found)
