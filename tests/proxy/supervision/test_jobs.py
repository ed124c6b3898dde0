"""What a page asked for runs as a child: one at a time, by name, until it ends or is stopped."""

from __future__ import annotations

import asyncio
import io
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from rich.console import Console

from proxy.programs.run_file import JobRun
from proxy.programs.start_request import REQUEST_FILE, Job, StartRequest, has_request, leave_request
from proxy.supervision import jobs
from proxy.supervision.console import LineOutput
from proxy.supervision.jobs import JobRunner
from proxy.supervision.supervisor import Program
from recorder.base.errors import PAUSED
from tests.proxy.until import until

pytestmark = pytest.mark.slow  # programs

ENDS = Job("campaign", ("print('it learns')",), "")
FAILS = Job("evaluation-test", ("raise SystemExit(7)",), "")
PAUSES = Job("evaluation-training", (f"raise SystemExit({PAUSED})",), "")
LASTS = Job("evaluation-validation", ("import time; print('begun', flush=True); time.sleep(600)",), "")


JOBS = {job.name: job for job in (ENDS, FAILS, PAUSES, LASTS)}


@dataclass
class JobServer:
    """A runner that serves the requests of a folder. `told`: what run.json was told."""

    data: Path
    out: io.StringIO
    told: list[JobRun] = field(default_factory=list)
    runner: JobRunner | None = None

    def ask(self, job: Job, action: str = "start") -> None:
        leave_request(self.data, StartRequest(action, job.name, "key_1"))  # type: ignore[arg-type]

    async def becomes(self, job: Job, state: str) -> JobRun:
        def found() -> JobRun | None:
            run = self.runner.run if self.runner is not None else None
            return run if run is not None and (run.job, run.state) == (job.name, state) else None

        return await until(found)


@asynccontextmanager
async def serving(data: Path) -> AsyncIterator[JobServer]:
    served = JobServer(data, io.StringIO())

    def program(job: Job) -> Program:
        argv = (sys.executable, "-c", *job.arguments)
        return Program(name=job.name, argv=argv, log=data / "logs" / f"{job.name}.log", grace_s=5)

    def changed() -> None:
        assert served.runner is not None
        assert served.runner.run is not None
        served.told.append(served.runner.run)

    output = LineOutput(Console(file=served.out, width=200))
    served.runner = JobRunner(data, lambda one: JOBS.get(one.job), program, output, changed)
    async with served.runner.serving():
        yield served


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "LOOK_S", 0.02)


async def test_a_job_runs_to_its_end_with_its_output_in_its_log(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        served.ask(ENDS)
        run = await served.becomes(ENDS, "finished")
        assert run.ended_at is not None
        assert run.by == "key_1"
        assert [one.state for one in served.told] == ["running", "finished"]
        assert (tmp_path / "logs" / "campaign.log").read_text() == "it learns\n"
        assert not has_request(tmp_path)
        served.ask(FAILS)
        run = await served.becomes(FAILS, "failed")
        assert "exit status 7" in run.detail
        served.ask(PAUSES)
        await served.becomes(PAUSES, "paused")
    assert "campaign finished" in served.out.getvalue()


async def test_a_second_job_is_refused_and_the_first_can_be_stopped(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        served.ask(LASTS)
        await served.becomes(LASTS, "running")
        served.ask(ENDS)
        await until(lambda: not has_request(tmp_path))
        assert "refused: another job runs" in served.out.getvalue()
        served.ask(ENDS, "stop")  # not the one that runs
        await until(lambda: not has_request(tmp_path))
        await served.becomes(LASTS, "running")
        served.ask(LASTS, "stop")
        await served.becomes(LASTS, "stopped")
        served.ask(ENDS)
        await served.becomes(ENDS, "finished")


async def test_a_job_ends_with_hone_up(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        served.ask(LASTS)
        log = tmp_path / "logs" / f"{LASTS.name}.log"
        await until(lambda: log.exists() and log.read_text() == "begun\n")
    assert served.told[-1].state == "stopped"
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_what_is_not_declared_no_request_and_one_from_before_are_dropped(tmp_path: Path) -> None:
    leave_request(tmp_path, StartRequest("start", ENDS.name, "key_1"))
    async with serving(tmp_path) as served:
        assert not has_request(tmp_path)
        served.ask(Job("shell", (), ""))
        await until(lambda: not has_request(tmp_path))
        (tmp_path / REQUEST_FILE).write_text("rm -rf")
        await until(lambda: not has_request(tmp_path))
        assert served.told == []
    assert "hone.toml does not declare it" in served.out.getvalue()
