"""A tracker in a process of its own, fed from a thread.

Owns: that no tracker holds a step: what is sent waits in a queue, and a tracker that fails, or takes too much, rests
from then on and has told why once. Refuses: trying again: what it missed is sent when its campaign is gone on with.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final

from recorder.child_env import environment
from trainer.track_settings import TrackerName, TrackSettings
from trainer.tracking.base import Entry, Run
from trainer.tracking.sent import Sent

MOST_WAITING: Final = 10_000  # events of a tracker that hangs
_OURS: Final = (
    "WANDB_",
    "MLFLOW_",
    "DATABRICKS_",
    "AWS_",
    "AZURE_",
    "GOOGLE_",
    "NETRC",
)  # where libraries look for keys
_QUIET: Final = {
    "WANDB_ERROR_REPORTING": "false",
    "WANDB_SILENT": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
}
_LOGIN: Final = re.compile(r"//[^/\s@]+@")


class TrackerFailedError(Exception):
    """What a tracker's process said, or that it is gone."""


class Apart:
    """One tracker. Only `failure` is shared with its thread."""

    def __init__(self, name: TrackerName, run: Run, settings: TrackSettings, note: Path) -> None:
        self.name = name
        self.failure: str | None = None
        self._begin = {"begin": asdict(run), "settings": settings.model_dump(mode="json")}
        self._note = note
        self._waiting: SimpleQueue[Entry | dict[str, Any]] = SimpleQueue()
        self._process: subprocess.Popen[str] | None = None
        self._thread = threading.Thread(target=self._work, name=f"track {name}", daemon=True)
        self._thread.start()

    def put(self, entry: Entry) -> None:
        """Have an event sent, some time."""
        if self._waiting.qsize() >= MOST_WAITING:
            self.failure = self.failure or f"{MOST_WAITING} events wait for it"
        if self.failure is None:
            self._waiting.put(entry)

    def close(self, reason: str, *, failed: bool, within_s: float) -> None:
        """End the run, and wait so long at the most for what is not sent yet."""
        self._waiting.put({"end": reason, "failed": failed})
        self._thread.join(within_s)
        if self._thread.is_alive():
            self.failure = self.failure or f"it had not taken everything {within_s:g} s after the end"
            self._kill()
            self._thread.join(within_s)

    def _work(self) -> None:
        sent = Sent(self._note)
        try:
            self._process = _started(self.name)
            self._ask(self._begin)
            while isinstance(entry := self._waiting.get(), Entry):
                if self.failure is None and entry.key not in sent:
                    self._ask({"nth": len(sent), "entry": asdict(entry)})
                    sent.add(entry.key)
            self._ask(entry)
        except (TrackerFailedError, OSError) as e:
            self.failure = self.failure or _LOGIN.sub("//…@", str(e))
        finally:
            sent.close()
            self._reap()

    def _ask(self, line: dict[str, Any]) -> None:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(line) + "\n")
        process.stdin.flush()
        answer = process.stdout.readline()
        said = json.loads(answer)["error"] if answer else "its process ended"
        if said is not None:
            raise TrackerFailedError(said)

    def _reap(self) -> None:
        if self._process is None:
            return
        if self.failure is not None:
            self._kill()
        with suppress(OSError), self._process:  # closes its pipes and waits; it may be gone with a line unread
            pass

    def _kill(self) -> None:
        if self._process is not None:
            self._process.kill()


def _started(name: TrackerName) -> subprocess.Popen[str]:
    keys = [variable for variable in os.environ if variable.startswith(_OURS)]
    return subprocess.Popen(  # noqa: S603 - a list, our own Python
        [sys.executable, "-P", "-m", "trainer.tracking.child", name],  # -P: no module of the working directory
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment(keys) | _QUIET,
        start_new_session=True,  # Ctrl-C is the campaign's to hear
    )
