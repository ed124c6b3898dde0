"""A file in which a program notes what it does now, for the program that supervises it: a killed one says nothing.

Owns: the file's name and fields. Refuses: the phases themselves.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from recorder.processes import file_modes

LEARNER_PHASE: Final = "learner.json"  # `hone learn`'s, in the data folder
STARTING: Final = "starting"


@dataclass(frozen=True, slots=True)
class ProgramPhase:
    """What a program does, and how many steps it finished since it started."""

    name: str = STARTING
    steps: int = 0


def write_phase(path: Path, phase: ProgramPhase) -> None:
    """Write the file atomically. A disk that refuses it is no error: supervision then knows less."""
    draft = path.with_suffix(".new")
    with suppress(OSError):
        file_modes.write_private(draft, json.dumps(asdict(phase)))
        draft.replace(path)


def read_phase(path: Path) -> ProgramPhase:
    """What the program noted last; `STARTING` if nothing."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return ProgramPhase(str(found["name"]), int(found["steps"]))
    except (OSError, ValueError, KeyError, TypeError):
        return ProgramPhase()
