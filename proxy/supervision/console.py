"""What `hone up` says while it runs: one line a thing, for eyes or for a program.

Owns: how a line looks on a terminal, in a log and as JSON, and how often what is waited for is said. Refuses: knowing
what happened (`recorder.views.status.events`, `proxy.supervision.up`).

What happens in the store, told as it happens, for as long as `hone up` runs.

Owns: waiting for changes and telling them. Refuses: what happened (`recorder.views.status.events`) and how a line looks
(`proxy.supervision.console`). While nothing changes the store is not asked: the watch knows.
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

from recorder.base.json_output import write_json_line
from recorder.base.terminal import build_table, clean, clean_line
from recorder.errors import StoreError
from recorder.store.changes import Topic
from recorder.store.database import Project
from recorder.views.status.events import EventReader
from recorder.views.status.forecast import GroupForecast, forecast_groups
from recorder.views.status.stage_facts import read_stages
from recorder.views.status.stages import LoopSettings, Stage, StageStatus

WAITING: Final = "waiting"
SAID_EVERY_S: Final = 15.0  # in a log, what is waited for is not said more often
_STYLES: Final = {
    "up": "green", "ready": "bold green", "swap": "bold green", "step": "cyan", "judged": "cyan", "gate": "cyan",
    "fine": "green", "note": "yellow", "restarting": "yellow", "rollback": "yellow", "excluded": "yellow",
    "fault": "red", "failed": "red", "wrong": "red", "starting": "dim", "stopped": "dim", "waiting": "dim",
}  # fmt: skip
_NOTHING: Final[Mapping[str, Any]] = {}


@dataclass(frozen=True, slots=True)
class ProgramLine:
    """One program as it is shown: its state, and what there is to say of it."""

    name: str
    state: str
    detail: str


class ConsoleOutput(Protocol):
    """Where lines go."""

    refresh_s: float | None  # how often `waits` wants to be called though nothing changed; None: never

    def tell(self, event: str, text: str, facts: Mapping[str, Any] = _NOTHING) -> None:
        """Something happened."""

    def programs(self, shown: Sequence[ProgramLine], changed: ProgramLine) -> None:
        """A program is not as it was."""

    def waits(self, waiting: GroupForecast, at: float, stages: Sequence[StageStatus] = ()) -> None:
        """What is waited for at `at` (unix seconds)."""

    def close(self) -> None:
        """Nothing more is told."""


class LineOutput:
    """A line a thing, for a log. What is waited for is said when its numbers change, but not too often."""

    refresh_s: float | None = SAID_EVERY_S

    def __init__(self, console: Console) -> None:
        self._console = console
        self._said = ""
        self._said_at = float("-inf")

    def tell(self, event: str, text: str, facts: Mapping[str, Any] = _NOTHING) -> None:
        """Print it, each further line of it set in."""
        first, *more = text.splitlines() or [""]
        told = Text(f"{time.strftime('%H:%M:%S')}  ", style="dim")
        told.append(f"{event:<10}", style=_STYLES.get(event, ""))
        told.append("\n".join([clean(first), *(f"{'':<20}{clean(one)}" for one in more)]))
        self._console.print(told)

    def programs(self, shown: Sequence[ProgramLine], changed: ProgramLine) -> None:
        """Print the one that changed."""
        if changed.state != "starting":
            self.tell(changed.state, f"{changed.name} {changed.detail}".rstrip())

    def waits(self, waiting: GroupForecast, at: float, stages: Sequence[StageStatus] = ()) -> None:
        """Print it where it is news, and it was not said just now."""
        text, now = "\n".join([waiting.sentence(times=False), *_sentences(stages)]), time.monotonic()
        if text != self._said and now - self._said_at >= SAID_EVERY_S:
            self._said, self._said_at = text, now
            self.tell(WAITING, "\n".join([waiting.sentence(at), *_sentences(stages)]))

    def close(self) -> None:
        """Nothing is held back."""


class LiveOutput(LineOutput):
    """A terminal: lines above, and below them the programs and what is waited for, as they are now."""

    refresh_s: float | None = 1.0

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._shown: Sequence[ProgramLine] = ()
        self._waiting = ""
        self._live = Live(self._table(), console=console, auto_refresh=False)  # drawn when something changed
        self._live.start()

    def programs(self, shown: Sequence[ProgramLine], changed: ProgramLine) -> None:
        """Draw all of them; what went wrong with one stays as a line."""
        self._shown = list(shown)
        if changed.state in ("restarting", "failed") and changed.detail:
            super().programs(shown, changed)
        self._draw()

    def waits(self, waiting: GroupForecast, at: float, stages: Sequence[StageStatus] = ()) -> None:
        """Draw it, with its times counted down."""
        text = "\n".join([waiting.sentence(at), *_sentences(stages)])
        if text != self._waiting:
            self._waiting = text
            self._draw()

    def close(self) -> None:
        """Leave the terminal as it is."""
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
    """A JSON object a line, for a program: `at`, `event`, `text` and the facts."""

    refresh_s: float | None = None

    def __init__(self, console: Console) -> None:
        self._console = console
        self._said = ""

    def tell(self, event: str, text: str, facts: Mapping[str, Any] = _NOTHING) -> None:
        """Print it."""
        write_json_line({"at": time.time(), "event": event, "text": text, **facts}, self._console.file)

    def programs(self, shown: Sequence[ProgramLine], changed: ProgramLine) -> None:
        """Print the one that changed."""
        facts = {"program": changed.name, "detail": changed.detail}
        self.tell(changed.state, f"{changed.name} {changed.state}", facts)

    def waits(self, waiting: GroupForecast, at: float, stages: Sequence[StageStatus] = ()) -> None:
        """Print it where the numbers or a stage's sentence changed; `due` and `until` have the times."""
        text = waiting.sentence(times=False)
        said = "\n".join([text, *_sentences(stages)])
        if said != self._said:
            self._said = said
            facts: dict[str, Any] = {"groups": dict(waiting.groups), "open_trajectories": waiting.open_trajectories}
            facts["due_in_s"] = {state: waiting.in_s(state, at) for state in waiting.due}
            self.tell(WAITING, text, facts | {"stages": [asdict(one) for one in stages]})

    def close(self) -> None:
        """Nothing is held back."""


def choose_output(console: Console, *, as_json: bool) -> ConsoleOutput:
    """Where lines go, for this terminal, file or program."""
    if as_json:
        return JsonOutput(console)
    return LiveOutput(console) if console.is_terminal else LineOutput(console)


def _sentences(stages: Sequence[StageStatus]) -> list[str]:
    """What judging and learning wait for; what is recorded, the groups say."""
    aliases = {one.alias for one in stages if one.alias is not None}
    named = len(aliases) > 1
    return [
        f"{one.alias}: {one.text}" if named and one.alias is not None else one.text
        for one in stages
        if one.stage is not Stage.RECORDING
    ]


def _first_line(text: str) -> str:
    return (text.splitlines() or [""])[0]


BREATH_S = 0.5  # between two looks, however much happens: what comes meanwhile is one batch


class EventPrinter:
    """One project's news. `await remember()`, then `await run()` until cancelled.

    `starting`: URLs of engines that are being started now.
    """

    def __init__(
        self,
        project: Project,
        settings: LoopSettings,
        telling: ConsoleOutput,
        *,
        starting: Collection[str] = (),
    ) -> None:
        self._project = project
        self._settings = settings
        self._telling = telling
        self._happenings = EventReader(project, starting=starting)
        self._waiting: GroupForecast | None = None
        self._stages: Sequence[StageStatus] = ()
        self._ahead_s = 0.0  # of the database's clock before ours
        self._away = False

    async def remember(self) -> None:
        """Look for the first time: what changes after this is news, however late `run` gets to it."""
        await self._look()

    async def run(self) -> None:
        """Tell everything from now on."""
        with self._project.store.watch.on(
            Topic.GROUPS, Topic.SERVICE, Topic.ENGINES, Topic.RUNS, Topic.CAMPAIGNS
        ) as news:
            while True:
                if await news.wait(self._within_s()) or self._is_outdated():
                    await self._look()
                if self._waiting is not None:
                    self._telling.waits(self._waiting, self._now(), self._stages)
                await asyncio.sleep(BREATH_S)

    def _now(self) -> float:
        return time.time() + self._ahead_s

    def _changes_at(self) -> float | None:
        """The next moment that time alone may change a stage."""
        looked_at = self._waiting.at if self._waiting is not None else 0.0
        moments = (one.until for one in self._stages if one.until is not None and one.until > looked_at)
        return min(moments, default=None)

    def _is_outdated(self) -> bool:
        changes_at = self._changes_at()
        return changes_at is not None and changes_at <= self._now()

    def _within_s(self) -> float | None:
        """How long to wait for a change of the store."""
        changes_at, refresh_s = self._changes_at(), self._telling.refresh_s
        waits = [refresh_s, None if changes_at is None else max(0.0, changes_at - self._now())]
        return min((wait_s for wait_s in waits if wait_s is not None), default=None)

    async def _look(self) -> None:
        try:
            told = await self._happenings.look()
            self._waiting = await forecast_groups(self._project, self._settings.recorder)
            self._stages = await read_stages(self._project, self._settings, self._waiting)
        except StoreError as e:
            if not self._away:
                self._telling.tell("fault", f"the store cannot be read: {e}")
            self._away = True
            return
        self._away = False
        self._ahead_s = self._waiting.at - time.time()
        for one in told:
            self._telling.tell(one.kind, one.text, one.facts)
