"""Reward functions, run in long-lived child processes with the user's Python and in the user's folder.

Owns: what a function sees of a run; starting, asking, timing out and killing the processes, and starting them anew
where the code was edited.
Refuses: what a function means; it never imports one.
An exception, a wrong result, a crash or a hang marks the one call; a process that cannot start is `FunctionsDown`.
A line that answers no question (a late one, one that a function or a process of its own wrote) ends the process. If
that had answered calls before, one of these may have left it: the call is made once more, in a process that is new, and
then a line out of place is its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

from judge.errors import FunctionsDown
from judge.settings import JudgeSettings
from recorder.child_env import environment
from recorder.litellm_edge import without_secrets
from recorder.reading.views import TrajectoryView

HOST = Path(__file__).with_name("function_host.py")
LINE_LIMIT_BYTES = 16 * 1024 * 1024
LAST_LINES = 5
MAX_SHOWN_BYTES = 100  # of a line that was not asked for


@dataclass(frozen=True, slots=True)
class Result:
    """What one call gave: a finite number, or None and why there is none. `extra`: named numbers beside it."""

    score: float | None
    explanation: str | None = None
    extra: Mapping[str, float] = field(default_factory=dict)


def for_function(member: TrajectoryView) -> dict[str, Any]:
    """What a reward function sees of a trajectory, as JSON."""
    scenario = member.scenario
    return {
        "id": member.id,
        "messages": [dict(message) for message in member.messages],
        "tools": [dict(tool) for tool in member.tools or ()],
        "answer": member.answer,
        "tags": dict(member.tags),
        "scenario": scenario
        and {
            "id": scenario.id,
            "split": scenario.split,
            "input": scenario.input,
            "reference": scenario.reference,
            "rubric": scenario.rubric,
        },
    }


class FunctionPool:
    """`judge.function_processes` processes that run the reward functions. Close with `close()`."""

    def __init__(self, settings: JudgeSettings, checks: Sequence[str] = ()) -> None:
        """Runs the functions of the settings, or the `checks`, of which one that cannot be imported fails alone."""
        functions = checks or sorted({reward.function for reward in settings.in_force() if reward.function})
        self._free: asyncio.LifoQueue[_Child] = asyncio.LifoQueue()  # the last used first: idle ones never start
        self._all = [_Child(settings, functions, wants_all=not checks) for _ in range(settings.function_processes)]
        for child in self._all:
            self._free.put_nowait(child)
        self.loaded = ""  # what `code` said last

    async def code(self) -> str:
        """A hash of the functions' code as it is on disk now: ask it before the calls that are to be made with it.

        What is called from then on is this code, loaded anew where it was edited. Raises FunctionsDown.
        """
        child = await self._free.get()
        try:
            self.loaded = await child.fresh()
            return self.loaded
        finally:
            self._free.put_nowait(child)

    async def call(self, function: str, trajectory: Mapping[str, Any]) -> Result:
        """Call one of the functions.

        Raises:
            FunctionsDown: the process does not start, or cannot import the functions.
        """
        child = await self._free.get()
        try:
            if self.loaded and child.code != self.loaded:
                self.loaded = await child.fresh()  # edited once more since then: the newest counts
            return await child.call(function, trajectory)
        finally:
            self._free.put_nowait(child)

    async def close(self) -> None:
        """Kill the processes."""
        for child in self._all:
            await child.kill()


class _Child:
    """One process, started when it is first needed and again after it died. One call at a time."""

    def __init__(self, settings: JudgeSettings, functions: Sequence[str], *, wants_all: bool) -> None:
        self._settings = settings
        self._functions = functions
        self._wants_all = wants_all
        self._whole = True  # whether every function could be imported
        self._process: Process | None = None
        self._starting: asyncio.Future[Process] | None = None
        self._said: deque[str] = deque(maxlen=LAST_LINES)
        self._listener: asyncio.Task[None] | None = None
        self._used = False  # whether the process was asked anything yet
        self._files: tuple[Path, ...] = ()  # the user's own, that were loaded
        self.code = ""  # the hash of their content when they were

    async def fresh(self) -> str:
        """Have the code loaded that is on disk now; its hash."""
        if not self._runs() or await self._edited():
            await self.kill()
            await self._start()
        return self.code

    async def _edited(self) -> bool:
        if not self._whole:  # nobody knows which file would mend what could not be imported
            return True
        return await asyncio.to_thread(hash_of, self._files, self._settings.folder) != self.code

    def _runs(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def call(self, function: str, trajectory: Mapping[str, Any]) -> Result:
        if not self._runs():  # killed from outside, between two calls
            await self.kill()
            await self._start()
        used, self._used = self._used, True
        limit_s = self._settings.function_timeout_s
        try:
            async with asyncio.timeout(limit_s):
                reply = await self._ask({"function": function, "trajectory": trajectory})
        except TimeoutError:
            await self.kill()
            return Result(None, f"took longer than {limit_s:g} s (judge.function_timeout_s) and was killed")
        except _Astray as e:
            await self.kill()
            if used:
                return await self.call(function, trajectory)
            return Result(None, f"something wrote into Hone's pipe, and its process was killed: {e}")
        except _Died:
            return Result(None, f"its process died ({await self.kill()})")
        except BaseException:  # cancelled in the middle: a late reply must not answer the next call
            await self.kill()
            raise
        return _result(reply)

    async def _start(self) -> None:
        python = self._settings.python or Path(sys.executable)
        self._said.clear()
        self._used = False
        try:
            # -B: compiled files know their source by size and second alone, and would hide a quick edit
            starting = asyncio.create_subprocess_exec(
                python, "-B", HOST, stdin=PIPE, stdout=PIPE, stderr=PIPE, limit=LINE_LIMIT_BYTES,
                cwd=self._settings.folder, env=environment(self._settings.function_env), start_new_session=True,
            )  # fmt: skip
            self._starting = asyncio.ensure_future(starting)
            # Shielded: a start that is cut off would leave a process that nobody knows of; `kill` ends it.
            self._process = await asyncio.shield(self._starting)
        except OSError as e:
            raise FunctionsDown(
                "functions_down",
                f"{python} could not be started in {self._settings.folder.absolute()} to run reward functions: {e}. "
                "See judge.python and judge.folder.",
            ) from e
        self._listener = asyncio.create_task(self._listen(self._process))
        try:
            async with asyncio.timeout(self._settings.function_start_s):
                said = await self._ask({"functions": self._functions, "all": self._wants_all})
            why = said.get("failed")
        except TimeoutError:
            why = f"importing took longer than {self._settings.function_start_s:g} s (judge.function_start_s)"
        except _Astray as e:
            why = f"it wrote into Hone's pipe: {e}"
        except _Died:
            why = "its process died"
        except BaseException:  # cancelled in the middle: half started is not started
            await self.kill()
            raise
        if why is not None:
            end = await self.kill()
            raise FunctionsDown(
                "functions_down",
                f"the reward functions {', '.join(self._functions)} cannot be imported by {python} in "
                f"{self._settings.folder.absolute()}: {without_secrets(why)} ({end}). See judge.rewards, judge.python "
                "and judge.folder.",
            )
        self._files, self._whole = tuple(map(Path, said["files"])), said["whole"]
        self.code = await asyncio.to_thread(hash_of, self._files, self._settings.folder)

    async def _ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request and return what answers it. Raises _Died, and _Astray for a line that answers another."""
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        id_ = secrets.token_hex(8)
        try:
            self._process.stdin.write(json.dumps({"id": id_, **request}).encode() + b"\n")
            await self._process.stdin.drain()
            line = await self._process.stdout.readline()
        except (OSError, ValueError) as e:  # a broken pipe; a line without an end
            raise _Died from e
        if not line.endswith(b"\n"):
            raise _Died
        return _answer_to(id_, line)

    async def _listen(self, process: Process) -> None:
        """Keep the last lines that the process wrote, so that its end can be explained."""
        assert process.stderr is not None
        while line := await _line(process.stderr):
            self._said.append(without_secrets(line.decode(errors="replace").rstrip()[:300]))

    async def kill(self) -> str:
        """End the process and all it started; say how it ended."""
        starting, self._starting = self._starting, None
        if starting is not None and self._process is None:
            with contextlib.suppress(OSError):  # it did not start
                self._process = await starting
        process, self._process = self._process, None
        if process is None:
            return "not running"
        with contextlib.suppress(ProcessLookupError, PermissionError):  # it is gone already
            os.killpg(process.pid, signal.SIGKILL)
        if process.stdin is not None:
            process.stdin.close()
        status = await process.wait()
        if self._listener is not None:
            # What it wrote is there by now; only a process that left the group can keep the pipe open.
            await asyncio.wait({self._listener}, timeout=0.2)
            self._listener.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._listener
        return "; ".join([f"status {status}", *self._said])


def hash_of(files: Sequence[Path], folder: Path) -> str:
    """A hash of files' places in the folder and of their content; a file that is gone has none.

    Of one that lies elsewhere (an installed package) the name counts: the same code may be installed anywhere.
    """
    digest = blake2b(digest_size=16)
    for path in files:
        content = path.read_bytes() if path.is_file() else b""
        place = path.relative_to(folder.resolve()) if path.is_relative_to(folder.resolve()) else path.name
        digest.update(f"{place}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def _answer_to(id_: str, line: bytes) -> dict[str, Any]:
    try:
        reply = json.loads(line)
    except (ValueError, RecursionError):  # no JSON, or no UTF-8
        reply = None
    if not isinstance(reply, dict) or reply.get("id") != id_:
        raise _Astray(without_secrets(ascii(line[:MAX_SHOWN_BYTES])[1:]))
    return reply


def _result(reply: Mapping[str, Any]) -> Result:
    """What the host said of a call. `judge.rewards.function_host` has checked the numbers and named what is wrong."""
    if "error" in reply:
        return Result(None, without_secrets(str(reply["error"])))
    return Result(reply["score"], reply["explanation"], reply["extra"])


class _Died(Exception):
    """The process ended, in the middle of a line or before one."""


class _Astray(Exception):
    """The process wrote a line that answers nothing that it was asked; the message shows it."""


async def _line(stream: asyncio.StreamReader) -> bytes:
    try:
        return await stream.readline()
    except ValueError:  # longer than the limit: that much was dropped
        return b"(a very long line)\n"
