"""The process in which one tracker's library runs: `python -m trainer.tracking.child NAME`.

Owns: reading what to send, a JSON object a line, and answering each with what went wrong, if anything did. Refuses:
Hone's store. When its other side is gone it ends the run, and itself soon after.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import Any, TextIO, get_args

from trainer.track_settings import TrackerName, TrackSettings
from trainer.tracking.base import Begin, Entry, Run, Tracker

LAST_WORDS_S = 20.0  # for a run whose campaign was killed


def main(name: str) -> None:
    """Serve one tracker until its input ends."""
    os.umask(0o077)
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever libraries print is no answer
    sys.modules["tensorboard.compat.notf"] = ModuleType(
        "tensorboard.compat.notf"
    )  # TensorBoard then loads no TensorFlow
    _serve(name, answers)


def _serve(name: str, answers: TextIO) -> None:
    tracker: Tracker | None = None
    for line in sys.stdin:
        asked: dict[str, Any] = json.loads(line)
        said = None
        try:
            if "begin" in asked:
                begin: Begin = import_module(f"trainer.tracking.{name}").begin
                tracker = begin(Run(**asked["begin"]), TrackSettings(**asked["settings"]))
            elif tracker is not None:
                tracker = _take(tracker, asked)
        except Exception as e:  # noqa: BLE001 - whatever a foreign library raises is the answer
            said = f"{type(e).__name__}: {e}"
        answers.write(json.dumps({"error": said}) + "\n")
        answers.flush()
    if tracker is not None:
        last = threading.Timer(LAST_WORDS_S, os._exit, [1])
        last.daemon = True
        last.start()
        tracker.end("lost", failed=True)


def _take(tracker: Tracker, asked: Mapping[str, Any]) -> Tracker | None:
    """Do what is asked; None: the run is ended."""
    if "end" in asked:
        tracker.end(asked["end"], failed=asked["failed"])
        return None
    tracker.log(asked["nth"], Entry(**asked["entry"]))
    return tracker


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=get_args(TrackerName))
    main(parser.parse_args().name)
