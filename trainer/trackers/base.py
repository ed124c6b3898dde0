"""The interface of a tracker, and the run that it opens: for a campaign, or for an alias that learns from live traffic.

Owns: the function `begin(run, settings)` that each tracker's module has; a run's id, name and settings; which settings
may leave this machine: numbers, switches and choices. Texts, paths, addresses and commands never do, because any of
them may hold a key. Refuses: every tracker, and opening runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, Protocol, get_args, get_origin

from pydantic import BaseModel

from recorder.queue.campaigns import CampaignView
from recorder.registry.aliases import AliasView
from trainer.campaign_settings import CampaignSettings
from trainer.settings import TrainerSettings
from trainer.track_settings import TrackSettings

ID_TAG: Final = "hone.id"

Value = bool | int | float | str


@dataclass(frozen=True, slots=True)
class TrackerRun:
    """One run in a tracker, for a campaign or an alias that learns. It is resumed by its id."""

    id: str
    name: str
    folder: str  # where a tracker may keep its files
    settings: Mapping[str, Value]  # those that may leave this machine


@dataclass(frozen=True, slots=True)
class TrackerEntry:
    """The figures and texts of one event. `key` identifies the event, so that a tracker receives it once."""

    key: str
    step: int
    figures: Mapping[str, float]
    texts: Mapping[str, str]


class Tracker(Protocol):
    """One run of one tracker, open. Any of its calls may raise whatever its library raises."""

    def log(self, nth: int, entry: TrackerEntry) -> None:
        """Send an event's figures and texts; `nth`: how many events were sent to the run before, by all processes."""

    def end(self, reason: str, *, failed: bool) -> None:
        """Send the rest. The run may be resumed later."""


class TrackerOpener(Protocol):
    """Opens or resumes a tracker's run."""

    def __call__(self, run: TrackerRun, settings: TrackSettings, /) -> Tracker:
        """Raises the library's own errors."""


def safe_settings(model: BaseModel, section: str) -> dict[str, Value]:
    """The settings of a section that may be sent, by dotted key."""
    return dict(_of(model, f"{section}."))


def _of(model: BaseModel, prefix: str) -> Iterator[tuple[str, Value]]:
    for name, field in type(model).model_fields.items():
        value = getattr(model, name)
        if isinstance(value, BaseModel):
            yield from _of(value, f"{prefix}{name}.")
        elif isinstance(value, bool | int | float):
            yield prefix + name, value
        elif isinstance(value, str) and value in _choices(field.annotation):
            yield prefix + name, str(value)


def _choices(annotation: Any) -> set[object]:
    """The values that a setting may have."""
    inner = get_args(annotation)
    if get_origin(annotation) is Literal:
        return set(inner)
    return set().union(*map(_choices, inner))


FOLDER: Final = "tracking"  # in the data folder


def campaign_run(
    campaign: CampaignView, settings: CampaignSettings, trainer: TrainerSettings, data: Path
) -> TrackerRun:
    """A campaign's run, from its beginning to its end, over all processes that resume it."""
    sent = safe_settings(settings, "campaign") | safe_settings(trainer, "trainer")
    return TrackerRun(campaign.id, campaign.name, str((data / FOLDER).absolute()), sent)


def alias_run(alias: AliasView, trainer: TrainerSettings, data: Path) -> TrackerRun:
    """The run of an alias, over all its steps by `hone learn`."""
    return TrackerRun(alias.id, alias.name, str((data / FOLDER).absolute()), safe_settings(trainer, "trainer"))
