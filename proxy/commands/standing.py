"""What `hone status` tells, as data: how the project stands, and what this machine knows of `hone up`.

Owns: adding run.json to what the store says. Refuses: what the store says (`recorder.telling.status`), printing
(`proxy.commands.status`).
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from proxy.programs.run_file import left_behind, read_run_file
from recorder.store.project import Project
from recorder.telling.stages import LoopSettings
from recorder.telling.status import status

Json = dict[str, Any]
_KILLED: Final = "`hone up` was killed: run.json is there and its process is not. Start it again."


async def standing(project: Project, data: Path, settings: LoopSettings) -> Json:
    """All that `hone status --json` prints."""
    found = asdict(await status(project, settings))
    killed = left_behind(data)
    here = {"data": str(data), "run": read_run_file(data), "killed": killed}
    return here | found | {"alarms": [*([_KILLED] if killed else []), *found["alarms"]]}
