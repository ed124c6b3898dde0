"""Deliver the events of a campaign or the learner to trackers.

Owns: the list of trackers, reporting once that a tracker is not installed or failed, and ending their runs. Refuses:
waiting for a tracker, except for a bounded time at the end.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from recorder.errors import RecorderError
from recorder.views.campaigns.events import CampaignEnded
from trainer.progress import Event, Notice, Progress
from trainer.track_settings import TrackerName, TrackSettings
from trainer.trackers.base import TrackerRun
from trainer.trackers.event_figures import TranscriptSamples, event_entry
from trainer.trackers.process import TrackerProcess

END_S: Final = 30.0  # the most that trackers may delay the end of a campaign


@asynccontextmanager
async def track_events(
    settings: TrackSettings,
    run: TrackerRun,
    shown: Progress,
    samples: TranscriptSamples | None = None,
    end_s: float = END_S,
) -> AsyncIterator[TrackerFeed]:
    """Send events to all trackers that the settings name and that are installed, until the end of the block."""
    for name, key in settings.named().items():
        if not is_installed(name):
            shown.tell(Notice(f"{key} is set, but nothing is sent: {install_hint(name)}", warning=True))
    names = [name for name in settings.named() if is_installed(name)]
    tracking = TrackerFeed(
        [TrackerProcess(name, run, settings, _note(run, settings, name)) for name in names],
        shown,
        samples if settings.samples else None,
    )
    try:
        yield tracking
    except asyncio.CancelledError:
        await tracking.close("stopped", failed=False, within_s=end_s)
        raise
    except BaseException:
        await tracking.close("failed", failed=True, within_s=end_s)
        raise
    await tracking.close("stopped", failed=False, within_s=end_s)


class TrackerFeed:
    """Takes events, as `Progress` does, and passes them on."""

    def __init__(self, trackers: Sequence[TrackerProcess], shown: Progress, samples: TranscriptSamples | None) -> None:
        self._trackers = trackers
        self._shown = shown
        self._samples = samples
        self._reported: set[str] = set()
        self._reading: set[asyncio.Task[None]] = set()
        self._reason: str | None = None

    def tell(self, event: Event) -> None:
        """Send the event's figures, and its transcripts if they are enabled."""
        self._send(event)
        if isinstance(event, CampaignEnded):
            self._reason = event.reason
        if self._samples is not None and self._trackers:
            reading = asyncio.get_running_loop().create_task(self._send_samples(self._samples, event))
            self._reading.add(reading)
            reading.add_done_callback(self._reading.discard)
        self._report_failures()

    def again(self, events: Iterable[Event]) -> None:
        """Send those events of an earlier process that were not sent yet."""
        for event in events:
            self._send(event)

    async def close(self, reason: str, *, failed: bool, within_s: float) -> None:
        """End the runs. `reason`: why, if there was no `CampaignEnded` event."""
        await asyncio.gather(*self._reading)
        why = self._reason or reason
        await asyncio.gather(*(one.close(why, failed=failed, within_s=within_s) for one in self._trackers))
        self._report_failures()

    def _send(self, event: Event) -> None:
        made = event_entry(event)
        if made is not None:
            for tracker in self._trackers:
                tracker.put(made)

    async def _send_samples(self, samples: TranscriptSamples, event: Event) -> None:
        try:
            made = await samples.entry(event)
        except RecorderError as e:
            self._report_once("samples", f"transcripts could not be read for trackers: {e}")
            return
        if made is not None:
            for tracker in self._trackers:
                tracker.put(made)

    def _report_failures(self) -> None:
        for tracker in self._trackers:
            if (why := tracker.failure) is not None:
                self._report_once(tracker.name, f"{tracker.name} is sent nothing more: {why}. Training continues")

    def _report_once(self, what: str, text: str) -> None:
        if what not in self._reported:
            self._reported.add(what)
            self._shown.tell(Notice(text, warning=True))


def is_installed(name: TrackerName) -> bool:
    """Whether a tracker's library is installed; it is not imported."""
    spec = find_spec(name)
    return spec is not None and spec.origin is not None  # a folder of that name is no library


def install_hint(name: TrackerName) -> str:
    """How to install a missing tracker."""
    return f"{name} is not installed: `pip install 'hone-proxy[{name}]'`"


def _note(run: TrackerRun, settings: TrackSettings, name: TrackerName) -> Path:
    """The file of a tracker's sent events, one for each project or server: another one has received nothing."""
    where = [value for key, value in settings.model_dump(mode="json").items() if key.startswith(name)]
    digest = hashlib.sha256(repr(where).encode()).hexdigest()[:8]
    return Path(run.folder) / f"{run.id}-{name}-{digest}.sent"
