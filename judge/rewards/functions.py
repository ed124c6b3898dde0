"""Reward functions, run in long-lived child processes with the user's Python and in the user's folder.

Owns: the input of a function, the requests to its process, and a restart after the code was edited. Refuses: the
meaning of a function, which this process never imports (`recorder.processes.user_code_host` does), and the life of the
process (`recorder.processes.child_host`).

An exception, an invalid result, a crash or a hang marks only that call; a process that cannot start is `FunctionsDown`.
A line that answers no request (late, or written by the function or its child) ends the process. If that process had
answered earlier calls, one of them may have left the line: the call is repeated once in a new process, where an
unexpected line is its own.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

from judge.errors import FunctionsDown
from judge.settings import JudgeSettings
from recorder.llm.litellm_edge import mask_secrets
from recorder.processes import user_code_host
from recorder.processes.child_host import ChildError, ChildFailed, ChildHost, ChildSpec, ChildTimeout, ForeignReply
from recorder.views.trajectories.shapes import TrajectoryView

HOST = Path(user_code_host.__file__)


@dataclass(frozen=True, slots=True)
class RewardResult:
    """The result of one call: a finite number, or None and the reason. `extra`: named numbers beside it.

    `turns`: a value or None for each turn of the trajectory; None: the function gave none.
    """

    score: float | None
    explanation: str | None = None
    extra: Mapping[str, float] = field(default_factory=dict)
    turns: Sequence[float | None] | None = None


def function_input(member: TrajectoryView) -> dict[str, Any]:
    """A trajectory as a reward function receives it, as JSON."""
    scenario = member.scenario
    return {
        "id": member.id,
        "messages": [dict(message) for message in member.messages],
        "tools": [dict(tool) for tool in member.tools or ()],
        "answer": member.answer,
        "turns": main_path_answers(member),
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


def main_path_answers(member: TrajectoryView) -> list[dict[str, Any]]:
    """The model's answers on the main path in their order: one a turn, and empty where none was recorded."""
    answers = {(call.id, one.index): one.message for call in member.calls for one in call.choices}
    return [dict(answers.get(turn) or {}) for turn in member.main_path]


class FunctionPool:
    """`judge.function_processes` processes that run the reward functions. Close with `close()`."""

    def __init__(self, settings: JudgeSettings, checks: Sequence[str] = ()) -> None:
        """Runs the functions of the settings, or the `checks`; a check that cannot be imported fails alone."""
        functions = checks or sorted({reward.function for reward in settings.in_force() if reward.function})
        self._free: asyncio.LifoQueue[_Child] = asyncio.LifoQueue()  # idle ones never start
        self._all = [_Child(settings, functions, wants_all=not checks) for _ in range(settings.function_processes)]
        for child in self._all:
            self._free.put_nowait(child)
        self.loaded = ""  # the last result of `code`

    async def code(self) -> str:
        """A hash of the functions' code as it is on disk now; request it before the calls that depend on it.

        Later calls run this code, reloaded if it was edited. Raises FunctionsDown.
        """
        child = await self._free.get()
        try:
            self.loaded = await child.fresh()
            return self.loaded
        finally:
            self._free.put_nowait(child)

    async def call(self, function: str, trajectory: Mapping[str, Any]) -> RewardResult:
        """Call one of the functions.

        Raises:
            FunctionsDown: the process does not start, or cannot import the functions.
        """
        child = await self._free.get()
        try:
            if self.loaded and child.code != self.loaded:
                self.loaded = await child.fresh()  # edited again since then: the newest code counts
            return await child.call(function, trajectory)
        finally:
            self._free.put_nowait(child)

    async def close(self) -> None:
        """Kill the processes."""
        for child in self._all:
            await child.kill()


class _Child:
    """One process, started on first use and restarted after it died. One call at a time."""

    def __init__(self, settings: JudgeSettings, functions: Sequence[str], *, wants_all: bool) -> None:
        self._settings = settings
        self._functions = functions
        self._python = settings.python or Path(sys.executable)
        self._host = ChildHost(
            ChildSpec(
                # -B: compiled files identify their source by size and second only, and would hide a quick edit
                [self._python, "-B", HOST],
                start={"kind": "functions", "functions": list(functions), "all": wants_all},
                start_limit_s=settings.function_start_s,
                cwd=settings.folder,
                named_env=settings.function_env,
                clean=mask_secrets,
            )
        )
        self._whole = True  # whether every function could be imported
        self._used = False  # whether the process has received a request
        self._files: tuple[Path, ...] = ()  # the user's files that were loaded
        self.code = ""  # the hash of their content at that time

    async def fresh(self) -> str:
        """Load the code that is on disk now; return its hash."""
        if not self._runs() or await self._edited():
            await self._restart()
        return self.code

    async def _edited(self) -> bool:
        if not self._whole:  # any file may fix a failed import
            return True
        return await asyncio.to_thread(hash_files, self._files, self._settings.folder) != self.code

    def _runs(self) -> bool:
        return self._host.is_running and bool(self.code)

    async def call(self, function: str, trajectory: Mapping[str, Any]) -> RewardResult:
        if not self._runs():  # killed from outside, between two calls
            await self._restart()
        used, self._used = self._used, True
        limit_s = self._settings.function_timeout_s
        try:
            reply = await self._host.request({"function": function, "trajectory": trajectory}, limit_s)
        except ChildTimeout:
            return RewardResult(None, f"took longer than {limit_s:g} s (judge.function_timeout_s) and was killed")
        except ForeignReply as e:
            if used:
                return await self.call(function, trajectory)
            return RewardResult(None, f"something wrote into Hone's pipe, and its process was killed: {e}")
        except ChildError as e:
            return RewardResult(None, f"its process died ({e.end})")
        return _result(reply)

    async def _restart(self) -> None:
        await self._host.kill()
        self._used, self.code = False, ""
        folder = self._settings.folder.absolute()
        try:
            ready = await self._host.ready()
        except OSError as e:
            raise FunctionsDown(
                "functions_down",
                f"{self._python} could not be started in {folder} to run reward functions: {e}. "
                "See judge.python and judge.folder.",
            ) from e
        except ChildError as e:
            raise FunctionsDown(
                "functions_down",
                f"the reward functions {', '.join(self._functions)} cannot be imported by {self._python} in {folder}: "
                f"{self._why(e)} ({e.end}). See judge.rewards, judge.python and judge.folder.",
            ) from e
        self._files, self._whole = tuple(map(Path, ready["files"])), ready["whole"]
        self.code = await asyncio.to_thread(hash_files, self._files, self._settings.folder)

    def _why(self, error: ChildError) -> str:
        match error:
            case ChildTimeout():
                return f"importing took longer than {self._settings.function_start_s:g} s (judge.function_start_s)"
            case ForeignReply():
                return f"it wrote into Hone's pipe: {error}"
            case ChildFailed():
                return str(error)
            case _:
                return "its process died"

    async def kill(self) -> None:
        """End the process and all it started."""
        await self._host.kill()


def hash_files(files: Sequence[Path], folder: Path) -> str:
    """A hash of files' paths relative to the folder and of their content; a missing file has none.

    A file outside the folder (an installed package) counts by its name: the same code may be installed anywhere.
    """
    digest = blake2b(digest_size=16)
    for path in files:
        content = path.read_bytes() if path.is_file() else b""
        place = path.relative_to(folder.resolve()) if path.is_relative_to(folder.resolve()) else path.name
        digest.update(f"{place}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def _result(reply: Mapping[str, Any]) -> RewardResult:
    """The result of a call. `recorder.processes.user_code_host` has validated the numbers and named errors."""
    if "error" in reply:
        return RewardResult(None, mask_secrets(str(reply["error"])))
    return RewardResult(reply["score"], reply["explanation"], reply["extra"], reply["turns"])
