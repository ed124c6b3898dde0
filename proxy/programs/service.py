"""What pages and `/hone/v1` show of the programs of `hone up`, and what they may ask of it.

Owns: which logs may be read, by the names in run.json alone, and refusing what cannot be started now. Refuses: who may
do it (the callers), reading a log (`proxy.programs.log_files`), and starting (`proxy.supervision.jobs`).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from proxy.errors import StateConflict, Unavailable, UnknownObject
from proxy.programs import log_files, run_file
from proxy.programs.log_files import LogPart
from proxy.programs.run_file import JobRun, SupervisedProgram
from proxy.programs.start_request import TRIAL, Job, StartRequest, leave_request, trial_job

_NAME: Final = re.compile(r"[a-z][a-z0-9-]{0,40}")  # of a program: never a path
NO_SUPERVISOR: Final = "this proxy does not run under `hone up`, which keeps the logs of its programs and starts others"


@dataclass(frozen=True, slots=True)
class DeclaredJob:
    """What hone.toml declares and a page may start. `command`: how a person starts it."""

    name: str
    about: str
    command: str


@dataclass(frozen=True, slots=True)
class ProgramsView:
    """The programs of this `hone up`, what it may start, and what it started last."""

    supervised: bool  # without `hone up`, there are no programs, and nothing can be started from here
    programs: Sequence[SupervisedProgram]
    logs: Sequence[str]  # the names of programs and jobs whose log can be read
    jobs: Sequence[DeclaredJob]
    job: JobRun | None


class ProgramService:
    """The programs of one data folder. `secrets`: values that no log may show; `recipes`: of judges, to be tried."""

    def __init__(
        self,
        data: Path | None,
        jobs: Sequence[Job] = (),
        secrets: Collection[str] = (),
        recipes: Sequence[str] = (),
    ) -> None:
        self._data = data
        self._jobs = tuple(jobs)
        self._secrets = frozenset(secrets)
        self.recipes = tuple(recipes)

    async def view(self) -> ProgramsView:
        """The programs now."""
        return await asyncio.to_thread(self._view)

    async def read_log(self, name: str, *, after: int | None = None, lines: int = log_files.MOST_LINES) -> LogPart:
        """The last lines of a program's log, or those after a place in it. Raises UnknownObject, Unavailable."""
        return await asyncio.to_thread(self._read_log, name, after, lines)

    async def request(self, action: Literal["start", "stop"], job: str, by: str) -> None:
        """Ask `hone up` to start a job, or to stop it. Raises UnknownObject, StateConflict."""
        declared = next((one for one in self._jobs if one.name == job), None)
        if declared is None and (action, job) == ("stop", TRIAL):
            declared = trial_job("", "")
        if declared is None:
            names = ", ".join(one.name for one in self._jobs) or "nothing: [campaign] has no scenarios or no agent"
            raise UnknownObject(f"hone.toml declares no {job[:60]!r} to {action}; it declares {names}.")
        await asyncio.to_thread(self._request, declared, StartRequest(action, job, by))

    async def request_trial(self, group: str, recipe: str, by: str) -> None:
        """Ask `hone up` to judge a group (its id) by a recipe, without a score. Raises UnknownObject, StateConflict."""
        if recipe not in self.recipes:
            raise UnknownObject(f"hone.toml declares no judge recipe {recipe[:60]!r}: use {', '.join(self.recipes)}.")
        job = trial_job(recipe, group)
        await asyncio.to_thread(self._request, job, StartRequest("start", TRIAL, by, recipe, group))

    def _view(self) -> ProgramsView:
        run = run_file.read_run_file(self._data) if self._data is not None else None
        jobs = [DeclaredJob(one.name, one.about, one.command) for one in self._jobs]
        if run is None:
            return ProgramsView(False, (), (), jobs, None)
        programs, job = run_file.list_programs(run), run_file.find_job(run)
        started = [*(one.name for one in self._jobs), TRIAL]
        names = [one.name for one in programs] + [name for name in started if self._log(name).exists()]
        return ProgramsView(True, programs, [name for name in names if _NAME.fullmatch(name)], jobs, job)

    def _log(self, name: str) -> Path:
        assert self._data is not None
        return self._data / "logs" / f"{name}.log"

    def _read_log(self, name: str, after: int | None, lines: int) -> LogPart:
        known = self._view()
        if not known.supervised:
            raise UnknownObject(f"there is no log {name[:60]!r}: {NO_SUPERVISOR}.")
        if name not in known.logs:
            raise UnknownObject(f"there is no log {name[:60]!r}: use {', '.join(known.logs) or 'none'}.")
        try:
            if after is None:
                return log_files.read_tail(self._log(name), self._secrets, lines)
            return log_files.read_after(self._log(name), after, self._secrets, lines)
        except OSError as e:
            raise Unavailable(f"the log of {name} cannot be read: {e.strerror}.") from e

    def _request(self, job: Job, request: StartRequest) -> None:
        known = self._view()
        if not known.supervised or self._data is None:
            raise StateConflict(f"{NO_SUPERVISOR}: run `{job.command}`.")
        running = known.job.job if known.job is not None and known.job.state == "running" else None
        if request.action == "start" and running is not None:
            raise StateConflict(f"{running} runs already, and only one runs at a time: wait for its end, or stop it.")
        if request.action == "stop" and running != job.name:
            raise StateConflict(f"{job.name} does not run now.")
        try:
            leave_request(self._data, request)
        except FileExistsError as e:
            raise StateConflict("`hone up` has not served the last request yet: try again in a second.") from e
