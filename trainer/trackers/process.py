"""A tracker in a process of its own, fed from a queue, and the file that records the events it received.

Owns: the queue, so that no tracker delays a step. A tracker that fails or falls too far behind is stopped, and the
reason is reported once; it receives the missing events when its campaign resumes. The file prevents sending a step
twice: an event is recorded after its tracker has it, so a kill between the two repeats at most that one event. Refuses:
retries.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from recorder.processes import file_modes
from recorder.processes.child_host import ChildError, ChildFailed, ChildHost, ChildSpec, Output
from trainer.track_settings import TrackerName, TrackSettings
from trainer.trackers.base import TrackerEntry, TrackerRun


class SentKeys:
    """The keys of all sent events, in a file."""

    def __init__(self, path: Path) -> None:
        file_modes.make_folder(path.parent)
        self._file = file_modes.open_log(path)
        text = path.read_bytes()
        if text and not text.endswith(b"\n"):  # killed while it was written
            self._file.write(b"\n")
        self._keys = set(text.decode(errors="replace").splitlines())

    def __contains__(self, key: str) -> bool:
        return key in self._keys

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, key: str) -> None:
        """Record an event's key."""
        self._keys.add(key)
        self._file.write(f"{key}\n".encode())
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


MOST_WAITING: Final = 10_000  # events of a tracker that hangs
# Beginnings of the names of variables in which libraries look for keys.
_KEY_VARIABLES: Final = ("WANDB_", "MLFLOW_", "DATABRICKS_", "AWS_", "AZURE_", "GOOGLE_", "NETRC")
_QUIET: Final = {
    "WANDB_ERROR_REPORTING": "false",
    "WANDB_SILENT": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
}
_LOGIN: Final = re.compile(r"//[^/\s@]+@")


class TrackerFailedError(Exception):
    """A tracker replied with an error."""


class TrackerProcess:
    """One tracker. Create it in a running event loop."""

    def __init__(self, name: TrackerName, run: TrackerRun, settings: TrackSettings, note: Path) -> None:
        self.name = name
        self.failure: str | None = None
        self._host = _host(name, {"tracker": name, "run": asdict(run), "settings": settings.model_dump(mode="json")})
        self._note = note
        self._waiting: asyncio.Queue[TrackerEntry | dict[str, Any]] = asyncio.Queue()
        self._task = asyncio.create_task(self._work(), name=f"track {name}")

    def put(self, entry: TrackerEntry) -> None:
        """Queue an event."""
        if self._waiting.qsize() >= MOST_WAITING:
            self.failure = self.failure or f"{MOST_WAITING} events wait for it"
        if self.failure is None:
            self._waiting.put_nowait(entry)

    async def close(self, reason: str, *, failed: bool, within_s: float) -> None:
        """End the run, and wait at most `within_s` for events that are not sent yet."""
        self._waiting.put_nowait({"end": reason, "failed": failed})
        _, late = await asyncio.wait({self._task}, timeout=within_s)
        if late:
            self.failure = self.failure or f"it had not taken everything {within_s:g} s after the end"
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _work(self) -> None:
        try:
            sent = SentKeys(self._note)
            try:
                await self._send_all(sent)
            finally:
                sent.close()
            await self._host.stop()
        except (TrackerFailedError, ChildError, OSError) as e:
            why = str(e) if isinstance(e, TrackerFailedError | ChildFailed | OSError) else "its process ended"
            self.failure = self.failure or _LOGIN.sub("//…@", why)
        finally:
            await self._host.kill()

    async def _send_all(self, sent: SentKeys) -> None:
        """Send queued events, and the end of the run last."""
        await self._host.ready()
        while isinstance(entry := await self._waiting.get(), TrackerEntry):
            if self.failure is None and entry.key not in sent:
                await self._ask({"nth": len(sent), "entry": asdict(entry)})
                sent.add(entry.key)
        await self._ask(entry)

    async def _ask(self, request: dict[str, Any]) -> None:
        if not self._host.is_running:  # a request would start it again
            raise TrackerFailedError("its process ended")
        error = (await self._host.request(request))["error"]
        if error is not None:
            raise TrackerFailedError(error)


def _host(name: TrackerName, start: dict[str, Any]) -> ChildHost:
    return ChildHost(
        ChildSpec(
            [sys.executable, "-P", "-m", "trainer.trackers.child"],  # -P: no module of the working directory
            start=start,
            named_env=[variable for variable in os.environ if variable.startswith(_KEY_VARIABLES)],
            own_env=_QUIET,
            output=Output.NOWHERE,
        )
    )
