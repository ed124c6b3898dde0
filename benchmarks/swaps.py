"""The cost of swapping versions for running conversations: many swaps under streaming traffic, on a real vLLM.

`hone up` runs the demo's tiny model on the CPU. A trainer without training publishes one version after another, at most
one a second and never before the previous one is live, while conversations of several turns stream. Because other work
on a machine changes the figures, blocks with swaps alternate with blocks of the same length without. Reported: failed
requests, trajectories answered by two versions and not marked as mixed, the time from publishing to live (the engine's
loading and the gate's time separately), time to the first and the last event with and without swaps, and the result of
`hone db check` afterwards. Fails if a request failed or a mixed trajectory is not marked.

    python -m benchmarks.swaps [--swaps 50] [--conversations 16] [--blocks 5] [--save]
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Final

import httpx

from benchmarks.load import machine
from benchmarks.publishing import PROJECT, StubTrainer
from recorder.registry.moves import list_moves
from recorder.registry.versions import VersionView, get_version
from recorder.settings import RecorderSettings
from recorder.states import VersionState
from recorder.store.bootstrap import open_store
from recorder.store.changes import Topic
from recorder.store.database import Project, Store
from tests.e2e.conftest import CONFIG, MODEL, ROOT, Stack, started

RESULTS = Path(__file__).parent / "results" / "swaps.json"
ALIAS: Final = "helpdesk"
TURNS: Final = 6  # turns of a conversation: longer than a swap, so that trajectories meet several
MAX_TOKENS: Final = 24
SWAP_TIMEOUT_S: Final = 120.0
EVERY_S: Final = 1.0  # at most one swap a second: a hundred times as often as in practice
SETTINGS: Final = CONFIG.replace("[aliases.helpdesk]", '[aliases.helpdesk]\npromote = "auto"')


@dataclass
class Answer:
    """One streamed answer. Times in seconds."""

    first_s: float
    whole_s: float
    failure: str | None
    swapping: bool


@dataclass
class Traffic:
    """Conversations that stream, one turn after another, until they are stopped."""

    url: str
    swapping: bool = False
    answers: list[Answer] = field(default_factory=list)
    _over: asyncio.Event = field(default_factory=asyncio.Event)
    _numbers: Any = field(default_factory=itertools.count)

    async def talk(self) -> None:
        """Run one user: one conversation after another."""
        async with httpx.AsyncClient(timeout=120) as http:
            while not self._over.is_set():
                run = f"run-{next(self._numbers)}"
                messages = [{"role": "user", "content": f"Where is my order {run}?"}]
                for _ in range(TURNS):
                    said = await self._turn(http, run, messages)
                    messages += [{"role": "assistant", "content": said}, {"role": "user", "content": "And then?"}]
                await http.post(f"{self.url}/t/{run}/hone/v1/done", json={})

    async def _turn(self, http: httpx.AsyncClient, run: str, messages: Sequence[dict[str, str]]) -> str:
        body = {"model": ALIAS, "messages": messages, "max_tokens": MAX_TOKENS, "stream": True}
        began, first, lines, swapping = time.perf_counter(), 0.0, [], self.swapping
        failure: str | None = None
        try:
            async with http.stream("POST", f"{self.url}/t/{run}/v1/chat/completions", json=body) as answer:
                async for line in answer.aiter_lines():
                    first = first or time.perf_counter() - began
                    lines.append(line.removeprefix("data: "))
            failure = None if answer.status_code == 200 and "[DONE]" in lines else f"{answer.status_code}: {lines[-3:]}"
        except httpx.HTTPError as e:
            failure = f"{type(e).__name__}: {e}"
        self.answers.append(Answer(first, time.perf_counter() - began, failure, swapping))
        return "".join(_said(line) for line in lines)

    def stop(self) -> None:
        """Begin no further conversation."""
        self._over.set()


def _said(line: str) -> str:
    choices = json.loads(line).get("choices", []) if line.startswith("{") else []
    return str(choices[0]["delta"].get("content") or "") if choices else ""


@dataclass
class Swap:
    """One version, from the commit that published it to the move of the alias. Seconds."""

    published_to_live_s: float
    load_s: float  # the engine's own
    gate_s: float  # the probe's and the examination's

    @property
    def beyond_s(self) -> float:
        """Return Hone's own time: noticing the version, checking its files, and moving the alias."""
        return self.published_to_live_s - self.load_s - self.gate_s


async def swap(store: Store, trainer: StubTrainer) -> Swap:
    """Publish a version and wait until it is live."""
    with store.watch.on(Topic.SERVICE) as news:
        published = await trainer.publish()
        at = published.state_at
        async with asyncio.timeout(SWAP_TIMEOUT_S):
            version = await get_version(store, published.id)
            while version.state is not VersionState.LIVE:
                if version.state is VersionState.REJECTED:
                    raise SystemExit(f"{version.name} is rejected: {version.reason}")
                await news.wait(1.0)
                version = await get_version(store, published.id)
    gate_s = float(version.metrics["probe_s"]) + await _examined_s(store, version)
    return Swap(version.state_at - at, float(version.metrics["load_s"]), gate_s)


async def _examined_s(store: Store, version: VersionView) -> float:
    """Return the duration of the gate's requests, from the row of its decision."""
    gated = (
        move
        for move in await list_moves(Project(store, PROJECT))
        if move.version_id == version.id and move.move == "gated"
    )
    return float(next(gated).figures["gate_s"])


async def measure(stack: Stack, swaps: int, conversations: int, blocks: int) -> tuple[list[Swap], Traffic]:
    """Measure blocks with and without swaps, in alternation, under the same traffic."""
    store = await open_store(stack.data, stack.recording, migrate=False, project=PROJECT)
    traffic, done = Traffic(stack.proxy_url), list[Swap]()
    try:
        async with StubTrainer(store, ALIAS, stack.data, MODEL) as trainer:
            await swap(store, trainer)  # for the engine, the base without an adapter is another model
            talking = [asyncio.create_task(traffic.talk()) for _ in range(conversations)]
            for block in range(blocks):
                began, traffic.swapping = time.monotonic(), True
                for _ in range(swaps * (block + 1) // blocks - swaps * block // blocks):
                    due = time.monotonic() + EVERY_S
                    done.append(await swap(store, trainer))
                    await asyncio.sleep(due - time.monotonic())
                traffic.swapping = False
                await asyncio.sleep(time.monotonic() - began)  # the block without swaps: as long as the one with swaps
            traffic.stop()
            await asyncio.gather(*talking)
    finally:
        await store.close()
    return done, traffic


def unmarked(data: Path) -> tuple[int, int]:
    """Return the number of trajectories that several versions answered, and how many of them are not marked."""
    with closing(sqlite3.connect(data / "hone.db")) as db:
        [(mixed, marked)] = db.execute(
            "SELECT count(*), coalesce(sum(mixed), 0) FROM (SELECT t.id, t.mixed FROM trajectories t JOIN calls c "
            "ON c.trajectory_id = t.id GROUP BY t.id HAVING count(DISTINCT c.version_id) > 1)"
        ).fetchall()
    return mixed, mixed - marked


def violations(stack: Stack) -> list[str]:
    """Return the findings of `hone db check`."""
    command = [sys.executable, "-m", "proxy.cli", "db", "check", "--json"]
    places = ["--data", str(stack.data), "--config", str(stack.config)]
    done = subprocess.run([*command, *places], capture_output=True, text=True, cwd=ROOT, check=False)
    return [f"{one['name']}: {v['kind']} {v['id']}" for one in json.loads(done.stdout) for v in one["violations"]]


def spread(values: Sequence[float]) -> dict[str, float]:
    """Return the median, the tails and the maximum."""
    cuts = quantiles(values, n=100, method="inclusive") if len(values) > 1 else [values[0]] * 99
    told = {"median": median(values), "p95": cuts[94], "p99": cuts[98], "most": max(values)}
    return {name: round(value, 4) for name, value in told.items()}


def told(swaps: Sequence[Swap], traffic: Traffic) -> dict[str, Any]:
    """Return the figures."""
    sides = {"with_swaps": True, "without": False}
    answers = {name: [a for a in traffic.answers if a.swapping is side] for name, side in sides.items()}
    return {
        "swaps": len(swaps),
        "requests": len(traffic.answers),
        "failed_requests": sum(a.failure is not None for a in traffic.answers),
        "published_to_live_s": spread([one.published_to_live_s for one in swaps]),
        "engine_load_s": spread([one.load_s for one in swaps]),
        "gate_s": spread([one.gate_s for one in swaps]),
        "beyond_engine_and_gate_s": spread([one.beyond_s for one in swaps]),
        "answers": {name: len(these) for name, these in answers.items()},
        "first_event_s": {name: spread([a.first_s for a in these]) for name, these in answers.items()},
        "whole_answer_s": {name: spread([a.whole_s for a in these]) for name, these in answers.items()},
    }


def main() -> None:
    """Measure and print; with `--save`, save. The exit status is 1 if a promise is broken."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--swaps", type=int, default=50)
    parser.add_argument("--conversations", type=int, default=16, help="at once")
    parser.add_argument("--blocks", type=int, default=5, help="blocks with swaps; as many without")
    parser.add_argument("--save", action="store_true", help=f"write {RESULTS.name}")
    asked = parser.parse_args()
    about = {"machine": machine(), "conversations": asked.conversations, "turns": TURNS, "max_tokens": MAX_TOKENS}
    with tempfile.TemporaryDirectory() as folder, started(Path(folder), RecorderSettings(), SETTINGS) as stack:
        swaps, traffic = asyncio.run(measure(stack, asked.swaps, asked.conversations, asked.blocks))
        mixed, missed = unmarked(stack.data)
        found = {**about, **told(swaps, traffic), "mixed_runs": mixed, "mixed_runs_not_marked": missed}
        found["violations"] = violations(stack)
    print(json.dumps(found, indent=1))
    failures = sorted({a.failure for a in traffic.answers if a.failure})
    print(*failures, sep="\n", file=sys.stderr)
    if asked.save:
        RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    if failures or missed or found["violations"]:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
