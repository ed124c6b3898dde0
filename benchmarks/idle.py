"""The cost of Hone at idle, and of starting its commands: CPU seconds of real processes.

    python -m benchmarks.idle --save        writes benchmarks/results/idle.json

`hone serve`, `hone judge` and `hone learn` run on one store before a scripted engine. `SETTLE_S` after all three are
ready, the CPU time of each within `--seconds`, its children included, is divided by the elapsed time: 0.5 is half a
percent of a core. Then `hone --help` and `hone config` run `STARTS` times each; reported is the median of their CPU
time beyond that of a bare `python -c pass`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import psutil

from benchmarks.load import cpu_s, free_port, machine
from tests.proxy.scripted_engine import ScriptedEngine

RESULTS = Path(__file__).parent / "results" / "idle.json"
ROOT = Path(__file__).parent.parent
MODEL = ROOT / "examples" / "helpdesk" / "model"
START_TIMEOUT_S = 60.0
SETTLE_S = 10.0
STARTS = 9
HONE = [sys.executable, "-P", "-m", "proxy.cli"]
CONFIG = """
[aliases.helpdesk]
[engine]
urls = ["{engine}"]
base = "{model}"
name = "base"
max_lora_rank = 16
[proxy]
port = {port}
[trainer]
dtype = "float32"
[[judge.rewards]]
kind = "function"
function = "examples.helpdesk.checks:solved"
"""


@contextlib.contextmanager
def running(folder: Path, *command: str) -> Iterator[psutil.Process]:
    """Run a program of Hone until the block ends; its output goes to a file with its name."""
    with (folder / f"{command[0]}.log").open("wb") as log:
        argv = [*HONE, *command, "--data", str(folder)]
        process = subprocess.Popen(argv, cwd=folder, env=environment(), stdout=log, stderr=log)
        try:
            yield psutil.Process(process.pid)
        finally:
            process.terminate()
            process.wait()


def environment() -> dict[str, str]:
    """Return our environment, with Hone's packages on the path."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


def wait_until(folder: Path, look: Callable[[], bool]) -> None:
    """Wait until `look` returns true. Raises TimeoutError with the programs' logs."""
    deadline = time.monotonic() + START_TIMEOUT_S
    while not look():
        if time.monotonic() > deadline:
            logs = "\n".join(f"{path.name}:\n{path.read_text()}" for path in sorted(folder.glob("*.log")))
            raise TimeoutError(f"proxy, judge and learner were not ready after {START_TIMEOUT_S} s\n{logs}")
        time.sleep(0.2)


def up(url: str) -> bool:
    """Whether the proxy serves and has found its engine."""
    with contextlib.suppress(httpx.HTTPError):
        return bool(httpx.get(f"{url}/healthz", trust_env=False).json()["engines_up"])
    return False


def said(folder: Path, program: str, words: str) -> bool:
    """Whether a program logged this: judge and learner have no port, so their logs show that they are ready."""
    return words in (folder / f"{program}.log").read_text()


async def idle(seconds: float) -> dict[str, Any]:
    """Return the CPU of each idle program, in percent of a core."""
    engine, port = ScriptedEngine(), free_port()
    await engine.start()
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        (folder / "hone.toml").write_text(CONFIG.format(engine=engine.url, model=MODEL, port=port, root=ROOT))
        url = f"http://127.0.0.1:{port}"
        programs = {"proxy": stack.enter_context(running(folder, "serve"))}
        await asyncio.to_thread(wait_until, folder, lambda: up(url))
        programs["judge"] = stack.enter_context(running(folder, "judge"))
        programs["learner"] = stack.enter_context(running(folder, "learn"))
        await asyncio.to_thread(wait_until, folder, lambda: said(folder, "judge", "judge "))
        await asyncio.to_thread(wait_until, folder, lambda: said(folder, "learn", "waiting"))
        await asyncio.sleep(SETTLE_S)
        before, began = taken(programs), time.monotonic()
        await asyncio.sleep(seconds)
        after, passed_s = taken(programs), time.monotonic() - began
    await engine.stop()
    return {name: round(100 * (after[name] - before[name]) / passed_s, 3) for name in programs}


def taken(programs: Mapping[str, psutil.Process]) -> dict[str, float]:
    """Return the CPU seconds of each program and its children so far."""
    return {name: sum(map(cpu_s, [p, *p.children(recursive=True)])) for name, p in programs.items()}


def starting(*command: str) -> float:
    """Return the median CPU seconds of a whole command over several runs."""
    times = []
    for _ in range(STARTS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, env=environment(), cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return statistics.median(times)


async def main() -> None:
    """Measure and print; with `--save`, save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--save", action="store_true", help=f"write {RESULTS.name}")
    parser.add_argument("--seconds", type=float, default=60.0, help="seconds to measure at idle")
    asked = parser.parse_args()
    percent = await idle(asked.seconds)
    bare = starting(sys.executable, "-c", "pass")
    starts = {f"hone {command}": round(starting(*HONE, command) - bare, 3) for command in ("--help", "config")}
    for name, figure in percent.items():
        print(f"{name:12} {figure:6.2f} % of a core while idle")
    for name, figure in starts.items():
        print(f"{name:12} {figure:6.3f} s of CPU above bare Python ({bare:.3f} s)")
    if asked.save:
        found = {"seconds": asked.seconds, "idle_percent_of_a_core": percent, "start_cpu_s_above_bare": starts}
        found["bare_python_cpu_s"] = round(bare, 3)  # on a shared machine, the same work takes longer
        RESULTS.write_text(json.dumps({"machine": machine(), **found}, indent=1) + "\n")


if __name__ == "__main__":
    asyncio.run(main())
