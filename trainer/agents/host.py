"""Runs a user's agent, many attempts at a time: a script for the user's own Python (3.9 or later, nothing installed).

    PYTHON host.py --fd N --parent PID --kind agent|measure|command TARGET

Owns: importing `module:function` (or starting a shell command), one environment per attempt, time limits, and JSON
lines over the socket that it inherits as file descriptor N. Refuses: anything of Hone; it imports none of it.

Async functions share one event loop: an attempt costs a task. A sync function runs in a process forked for the attempt,
after the import: it has its own environment, may block, and can be killed. A command is a process group of its own.

In:   {"op": "run", "id", "task": {…}, "env": {…}, "timeout_s"}
Out:  {"op": "ready", "python"} or {"op": "failed", "error"} once, then for each id
      {"op": "group", "id", "pgid"} (a process group was started for it) and at last one of
      {"op": "done", "id", "answer"}, {"op": "error", "id", "error"}, {"op": "timeout", "id"}.
When the socket closes, everything is killed and the host ends.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import contextvars
import ctypes
import importlib
import inspect
import json
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NoReturn

LINE_LIMIT_BYTES = 256 * 1024 * 1024
ANSWER_LIMIT_CHARS = 1024 * 1024
ERROR_LIMIT_CHARS = 4000
# How long a cancelled attempt may clean up before it is left behind.
CANCEL_GRACE_S = 1.0
# An agent that reads OPENAI_BASE_URL once, at import, would send every attempt to one place: it gets a refusal instead.
NO_ADDRESS = "http://127.0.0.1:9/hone-read-OPENAI_BASE_URL-inside-the-function-or-use-task.base_url/v1"

Job = dict[str, Any]
Say = Callable[[Job], None]
Function = Callable[[Any], Any]
Way = Callable[[Job, Say], Any]

_PR_SET_PDEATHSIG = 1


# Of the clients that agents use; what they wrap is mostly a builtin ConnectionError, but not always.
_NETWORK_ERRORS = frozenset({"APIConnectionError", "ConnectError", "RemoteProtocolError", "ServerDisconnectedError"})


class AgentFailed(Exception):
    """The attempt failed inside the agent; the text says how, `network` whether a server or connection failed it."""

    def __init__(self, text: str, *, network: bool = False) -> None:
        super().__init__(text)
        self.network = network


# --- one environment per attempt --------------------------------------------------------------------------------------

_overlay: contextvars.ContextVar[dict[str, str] | None] = contextvars.ContextVar("attempt_environment", default=None)


class AttemptEnviron(os._Environ):  # type: ignore[type-arg]  # not subscriptable when run
    """`os.environ`, where the variables of the attempt that reads come first: so attempts can share a process."""

    def __getitem__(self, key: str) -> str:
        own = (_overlay.get() or {}).get(key)
        return super().__getitem__(key) if own is None else own


def install_environ() -> None:
    """Put an `AttemptEnviron` in the place of `os.environ`, before the user's modules take a reference to it."""
    old = os.environ
    new = AttemptEnviron(old._data, old.encodekey, old.decodekey, old.encodevalue, old.decodevalue)  # type: ignore[attr-defined]
    os.environ = new  # noqa: B003 - shares its data with the old one


# --- what goes over the socket ----------------------------------------------------------------------------------------


def plain(answer: Any) -> Any:
    """`answer` as JSON can say it; what JSON cannot say becomes its repr, what is too long is cut."""
    try:
        text = json.dumps(answer, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        try:
            answer = repr(answer)
        except Exception as error:  # noqa: BLE001 - boundary: a user's __repr__ may do anything
            answer = f"<{type(answer).__name__}, whose repr failed: {type(error).__name__}>"
        text = json.dumps(answer)
    if len(text) > ANSWER_LIMIT_CHARS:
        return text[:ANSWER_LIMIT_CHARS] + f"… (cut, {len(text)} characters)"
    return answer


def told(error: BaseException) -> str:
    """What a person needs of an exception: its type, its text and the last frames, cut to a bound."""
    lines = traceback.format_exception(type(error), error, error.__traceback__)
    return (lines[-1].strip() + "\n" + "".join(lines))[:ERROR_LIMIT_CHARS]


def is_network_fault(error: BaseException | None) -> bool:
    """Whether an exception, or one that led to it, is a broken connection or a server's own error (HTTP 5xx)."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        status = getattr(error, "status_code", None)
        names = {cls.__name__ for cls in type(error).__mro__}
        if isinstance(error, ConnectionError) or names & _NETWORK_ERRORS or (isinstance(status, int) and status >= 500):
            return True
        error = error.__cause__ or error.__context__
    return False


# --- ways to run an attempt -------------------------------------------------------------------------------------------


async def call_here(function: Function, job: Job, say: Say) -> Any:
    """Run the function in this event loop. A sync one blocks it: only for functions that are over at once."""
    _overlay.set(job["env"])
    try:
        result = function(SimpleNamespace(**job["task"]))
        return await result if inspect.isawaitable(result) else result
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # noqa: BLE001 - boundary: what users raise, SystemExit too, ends the attempt only
        traceback.print_exc()
        raise AgentFailed(told(error), network=is_network_fault(error)) from None


async def call_forked(function: Function, host_socket: int, job: Job, say: Say) -> Any:
    """Run the function in a process forked for it, and kill what it leaves behind."""
    sys.stdout.flush()
    sys.stderr.flush()
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read_end)
        os.close(host_socket)  # held here, it would hide the host's end from Hone
        _in_child(function, job, write_end)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.setpgid(pid, pid)  # here as in the child: whoever comes first, a kill finds the group
    os.close(write_end)
    say({"op": "group", "id": job["id"], "pgid": pid})
    try:
        reply = await _first_line(read_end)
        if not reply:
            raise AgentFailed(f"the agent's process ended before it returned ({await _end_of(pid)})")
    finally:
        os.close(read_end)
        kill_group(pid)
        _reap(pid)
    outcome = json.loads(reply)
    if "error" in outcome:
        raise AgentFailed(outcome["error"], network=outcome["network"])
    return outcome["answer"]


def _in_child(function: Function, job: Job, write_end: int) -> NoReturn:
    try:
        os.setpgid(0, 0)
        signal.set_wakeup_fd(-1)
        asyncio._set_running_loop(None)  # the loop is the parent's
        os.environ.update(job["env"])
        reply = json.dumps(_called(function, job)).encode() + b"\n"
        sys.stdout.flush()
        sys.stderr.flush()
        while reply:
            reply = reply[os.write(write_end, reply) :]
    finally:
        os._exit(0)  # nothing of the parent may run again here: no exit handlers, no loop


def _called(function: Function, job: Job) -> Job:
    try:
        result = function(SimpleNamespace(**job["task"]))
        return {"answer": plain(asyncio.run(_awaited(result)) if inspect.isawaitable(result) else result)}
    except BaseException as error:  # noqa: BLE001 - boundary: as in call_here
        traceback.print_exc()
        return {"error": told(error), "network": is_network_fault(error)}


async def _awaited(result: Any) -> Any:
    return await result


async def _first_line(fd: int) -> bytes:
    """Read up to a newline or the end; empty if the writer ended without one."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Event = asyncio.Event()
    os.set_blocking(fd, False)
    parts: list[bytes] = []
    loop.add_reader(fd, ready.set)
    try:
        while not (parts and parts[-1].endswith(b"\n")):
            await ready.wait()
            ready.clear()
            part = os.read(fd, 1 << 20)
            if not part:
                return b""
            parts.append(part)
    finally:
        loop.remove_reader(fd)
    return b"".join(parts)


async def _end_of(pid: int) -> str:
    """How a process ended that has closed its pipe; it is given a second."""
    until = time.monotonic() + 1.0
    while time.monotonic() < until:
        done, status = os.waitpid(pid, os.WNOHANG)  # noqa: ASYNC222 - it does not wait
        if done:
            return f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"exit {os.WEXITSTATUS(status)}"
        await asyncio.sleep(0.01)
    return "it still ran, without its pipe"


def _reap(pid: int) -> None:
    with contextlib.suppress(ChildProcessError):  # reaped when its end was looked at
        os.waitpid(pid, 0)


async def run_command(command: str, job: Job, say: Say) -> Any:
    """Run a shell command in a process group of its own. Its output goes to the log; the tail also into the error."""
    # A pipe of our own: with asyncio's, waiting for the process also waits for every child that kept the pipe.
    read_end, write_end = os.pipe()
    tail = asyncio.ensure_future(_log_output(read_end))
    try:
        process = await _start_shell(command, job["env"], write_end)
        say({"op": "group", "id": job["id"], "pgid": process.pid})
        code = await _end_of_group(process)
        await asyncio.wait({tail}, timeout=CANCEL_GRACE_S)
    finally:
        tail.cancel()
    if code != 0:
        said = tail.result() if tail.done() and not tail.cancelled() else ""
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        raise AgentFailed(f"{how}\n{said}"[:ERROR_LIMIT_CHARS])
    return None


async def _end_of_group(process: asyncio.subprocess.Process) -> int:
    """Wait for a command, and kill what it left running."""
    try:
        return await process.wait()
    finally:
        kill_group(process.pid)


async def _start_shell(command: str, env: dict[str, str], output: int) -> asyncio.subprocess.Process:
    """Start a command; the pipe's end `output` is closed here, so that only the command holds it."""
    try:
        return await asyncio.create_subprocess_exec(
            "/bin/sh",
            "-c",
            command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, **env},
            start_new_session=True,
        )
    finally:
        os.close(output)


async def _log_output(read_end: int) -> str:
    """Copy a pipe to the log and return its end."""
    stream = asyncio.StreamReader()
    pipe = os.fdopen(read_end, "rb", 0)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(stream), pipe
    )
    tail = b""
    try:
        while True:
            part = await stream.read(65536)
            if not part:
                return tail.decode(errors="replace")
            sys.stdout.buffer.write(part)
            sys.stdout.flush()
            tail = (tail + part)[-2000:]
    finally:
        transport.close()


def kill_group(pgid: int) -> None:
    """Kill a process group that this host started, if it is still there."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pgid, signal.SIGKILL)


# --- the host ---------------------------------------------------------------------------------------------------------


class Host:
    """Takes jobs from the socket until it closes."""

    def __init__(self, run: Way, writer: asyncio.StreamWriter) -> None:
        self._run = run
        self._writer = writer
        self._attempts: set[asyncio.Future[None]] = set()
        self._groups: dict[str, int] = {}

    def say(self, message: Job) -> None:
        """Write one line; a socket that the other side closed swallows it."""
        if message["op"] == "group":
            self._groups[message["id"]] = message["pgid"]
        self._writer.write(json.dumps(message).encode() + b"\n")

    async def serve(self, reader: asyncio.StreamReader) -> None:
        """Start an attempt for each line, until the socket closes; then kill what runs."""
        async for line in reader:
            attempt = asyncio.ensure_future(self._attempt(json.loads(line)))
            self._attempts.add(attempt)
            attempt.add_done_callback(self._attempts.discard)
        for pgid in self._groups.values():
            kill_group(pgid)

    async def _attempt(self, job: Job) -> None:
        running = asyncio.ensure_future(self._run(job, self.say))
        await asyncio.wait({running}, timeout=job["timeout_s"])
        timed_out = not running.done()
        if timed_out:
            running.cancel()
            await asyncio.wait({running}, timeout=CANCEL_GRACE_S)
        self._groups.pop(job["id"], None)
        self.say({"id": job["id"], **({"op": "timeout"} if timed_out else _result(running))})


def _result(running: asyncio.Future[Any]) -> Job:
    try:
        return {"op": "done", "answer": plain(running.result())}
    except AgentFailed as error:
        return {"op": "error", "error": str(error), "network": error.network}
    except asyncio.CancelledError:
        return {"op": "error", "error": "the agent cancelled its own task"}
    except Exception as error:  # noqa: BLE001 - boundary: a fault here (fork refused, no /bin/sh) is the attempt's
        return {"op": "error", "error": told(error)}


def find_function(target: str) -> Function:
    """Import `module:function` (the function may be dotted), with the current folder first on the path."""
    module_name, _, path = target.partition(":")
    found: Any = importlib.import_module(module_name)
    for name in path.split("."):
        found = getattr(found, name)
    if not callable(found):
        raise TypeError(f"{target} is a {type(found).__name__}, not a function")
    return found  # type: ignore[no-any-return]


def is_async(function: Function) -> bool:
    """Whether calling it gives a coroutine, for functions, bound methods, partials and callable objects."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


def way_to_run(given: argparse.Namespace) -> Way:
    """How an attempt at the target is run; imports it."""
    if given.kind != "command":
        function = find_function(given.target)
        if given.kind == "measure" or is_async(function):
            return lambda job, say: call_here(function, job, say)
    # From here on user code runs in other processes: this one sees the socket close, and kills them before it ends.
    die_with(given.parent, 0)
    if given.kind == "command":
        return lambda job, say: run_command(given.target, job, say)
    return lambda job, say: call_forked(function, given.fd, job, say)


async def connect(fd: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """The inherited socket as streams."""
    return await asyncio.open_connection(sock=socket.socket(fileno=fd), limit=LINE_LIMIT_BYTES)


async def serve(fd: int, run: Way | None, failure: str) -> None:
    """Say whether the agent could be imported, and serve if so."""
    reader, writer = await connect(fd)
    if run is None:
        writer.write(json.dumps({"op": "failed", "error": failure}).encode() + b"\n")
        await writer.drain()
        return
    host = Host(run, writer)
    host.say({"op": "ready", "python": sys.version.split()[0]})
    await host.serve(reader)


def die_with(parent: int, by: int) -> None:
    """Ask the kernel for signal `by` (0: none) when the parent ends, for user code may never let this process look."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, by)
    if os.getppid() != parent:
        os._exit(1)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Runs a user's agent for Hone; not to be called by hand.")
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--kind", choices=["agent", "measure", "command"], required=True)
    parser.add_argument("target")
    return parser.parse_args()


def main() -> None:
    """Import, then serve until the socket closes."""
    given = _arguments()
    os.set_inheritable(given.fd, False)
    die_with(given.parent, signal.SIGTERM)
    sys.path[0] = os.getcwd()  # noqa: PTH109 - the path is text; not the folder of this script, whose modules are Hone's
    if given.kind != "command":
        os.environ["OPENAI_BASE_URL"] = NO_ADDRESS
        install_environ()
    run, failure = None, ""
    try:
        run = way_to_run(given)
    except BaseException as error:  # noqa: BLE001 - boundary: a module may raise anything at import; it is told
        traceback.print_exc()
        failure = told(error)
    asyncio.run(serve(given.fd, run, failure))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # the user's threads and exit handlers have no say any more


if __name__ == "__main__":
    main()
