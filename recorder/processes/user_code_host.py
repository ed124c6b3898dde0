"""The child's side of a child process (the parent's is `recorder.processes.child_host`): it runs users' code.

    PYTHON user_code_host.py --fd N

Owns: the protocol, importing `module:function`, running agents and reward functions, and the form of results. A script
for the user's own Python (3.9 or later, standard library only). Refuses: importing anything of Hone.

Agents run many attempts concurrently. Async functions share one event loop: an attempt costs a task. A sync function
runs in a process forked for the attempt, after the import: it has its own environment, may block, and can be killed. A
command has its own process group. Reward functions are called one after the other, in the main thread and outside
any running loop: they may keep state and start a loop of their own.

The protocol is one JSON object per line, both ways, over the socket that is inherited as file descriptor N.
In:   {"id", "start": {"kind", ...}} once, then {"id", "request": {...}} each:
      agent, measure, command: start {"target", "parent"}; request {"task", "env", "timeout_s"}
      functions: start {"functions": [target, ...], "all"}; request {"function", "trajectory"}
Out:  {"id", "ready": {...}} or {"id", "failed": why} once; then for each id {"id", "group": pgid} for each process
      group that was started for it, and one {"id", "reply": {...}}:
      agent, measure, command: {"ending": "done", "answer"}, {"ending": "error", "error"} or {"ending": "timeout"}
      functions: {"score", "explanation", "extra", "turns"} or {"error"}
Ids cannot be guessed. Output of user code goes to standard error; standard output leads there too. When the socket
closes, all started processes are killed and this process ends, even in the middle of a call.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import contextvars
import ctypes
import importlib
import inspect
import itertools
import json
import math
import os
import queue
import select
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

LINE_LIMIT_BYTES = 256 * 1024 * 1024
ANSWER_LIMIT_CHARS = 1024 * 1024
ERROR_LIMIT_CHARS = 4000
MAX_TEXT_CHARS = 2000
MAX_EXTRAS = 100
MAX_NAME_CHARS = 100
# How long a cancelled attempt may clean up before it is abandoned.
CANCEL_GRACE_S = 1.0
FORK_GRACE_S = 0.2  # a fork that ends or returns does so within this time; a pool of workers runs on
# An agent that reads OPENAI_BASE_URL once, at import, would send every attempt to one address: it is refused instead.
NO_ADDRESS = "http://127.0.0.1:9/hone-read-OPENAI_BASE_URL-inside-the-function-or-use-task.base_url/v1"

Json = dict[str, Any]
Send = Callable[[Json], None]
Function = Callable[[Any], Any]
Runner = Callable[[Json, Callable[[int], None]], Any]  # runs one attempt's request, and reports process groups

_PR_SET_PDEATHSIG = 1


# Exceptions of the clients that agents use; their cause is mostly, but not always, a builtin ConnectionError.
_NETWORK_ERRORS = frozenset({"APIConnectionError", "ConnectError", "RemoteProtocolError", "ServerDisconnectedError"})


class AgentFailed(Exception):
    """The attempt failed inside the agent. `network`: because of a server or a connection."""

    def __init__(self, text: str, *, network: bool = False) -> None:
        super().__init__(text)
        self.network = network


# --- the protocol -----------------------------------------------------------------------------------------------------


class Connection:
    """The socket to the parent. Messages sent from several threads do not mix."""

    def __init__(self, fd: int) -> None:
        os.set_inheritable(fd, False)
        self.socket = socket.socket(fileno=fd)
        self._sending = threading.Lock()

    def messages(self) -> Iterator[Json]:
        """Yield the parent's messages, until it closes the socket."""
        with self.socket.makefile("rb") as lines:
            for line in lines:
                yield json.loads(line)

    def send(self, message: Json) -> None:
        """Send one message completely; nothing stays in a buffer that a fork would copy."""
        with self._sending:
            self.socket.sendall(encode_line(message))


def encode_line(message: Json) -> bytes:
    """Return a message as one line of JSON."""
    return json.dumps(message).encode() + b"\n"


def connect(description: str) -> Connection:
    """Return the connection to the parent, by the command line of this process."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--fd", type=int, required=True, help="the file descriptor of the socket to Hone")
    return Connection(parser.parse_args().fd)


def serve_in_turn(
    messages: Iterable[Json], send: Send, begin: Callable[[Json], Json], answer: Callable[[Json], Json]
) -> None:
    """Handle the start message, and then one request after the other until the messages end.

    `begin` returns {"ready": {...}}, or {"failed": why}: then no request is answered.
    """
    for message in messages:
        if "start" in message:
            begun = begin(message["start"])
            send({"id": message["id"], **begun})
            if "failed" in begun:
                return
        else:
            send({"id": message["id"], "reply": answer(message["request"])})


def ending_with(messages: Iterator[Json]) -> Iterator[Json]:
    """Yield the same messages. When they end, this process ends at once, so that a hanging call cannot outlive Hone."""
    waiting: queue.SimpleQueue[Json] = queue.SimpleQueue()

    def read() -> None:
        for message in messages:
            waiting.put(message)
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    while True:
        yield waiting.get()


# --- importing --------------------------------------------------------------------------------------------------------


def look_in_working_directory() -> None:
    """Put the working directory first on the path; remove the folder of this script, whose modules are Hone's."""
    own = str(Path(__file__).parent)
    sys.path[:] = [str(Path.cwd()), *(folder for folder in sys.path if folder != own)]


def load(target: str) -> Function:
    """Import `module:function`; the function may be dotted."""
    module, _, path = target.partition(":")
    found: Any = importlib.import_module(module)
    for name in path.split("."):
        found = getattr(found, name)
    if not callable(found):
        raise TypeError(f"{target} is a {type(found).__name__}, not a function")
    return found  # type: ignore[no-any-return]  # Any, callable() checked it


# --- one environment per attempt --------------------------------------------------------------------------------------

_overlay: contextvars.ContextVar[dict[str, str] | None] = contextvars.ContextVar("attempt_environment", default=None)


class AttemptEnviron(os._Environ):  # type: ignore[type-arg]  # not subscriptable when run
    """`os.environ` with the variables of the current attempt on top, so that attempts can share a process."""

    def __getitem__(self, key: str) -> str:
        own = (_overlay.get() or {}).get(key)
        return super().__getitem__(key) if own is None else own


def install_environ() -> None:
    """Replace `os.environ` by an `AttemptEnviron` before the user's modules take a reference to it."""
    old = os.environ
    new = AttemptEnviron(old._data, old.encodekey, old.decodekey, old.encodevalue, old.decodevalue)  # type: ignore[attr-defined]
    os.environ = new  # noqa: B003 - shares its data with the old one


# --- results ----------------------------------------------------------------------------------------------------------


def plain(answer: Any) -> Any:
    """Return `answer` as JSON values. Other values become their repr, and long ones are truncated."""
    try:
        text = json.dumps(answer, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        try:
            answer = repr(answer)
        except Exception as error:  # noqa: BLE001 - boundary: a user's __repr__ may do anything
            answer = f"<{type(answer).__name__}; its repr failed: {type(error).__name__}>"
        text = json.dumps(answer)
    if len(text) > ANSWER_LIMIT_CHARS:
        return text[:ANSWER_LIMIT_CHARS] + f"… (cut, {len(text)} characters)"
    return answer


def format_error(error: BaseException) -> str:
    """Return an exception's type, text and last frames, truncated to `ERROR_LIMIT_CHARS`."""
    lines = traceback.format_exception(type(error), error, error.__traceback__)
    return (lines[-1].strip() + "\n" + "".join(lines))[:ERROR_LIMIT_CHARS]


def is_network_fault(error: BaseException | None) -> bool:
    """Return whether an exception or one of its causes is a broken connection or a server error (HTTP 5xx)."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        status = getattr(error, "status_code", None)
        names = {cls.__name__ for cls in type(error).__mro__}
        if isinstance(error, ConnectionError) or names & _NETWORK_ERRORS or (isinstance(status, int) and status >= 500):
            return True
        error = error.__cause__ or error.__context__
    return False


def describe(error: BaseException) -> str:
    """Return an exception as one line, with its position in the user's code."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename != __file__]
    place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    text = " ".join(str(error).split())[:MAX_TEXT_CHARS]
    return f"{type(error).__name__}: {text}{place}" if text else f"{type(error).__name__}{place}"


# --- agents: one attempt -------------------------------------------------------------------------------------------


async def call_here(function: Function, request: Json, report: Callable[[int], None]) -> Any:
    """Run the function in this event loop. A sync function blocks it, so it has to return quickly."""
    _overlay.set(request["env"])
    try:
        result = function(SimpleNamespace(**request["task"]))
        return await result if inspect.isawaitable(result) else result
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # noqa: BLE001 - boundary: what users raise, SystemExit too, ends the attempt only
        traceback.print_exc()
        raise AgentFailed(format_error(error), network=is_network_fault(error)) from None


async def call_forked(function: Function, host_socket: int, request: Json, report: Callable[[int], None]) -> Any:
    """Run the function in a process forked for it, and kill the processes that it leaves behind."""
    sys.stdout.flush()
    sys.stderr.flush()
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read_end)
        os.close(host_socket)  # while it is open here, Hone would not notice that the host ended
        _in_child(function, request, write_end)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.setpgid(pid, pid)  # in parent and child, so that the group exists for a kill in any order
    os.close(write_end)
    report(pid)
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


def _in_child(function: Function, request: Json, write_end: int) -> NoReturn:
    try:
        os.setpgid(0, 0)
        signal.set_wakeup_fd(-1)
        asyncio._set_running_loop(None)  # the loop belongs to the parent
        os.environ.update(request["env"])
        reply = encode_line(_called(function, request))
        sys.stdout.flush()
        sys.stderr.flush()
        while reply:
            reply = reply[os.write(write_end, reply) :]
    finally:
        os._exit(0)  # without the parent's exit handlers and event loop


def _called(function: Function, request: Json) -> Json:
    try:
        result = function(SimpleNamespace(**request["task"]))
        return {"answer": plain(asyncio.run(_awaited(result)) if inspect.isawaitable(result) else result)}
    except BaseException as error:  # noqa: BLE001 - boundary: as in call_here
        traceback.print_exc()
        return {"error": format_error(error), "network": is_network_fault(error)}


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
    """Return how a process ended that has closed its pipe; wait for it up to a second."""
    until = time.monotonic() + 1.0
    while time.monotonic() < until:
        done, status = os.waitpid(pid, os.WNOHANG)  # noqa: ASYNC222 - it does not wait
        if done:
            return f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"exit {os.WEXITSTATUS(status)}"
        await asyncio.sleep(0.01)
    return "it was still running, without its pipe"


def _reap(pid: int) -> None:
    with contextlib.suppress(ChildProcessError):  # reaped when its end was read
        os.waitpid(pid, 0)


async def run_command(command: str, request: Json, report: Callable[[int], None]) -> Any:
    """Run a shell command in a process group of its own. Its output goes to the log, the end also into the error."""
    # With asyncio's own pipe, waiting for the process would also wait for every child that keeps the pipe open.
    read_end, write_end = os.pipe()
    tail = asyncio.ensure_future(_log_output(read_end))
    try:
        process = await _start_shell(command, request["env"], write_end)
        report(process.pid)
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
    """Wait for a command, and kill the processes that it left running."""
    try:
        return await process.wait()
    finally:
        kill_group(process.pid)


async def _start_shell(command: str, env: dict[str, str], output: int) -> asyncio.subprocess.Process:
    """Start a command, and close `output`, the end of the pipe, so that only the command has it open."""
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
    """Copy a pipe to the log, and return the last 2000 bytes as text."""
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
    """Kill a process group that this host started, if it still exists."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pgid, signal.SIGKILL)


# --- agents: many attempts at a time ----------------------------------------------------------------------------------


class Attempts:
    """Runs an attempt for each request, until the socket closes."""

    def __init__(self, run: Runner, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._run = run
        self._reader = reader
        self._writer = writer
        self._running: set[asyncio.Future[None]] = set()
        self._groups: dict[str, int] = {}

    async def serve(self) -> None:
        """Start an attempt for each line; when the lines end, kill what is running."""
        async for line in self._reader:
            attempt = asyncio.ensure_future(self._attempt(json.loads(line)))
            self._running.add(attempt)
            attempt.add_done_callback(self._running.discard)
        for pgid in self._groups.values():
            kill_group(pgid)

    async def _attempt(self, message: Json) -> None:
        id_, request = message["id"], message["request"]
        running = asyncio.ensure_future(self._run(request, lambda pgid: self._report(id_, pgid)))
        await asyncio.wait({running}, timeout=request["timeout_s"])
        timed_out = not running.done()
        if timed_out:
            running.cancel()
            await asyncio.wait({running}, timeout=CANCEL_GRACE_S)
        self._groups.pop(id_, None)
        self._send({"id": id_, "reply": {"ending": "timeout"} if timed_out else _result(running)})

    def _report(self, id_: str, pgid: int) -> None:
        self._groups[id_] = pgid
        self._send({"id": id_, "group": pgid})

    def _send(self, message: Json) -> None:
        self._writer.write(encode_line(message))  # no error if the other side has closed the socket


def _result(running: asyncio.Future[Any]) -> Json:
    try:
        return {"ending": "done", "answer": plain(running.result())}
    except AgentFailed as error:
        return {"ending": "error", "error": str(error), "network": error.network}
    except asyncio.CancelledError:
        return {"ending": "error", "error": "the agent cancelled its own task"}
    except Exception as error:  # noqa: BLE001 - boundary: a fault here (fork refused, no /bin/sh) fails the attempt
        return {"ending": "error", "error": format_error(error)}


def is_async(function: Function) -> bool:
    """Return whether calling it gives a coroutine, for functions, bound methods, partials and callable objects."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


def runner(start: Json, host_socket: int) -> Runner:
    """Import the target, and return the function that runs an attempt at it."""
    if start["kind"] != "command":
        function = load(start["target"])
        if start["kind"] == "measure" or is_async(function):
            return lambda request, report: call_here(function, request, report)
    # User code runs in other processes then. This one notices when the socket closes, and kills them before it ends.
    die_with(start["parent"], 0)
    if start["kind"] == "command":
        return lambda request, report: run_command(start["target"], request, report)
    return lambda request, report: call_forked(function, host_socket, request, report)


def serve_attempts(connection: Connection, message: Json) -> None:
    """Import the agent, report whether that succeeded, and run attempts if so."""
    start = message["start"]
    die_with(start["parent"], signal.SIGTERM)
    if start["kind"] != "command":
        os.environ["OPENAI_BASE_URL"] = NO_ADDRESS
        install_environ()
    try:
        run = runner(start, connection.socket.fileno())
    except BaseException as error:  # noqa: BLE001 - boundary: a module may raise anything at import; it is reported
        traceback.print_exc()
        connection.send({"id": message["id"], "failed": format_error(error)})
        return
    connection.send({"id": message["id"], "ready": {}})
    asyncio.run(_serve_attempts(run, connection))


async def _serve_attempts(run: Runner, connection: Connection) -> None:
    reader, writer = await asyncio.open_connection(sock=connection.socket, limit=LINE_LIMIT_BYTES)
    await Attempts(run, reader, writer).serve()


def die_with(parent: int, by: int) -> None:
    """Let the kernel send signal `by` (0: none) when the parent ends; user code may block this process for ever."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, by)
    if os.getppid() != parent:
        os._exit(1)


# --- reward functions, one call after the other -----------------------------------------------------------------------


class RewardFunctions:
    """Calls the user's reward functions, which it has by their targets (`module:function`)."""

    def __init__(self) -> None:
        self._functions: dict[str, Function] = {}
        self._loop = asyncio.new_event_loop()

    def begin(self, start: Json) -> Json:
        """Import the functions. Unless `all` is set, a function that cannot be imported fails its own calls only.

        The ready message has the files of the user's modules, and whether all functions were imported (`whole`).
        """
        whole = True
        for target in start["functions"]:
            try:
                self._functions[target] = load(target)
            except BaseException as error:  # noqa: BLE001 - importing runs the user's code, which may raise or exit
                if start["all"]:
                    return {"failed": describe(error)}
                self._functions[target], whole = _raising(error), False
        self._forks = _Forks()
        return {"ready": {"files": own_files(self._functions), "whole": whole}}

    def answer(self, request: Json) -> Json:
        """Call a function with a trajectory; return its number or the error."""
        with self._forks.watched():
            result = self._called(self._functions[request["function"]], request["trajectory"])
        return self._forks.came_back() or result

    def _called(self, function: Function, trajectory: Json) -> Json:
        try:
            result = function(SimpleNamespace(**trajectory))
            if inspect.isawaitable(result):
                result = self._loop.run_until_complete(_awaited(result))
            return number(result)
        except BaseException as error:  # noqa: BLE001 - whatever the user's code raises fails this trajectory only
            return {"error": describe(error)}


class _Forks:
    """Detects a process that a function forked and that returned from the function instead of ending."""

    def __init__(self) -> None:
        self._me = os.getpid()
        self._count = 0
        self._news = (-1, -1)
        os.register_at_fork(after_in_parent=self._forked)

    def _forked(self) -> None:
        self._count += 1

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """A context around one call. A forked process that leaves it reports this and ends."""
        self._count, self._news = 0, os.pipe()
        yield
        if os.getpid() != self._me:
            os.write(self._news[1], b"!")
            os._exit(0)

    def came_back(self) -> Json | None:
        """Return the error if a forked process returned from the call too, else None."""
        reader, writer = self._news
        os.close(writer)  # now only forked processes have it open
        try:
            if self._count and _comes(reader) and os.read(reader, 1):
                return {"error": "the function forked, and both processes returned: end the other by os._exit"}
            return None
        finally:
            os.close(reader)


def _comes(reader: int) -> bool:
    """Return whether a pipe has data, or is closed, within `FORK_GRACE_S`."""
    poll = select.poll()  # takes any file descriptor, which select.select does not
    poll.register(reader, select.POLLIN)
    return bool(poll.poll(FORK_GRACE_S * 1000))


def _raising(error: BaseException) -> Function:
    """A replacement for a function that could not be imported."""

    def fail(trajectory: Any) -> Any:
        raise error

    return fail


def own_files(functions: Mapping[str, Function]) -> list[str]:
    """Return the functions' modules, wherever they are, and the loaded source files in the working directory.

    Installed packages and this script are omitted.
    """
    named = {path.partition(":")[0] for path in functions} | {str(f.__module__) for f in functions.values()}
    modules = (getattr(sys.modules.get(name), "__file__", None) for name in named)
    modules_of_functions = {Path(file).resolve() for file in modules if file is not None}
    loaded = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    paths = {Path(file).resolve() for file in loaded if file is not None and file.endswith(".py")}
    folder, installed = Path.cwd().resolve(), {"site-packages", "dist-packages"}
    ours = {p for p in paths if folder in p.parents and not installed.intersection(p.parts)}
    return sorted(str(path) for path in (ours | modules_of_functions) - {Path(__file__).resolve()})


def number(result: Any) -> Json:
    """Return a function's result as score, explanation, values of turns, and further named numbers.

    `turns` is a list with a number or None for each turn, or None. Raises TypeError, ValueError.
    """
    if not isinstance(result, dict):
        return {"score": _finite(result, "the result"), "explanation": None, "extra": {}, "turns": None}
    if "score" not in result:
        raise TypeError("the returned dict has no 'score'")
    explanation = result.get("explanation")
    turns = result.get("turns") if isinstance(result.get("turns"), (list, tuple)) else None
    known = ("score", "explanation") if turns is None else ("score", "explanation", "turns")
    return {
        "score": _finite(result["score"], "'score'"),
        "explanation": None if explanation is None else str(explanation)[:MAX_TEXT_CHARS],
        "extra": _extra({name: value for name, value in result.items() if name not in known}),
        "turns": None if turns is None else _turns(turns),
    }


def _turns(values: Iterable[Any]) -> list[float | None]:
    """Return the values of turns in their order."""
    return [None if value is None else _finite(value, f"turns[{at}]") for at, value in enumerate(values)]


def _extra(values: Mapping[Any, Any]) -> Json:
    """Return the named numbers other than the score."""
    if len(values) > MAX_EXTRAS:
        raise ValueError(f"the returned dict has {len(values)} values besides 'score': at most {MAX_EXTRAS}")
    for name in map(str, values):
        if not 0 < len(name) <= MAX_NAME_CHARS or not name.isprintable():
            what = f"1 to {MAX_NAME_CHARS} printable characters"
            raise ValueError(f"{name[:MAX_NAME_CHARS]!a} cannot name a value: use {what}")
    return {str(name): _finite(value, repr(name)) for name, value in values.items()}


def _finite(value: Any, what: str) -> float:
    # numpy and torch scalars have __float__; a str has not
    if not hasattr(value, "__float__"):
        raise TypeError(f"{what} is {type(value).__name__}, not a number")
    result = float(value)
    if not math.isfinite(result):
        raise ValueError(f"{what} is {result}, not a finite number")
    return result


# --- the script -------------------------------------------------------------------------------------------------------


def main() -> None:
    """Serve agents or reward functions, as the first message says, until the socket closes."""
    connection = connect("Runs a user's agent or reward functions for Hone; not to be called by hand.")
    look_in_working_directory()
    messages = connection.messages()
    first = next(messages, None)
    if first is not None and first["start"]["kind"] == "functions":
        functions = RewardFunctions()
        every = itertools.chain([first], ending_with(messages))
        serve_in_turn(every, connection.send, functions.begin, functions.answer)
    elif first is not None:
        serve_attempts(connection, first)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # without the user's threads and exit handlers


if __name__ == "__main__":
    main()
