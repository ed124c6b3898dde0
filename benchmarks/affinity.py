"""What it brings that a trajectory stays on its engine: prefix hits, latency and load, before and after.

Two real engines (vLLM on the CPU, prefix caching on, one thread each) with the demo's model, and two proxies before
both: `hone serve` as it is, and the same with the router of before, which sends each call to the engine with the fewest
calls in flight. Agents talk at once: groups of equal tasks, several turns each, with a pause for a tool between two
turns. The proxies take turns, round by round, with other texts each time, so that no round finds the prefix of another.
Reported for the turns after the first: the share that went to the engine of the turn before, the share that found the
whole prompt of the turn before in the cache, the cached share of their prompt tokens, and their latency; and the calls
in flight over time of the busier engine as a multiple of the mean. Fails if a call fails or is not recorded.

    python -m benchmarks.affinity [--short] [--rounds 4] [--agents 16] [--model FOLDER] [--save]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Final

import httpx
from sqlalchemy import select

from benchmarks.load import machine
from examples.running.programs import free_ports
from proxy.engine.command import engine_command
from proxy.settings.sections import EngineSettings
from proxy.versions.routing import ServiceRouter
from recorder.messages.calls import ENGINE
from recorder.registry.replicas import ReplicaView
from recorder.settings import RecorderSettings
from recorder.store.bootstrap import open_store
from recorder.store.schema import calls

ROOT: Final = Path(__file__).parent.parent
RESULTS: Final = Path(__file__).parent / "results" / "affinity.json"
MODEL: Final = ROOT / "examples" / "helpdesk" / "model"
BEFORE, AFTER = "least in flight", "affinity"
ENGINES: Final = 2
BLOCK: Final = 128  # tokens of a block of vLLM's prefix cache on a CPU
CONTEXT: Final = 2048
GROUP: Final = 4  # agents with the same task
TURNS, MAX_TOKENS = 8, 16
SYSTEM_LINES, TURN_LINES = 24, 14  # a line is about ten tokens of the demo's model
TOOL_S: Final = 0.1  # the longest pause between two turns; uniform from 0
SEED: Final = 1
START_S: Final = 300.0
KEY: Final = "affinity"
DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday")
# Runs `hone` with the router of before.
CHILD: Final = "import sys; from benchmarks.affinity import serve_before; serve_before(sys.argv[1:])"


class LeastInFlight(ServiceRouter):
    """The router of before: each call goes to the engine with the fewest calls of this process in flight."""

    def choose_engine(self, holders: Sequence[ReplicaView], key: str | None, engine_url: str | None) -> str:
        """Return the least busy engine, whatever the trajectory."""
        return super().choose_engine(holders, None, None)


def serve_before(arguments: list[str]) -> None:
    """Run `hone` with these arguments and the router of before (the target of a child process)."""
    from proxy.cli import cli
    from proxy.supervision import serve

    vars(serve)["ServiceRouter"] = LeastInFlight
    cli(arguments, prog_name="hone")


# --- what agents say


@dataclass(frozen=True, slots=True)
class Agent:
    """One agent: its trajectory and group, what it says in each turn, and its pauses between turns in seconds."""

    group: str
    name: str
    system: str
    says: tuple[str, ...]
    pauses_s: tuple[float, ...]


def lines(rng: random.Random, count: int) -> str:
    """Return so many sentences about orders, which the demo's model reads as about ten tokens each."""
    return " ".join(f"order {rng.randint(1000, 9999)} arrives on {rng.choice(DAYS)}." for _ in range(count))


def agents(count: int, turns: int, seed: str) -> list[Agent]:
    """Return the agents of a round. Those of a group have the same system message and the same first question."""
    rng = random.Random(seed)
    made: list[Agent] = []
    while len(made) < count:
        system, first = lines(rng, SYSTEM_LINES), lines(rng, TURN_LINES)
        for _ in range(min(GROUP, count - len(made))):
            says = (first, *(lines(rng, TURN_LINES) for _ in range(turns - 1)))
            pauses = tuple(rng.uniform(0, TOOL_S) for _ in says)
            made.append(Agent(f"{seed}-{len(made) // GROUP}", str(len(made)), system, says, pauses))
    return made


# --- what is measured


@dataclass(frozen=True, slots=True)
class Turn:
    """One answered turn. Times in seconds of one clock; `number` counts from 0."""

    call_id: str
    trajectory: str
    number: int
    prompt_tokens: int
    cached_tokens: int
    began_s: float
    ended_s: float
    engine: str = ""

    @property
    def taken_s(self) -> float:
        """Return how long its caller waited."""
        return self.ended_s - self.began_s


def figures(turns: Sequence[Turn]) -> dict[str, Any]:
    """Return the figures of the turns of one router."""
    by_place = {(turn.trajectory, turn.number): turn for turn in turns}
    later = [(by_place[turn.trajectory, turn.number - 1], turn) for turn in turns if turn.number]
    # a prompt of less than a block leaves nothing in the cache
    hits = [meets_prefix(before, turn) for before, turn in later if before.prompt_tokens >= BLOCK]
    taken_ms = [1000 * turn.taken_s for _, turn in later]
    return {
        "later_turns": len(later),
        "on_the_engine_of_the_turn_before": round(sum(a.engine == b.engine for a, b in later) / len(later), 4),
        "met_their_prefix": round(sum(hits) / len(hits), 4) if hits else None,
        "cached_share_of_prompt_tokens": round(
            sum(turn.cached_tokens for _, turn in later) / sum(turn.prompt_tokens for _, turn in later), 4
        ),
        "latency_ms": {"median": round(median(taken_ms), 1), "p90": round(quantiles(taken_ms, n=10)[-1], 1)},
    }


def meets_prefix(before: Turn, turn: Turn) -> bool:
    """Whether every full block of the prompt before was in the cache."""
    return turn.cached_tokens >= before.prompt_tokens // BLOCK * BLOCK


def in_flight(rounds: Sequence[Sequence[Turn]]) -> dict[str, float]:
    """Return the calls in flight over the time of all rounds: their mean, and the busier engine's load as a multiple of
    the mean of the engines.
    """
    busy_s: defaultdict[str, float] = defaultdict(float)
    for turn in (turn for turns in rounds for turn in turns):
        busy_s[turn.engine] += turn.taken_s
    whole_s = sum(max(turn.ended_s for turn in turns) - min(turn.began_s for turn in turns) for turns in rounds)
    total_s = sum(busy_s.values())
    return {
        "mean": round(total_s / whole_s, 2),
        "busier_engine_to_mean": round(max(busy_s.values()) * ENGINES / total_s, 3),
    }


# --- programs


@contextlib.contextmanager
def engines(model: Path, folder: Path) -> Iterator[list[str]]:
    """Run the engines until the block ends; yield their URLs. They start beside each other."""
    started: list[tuple[str, subprocess.Popen[bytes]]] = []
    with contextlib.ExitStack() as stack:
        for number, port in enumerate(free_ports(ENGINES)):
            settings = EngineSettings(base=str(model), name="base", port=port, max_model_len=CONTEXT, max_lora_rank=8)
            command = engine_command(settings, key=KEY, device="cpu")
            env = {name: value for name, value in os.environ.items() if name not in command.unset} | command.env
            log = folder / f"engine-{number}.log"
            started.append(
                (command.url, stack.enter_context(program(command.argv, env | {"OMP_NUM_THREADS": "1"}, log)))
            )
        for url, process in started:
            wait_for(process, lambda url=url: httpx.get(f"{url}/health", timeout=5).is_success)
        yield [url for url, _ in started]


@dataclass(frozen=True, slots=True)
class Proxy:
    """A running proxy and its data folder."""

    url: str
    data: Path


@contextlib.contextmanager
def proxy(router: str, model: Path, urls: Sequence[str], folder: Path) -> Iterator[Proxy]:
    """Run a proxy with this router before the engines until the block ends."""
    folder.mkdir()
    config, data, port = folder / "hone.toml", folder / "data", free_ports(1)[0]
    config.write_text(
        f'[aliases.helpdesk]\n\n[engine]\nbase = {json.dumps(str(model))}\nname = "base"\nurls = {json.dumps(urls)}\n'
        f'device = "cpu"\nmax_model_len = {CONTEXT}\nmax_lora_rank = 8\n\n[proxy]\nport = {port}\npages = false\n'
    )
    how = ["-c", CHILD] if router == BEFORE else ["-m", "proxy.cli"]
    argv = [sys.executable, *how, "serve", "--data", str(data), "--config", str(config)]
    with program(argv, os.environ | {"HONE_ENGINE__API_KEY": KEY}, folder / "serve.log") as process:
        url = f"http://127.0.0.1:{port}"
        wait_for(process, lambda: httpx.get(f"{url}/healthz", timeout=5).json()["engines_up"] == ENGINES)
        yield Proxy(url, data)


@contextlib.contextmanager
def program(argv: Sequence[str], env: dict[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program until the block ends."""
    with log.open("wb") as out:
        process = subprocess.Popen(argv, env=env, stdout=out, stderr=out, cwd=ROOT)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_for(process: subprocess.Popen[bytes], is_up: Any) -> None:
    """Wait until a program is up. Raises SystemExit if it ends or takes too long."""
    deadline = time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(httpx.HTTPError, KeyError, ValueError):
            if is_up():
                return
        time.sleep(0.2)
    raise SystemExit(f"a program did not start: {process.args!r:.400}")


# --- measuring


@contextlib.asynccontextmanager
async def client(url: str) -> AsyncIterator[httpx.AsyncClient]:
    """A client with a connection for each agent."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx.AsyncClient(base_url=url, timeout=300, limits=limits, trust_env=False) as http:
        yield http


async def talk(http: httpx.AsyncClient, agent: Agent) -> list[Turn]:
    """Run one agent to its end."""
    path, turns = f"/g/{agent.group}/t/{agent.name}/v1/chat/completions", list[Turn]()
    messages: list[dict[str, str]] = [{"role": "system", "content": agent.system}]
    for number, (says, pause_s) in enumerate(zip(agent.says, agent.pauses_s, strict=True)):
        messages.append({"role": "user", "content": says})
        body = {"model": "helpdesk", "messages": messages, "max_tokens": MAX_TOKENS}
        began_s = time.perf_counter()
        answer = await http.post(path, json=body)
        ended_s = time.perf_counter()
        if answer.status_code != httpx.codes.OK:
            raise SystemExit(f"a call failed: {answer.status_code} {answer.text[:400]}")
        turns.append(turn_of(answer.headers["x-hone-call"], agent, number, answer.json()["usage"], began_s, ended_s))
        messages.append({"role": "assistant", "content": answer.json()["choices"][0]["message"]["content"] or ""})
        await asyncio.sleep(pause_s)
    return turns


def turn_of(call_id: str, agent: Agent, number: int, usage: dict[str, Any], began_s: float, ended_s: float) -> Turn:
    """Return the turn of an answer with this usage. vLLM reports no details where nothing was cached."""
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
    return Turn(call_id, f"{agent.group}/{agent.name}", number, usage["prompt_tokens"], cached, began_s, ended_s)


async def one_round(server: Proxy, made: Sequence[Agent]) -> list[Turn]:
    """Run the agents of a round at once; return their turns."""
    async with client(server.url) as http:
        return [turn for turns in await asyncio.gather(*(talk(http, agent) for agent in made)) for turn in turns]


async def with_engines(data: Path, rounds: Sequence[Sequence[Turn]]) -> list[list[Turn]]:
    """Return the turns with the engines that answered, as recorded. Raises SystemExit if one is not recorded."""
    store = await open_store(data, RecorderSettings(), migrate=False)
    try:
        async with store.read() as conn:
            rows = await conn.execute(select(calls.c.id, calls.c.response_meta))
            by_id = {row.id: str((row.response_meta or {}).get(ENGINE, "")) for row in rows}
    finally:
        await store.close()
    if missing := [turn.call_id for turns in rounds for turn in turns if not by_id.get(turn.call_id)]:
        raise SystemExit(f"{len(missing)} calls are not recorded with their engine: {missing[:3]}")
    return [[replace(turn, engine=by_id[turn.call_id]) for turn in turns] for turns in rounds]


def measure(model: Path, rounds: int, count: int, turns: int) -> dict[str, Any]:
    """Return the figures of both routers."""
    taken: dict[str, list[list[Turn]]] = {BEFORE: [], AFTER: []}
    with tempfile.TemporaryDirectory() as made, contextlib.ExitStack() as stack:
        folder = Path(made)
        urls = stack.enter_context(engines(model, folder))
        proxies = {
            router: stack.enter_context(proxy(router, model, urls, folder / router.replace(" ", "-")))
            for router in taken
        }
        for router, server in proxies.items():  # both engines answer once before it counts
            asyncio.run(one_round(server, agents(2 * GROUP, 2, f"warm-{router[0]}")))
        for number in range(rounds):
            for router, server in proxies.items():
                taken[router].append(
                    asyncio.run(one_round(server, agents(count, turns, f"{SEED}-{number}-{router[0]}")))
                )
        answered = {router: asyncio.run(with_engines(proxies[router].data, each)) for router, each in taken.items()}
    return {
        router: figures([turn for turns_ in each for turn in turns_]) | {"calls_in_flight": in_flight(each)}
        for router, each in answered.items()
    }


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--short", action="store_true", help="one round of 8 agents with 3 turns each")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--agents", type=int, default=16)
    parser.add_argument("--model", type=Path, default=MODEL, help="a folder with another base")
    parser.add_argument("--save", action="store_true", help=f"write {RESULTS.name}")
    arguments = parser.parse_args()
    rounds, count, turns = (1, 8, 3) if arguments.short else (arguments.rounds, arguments.agents, TURNS)
    told = {
        "machine": machine(),
        "model": arguments.model.name if arguments.model != MODEL else "examples/helpdesk/model",
        "engines": ENGINES,
        "rounds": rounds,
        "agents": count,
        "group": GROUP,
        "turns": turns,
        "max_tokens": MAX_TOKENS,
        "seed": SEED,
    }
    told |= measure(arguments.model.resolve(), rounds, count, turns)
    print(json.dumps(told, indent=1))
    if arguments.save:
        RESULTS.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
