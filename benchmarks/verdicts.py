"""Hone's own cost of rubric verdicts: a thousand trajectories judged one by one, by a judge that answers at once.

    python -m benchmarks.verdicts --save        writes benchmarks/results/verdicts.json

Groups of trajectories of one scenario with three criteria are recorded first. Then a judge worker scores them all, with
at most `AT_ONCE` concurrent requests, while a scripted judge in a process of its own answers each request as soon as it
has read it. Reported are the seconds from the worker's start to the last score, and the CPU seconds of its process,
which are more reliable on a shared machine. Importing LiteLLM is in neither.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any

from aiohttp import web

from benchmarks.load import child, cpu_s, free_port, machine
from judge.settings import JudgeSettings
from recorder.settings import RecorderSettings
from recorder.store.bootstrap import open_store
from tests.judge.judge_server import JudgeServer
from tests.judge.many import SIZE, bound_groups, judge_all
from tests.judge.recorded import Recorded
from tests.judge.rubric_replies import checked

RESULTS = Path(__file__).parent / "results" / "verdicts.json"
RUNS, AT_ONCE = 1_000, 8


def run_judge(port: int) -> None:
    """Serve the scripted judge until killed (the target of a child process)."""
    judge = JudgeServer()
    judge.behave(checked())
    app = web.Application(client_max_size=64 * 2**20)
    app.router.add_post("/v1/chat/completions", judge.answer)
    web.run_app(app, host="127.0.0.1", port=port, print=None)


async def measure(folder: Path, runs: int) -> dict[str, Any]:
    """Record the groups and let a worker judge them."""
    store = await open_store(folder, RecorderSettings(), migrate=True)
    recorded = await Recorded.start(store)
    group_ids = await bound_groups(store, recorded, runs // SIZE)
    await recorded.stop()
    port = free_port()
    with child(run_judge, port) as judge:
        settings = JudgeSettings.model_validate(
            {
                "model": "openai/judge",
                "api_base": f"http://127.0.0.1:{port}/v1",
                "rewards": [{"kind": "rubric"}],
                "concurrency": AT_ONCE,
            }
        )
        before_s = cpu_s(judge)
        took = await judge_all(store, settings, group_ids)
        judges_s = cpu_s(judge) - before_s
    await store.close()
    return {
        "verdicts": len(group_ids) * SIZE,
        "at_once": AT_ONCE,
        "seconds": round(took.wall_s, 1),
        "cpu_s": round(took.cpu_s, 1),
        "cpu_ms_a_verdict": round(1000 * took.cpu_s / (len(group_ids) * SIZE), 1),
        "cpu_s_of_the_judge": round(judges_s, 1),
    }


def main() -> None:
    """Measure and print; with `--save`, save."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--save", action="store_true", help=f"write {RESULTS}")
    parser.add_argument("--runs", type=int, default=RUNS, help="number of verdicts")
    asked = parser.parse_args()
    there = machine()
    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(measure(Path(folder), asked.runs))
    print(json.dumps(found, indent=2))
    if asked.save:
        RESULTS.write_text(json.dumps({"machine": there, "rubric": found}, indent=2) + "\n")


if __name__ == "__main__":
    main()
