"""engine.json: where the engine of a running `hone engine` listens, for a `hone up` of the same data folder to use it.

Owns: its name, its fields, and not believing one whose writer is gone. Refuses: whether that engine is well: the
proxy's controller asks it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from proxy.settings.sections import EngineSettings
from recorder.processes import file_modes

ENGINE_FILE = "engine.json"


@dataclass(frozen=True, slots=True)
class EngineNote:
    """An engine that somebody keeps running: the process `pid`."""

    host: str
    port: int
    base: str | None
    pid: int


@contextmanager
def noted(data: Path, engine: EngineSettings) -> Iterator[None]:
    """Say where the engine is for as long as the block runs; who reads meanwhile sees nothing or all of it."""
    file_modes.make_folder(data)
    path = data / ENGINE_FILE
    draft = path.with_suffix(".new")
    file_modes.write(draft, json.dumps(asdict(EngineNote(engine.host, engine.port, engine.base, os.getpid()))))
    draft.replace(path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def running_engine(data: Path) -> EngineNote | None:
    """What `hone engine` of this data folder wrote while it runs; None where none runs."""
    try:
        found = EngineNote(**json.loads((data / ENGINE_FILE).read_text()))
        os.kill(found.pid, 0)
    except (OSError, ValueError, TypeError):
        return None
    return found
