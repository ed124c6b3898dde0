"""Progress of a campaign or learner: lines for people, a live status in a terminal, JSON for scripts.

Owns: the three forms, and events that are shown and not stored. Refuses: stored events
(`recorder.views.campaigns.events`), measuring, and decisions.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TextIO

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from recorder.base.terminal import console, format_number, percent, text, write_json_line
from recorder.processes.phase_file import ProgramPhase, write_phase
from recorder.views.campaigns.events import (
    Alarm,
    CampaignEnded,
    CampaignMeasure,
    SettingChanged,
    StepDone,
    Validation,
)
from recorder.views.campaigns.measures import compute_measure, count_errored, count_measured

PHASES = ("sampling", "judging", "training", "swapping")
WAITING = "waiting"  # the detail is a sentence that says what for


@dataclass(frozen=True, slots=True)
class Notice:
    """A message for a person."""

    text: str
    warning: bool = False


@dataclass(frozen=True, slots=True)
class PhaseStatus:
    """The current activity; the newest replaces the one before it."""

    step: int
    phase: str  # starting, validating, WAITING, or one of PHASES
    done: int | None = None
    total: int | None = None
    detail: str = ""


Event = Notice | PhaseStatus | StepDone | Validation | Alarm | SettingChanged | CampaignEnded


class Progress(Protocol):
    """Receives events as they happen."""

    def tell(self, event: Event) -> None:
        """Show one event."""


class CompositeProgress:
    """Passes events on to several progresses."""

    def __init__(self, *parts: Progress) -> None:
        self._all = parts

    def tell(self, event: Event) -> None:
        """Pass the event on."""
        for each in self._all:
            each.tell(event)


class PhaseFile:
    """Keeps a file with the newest phase, for the program that supervises this one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._phase = ProgramPhase()

    def tell(self, event: Event) -> None:
        """Write the file if the phase changed, or a step was finished."""
        phase = self._phase
        if isinstance(event, PhaseStatus):
            phase = replace(phase, name=event.phase)
        elif isinstance(event, StepDone):
            phase = replace(phase, steps=phase.steps + 1)
        if phase != self._phase:
            self._phase = phase
            write_phase(self._path, phase)


class JsonProgress:
    """One JSON object a line, with `event` as the first key; status events are skipped."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def tell(self, event: Event) -> None:
        """Print the event."""
        if not isinstance(event, PhaseStatus):
            write_json_line({"event": _NAMES[type(event)], **asdict(event)}, self._out)


class LineProgress:
    """A line for each event, for logs and pipes; a status only when its phase changes."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._phase: tuple[int, str, str] | None = None
        self._headed = False

    def tell(self, event: Event) -> None:
        """Print the event."""
        if isinstance(event, PhaseStatus):
            phase = (event.step, event.phase, event.detail)
            if phase != self._phase and event.detail:
                self._console.print(text(_status(event), "dim"))
            self._phase = phase
            return
        if isinstance(event, StepDone) and not self._headed:
            self._console.print(text(_HEAD, "bold"))
            self._headed = True
        self._console.print(event_text(event))


class TerminalProgress(LineProgress):
    """Lines, and below them a live line with the current activity."""

    def __init__(self, console: Console, live: Live) -> None:
        super().__init__(console)
        self._live = live
        self._spinner = Spinner("dots")

    def tell(self, event: Event) -> None:
        """Print the event, or put it into the live line."""
        if isinstance(event, PhaseStatus):
            self._spinner.update(text=text(_status(event)))
            self._live.update(self._spinner)
        else:
            super().tell(event)


@contextmanager
def choose_progress(*, as_json: bool, out: TextIO | None = None) -> Iterator[Progress]:
    """The suitable form: JSON if requested, a live line in a terminal, else plain lines."""
    stream = out or sys.stdout
    if as_json:
        yield JsonProgress(stream)
        return
    screen = console(stream, soft_wrap=True)
    if not screen.is_terminal:
        yield LineProgress(screen)
        return
    with Live(console=screen, transient=True, refresh_per_second=8) as live:
        yield TerminalProgress(screen, live)


# --- events as text ---------------------------------------------------------------------------------------------------

_NAMES: dict[type[Any], str] = {
    Notice: "notice", PhaseStatus: "status", StepDone: "step", Validation: "validation", Alarm: "alarm",
    SettingChanged: "setting_changed", CampaignEnded: "campaign_ended",
}  # fmt: skip
_HEAD = (
    f"{'step':>4}  {'version':<16} {'success':>7} {'reward':>7} {'KL eng.':>8} {'KL base':>8} {'tok/s':>7}"
    f" {'trained':>7}  {'sample':>6} {'judge':>6} {'train':>6} {'swap':>6}"
)


def event_text(event: Event) -> Text:
    """An event as one line (or a few) of text."""
    if isinstance(event, Notice):
        return text(event.text, "yellow" if event.warning else "")
    if isinstance(event, PhaseStatus):
        return text(_status(event))
    if isinstance(event, StepDone):
        return text(_step(event))
    if isinstance(event, Validation):
        return text(_validated(event), "bold")
    if isinstance(event, Alarm):
        return text(_alarm(event), "bold red" if event.then == "pause" else "yellow")
    if isinstance(event, SettingChanged):
        return text(f"changed after step {event.step}: {event.what} {event.was} → {event.now}")
    return text(_ended(event), "bold")


def _status(event: PhaseStatus) -> str:
    if event.phase == WAITING and event.detail:
        return event.detail
    count = "" if event.done is None else f" {event.done}/{event.total}"
    detail = f": {event.detail}" if event.detail else ""
    where = f"step {event.step} · " if event.step else ""
    return f"{where}{event.phase}{count}{detail}"


def _step(event: StepDone) -> str:
    seconds = " ".join(f"{event.seconds.get(phase, 0.0):>5.1f}s" for phase in PHASES)
    numbers = (
        f"{percent(event.success):>7} {format_number(event.reward, '.3f'):>7} {format_number(event.kl, '.1e'):>8}"
        f" {format_number(event.kl_base, '.1e'):>8} {format_number(event.tokens_per_s, '.0f'):>7} {event.trained:>7}"
    )
    sure = _interval(event, CampaignMeasure.SUCCESS)
    notes = [f"success {sure} of {count_measured(event)} attempts"] if sure else []
    notes += [f"{event.errored} of {event.attempts} attempts errored"] if event.errored else []
    notes += [event.note] if event.note else []
    note = f"  {'; '.join(notes)}" if notes else ""
    return f"{event.step:>4}  {event.version or '':<16} {numbers}  {seconds}{note}"


def _validated(event: Validation) -> str:
    if event.win_rate is not None:
        by, measure = CampaignMeasure.WINS, f"wins {percent(event.win_rate)} against version 0"
    elif event.success is not None:
        by, measure = CampaignMeasure.SUCCESS, f"success {percent(event.success)}"
    else:
        by, measure = CampaignMeasure.REWARD, f"reward {format_number(event.reward, '.3f')}"
    sure = _interval(event, by)
    measure += f" ({sure})" if sure else ""
    errored = f", {count} errored" if (count := count_errored(event, by)) else ""
    adversarial = (
        f", {percent(event.adversarial)} of {event.adversarial_attempts} adversarial ones"
        if event.adversarial is not None
        else ""
    )
    what = "test" if event.part == "test" else "validation"
    attempts = f"{event.attempts} attempts{adversarial}{errored}"
    return f"{what} of {event.version}: {measure} over {attempts} ({event.seconds:.1f} s)"


def _interval(event: StepDone | Validation, by: CampaignMeasure) -> str:
    """The 95 % interval of a measure as text; empty: there is none."""
    measure = compute_measure(event, by)
    if measure is None or measure.interval is None:
        return ""
    low, high = measure.interval.low, measure.interval.high
    if measure.kind == "reward":
        return f"{format_number(low, '.3f')} to {format_number(high, '.3f')}"
    return f"{percent(low)} to {percent(high)}"


def _alarm(event: Alarm) -> str:
    lines = [f"{event.rule} after step {event.step}: {event.detail}"]
    for one in event.evidence:
        paid = f", paid by {one['part']}" if one.get("part") else ""
        lines.append(f"  {one['trajectory']}: reward {format_number(one.get('reward'), '.3f')}{paid}")
    return "\n".join(lines)


def _ended(event: CampaignEnded) -> str:
    lines = [f"{event.campaign} {event.reason}: {event.detail} ({event.steps} steps, {event.seconds:.0f} s)"]
    if event.success_before is not None and event.success_after is not None:
        before = f"{percent(event.success_before)} of {event.attempts_before}"
        lines.append(f"success {before} → {percent(event.success_after)} of {event.attempts_after} attempts")
    if event.version:
        lines.append(f"in service: {event.version}")
    if event.left_out:
        counts = ", ".join(f"{code} {count}" for code, count in sorted(event.left_out.items()))
        lines.append(f"trained on {event.trained} trajectories; excluded: {counts}")
    return "\n".join(lines)
