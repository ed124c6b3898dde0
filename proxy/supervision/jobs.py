"""What pages have `hone up` start: one campaign or evaluation of hone.toml at a time, as a child process.

Owns: serving the requests that pages leave in the data folder, the child's life and log, and what run.json says of it.
Refuses: what may be started, and requests (`proxy.programs.start_request`). A job is not restarted: `hone train` goes
on with an unfinished campaign when it is started again. It ends with `hone up`.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from proxy.programs.run_file import JobRun
from proxy.programs.start_request import Job, StartRequest, drop_request, has_request, read_request
from proxy.supervision.console import ConsoleOutput
from proxy.supervision.supervisor import Program, describe_end, end_program, launch_program
from recorder.base.errors import PAUSED

LOOK_S: Final = 0.5


class JobRunner:
    """Runs the jobs of one `hone up`.

    `find`: the job of a request, or None if hone.toml does not declare it; `program`: the child of a job; `changed` is
    called after every change of `run`.
    """

    def __init__(
        self,
        data: Path,
        find: Callable[[StartRequest], Job | None],
        program: Callable[[Job], Program],
        output: ConsoleOutput,
        changed: Callable[[], None],
    ) -> None:
        self._data = data
        self._find = find
        self._program = program
        self._output = output
        self._changed = changed
        self._task: asyncio.Task[None] | None = None
        self._stopping = False
        self.run: JobRun | None = None

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Serve requests until the block ends, then end the job. A request from before is dropped."""
        drop_request(self._data)
        task = asyncio.create_task(self._serve(), name="serve requests of pages")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await self._stop()
            drop_request(self._data)

    async def _serve(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            if not has_request(self._data):
                continue
            request = read_request(self._data)
            try:
                if request is not None and request.action == "stop":
                    await self._stop(request)
                elif request is not None:
                    self._start(request)
            finally:
                drop_request(self._data)  # after run.json has it, so that no second request comes between

    def _start(self, request: StartRequest) -> None:
        job = self._find(request)
        if job is None or self._task is not None:
            why = "hone.toml does not declare it" if job is None else "another job runs"
            self._output.tell("warning", f"a page asked to start {request.job[:60]!r}, refused: {why}", {})
            return
        self._stopping = False
        self._become(JobRun(job.name, "running", request.by, time.time()))
        self._output.tell("job", f"{job.command}, started from a page by {request.by}", {"job": job.name})
        self._task = asyncio.create_task(self._follow(job), name=f"job {job.name}")

    async def _stop(self, request: StartRequest | None = None) -> None:
        """End the job that runs; with a request, only the one that it names."""
        if self._task is None or (request is not None and (self.run is None or self.run.job != request.job)):
            return
        self._stopping = True
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _follow(self, job: Job) -> None:
        assert self.run is not None
        began, program = self.run, self._program(job)
        state, detail = began, ""
        process = None
        try:
            process, _ = await launch_program(program)
            state, detail = _outcome(began, await process.wait())
        except OSError as e:
            state, detail = replace(began, state="failed"), f"could not be started: {e}"
        finally:
            if process is not None:
                await end_program(process)
            self._task = None
            if self._stopping:
                state, detail = replace(began, state="stopped"), "stopped"
            self._become(replace(state, ended_at=time.time(), detail=detail))
            self._output.tell("job", f"{job.name} {state.state}. Its log: {program.log}", {"job": job.name})

    def _become(self, run: JobRun) -> None:
        self.run = run
        self._changed()


def _outcome(began: JobRun, status: int) -> tuple[JobRun, str]:
    if status == 0:
        return replace(began, state="finished"), ""
    if status == PAUSED:
        return replace(began, state="paused"), "a health rule paused it"
    return replace(began, state="failed"), f"ended ({describe_end(status)}): its log has the reason"
