"""Runs reward functions: a script for the user's own Python (3.9 or later), with nothing but the standard library.

Owns: importing `package.module:function` from the working directory, calling it, turning what it returns into a number.
Refuses: anything of Hone; it imports none of it.

JSON lines. In: {"id", "functions": ["package.module:function", …], "all": bool} once, then {"id", "function",
"trajectory": {…}} each. Out: {"id", "ready": true, "files": [path, …], "whole": bool} or {"id", "failed": why}, then
{"id", "score", "explanation", "extra"} or {"id", "error"} each. Unless all functions are wanted, one that cannot be
imported fails its own calls alone; what is ready is then not whole. Nobody can guess an id: a line with another one,
or with none, is not of this script.
The files are the functions' modules and all of the user's own that their import loaded: who edits one wants it loaded
anew. A process that a function forks never answers; if it comes back here, the call has failed.
What a function prints goes to standard error. When the input closes, the process ends, even in the middle of a call.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import inspect
import json
import math
import os
import queue
import select
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TextIO

MAX_TEXT_CHARS = 2000
MAX_EXTRAS = 100
MAX_NAME_CHARS = 100
FORK_GRACE_S = 0.2  # what was forked and ends, or comes back, does so by then; a pool of workers goes on

Json = dict[str, Any]


def main() -> None:
    """Answer requests until the input closes."""
    requests, replies = _take_pipes()
    # Python put this script's folder first; the user's modules are in the working directory.
    sys.path[:] = [str(Path.cwd()), *(folder for folder in sys.path if folder != str(Path(__file__).parent))]
    waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(requests, waiting), daemon=True).start()
    functions: dict[str, Callable[[Any], Any]] = {}
    loop = asyncio.new_event_loop()
    begin = json.loads(waiting.get())
    whole = True
    for path in begin["functions"]:
        try:
            functions[path] = load(path)
        except BaseException as error:  # noqa: BLE001 - importing runs the user's code, which may raise or exit
            if begin["all"]:
                _say(replies, {"id": begin["id"], "failed": describe(error)})
                return
            functions[path], whole = _raising(error), False
    forks = _Forks()
    _say(replies, {"id": begin["id"], "ready": True, "files": own_files(functions), "whole": whole})
    while True:
        request = json.loads(waiting.get())
        with forks.watched():
            result = answer(functions[request["function"]], request["trajectory"], loop)
        _say(replies, {"id": request["id"], **(forks.came_back() or result)})


def _take_pipes() -> tuple[TextIO, TextIO]:
    """The two pipes to Hone, out of reach of the user's code: its input is empty, its output is standard error."""
    requests = os.fdopen(os.dup(0), "r", encoding="utf-8")
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return requests, replies


class _Forks:
    """Whether a process that a function forked came back here, as its parent does, instead of ending."""

    def __init__(self) -> None:
        self._me = os.getpid()
        self._count = 0
        self._news = (-1, -1)
        os.register_at_fork(after_in_parent=self._forked)

    def _forked(self) -> None:
        self._count += 1

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Around one call. A process that comes back out of it, and is not this one, tells so and ends."""
        self._count, self._news = 0, os.pipe()
        yield
        if os.getpid() != self._me:
            os.write(self._news[1], b"!")
            os._exit(0)

    def came_back(self) -> Json | None:
        """The error of a call that two processes came back from; None where all is well."""
        reader, writer = self._news
        os.close(writer)  # now only what was forked holds it
        try:
            if self._count and _comes(reader) and os.read(reader, 1):
                return {"error": "the function forked, and both processes returned: end the other by os._exit"}
            return None
        finally:
            os.close(reader)


def _comes(reader: int) -> bool:
    """Whether a pipe has something, or ends, within the grace."""
    poll = select.poll()  # takes any file descriptor, which select.select does not
    poll.register(reader, select.POLLIN)
    return bool(poll.poll(FORK_GRACE_S * 1000))


def _read(requests: TextIO, waiting: queue.SimpleQueue[str]) -> None:
    for line in requests:
        waiting.put(line)
    os._exit(0)  # Hone is gone; a function that hangs must not outlive it


def _say(replies: TextIO, message: Json) -> None:
    replies.write(json.dumps(message) + "\n")
    replies.flush()


def load(path: str) -> Callable[[Any], Any]:
    """Import `package.module:function`."""
    module, _, name = path.partition(":")
    function = getattr(importlib.import_module(module), name)
    if not callable(function):
        raise TypeError(f"{path} is no function")
    return function  # type: ignore[no-any-return]  # getattr's result is Any, callable() checked it


def _raising(error: BaseException) -> Callable[[Any], Any]:
    """What stands in the place of a function that could not be imported."""

    def fail(trajectory: Any) -> Any:
        raise error

    return fail


def own_files(functions: Mapping[str, Callable[[Any], Any]]) -> list[str]:
    """The functions' modules, wherever they lie, and the source files in the working directory that are loaded by now.

    Of these, installed packages and this script are left out.
    """
    named = {path.partition(":")[0] for path in functions} | {str(f.__module__) for f in functions.values()}
    modules = (getattr(sys.modules.get(name), "__file__", None) for name in named)
    asked = {Path(file).resolve() for file in modules if file is not None}
    loaded = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    paths = {Path(file).resolve() for file in loaded if file is not None and file.endswith(".py")}
    folder, installed = Path.cwd().resolve(), {"site-packages", "dist-packages"}
    ours = {p for p in paths if folder in p.parents and not installed.intersection(p.parts)}
    return sorted(str(path) for path in (ours | asked) - {Path(__file__).resolve()})


def answer(function: Callable[[Any], Any], trajectory: Json, loop: asyncio.AbstractEventLoop) -> Json:
    """Call a function with a trajectory: its number, or what went wrong."""
    try:
        result = function(SimpleNamespace(**trajectory))
        if inspect.isawaitable(result):
            result = loop.run_until_complete(_await(result))
        return number(result)
    except BaseException as error:  # noqa: BLE001 - whatever the user's code raises marks this trajectory alone
        return {"error": describe(error)}


async def _await(result: Any) -> Any:
    return await result


def number(result: Any) -> Json:
    """What a function returned, as score, explanation and named numbers beside them."""
    if not isinstance(result, dict):
        return {"score": _finite(result, "the result"), "explanation": None, "extra": {}}
    if "score" not in result:
        raise TypeError("the returned dict has no 'score'")
    explanation = result.get("explanation")
    return {
        "score": _finite(result["score"], "'score'"),
        "explanation": None if explanation is None else str(explanation)[:MAX_TEXT_CHARS],
        "extra": _extra({name: value for name, value in result.items() if name not in ("score", "explanation")}),
    }


def _extra(values: Mapping[Any, Any]) -> Json:
    """The named numbers beside the score."""
    if len(values) > MAX_EXTRAS:
        raise ValueError(f"the returned dict has {len(values)} values beside 'score': at most {MAX_EXTRAS}")
    for name in map(str, values):
        if not 0 < len(name) <= MAX_NAME_CHARS or not name.isprintable():
            what = f"1 to {MAX_NAME_CHARS} printable characters"
            raise ValueError(f"{name[:MAX_NAME_CHARS]!a} cannot name a value: use {what}")
    return {str(name): _finite(value, repr(name)) for name, value in values.items()}


def _finite(value: Any, what: str) -> float:
    # numpy and torch scalars have __float__; so has nothing else that is no number but str, which has none
    if not hasattr(value, "__float__"):
        raise TypeError(f"{what} is {type(value).__name__}, not a number")
    result = float(value)
    if not math.isfinite(result):
        raise ValueError(f"{what} is {result}, not a finite number")
    return result


def describe(error: BaseException) -> str:
    """An exception in one line, with the place in the user's code where it came from."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename != __file__]
    place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    text = " ".join(str(error).split())[:MAX_TEXT_CHARS]
    return f"{type(error).__name__}: {text}{place}" if text else f"{type(error).__name__}{place}"


if __name__ == "__main__":
    main()
