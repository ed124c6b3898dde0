"""Runs a client's program against Hone: several orders at once, one of them twice, two at an address of their own.

Owns: which runs a client makes, what its program printed, and what Hone recorded meanwhile. Refuses: judging either.
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
from tests.agents.clients import CLIENTS, Client
from tests.agents.environments import command, make
from tests.e2e.conftest import Stack

Json = dict[str, Any]

ORDERS = 5
ADDRESSED = 2  # of these, so many say in their base URL which run they are
PROGRAM_TIMEOUT_S = 300


@dataclass(frozen=True)
class Run:
    """One question that a program was given."""

    order: Order
    address: str | None  # the run's id in the base URL

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

    @property
    def calls(self) -> list[Json]:
        """All recorded calls."""
        return [call for calls in self.trajectories.values() for call in calls]


def runs_of(client: Client) -> list[Run]:
    """The client's runs: orders that no other client asks for, the first one twice, as parallel samples are."""
    at = CLIENTS.index(client) * ORDERS
    orders = demo_orders().train[at : at + ORDERS]
    row = f"{zlib.crc32(client.id.encode()):x}"
    first_addressed = len(orders) + 1 - ADDRESSED
    return [
        Run(order, f"{row}-{number}" if number >= first_addressed else None)
        for number, order in enumerate([orders[0], *orders])
    ]


def run_client(client: Client, stack: Stack, folder: Path, known: set[str]) -> Outcome:
    """Run the client's program, and read what was recorded. `known` are the ids of calls before it, then with its own.

    Raises AssertionError, with what the program said, when it fails as a whole.
    """
    runs = runs_of(client)
    make(client.environment)
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
    trajectories: dict[str, list[Json]] = defaultdict(list)
    for call in sorted(stack.export(), key=lambda call: float(call["started_at"])):
        if call["call_id"] not in known:
            trajectories[call["trajectory_id"]].append(call)
    known.update(call["call_id"] for calls in trajectories.values() for call in calls)
    return Outcome(runs, printed, dict(trajectories), _tools(stack, client, runs))


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
                "question": f"Where is my order {run.order.order_id}?",
                "base_url": base_url(run),
            }
            for run in runs
        ],
    }


def _tools(stack: Stack, client: Client, runs: list[Run]) -> list[Json]:
    """The tool calls about the orders of these runs that went through the gateway."""
    if client.tools != "mcp":
        return []
    lines = [json.loads(line) for line in stack.hone("export", "--format", "tools").splitlines()]
    return [line for line in lines if any(line["arguments"] == call["arguments"] for run in runs for call in run.calls)]
