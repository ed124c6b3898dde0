"""run.json: the addresses, programs and pids of a running `hone up`, for other programs on this machine.

Owns: the file's name and fields, and ignoring a file of a process that has ended. Refuses: starting and stopping
programs. `trainer.runtime.services` reads the file by its name, since the trainer does not import the proxy.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal

from recorder.processes import file_modes

RUN_FILE = "run.json"
CLOCKS_DIFFER_S: Final = 2.0  # process start times are exact to 0.01 s, and the clock may be adjusted


@dataclass(frozen=True, slots=True)
class SupervisedProgram:
    """A program of `hone up`. Its log is `logs/NAME.log` in the data folder."""

    name: str
    state: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class JobRun:
    """What a page had `hone up` start, running or the last one. `by`: the id of the key; times in unix seconds."""

    job: str
    state: Literal["running", "finished", "paused", "failed", "stopped", "refused"]
    by: str
    began_at: float
    ended_at: float | None = None
    detail: str = ""


def write_run_file(
    data: Path,
    *,
    proxy_url: str,
    engine_urls: Sequence[str],
    pids: Mapping[str, int],
    programs: Sequence[SupervisedProgram] = (),
    job: JobRun | None = None,
) -> None:
    """Write the file atomically. `pids`: by program, without this process."""
    content = {
        "proxy_url": proxy_url,
        "engine_url": engine_urls[0],
        "engine_urls": engine_urls,
        "pids": {"up": os.getpid(), **pids},
        "written_at": time.time(),
        "programs": [asdict(one) for one in programs],
        "job": asdict(job) if job is not None else None,
    }
    path = data / RUN_FILE
    draft = path.with_suffix(".new")
    file_modes.write_private(draft, json.dumps(content, indent=1))
    draft.replace(path)


def remove_run_file(data: Path) -> None:
    """Delete the file, when `hone up` stops."""
    (data / RUN_FILE).unlink(missing_ok=True)


def read_run_file(data: Path) -> dict[str, object] | None:
    """Return the content written by a running `hone up` of this data folder; None if none is running."""
    content = _read(data)
    return content if content is not None and _lives(content) else None


def find_stale_run(data: Path) -> dict[str, object] | None:
    """The content left by a `hone up` that was killed; None if there is none."""
    content = _read(data)
    return content if content is not None and not _lives(content) else None


def list_programs(content: Mapping[str, Any]) -> list[SupervisedProgram]:
    """The programs of a file's content; none where it was written by an older `hone up`."""
    return [SupervisedProgram(**one) for one in content.get("programs") or ()]


def find_job(content: Mapping[str, Any]) -> JobRun | None:
    """The job of a file's content."""
    found = content.get("job")
    return JobRun(**found) if found else None


def _read(data: Path) -> dict[str, Any] | None:
    try:
        content = json.loads((data / RUN_FILE).read_text())
        return {
            **content,
            "pids": content["pids"] | {"up": int(content["pids"]["up"])},
            "written_at": content["written_at"],
        }
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _lives(content: Mapping[str, Any]) -> bool:
    """Whether the writer still runs. A process with the same pid that started later is another one."""
    import psutil  # here: without a file it is not needed, and `hone status` must be quick

    try:
        return bool(psutil.Process(content["pids"]["up"]).create_time() <= content["written_at"] + CLOCKS_DIFFER_S)
    except (psutil.NoSuchProcess, ValueError, OverflowError):
        return False
    except psutil.AccessDenied:
        return True
