"""How many functions the proxy calls for one recorded call: a measure of its speed that other work does not change.

The proxy runs in a process of its own, with empty caches. In other threads of it, one connection sends chat completions
of which no two are equal, and the static upstream answers. A profile hook counts what cProfile counts: calls of Python
functions (each resumption of a coroutine is one) and of functions in C. Counted is what happens in the event loop
between the start of one request and the start of the next. A tenth of the requests need at most the figure; the others
meet timers too.

`results/function_calls.json` has the most that a call may need. `tests/benchmarks/test_function_calls.py` fails above
it, and far below it: the number may only fall.

    python -m benchmarks.function_calls [--requests 300] [--streaming] [--top 60] [--save]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from multiprocessing import Pipe, get_context
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType
from typing import Any, Final

import orjson

from benchmarks import load, proxy
from benchmarks.formats import formats, upstream_answers

RESULTS: Final = Path(__file__).parent / "results" / "function_calls.json"
WARM: Final = 20  # first requests, which are not counted: they fill what is remembered for all later ones
MOST_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class FunctionCalls:
    """The function calls of one recorded call."""

    python: int
    in_all: int  # those in C included
    by_function: list[tuple[str, float]]  # means, the largest first


class _Count:
    """A profile hook that sends its counts when the last request has ended, and then counts no longer."""

    def __init__(self, requests: int, results: Connection) -> None:
        from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

        self._begin = RequestResponseCycle.__init__.__code__
        self._requests = requests
        self._results = results
        self._python = self._in_c = 0
        self._starts: list[tuple[int, int]] = []  # the counts at the start of each request
        self._functions: Counter[Any] = Counter()

    def __call__(self, frame: FrameType, event: str, arg: Any) -> None:
        """Count one event of the interpreter."""
        if event == "call":
            if frame.f_code is self._begin:
                self._start()
            self._python += 1
            self._functions[frame.f_code] += 1
        elif event == "c_call":
            self._in_c += 1
            self._functions[arg.__qualname__] += 1

    def _start(self) -> None:
        self._starts.append((self._python, self._in_c))
        if len(self._starts) == WARM + 1:
            self._functions.clear()
        if len(self._starts) == WARM + self._requests + 1:
            sys.setprofile(None)
            self._results.send(self._counted())

    def _counted(self) -> FunctionCalls:
        starts = self._starts[WARM:]
        python = [later[0] - one[0] for one, later in pairwise(starts)]
        in_all = [sum(later) - sum(one) for one, later in pairwise(starts)]
        means = [(_name(function), count / self._requests) for function, count in self._functions.most_common()]
        return FunctionCalls(_undisturbed(python), _undisturbed(in_all), means)


def _undisturbed(counts: list[int]) -> int:
    """Return the first tenth of the sorted counts: timers and other threads only add to them."""
    return sorted(counts)[len(counts) // 10]


def _name(function: Any) -> str:
    if isinstance(function, str):
        return function
    return f"{'/'.join(Path(function.co_filename).parts[-3:])}:{function.co_firstlineno}:{function.co_name}"


def _count_from_first_request(hook: _Count) -> None:
    """Set the hook when the first request begins, so that it does not make the proxy's start slow."""
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

    begin = RequestResponseCycle.__init__

    def first(self: RequestResponseCycle, *args: Any, **given: Any) -> None:
        RequestResponseCycle.__init__ = begin  # type: ignore[method-assign]
        sys.setprofile(hook)
        begin(self, *args, **given)

    RequestResponseCycle.__init__ = first  # type: ignore[method-assign]


def _send_requests(port: int, body: bytes, upstream_port: int) -> None:
    """Run the upstream and one client, each in a thread: a profile hook sees its own thread only."""
    path = formats()[0].path
    threading.Thread(target=load.run_upstream, args=(upstream_port, upstream_answers()), daemon=True).start()
    load.wait_for_port(upstream_port)
    load.wait_for_port(port)
    while not load.drive(port, path, body, 1, MOST_S).failures:
        pass


def run_counted(requests: int, body: bytes, results: Connection) -> None:
    """Serve Hone until killed, and send a `FunctionCalls` over `requests` (the target of a child process)."""
    from recorder.store import write_backends

    write_backends.SLOW_S = MOST_S  # a slow disk must not move commits to a thread, whose calls are not counted
    _count_from_first_request(_Count(requests, results))
    port, upstream_port = load.free_port(), load.free_port()
    threading.Thread(target=_send_requests, args=(port, body, upstream_port), daemon=True).start()
    with tempfile.TemporaryDirectory() as data:
        proxy.run_proxy(port, upstream_port, data, full=False)


def count(requests: int, *, streaming: bool = False) -> FunctionCalls:
    """Return the function calls of a recorded chat completion. Raises RuntimeError if there is no result in time."""
    receiver, sender = Pipe(duplex=False)
    body = formats()[0].request(stream=streaming)
    process = get_context("spawn").Process(target=run_counted, args=(requests, body, sender), daemon=True)
    process.start()
    try:
        if not receiver.poll(MOST_S):
            raise RuntimeError(f"{WARM + requests} recorded calls took more than {MOST_S:g} s, or failed")
        counted: FunctionCalls = receiver.recv()
        return counted
    finally:
        process.terminate()
        process.join(10)


def main() -> None:
    """Count, print the functions that are called most often, and write the number with `--save`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--streaming", action="store_true", help="a stream of 200 events; cannot be saved")
    parser.add_argument("--top", type=int, default=60, metavar="N", help="how many functions to print")
    parser.add_argument("--save", action="store_true")
    args = parser.parse_args()
    if args.save and args.streaming:
        parser.error("--save is for plain answers: omit --streaming")
    counted = count(args.requests, streaming=args.streaming)
    for name, mean in counted.by_function[: args.top]:
        print(f"{mean:8.2f}  {name}")
    print(f"a recorded call: {counted.in_all} function calls, {counted.python} of Python functions")
    if args.save:
        figures = {"python": counted.python, "in_all": counted.in_all}
        setup = {"version": sys.version.split()[0], "requests": args.requests}
        RESULTS.write_bytes(orjson.dumps(figures | {"setup": setup}, option=orjson.OPT_INDENT_2) + b"\n")


if __name__ == "__main__":
    main()
