"""A child process that answers requests: the parent's side, for agents, reward functions, charts and trackers.

Owns: starting it with an environment in a folder, readiness, request ids, time limits, killing all processes that it
started, ending it when idle, restarting it after its death, and its last lines of output. Refuses: the meaning of
requests and replies. The protocol and the child's side are in `recorder.processes.user_code_host`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import signal
import socket
from asyncio.subprocess import DEVNULL, STDOUT, Process
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Final, Literal

from recorder.processes import file_modes
from recorder.processes.child_environment import child_environment

LINE_LIMIT_BYTES: Final = 16 * 1024 * 1024
KEPT_BYTES: Final = 16 * 1024  # of the end of the child's output
KEPT_LINES: Final = 5
KEPT_LINE_CHARS: Final = 300
SHOWN_BYTES: Final = 100  # shown of a line that answers no request
# For reading the last output of an ended process. Only a process that left its group keeps the pipe open longer.
GRACE_S: Final = 0.2

Json = dict[str, Any]


class Output(Enum):
    """Where a child's standard output and standard error go without a log file."""

    KEPT = "kept"  # the last lines explain its end
    OURS = "ours"  # to Hone's standard error
    NOWHERE = "nowhere"


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """How a child is started and used.

    `in_turn`: the child answers one request after the other. Cancelling a request kills it, because it would continue
    with that request. A line that answers no request kills it too, because user code wrote that line. A child with
    concurrent requests continues in both cases.
    """

    command: Sequence[str | Path]
    start: Mapping[str, Any] = field(default_factory=dict)  # the first message to it
    start_limit_s: float | None = None
    in_turn: bool = True
    idle_s: float | None = None  # the child is ended after this time without a request
    cwd: Path | None = None
    named_env: Sequence[str] = ()  # variables passed on besides those that every Python needs
    own_env: Mapping[str, str] = field(default_factory=dict)
    output: Output | Path = Output.KEPT
    clean: Callable[[str], str] = str  # removes secrets from shown output


@dataclass(frozen=True, slots=True)
class Exit:
    """How a process ended, and its last output."""

    status: int | None  # None: it did not run
    last_lines: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "; ".join(["not running" if self.status is None else f"status {self.status}", *self.last_lines])


class ChildError(Exception):
    """The child gave no answer. `starting`: it was not ready for requests yet."""

    def __init__(self, text: str, end: Exit, *, starting: bool) -> None:
        super().__init__(text)
        self.end = end
        self.starting = starting


class ChildFailed(ChildError):
    """The child reported that it cannot begin; the text is its reason."""


class ChildDied(ChildError):
    """The child ended before it answered."""


class ChildTimeout(ChildError):
    """The child did not answer in time, and was killed."""


class ForeignReply(ChildError):
    """The child, which answers in turn, wrote a line that answers no request (in the text), and was killed."""


class ChildHost:
    """One child process at a time, started when needed. End it with `stop` or `kill`."""

    def __init__(self, spec: ChildSpec) -> None:
        self.spec = spec
        self._starting: asyncio.Task[_Process] | None = None
        self._turn = asyncio.Lock()
        self._busy = 0  # requests
        self._idle: asyncio.TimerHandle | None = None
        self._leaving: asyncio.Future[Exit] | None = None

    @property
    def is_running(self) -> bool:
        """Whether a process runs."""
        task = self._starting
        return task is not None and task.done() and not _failed(task) and not task.result().is_over

    async def launch(self) -> None:
        """Start the process if none runs, without waiting until it is ready. Raises OSError if it cannot be started."""
        await self._process()

    async def ready(self) -> Json:
        """Start the process if none runs; return its ready message. Raises ChildError and OSError."""
        self._stay()
        return await (await self._process()).ready()

    async def request(self, payload: Mapping[str, Any], limit_s: float | None = None) -> Json:
        """Send a request to the process (started if none runs) and return the reply. Raises ChildError and OSError.

        `limit_s` begins when the process has the request.
        """
        self._stay()
        self._busy += 1
        try:
            async with self._turn if self.spec.in_turn else contextlib.nullcontext():
                process = await self._process()
                await process.ready()
                return await process.request(payload, limit_s)
        finally:
            self._busy -= 1
            if self.spec.idle_s is not None and not self._busy:
                self._stay()
                self._idle = asyncio.get_running_loop().call_later(self.spec.idle_s, self._end_idle)

    async def stop(self, within_s: float | None = None) -> Exit:
        """Close the process's input, kill it after `within_s`, and return how it ended."""
        return await self._end(lambda process: process.stop(within_s))

    async def kill(self) -> Exit:
        """Kill the process and everything that it started, and return how it ended."""
        return await self._end(_Process.kill)

    async def _process(self) -> _Process:
        before = self._starting
        if before is None or (before.done() and not self.is_running):
            self._starting = asyncio.create_task(_started(self.spec, before), name=f"start {self.spec.command[0]}")
            self._starting.add_done_callback(_failed)
        assert self._starting is not None
        # Shielded: a cancelled start would leave an unknown process; `kill` ends it.
        return await asyncio.shield(self._starting)

    async def _end(self, how: Callable[[_Process], Awaitable[Exit]]) -> Exit:
        self._stay()
        leaving, self._leaving = self._leaving, None
        if leaving is not None:
            await leaving
        starting, self._starting = self._starting, None
        ending = asyncio.ensure_future(_ended(starting, how))
        try:
            return await asyncio.shield(ending)
        except asyncio.CancelledError:
            await _ended(starting, _Process.kill)
            raise

    def _stay(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None

    def _end_idle(self) -> None:
        starting, self._starting = self._starting, None  # before waiting: the next request starts another one
        self._leaving = asyncio.ensure_future(_ended(starting, _Process.kill))


class _Process:
    """One run of the child, from its start to its end."""

    def __init__(
        self, spec: ChildSpec, process: Process, streams: _Streams, output: asyncio.Task[bytes] | None
    ) -> None:
        self._spec = spec
        self._process = process
        self._reader, self._writer = streams
        self._output = output
        self._waiting: dict[str, tuple[asyncio.Future[Json | ChildError], _Kind]] = {}
        self._groups: dict[str, int] = {}
        self._is_stopping = False
        self._foreign: str | None = None
        self._life = asyncio.create_task(self._live(), name=f"child {process.pid}")
        self._begun = asyncio.create_task(self._begin(), name=f"begin child {process.pid}")
        self._begun.add_done_callback(_failed)

    @classmethod
    async def started(cls, spec: ChildSpec) -> _Process:
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                process, output = await _spawned(spec, theirs.fileno())
        except BaseException:
            ours.close()
            raise
        return cls(spec, process, await asyncio.open_connection(sock=ours, limit=LINE_LIMIT_BYTES), output)

    @property
    def is_over(self) -> bool:
        return self._foreign is not None or self._life.done() or self._process.returncode is not None

    async def ready(self) -> Json:
        return await asyncio.shield(self._begun)

    async def request(self, payload: Mapping[str, Any], limit_s: float | None) -> Json:
        try:
            message = await self._ask("request", payload, limit_s)
        except asyncio.CancelledError:
            if self._spec.in_turn:
                await self.kill()
            raise
        reply: Json = message["reply"]
        return reply

    async def stop(self, within_s: float | None) -> Exit:
        self._is_stopping = True
        with contextlib.suppress(OSError):  # it has ended already
            self._writer.write_eof()
        await asyncio.wait({self._life}, timeout=within_s)
        return await self.kill()

    async def kill(self) -> Exit:
        if not self._life.done():
            self._kill()
        return await asyncio.shield(self._life)

    async def _begin(self) -> Json:
        message = await self._ask("start", self._spec.start, self._spec.start_limit_s)
        if "failed" in message:
            raise ChildFailed(self._spec.clean(str(message["failed"])), await self.kill(), starting=True)
        ready: Json = message["ready"]
        return ready

    async def _ask(self, kind: _Kind, payload: Mapping[str, Any], limit_s: float | None) -> Json:
        if self._life.done():
            raise self._error(self._life.result(), starting=kind == "start")
        id_ = secrets.token_hex(16)
        waiting: asyncio.Future[Json | ChildError] = asyncio.get_running_loop().create_future()
        self._waiting[id_] = waiting, kind
        try:
            async with asyncio.timeout(limit_s):
                self._writer.write(json.dumps({"id": id_, kind: payload}).encode() + b"\n")
                with contextlib.suppress(ConnectionError):  # waiting callers receive its end
                    await self._writer.drain()
                answer = await waiting
        except TimeoutError:
            text = f"it did not answer within {limit_s:g} s and was killed"
            raise ChildTimeout(text, await self.kill(), starting=kind == "start") from None
        finally:
            del self._waiting[id_]
            self._groups.pop(id_, None)
        if isinstance(answer, ChildError):
            answer.starting = kind == "start"
            raise answer
        return answer

    async def _live(self) -> Exit:
        """Read until the process or its output ends; kill everything that it started; notify waiting callers."""
        listening = asyncio.create_task(self._listen())
        exiting = asyncio.create_task(self._process.wait())
        await asyncio.wait({listening, exiting}, return_when=asyncio.FIRST_COMPLETED)
        if self._is_stopping:  # it may have closed its socket before it ended
            await exiting
        self._kill()
        status = await exiting
        await asyncio.wait({listening, *([self._output] if self._output else [])}, timeout=GRACE_S)
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        self._writer.close()
        end = Exit(status, await self._last_lines())
        for waiting, _ in self._waiting.values():
            if not waiting.done():
                waiting.set_result(self._error(end, starting=False))
        return end

    async def _listen(self) -> None:
        try:
            while (line := await self._reader.readline()).endswith(b"\n"):
                if not self._is_heard(line) and self._spec.in_turn:
                    self._foreign = self._spec.clean(ascii(line[:SHOWN_BYTES])[1:])
                    return
        except (ConnectionError, ValueError):  # ValueError: a line longer than the limit
            return

    def _is_heard(self, line: bytes) -> bool:
        """Handle a line; return whether it answers a request."""
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):  # no JSON, or no UTF-8
            return False
        if not isinstance(message, dict) or not isinstance(id_ := message.get("id"), str):
            return False
        asked = self._waiting.get(id_)
        if asked is None or asked[0].done():
            return False
        waiting, kind = asked
        group = message.get("group")
        if isinstance(group, int) and group > 1:  # 0 would be Hone's own group
            self._groups[id_] = group
        elif any(isinstance(message.get(key), of) for key, of in _ANSWERS[kind].items()):
            waiting.set_result(message)
        else:
            return False
        return True

    def _error(self, end: Exit, *, starting: bool) -> ChildError:
        if self._foreign is not None:
            return ForeignReply(self._foreign, end, starting=starting)
        return ChildDied(f"its process ended ({end})", end, starting=starting)

    def _kill(self) -> None:
        """Kill the child's group and the groups that it reported, because nothing else ends them after its death."""
        for pgid in [self._process.pid, *self._groups.values()]:
            with contextlib.suppress(ProcessLookupError, PermissionError):  # it has ended already
                os.killpg(pgid, signal.SIGKILL)

    async def _last_lines(self) -> tuple[str, ...]:
        if self._output is None:
            return ()
        self._output.cancel()
        (kept,) = await asyncio.gather(self._output, return_exceptions=True)
        if isinstance(kept, BaseException):
            return ()
        # Secrets are removed from whole lines. A first line without its beginning may have half a secret: drop it.
        lines = kept.decode(errors="replace").split("\n")
        if len(kept) == KEPT_BYTES:
            lines[0] = "(a very long line)"
        shown = [self._spec.clean(line.rstrip())[:KEPT_LINE_CHARS] for line in lines if line.rstrip()]
        return tuple(shown[-KEPT_LINES:])


_Kind = Literal["start", "request"]
_ANSWERS: Final[Mapping[_Kind, Mapping[str, type]]] = {
    "start": {"ready": dict, "failed": str},
    "request": {"reply": dict},
}
_Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def _failed(task: asyncio.Task[Any]) -> bool:
    """Return whether a finished task has no result; its exception counts as retrieved even if it is never awaited."""
    return task.cancelled() or task.exception() is not None


async def _started(spec: ChildSpec, before: asyncio.Task[_Process] | None) -> _Process:
    """Start a new process after the one before it is cleaned up."""
    if before is not None:
        await _ended(before, _Process.kill)
    return await _Process.started(spec)


async def _ended(starting: asyncio.Task[_Process] | None, how: Callable[[_Process], Awaitable[Exit]]) -> Exit:
    if starting is None:
        return Exit(None)
    try:
        process = await starting
    except OSError:  # it could not be started
        return Exit(None)
    return await how(process)


async def _spawned(spec: ChildSpec, fd: int) -> tuple[Process, asyncio.Task[bytes] | None]:
    """Start the process; return it with the task that collects the end of its output, if that is kept."""
    with contextlib.ExitStack() as stack:
        reading = None
        if isinstance(spec.output, Path):
            file_modes.make_folder(spec.output.parent)
            out = stack.enter_context(file_modes.open_log(spec.output)).fileno()
        elif spec.output is Output.KEPT:
            reading, out = os.pipe()
            stack.callback(os.close, out)
        else:
            out = DEVNULL if spec.output is Output.NOWHERE else 2
        try:
            process = await asyncio.create_subprocess_exec(
                *spec.command, "--fd", str(fd), cwd=spec.cwd, env={**child_environment(spec.named_env), **spec.own_env},
                stdin=DEVNULL, stdout=out, stderr=STDOUT, pass_fds=[fd],
                start_new_session=True,  # its own process group, so that Ctrl-C in the terminal reaches only Hone
            )  # fmt: skip
        except BaseException:
            if reading is not None:
                os.close(reading)
            raise
    return process, None if reading is None else asyncio.create_task(_tail(reading), name="child's output")


async def _tail(fd: int) -> bytes:
    """Return the last bytes from a pipe, when it ends or the task is cancelled.

    This is not asyncio's pipe: with that, waiting for the process would wait for every child that kept the pipe.
    """
    stream, tail = asyncio.StreamReader(), b""
    pipe = os.fdopen(fd, "rb", 0)
    try:
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(stream), pipe
        )
    except BaseException:
        pipe.close()
        raise
    with contextlib.suppress(asyncio.CancelledError):
        while part := await stream.read(KEPT_BYTES):
            tail = (tail + part)[-KEPT_BYTES:]
    transport.close()
    return tail
