"""`hone up` as a child process, with its output read line by line.

Owns: starting and ending it, and its log. Refuses: what the lines mean (`examples.live.telling`).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any, Final

from examples.running.programs import ROOT

STOP_S: Final = 90.0
LONGEST_LINE: Final = 1 << 20

Line = dict[str, Any]  # `at`, `event`, `text` and facts


@contextlib.asynccontextmanager
async def hone_up(
    data: Path, config: Path, environment: Mapping[str, str], tell: Callable[[Line], None]
) -> AsyncIterator[None]:
    """Run all of Hone until the block ends; begin the block when Hone is ready. `tell` gets each line of logs/up.jsonl.

    Raises RuntimeError if it ends by itself.
    """
    command = [sys.executable, "-m", "proxy.cli", "up", "--json", "--config", str(config), "--data", str(data)]
    with (data / "logs" / "up.jsonl").open("wb") as log, (data / "logs" / "up.log").open("wb") as said:
        up = await asyncio.create_subprocess_exec(
            *command, stdout=PIPE, stderr=said, cwd=ROOT, env=environment, limit=LONGEST_LINE
        )
        ready = asyncio.Event()

        async def follow() -> None:
            assert up.stdout is not None
            async for raw in up.stdout:
                log.write(raw)
                line = json.loads(raw)
                if line["event"] == "ready":
                    ready.set()
                tell(line)

        following = asyncio.create_task(follow(), name="hone up")
        try:
            await _either(ready, up, data)
            yield
            if up.returncode is not None:
                raise RuntimeError(f"hone up ended by itself: see {data / 'logs'}")
        finally:
            await _end(up)
            await following


async def _either(ready: asyncio.Event, up: Process, data: Path) -> None:
    """Return when Hone is ready. Raises RuntimeError if it ends before."""
    waits = [asyncio.create_task(ready.wait()), asyncio.create_task(up.wait())]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()
    if not ready.is_set():
        raise RuntimeError(f"hone up did not start: see {data / 'logs'}")


async def _end(up: Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        up.terminate()
    try:
        await asyncio.wait_for(up.wait(), STOP_S)
    except TimeoutError:
        up.kill()
        await up.wait()
