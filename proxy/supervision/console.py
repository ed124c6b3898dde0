"""The output of `hone up`: program states, events of the store, and what the loop waits for.

Owns: the three formats (terminal, log, JSON), how often the wait is printed, and printing events while `hone up` runs.
Events are read when the store signals a change, not by polling. Refuses: the events (`recorder.views.status.events`),
and the programs (`proxy.supervision.up`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Protocol

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from recorder.base.terminal import build_table, clean, clean_line, write_json_line
from recorder.errors import StoreError
from recorder.setting_changes.follower import SettingsFollower
from recorder.store.changes import Topic
from recorder.store.database import Project
from recorder.views.status.events import EventReader
from recorder.views.status.stage_facts import GroupForecast, forecast_groups, read_stages
from recorder.views.status.stages import LoopSettings, Stage, StageStatus

WAITING: Final = "waiting"
WAITING_EVERY_S: Final = 15.0  # the shortest interval between two lines `waiting` in a log
STARTING_EVERY_S: Final = 15.0  # between two lines about what is still starting, in a log
_STYLES: Final = {
    "up": "green", "ready": "bold green", "swap": "bold green", "step": "cyan", "judged": "cyan", "gate": "cyan",
    "fine": "green", "note": "yellow", "restarting": "yellow", "rollback": "yellow", "excluded": "yellow",
    "fault": "red", "failed": "red", "wrong": "red", "starting": "dim", "stopped": "dim", "waiting": "dim",
}  # fmt: skip
_NOTHING: Final[Mapping[str, Any]] = {}


@dataclass(frozen=True, slots=True)
class ProgramLine:
    """One program: its state and details."""

    name: str
    state: str
    detail: str


class ConsoleOutput(Protocol):
    """An output format."""

    refresh_s: float | None  # how often `waits` is called without a change; None: never

    def tell(self, event: str, text: str, facts: Mapping[str, Any] = _NOTHING) -> None:
        """Print an event."""

    def programs(self, shown: Sequence[ProgramLine], changed: ProgramLine) -> None:
        """Print that a program's state changed."""

    def starting(self, shown: Sequence[ProgramLine]) -> None:
        """Print what is still starting, how long, and what it does. Called every second meanwhile."""

    def waits(self, waiting: GroupForecast, at: float, stages: Sequence[StageStatus] = ()) -> None:
        """Print what the loop waits for, as of `at` (unix seconds)."""

    def close(self) -> None:
        """End the output."""


class LineOutput:
    """One line for each event, for a log. A changed wait is printed at most every `WAITING_EVERY_S`."""

    refresh_s: float | None = WAITING_EVERY_S

    def __init__(self, console: Console) -> None:
        self._console = console
        self._printed = ""
        self._printed_at = float("-inf")
        self._starting_at = time.monotonic()

    def tell(self, event: str, text: str, facts: Mapping[str, Any] = _NOTHING) -> None:
        """Print an event; its further lines are indented."""
        first, *more = text.splitlines() or [""]
        line = Text(f"{time.strftime('%H:%M:%S')}  ", style="dim")
        line.append(f"{event:<10}", style=_STYLES.get(event, ""))
        line.append("\n".join([clean(first), *(f"{'':<20}{clean(one)}" for one in more)]))
        self._console.print(line)

    def programs(self, shown: Sequence[ProgramLine], changed: ProgramLine) -> None:
        """Print the program that changed."""
        if changed.state != "starting":
            self.tell(changed.state, f"{changed.name} {changed.detail}".rstrip())

    def starting(self, shown: Sequence[ProgramLine]) -> None:
        """Print what is still starting, every `STARTING_EVERY_S`."""
        awaited = [f"{one.name} {one.detail}" for one in shown if one.state == "starting"]
        if awaited and time.monotonic() - self._starting_at >= STARTING_EVERY_S:
            self._starting_at = time.monotonic()
            self.tell("starting", "; ".join(awaited))

    def waits(self, waiting: GroupForecast, at: float, stages: Sequence[StageStatus] = ()) -> None:
        """Print the wait if it changed and was not printed just now."""
        text, now = "\n".join([waiting.sentence(times=False), *_sentences(stages)]), time.monotonic()
        if text != self._printed and now - self._printed_at >= WAITING_EVERY_S:
            self._printed, self._printed_at = text, now
            self.tell(WAITING, "\n".join([waiting.sentence(at), *_sentences(stages)]))

    def close(self) -> None:
        """Nothing to do."""


class LiveOutput(LineOutput):
    """For a terminal: event lines, and below them a live table of the programs and the wait."""

    refresh_s: float | None = 1.0

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._shown: Sequence[ProgramLine] = ()
        self._waiting = ""
        self._live = Live(self._table(), console=console, auto_refresh=False)  # redrawn on changes
        self._live.start()

    def programs(self, shown: Sequence[ProgramLine], changed: ProgramLine) -> None:
        """Redraw the table; a failure is printed as a line too."""
        self._shown = list(shown)
        if changed.state in ("restarting", "failed") and changed.detail:
            super().programs(shown, changed)
        self._draw()

    def starting(self, shown: Sequence[ProgramLine]) -> None:
        """Redraw the table."""
        self._shown = list(shown)
        self._draw()

    def waits(self, waiting: GroupForecast, at: float, stages: Sequence[StageStatus] = ()) -> None:
        """Redraw the wait, with the remaining times."""
        text = "\n".join([waiting.sentence(at), *_sentences(stages)])
        if text != self._waiting:
            self._waiting = text
            self._draw()

    def close(self) -> None:
        """Stop the live table."""
        self._live.stop()

    def _draw(self) -> None:
        self._live.update(self._table(), refresh=True)

    def _table(self) -> Table:
        rows = [
            (one.name, clean_line(one.state, _STYLES.get(one.state, "")), clean_line(_first_line(one.detail)))
            for one in self._shown
        ]
        waits = self._waiting.splitlines()
        rows += [(WAITING if at == 0 else "", clean_line(""), clean_line(one, "dim")) for at, one in enumerate(waits)]
        return build_table(("", "", ""), rows, headed=False)


class JsonOutput:
    """One JSON object a line, for programs: `at`, `event`, `text` and the facts."""

    refresh_s: float | None = None

    def __init__(self, console: Console) -> None:
        self._console = console
        self._printed = ""
        self._starting_at = time.monotonic()

    def tell(self, event: str, text: str, facts: Mapping[str, Any] = _NOTHING) -> None:
        """Print an event."""
        write_json_line({"at": time.time(), "event": event, "text": text, **facts}, self._console.file)

    def programs(self, shown: Sequence[ProgramLine], changed: ProgramLine) -> None:
        """Print the program that changed."""
        facts = {"program": changed.name, "detail": changed.detail}
        self.tell(changed.state, f"{changed.name} {changed.state}", facts)

    def starting(self, shown: Sequence[ProgramLine]) -> None:
        """Print each program that is still starting, every `STARTING_EVERY_S`."""
        if time.monotonic() - self._starting_at < STARTING_EVERY_S:
            return
        self._starting_at = time.monotonic()
        for one in shown:
            if one.state == "starting":
                self.tell(one.state, f"{one.name} {one.detail}", {"program": one.name, "detail": one.detail})

    def waits(self, waiting: GroupForecast, at: float, stages: Sequence[StageStatus] = ()) -> None:
        """Print the wait if its counts or a sentence changed; `due_in_s` and `until` have the times."""
        text = waiting.sentence(times=False)
        waits = "\n".join([text, *_sentences(stages)])
        if waits != self._printed:
            self._printed = waits
            facts: dict[str, Any] = {"groups": dict(waiting.groups), "open_trajectories": waiting.open_trajectories}
            facts |= {"shadow_groups": dict(waiting.shadow), "other_groups": dict(waiting.apart)}
            facts["due_in_s"] = {state: waiting.in_s(state, at) for state in waiting.due}
            self.tell(WAITING, text, facts | {"stages": [asdict(one) for one in stages]})

    def close(self) -> None:
        """Nothing to do."""


def choose_output(console: Console, *, as_json: bool) -> ConsoleOutput:
    """Where lines go, for this terminal, file or program."""
    if as_json:
        return JsonOutput(console)
    return LiveOutput(console) if console.is_terminal else LineOutput(console)


def _sentences(stages: Sequence[StageStatus]) -> list[str]:
    """What judging and learning wait for. The counts of groups already show what is recorded."""
    aliases = {one.alias for one in stages if one.alias is not None}
    named = len(aliases) > 1
    return [
        f"{one.alias}: {one.text}" if named and one.alias is not None else one.text
        for one in stages
        if one.stage is not Stage.RECORDING
    ]


def _first_line(text: str) -> str:
    return (text.splitlines() or [""])[0]


BATCH_S = 0.5  # between two reads of events: changes in between form one batch


class EventPrinter:
    """Prints the events of one project. `await remember()`, then `await run()` until cancelled.

    `starting`: URLs of engines that are being started now.
    """

    def __init__(
        self,
        project: Project,
        follower: SettingsFollower,
        output: ConsoleOutput,
        *,
        starting: Collection[str] = (),
    ) -> None:
        self._project = project
        self._follower = follower
        self._output = output
        self._events = EventReader(project, starting=starting)
        self._waiting: GroupForecast | None = None
        self._stages: Sequence[StageStatus] = ()
        self._ahead_s = 0.0  # the lead of the database's clock
        self._away = False

    async def remember(self) -> None:
        """Read the current state: `run` prints every change after this one."""
        await self._read_events()

    async def run(self) -> None:
        """Print events until cancelled."""
        topics = (Topic.GROUPS, Topic.SERVICE, Topic.ENGINES, Topic.RUNS, Topic.CAMPAIGNS)
        with self._project.store.watch.on(*topics) as signal, self._follower.telling(signal.tell):
            while True:
                if await signal.wait(self._within_s()) or self._is_outdated():
                    await self._read_events()
                if self._waiting is not None:
                    self._output.waits(self._waiting, self._now(), self._stages)
                await asyncio.sleep(BATCH_S)

    def _now(self) -> float:
        return time.time() + self._ahead_s

    def _changes_at(self) -> float | None:
        """The next time (unix seconds) at which a stage may change by time alone."""
        looked_at = self._waiting.at if self._waiting is not None else 0.0
        moments = (one.until for one in self._stages if one.until is not None and one.until > looked_at)
        return min(moments, default=None)

    def _is_outdated(self) -> bool:
        changes_at = self._changes_at()
        return changes_at is not None and changes_at <= self._now()

    def _within_s(self) -> float | None:
        """The timeout of waiting for a change of the store, in seconds; None: no timeout."""
        changes_at, refresh_s = self._changes_at(), self._output.refresh_s
        waits = [refresh_s, None if changes_at is None else max(0.0, changes_at - self._now())]
        return min((wait_s for wait_s in waits if wait_s is not None), default=None)

    async def _read_events(self) -> None:
        try:
            events, settings = await self._events.look(), LoopSettings.current(self._follower)
            self._waiting = await forecast_groups(self._project, settings.recorder, settings.learn)
            self._stages = await read_stages(self._project, settings, self._waiting)
        except StoreError as e:
            if not self._away:
                self._output.tell("fault", f"cannot read the store: {e}")
            self._away = True
            return
        self._away = False
        self._ahead_s = self._waiting.at - time.time()
        for one in events:
            self._output.tell(one.kind, one.text, one.facts)
