"""The user's agent as Hone sees it: one host process in the user's Python and folder, asked over a socket.

Owns: starting the host (`trainer/agents/host.py`), its log, restarting it when it dies, and what one attempt came to.
Refuses: the store, and judging whose fault a failure was (`trainer.agents.attempts` does, it knows the recorded calls).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

from recorder import private
from recorder.child_env import environment, withheld_in
from trainer.agents import host
from trainer.errors import AgentUnusable

_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
_START_TIMEOUT_S = 120.0

Json = dict[str, Any]


class Ending(StrEnum):
    """How an attempt ended, as its host saw it."""

    DONE = "done"
    ERROR = "error"  # it raised, or exited with another code than 0
    TIMEOUT = "timeout"
    LOST = "lost"  # the host died, and with it every attempt it ran


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one attempt came to."""

    ending: Ending
    answer: Any = None
    error: str | None = None
    network: bool = False  # the exception came of a broken connection or a server's fault


@dataclass(frozen=True, slots=True)
class AgentSpec:
    """Which function or command, where and with which Python."""

    target: str  # module:function, or a shell command
    log: Path
    python: Path = Path(sys.executable)
    cwd: Path = field(default_factory=Path.cwd)
    env: tuple[str, ...] = ()  # names of variables of ours that it sees too
    use: Literal["agent", "measure"] = "agent"
    # Beyond its own limit plus the host's grace, an attempt has no answer because user code blocks the host.
    stuck_after_s: float = 5.0

    @property
    def kind(self) -> str:
        """The host's word for it."""
        return self.use if _FUNCTION.fullmatch(self.target) else "command"


def is_function(target: str) -> bool:
    """Whether a target is `module:function` rather than a shell command or a name."""
    return bool(_FUNCTION.fullmatch(target))


class Agent:
    """One host process. `start()` returns before the import is over, so that it overlaps with other start-ups."""

    def __init__(self, spec: AgentSpec) -> None:
        self.spec = spec
        self._host: _Host | None = None
        self._starting = asyncio.Lock()
        self._count = 0

    async def start(self) -> None:
        """Start the host if none runs.

        Raises `AgentUnusable` if the Python or the folder is not there.
        """
        async with self._starting:
            if self._host is None or self._host.dead:
                self._host = await _Host.start(self.spec)

    async def ready(self) -> None:
        """Wait until the function is imported. Raises `AgentUnusable` with the import's error."""
        await self.start()
        assert self._host is not None
        await self._host.ready()

    async def run(self, task: Mapping[str, Any], env: Mapping[str, str], timeout_s: float) -> Outcome:
        """Run one attempt: `task` becomes the function's argument, `env` its environment.

        Raises `AgentUnusable` if there is no way to run any attempt.
        """
        await self.ready()
        assert self._host is not None
        self._count += 1
        return await self._host.run(f"j{self._count}", task, env, timeout_s)

    async def stop(self) -> None:
        """End the host and every process it started."""
        if self._host is not None:
            await self._host.stop()


class _Host:
    """One life of the host process."""

    def __init__(
        self,
        spec: AgentSpec,
        process: subprocess.Popen[bytes],
        streams: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        self._spec = spec
        self._process = process
        self._reader, self._writer = streams
        self._imported: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting: dict[str, asyncio.Future[Outcome]] = {}
        self._groups: dict[str, int] = {}
        self._listener = asyncio.create_task(self._listen())
        self.dead = False

    @classmethod
    async def start(cls, spec: AgentSpec) -> _Host:
        ours, theirs = socket.socketpair()
        with theirs:
            process = _spawn(spec, theirs.fileno(), ours)
        return cls(spec, process, await asyncio.open_connection(sock=ours, limit=host.LINE_LIMIT_BYTES))

    async def ready(self) -> None:
        try:
            await asyncio.wait_for(asyncio.shield(self._imported), _START_TIMEOUT_S)
        except TimeoutError:
            self._kill()
            raise AgentUnusable(
                f"{self._shown()} was not imported within {_START_TIMEOUT_S:.0f} s. See {self._spec.log}."
            ) from None

    async def run(self, job_id: str, task: Mapping[str, Any], env: Mapping[str, str], timeout_s: float) -> Outcome:
        if self.dead:
            return Outcome(Ending.LOST, error="the agent's host had died")
        answer: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._waiting[job_id] = answer
        job = {"op": "run", "id": job_id, "task": dict(task), "env": dict(env), "timeout_s": timeout_s}
        self._writer.write(json.dumps(job).encode() + b"\n")
        try:
            return await asyncio.wait_for(answer, timeout_s + host.CANCEL_GRACE_S + self._spec.stuck_after_s)
        except TimeoutError:
            self._kill()  # an async agent that blocks its event loop stops all: the others are lost and run again
            return Outcome(Ending.TIMEOUT, error=f"no answer within {timeout_s:g} s, and its host had to be killed")
        finally:
            self._waiting.pop(job_id, None)
            self._groups.pop(job_id, None)

    async def stop(self) -> None:
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()
        try:
            await asyncio.to_thread(self._process.wait, 2.0)
        except subprocess.TimeoutExpired:
            self._kill()
        await self._listener

    async def _listen(self) -> None:
        with contextlib.suppress(ConnectionError):
            async for line in self._reader:
                self._heard(json.loads(line))
        self.dead = True
        self._kill()
        code = await asyncio.to_thread(self._process.wait)
        self._bury(f"the agent's host ended (code {code}); its last words are in {self._spec.log}")
        self._writer.close()

    def _heard(self, message: Json) -> None:
        op = message["op"]
        if op == "ready":
            self._imported.set_result(None)
        elif op == "failed":
            self._imported.set_exception(
                AgentUnusable(f"{self._shown()} cannot be used: {self._told(message['error'])}")
            )
        elif op == "group":
            self._groups[message["id"]] = message["pgid"]
        elif (waiting := self._waiting.get(message["id"])) and not waiting.done():
            waiting.set_result(self._outcome(message))

    def _outcome(self, message: Json) -> Outcome:
        error = message.get("error")
        told = self._told(error) if error is not None else None
        return Outcome(Ending(message["op"]), message.get("answer"), told, message.get("network", False))

    def _told(self, error: str) -> str:
        """An error, and which variables it speaks of that the agent was not given."""
        names = withheld_in(error, self._spec.env)
        if not names:
            return error
        return f"{error.rstrip()}\n(not passed on to the agent: {', '.join(names)}. See campaign.agent_env.)"

    def _bury(self, why: str) -> None:
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_result(Outcome(Ending.LOST, error=why))
        if not self._imported.done():
            self._imported.set_exception(AgentUnusable(f"{self._shown()}: {why}"))
        self._imported.exception()  # looked at, so that it is not reported as unseen where nobody waits for it

    def _kill(self) -> None:
        """Kill the host's group and the groups it told of: after its end nobody else would."""
        host = [self._process.pid] if self._process.returncode is None else []
        for pgid in host + list(self._groups.values()):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pgid, signal.SIGKILL)

    def _shown(self) -> str:
        return f"{self._spec.target!r} (Python {self._spec.python}, folder {self._spec.cwd})"


def _spawn(spec: AgentSpec, fd: int, ours: socket.socket) -> subprocess.Popen[bytes]:
    private.make_folder(spec.log.parent)
    command = [str(spec.python), host.__file__, "--fd", str(fd), "--parent", str(os.getpid())]
    try:
        with private.appending(spec.log) as log:
            return subprocess.Popen(  # noqa: S603 - running the user's own program is what this is for
                [*command, "--kind", spec.kind, "--", spec.target],
                cwd=spec.cwd,
                env=environment(spec.env),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=[fd],
                start_new_session=True,  # Ctrl-C in the terminal is Hone's to handle
            )
    except OSError as e:
        ours.close()
        raise AgentUnusable(
            f"cannot start {spec.python} in {spec.cwd}: {e.strerror or e}. Check --python and --cwd."
        ) from e
