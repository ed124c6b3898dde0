"""Runs a client's program against Hone: several orders at once, one of them twice, two at an address of their own.

Owns: which runs a client makes, what its program printed, what Hone recorded meanwhile, and that a client runs again
where the model erred (`luck`). Refuses: judging anything else.
"""

from __future__ import annotations

import json
import subprocess
import zlib
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from examples.helpdesk.orders import Order, demo_orders
from tests.agents.clients import CLIENTS, RUNS, Client
from tests.agents.environments import command
from tests.agents.luck import Luck
from tests.e2e.conftest import Stack

Json = dict[str, Any]

PROGRAM_TIMEOUT_S = 300
ATTEMPTS = 3


@dataclass(frozen=True)
class Run:
    """One question that a program was given."""

    order: Order
    address: str | None  # the run's id in the base URL

    @property
    def question(self) -> str:
        """What is asked."""
        return f"Where is my order {self.order.order_id}?"

    @property
    def answer(self) -> str:
        """The right answer."""
        return f"Your order {self.order.order_id} arrives on {self.order.day}."

    @property
    def calls(self) -> list[Json]:
        """The right tool calls with their results."""
        found = {"status": self.order.status, "tracking": self.order.tracking}
        tracked = {"arrives": self.order.day}
        return [
            {"name": "find_order", "arguments": {"order_id": self.order.order_id}, "result": json.dumps(found)},
            {"name": "track_parcel", "arguments": {"tracking": self.order.tracking}, "result": json.dumps(tracked)},
        ]


@dataclass(frozen=True)
class Outcome:
    """What a program was given, what it printed, and the calls that were recorded meanwhile, by trajectory."""

    runs: list[Run]
    printed: list[Json]
    trajectories: dict[str, list[Json]]  # oldest call first
    tools: list[Json]  # tool calls that went through the gateway
    errands: list[Json]  # calls without tools, by a client that makes such

    @property
    def calls(self) -> list[Json]:
        """All recorded calls."""
        return [call for calls in self.trajectories.values() for call in calls]


def runs_of(client: Client, attempt: int = 0) -> list[Run]:
    """The client's runs: orders that no other client asks for, the first one twice, as parallel samples are.

    Each once where tool calls are text: equal runs that carry no ids cannot be told apart without an address.
    """
    at = CLIENTS.index(client) * RUNS
    orders = list(demo_orders().train[at : at + RUNS])
    if client.asks != "text":
        orders[1] = orders[0]
    row = f"{zlib.crc32(client.id.encode()):x}-{attempt}"
    first_addressed = RUNS - client.addressed
    return [Run(order, f"{row}-{number}" if number >= first_addressed else None) for number, order in enumerate(orders)]


def run_client(client: Client, stack: Stack, folder: Path, known: set[str], luck: Luck) -> Outcome:
    """Run the client's program, and read what was recorded; again where the model erred, which `luck` counts.

    Its environment is made. `known` are the ids of what was recorded before, then with its own. Raises
    AssertionError, with what the program said, when it fails as a whole.
    """
    for attempt in range(ATTEMPTS):
        outcome = _run(client, stack, folder, known, runs_of(client, attempt))
        if client.engine != "vLLM" or not luck.model_erred(outcome):
            break
    return outcome


def _run(client: Client, stack: Stack, folder: Path, known: set[str], runs: list[Run]) -> Outcome:
    tasks = folder / f"{client.id}.json"
    tasks.write_text(json.dumps(_tasks(runs, stack)))
    done = subprocess.run(
        [*command(client.environment, client.program), str(tasks), *client.arguments],
        capture_output=True,
        text=True,
        timeout=PROGRAM_TIMEOUT_S,
        check=False,
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    printed = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    trajectories, errands = _by_trajectory(client, _new(stack.export(), known))
    return Outcome(runs, printed, trajectories, _tools(stack, client, runs, known), errands)


def _new(lines: list[Json], known: set[str], key: str = "call_id") -> list[Json]:
    """Those that were not known, which they are from now on."""
    found = [line for line in lines if str(line[key]) not in known]
    known.update(str(line[key]) for line in found)
    return found


def _by_trajectory(client: Client, calls: list[Json]) -> tuple[dict[str, list[Json]], list[Json]]:
    trajectories: dict[str, list[Json]] = defaultdict(list)
    errands = []
    for call in sorted(calls, key=lambda call: float(call["started_at"])):
        if client.errands and not call["request"].get("tools"):
            errands.append(call)
        else:
            trajectories[call["trajectory_id"]].append(call)
    return dict(trajectories), errands


def _tasks(runs: list[Run], stack: Stack) -> Json:
    def base_url(run: Run) -> str:
        return f"{stack.proxy_url}/t/{run.address}/v1" if run.address else f"{stack.proxy_url}/v1"

    return {
        "model": "helpdesk",
        "api_key": "none",
        "orders": [asdict(run.order) for run in runs],
        "runs": [
            {
                "order_id": run.order.order_id,
                "question": run.question,
                "base_url": base_url(run),
            }
            for run in runs
        ],
    }


def _tools(stack: Stack, client: Client, runs: list[Run], known: set[str]) -> list[Json]:
    """The tool calls about the orders of these runs that went through the gateway."""
    if client.tools != "mcp":
        return []
    asked = [call["arguments"] for run in runs for call in run.calls]
    mine = [line for line in stack.export("tools") if line["arguments"] in asked]
    return _new(mine, known, "started_at")
