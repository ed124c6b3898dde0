"""A proxy that is asked hostile things: how many cases are tried, and what holds after each.

`HONE_FUZZ_CASES=3000 pytest tests/proxy/serving/test_hostile_engines.py` tries so many of each kind, others than the
last time (`make long`: 20,000); without the variable they are 200, of which `make test` tries the first 60, and the
same ones each time.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import shutil
from pathlib import Path
from typing import Any

import httpx
from hypothesis import HealthCheck, settings
from sqlalchemy import select

from proxy.settings.sections import ProxySettings
from recorder.maintenance.export import raw_lines
from recorder.messages import tokens
from recorder.settings import RecorderSettings
from recorder.store.bootstrap import open_store
from recorder.store.database import Project
from recorder.store.schema import calls, choices
from tests.effort import scaled
from tests.proxy.raw_engine import RawEngine
from tests.proxy.running import PROJECT, Proxy, serving

CASES = int(os.environ.get("HONE_FUZZ_CASES", scaled(200)))
TIMEOUT_S = max(600, CASES)  # of a test: a case takes some 30 ms on a machine that has time
HANG_S = 60.0  # an answer that takes longer is none
fuzzed = settings(
    max_examples=CASES,
    deadline=None,
    derandomize="HONE_FUZZ_CASES" not in os.environ,
    database=None,
    suppress_health_check=list(HealthCheck),
)


class Fuzzed:
    """A proxy before an engine, on a loop of its own, which runs while a case is tried."""

    def __init__(self, folder: Path, migrated_file: Path, *, silence_s: float = HANG_S) -> None:
        """`silence_s`: how long the engine may say nothing."""
        self._folder = folder
        self._migrated_file = migrated_file
        self._silence_s = silence_s
        self._runner = asyncio.Runner()
        self._faults = _Faults()
        self.engine: RawEngine
        self.proxy: Proxy
        self.earlier = ""  # the id of an answer that can be gone on from

    def __enter__(self) -> Fuzzed:
        shutil.copy(self._migrated_file, self._folder / "hone.db")
        self._stop = asyncio.Event()
        ready = self._runner.get_loop().create_future()
        self._serving = self._runner.get_loop().create_task(self._serve(ready))
        self._runner.run(_until(ready, self._serving))
        logging.getLogger().addHandler(self._faults)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        logging.getLogger().removeHandler(self._faults)
        try:
            if kind is None:
                self._runner.run(self._all_can_be_read())
        finally:
            self._stop.set()
            self._runner.run(_until(self._serving, self._serving))
            self._runner.close()

    async def _serve(self, ready: asyncio.Future[None]) -> None:
        """In one task from its begin to its end, as what it enters demands."""
        store = await open_store(self._folder, RecorderSettings(), migrate=False)
        patience = ProxySettings(port=0, first_byte_timeout_s=self._silence_s, connect_timeout_s=1)
        async with RawEngine() as self.engine, serving(store, self.engine, settings=patience) as self.proxy:
            self.proxy.http.timeout = httpx.Timeout(HANG_S)
            ready.set_result(None)
            await self._stop.wait()
        await store.close()

    def post(self, path: str, body: bytes) -> httpx.Response:
        """Ask; what an answer says of its calls must hold of their rows."""
        return self._runner.run(self._post(path, body))

    async def _post(self, path: str, body: bytes) -> httpx.Response:
        headers = {"content-type": "application/json"}
        answer = await self.proxy.http.post(path, content=body, headers=headers)
        assert not {"location", "set-cookie"} & answer.headers.keys()
        return answer

    def get(self, path: str) -> httpx.Response:
        """Ask for something that is there."""
        return self._runner.run(self.proxy.http.get(path))

    def states(self, answer: httpx.Response) -> list[str]:
        """The states of an answer's calls. What was trained on is what may be, and nothing failed by a fault."""
        return self._runner.run(self._states(answer.headers.get_list("x-hone-call")))

    async def _states(self, ids: list[str]) -> list[str]:
        faults, self._faults.said = self._faults.said, []
        assert faults == []
        async with self.proxy.store.read() as conn:
            states = dict(map(tuple, await conn.execute(select(calls.c.id, calls.c.state).where(calls.c.id.in_(ids)))))
            trained = choices.c.trainable.is_(True) & choices.c.call_id.in_(ids)
            for row in await conn.execute(select(choices).where(trained)):
                _require_trainable(row)
        return [states[id_] for id_ in ids]  # each has a row

    async def _all_can_be_read(self) -> None:
        """Every call can be read back, and each has ended."""
        states = {line["status"] async for line in raw_lines(Project(self.proxy.store, PROJECT))}
        assert states <= {"complete", "errored", "aborted", "superseded"}


def _require_trainable(choice: Any) -> None:
    ids, logprobs = tokens.unpack_ids(choice.token_ids), tokens.unpack_logprobs(choice.logprobs)
    assert len(ids) == len(logprobs) > 0
    assert min(ids) >= 0
    assert all(map(math.isfinite, logprobs))
    assert max(logprobs) <= 0.01


class _Faults(logging.Handler):
    """What is logged as an error: an exception that reached the server, a call that is not recorded."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(logging.Formatter().format(record))


async def _until(done: asyncio.Future[None], serving_: asyncio.Task[None]) -> None:
    await asyncio.wait({done, serving_}, return_when=asyncio.FIRST_COMPLETED)
    if serving_.done():
        serving_.result()
