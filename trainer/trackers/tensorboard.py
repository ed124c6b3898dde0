"""TensorBoard: writes an event file.

Owns: writing it with TensorBoard's own record types, without TensorFlow or torch. Refuses: serving it.
"""

from __future__ import annotations

import os
import time
from typing import BinaryIO

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.compat.proto.types_pb2 import DT_STRING
from tensorboard.summary.writer.record_writer import RecordWriter

from recorder.processes import file_modes
from trainer.track_settings import TrackSettings
from trainer.trackers.base import Tracker, TrackerEntry, TrackerRun

_TEXT = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))
_ONE = TensorShapeProto(dim=[TensorShapeProto.Dim(size=1)])


def begin(run: TrackerRun, settings: TrackSettings) -> Tracker:
    """Open a file beside those of the run's earlier processes: TensorBoard reads them as one."""
    assert settings.tensorboard is not None  # this setting selects TensorBoard
    folder = settings.tensorboard / f"{run.name.replace('/', '_')}-{run.id}"  # an alias may be named as org/model
    resumed = folder.is_dir() and any(folder.iterdir())
    file_modes.make_folder(folder)
    name = f"events.out.tfevents.{time.time_ns()}.hone.{os.getpid()}"  # TensorBoard's own names contain the machine's
    tracker = _EventFile(file_modes.open_log(folder / name))
    if not resumed:
        rows = [f"| {key} | {value} |" for key, value in run.settings.items()]
        tracker.log(0, TrackerEntry("", 0, {}, {"settings": "\n".join(["| setting | value |", "|---|---|", *rows])}))
    return tracker


class _EventFile:
    def __init__(self, file: BinaryIO) -> None:
        self._records = RecordWriter(file)
        self._write(Event(wall_time=time.time(), file_version="brain.Event:2"))

    def log(self, nth: int, entry: TrackerEntry) -> None:
        values = [Summary.Value(tag=name, simple_value=value) for name, value in entry.figures.items()]
        values += [_text(name, text) for name, text in entry.texts.items()]
        self._write(Event(wall_time=time.time(), step=entry.step, summary=Summary(value=values)))

    def end(self, reason: str, *, failed: bool) -> None:
        self._write(Event(wall_time=time.time(), summary=Summary(value=[_text("end/reason", reason)])))
        self._records.close()

    def _write(self, event: Event) -> None:
        self._records.write(event.SerializeToString())
        self._records.flush()


def _text(name: str, text: str) -> Summary.Value:
    tensor = TensorProto(dtype=DT_STRING, tensor_shape=_ONE, string_val=[text.encode()])
    return Summary.Value(tag=name, metadata=_TEXT, tensor=tensor)
