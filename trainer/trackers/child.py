"""The process in which one tracker's library runs.

Owns: opening the run on request, sending the contents of each request, and replying with the error, if there is one.
Refuses: Hone's store. When its parent process is gone, it ends the run and then itself.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import Any, Final

from recorder.base.connection_failures import describe_failure
from recorder.processes.user_code_host import connect, serve_in_turn
from trainer.track_settings import TrackSettings
from trainer.trackers.base import Tracker, TrackerEntry, TrackerOpener, TrackerRun

END_LIMIT_S: Final = 20.0  # for ending a run whose campaign was killed


def main() -> None:
    """Serve one tracker until its input ends."""
    connection = connect("Sends a campaign's figures to one tracker for Hone; not to be called by hand.")
    os.umask(0o077)
    # TensorBoard then loads no TensorFlow
    sys.modules["tensorboard.compat.notf"] = ModuleType("tensorboard.compat.notf")
    sender = _Sender()
    serve_in_turn(connection.messages(), connection.send, sender.begin, sender.answer)
    sender.close()


class _Sender:
    """The tracker of this process, and its run while it is open."""

    def __init__(self) -> None:
        self._tracker: Tracker | None = None

    def begin(self, start: Mapping[str, Any]) -> dict[str, Any]:
        try:
            begin: TrackerOpener = import_module(f"trainer.trackers.{start['tracker']}").begin
            self._tracker = begin(TrackerRun(**start["run"]), TrackSettings(**start["settings"]))
        except Exception as e:  # noqa: BLE001 - whatever a foreign library raises is the answer
            return {"failed": describe_failure(e)}
        return {"ready": {}}

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        try:
            self._take(request)
        except Exception as e:  # noqa: BLE001 - as above
            return {"error": describe_failure(e)}
        return {"error": None}

    def _take(self, request: Mapping[str, Any]) -> None:
        if self._tracker is None:
            return
        if "end" in request:
            self._tracker.end(request["end"], failed=request["failed"])
            self._tracker = None
        else:
            self._tracker.log(request["nth"], TrackerEntry(**request["entry"]))

    def close(self) -> None:
        """End the run if no request ended it."""
        if self._tracker is not None:
            last = threading.Timer(END_LIMIT_S, os._exit, [1])
            last.daemon = True
            last.start()
            self._tracker.end("lost", failed=True)


if __name__ == "__main__":
    main()
