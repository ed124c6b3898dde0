"""Stores of tests in the browser, each behind a proxy on a port of its own."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final

from proxy.programs.run_file import RUN_FILE, JobRun, SupervisedProgram, remove_run_file, write_run_file
from proxy.programs.service import ProgramService
from proxy.programs.start_request import Job
from recorder.settings import RecorderSettings
from recorder.store.bootstrap import open_store
from tests.proxy.fake_engine import FakeEngine
from tests.proxy.running import Proxy, serving

LOG: Final = ("proxy for helpdesk at http://127.0.0.1:8700/v1", "<b>a request</b> failed", "x" * 300)
JOBS: Final = (
    Job("campaign", ("train",), "Trains over the scenarios of [campaign]."),
    Job("evaluation-test", ("eval", "--versions", "live,base", "--scenarios", "test.jsonl"), "Compares live and base."),
)


@contextmanager
def supervised(data: Path) -> Iterator[ProgramService]:
    """The programs of a data folder as under a `hone up`, of which the proxy has a log."""
    (data / "logs").mkdir(mode=0o700, exist_ok=True)
    (data / "logs" / "proxy.log").write_text("".join(f"{line}\n" for line in LOG))
    programs = [SupervisedProgram("proxy", "up"), SupervisedProgram("learn", "failed", "ended (exit status 1)")]
    job = JobRun("campaign", "failed", "somebody on this machine", 1.0, None, "ended (exit status 2)")
    write_run_file(data, proxy_url="http://p", engine_urls=["http://e"], pids={}, programs=programs, job=job)
    file = data / RUN_FILE
    file.write_text(json.dumps(json.loads(file.read_text()) | {"written_at": 4e9}))  # whatever the clock says
    try:
        yield ProgramService(data, JOBS, (), ("default", "strict"))
    finally:
        remove_run_file(data)


@asynccontextmanager
async def served(data: Path) -> AsyncIterator[Proxy]:
    """A proxy before the store of a data folder, which is made where there is none."""
    store = await open_store(data, RecorderSettings(), migrate=True)
    try:
        with supervised(data) as programs:
            async with FakeEngine() as engine, serving(store, engine, programs=programs) as running:
                yield running
    finally:
        await store.close()


def copied(data: Path, to: Path) -> Path:
    """Another store with the same in it."""
    to.mkdir(mode=0o700)
    for name in ("hone.db", "hone.db-wal"):
        if (data / name).exists():
            shutil.copy(data / name, to / name)
    return to
