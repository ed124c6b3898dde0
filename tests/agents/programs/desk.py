"""What the programs share: the two tools over a list of orders, the runs to do in parallel, and what is printed.

    python PROGRAM TASKS.json [MODE …]

TASKS.json: {"model", "api_key", "orders": [{"order_id", "status", "tracking", "day"}], "runs": [{"order_id",
"question", "base_url"}]}. A program prints one JSON line a run: {"order_id", "base_url", "answer", "calls": [{"name",
"arguments", "result"}]}, or "error". Owns nothing of any framework, and refuses to know Hone: a run has a base URL.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SYSTEM = "You tell customers when their order arrives."
TEMPERATURE = 0.2
MAX_TOKENS = 96
MAX_TURNS = 6

FIND_ORDER = "Status and tracking number of an order."
TRACK_PARCEL = "The day on which a parcel arrives."
PARAMETERS: dict[str, tuple[str, str]] = {
    "find_order": (FIND_ORDER, "order_id"),
    "track_parcel": (TRACK_PARCEL, "tracking"),
}

Json = dict[str, Any]
Tool = Callable[[str], str]


@dataclass
class Run:
    """One question to answer, where the model is, and what the tools were asked."""

    order_id: str
    question: str
    base_url: str
    api_key: str
    model: str
    modes: frozenset[str]
    orders: list[Json]
    calls: list[Json] = field(default_factory=list)

    def tools(self) -> tuple[Tool, Tool]:
        """The two tools as plain functions, as frameworks want them; each call is noted."""

        def find_order(order_id: str) -> str:
            """Status and tracking number of an order.

            Args:
                order_id: The order's four digits.
            """
            return self.call("find_order", {"order_id": order_id})

        def track_parcel(tracking: str) -> str:
            """The day on which a parcel arrives.

            Args:
                tracking: The parcel's tracking number.
            """
            return self.call("track_parcel", {"tracking": tracking})

        return find_order, track_parcel

    def call(self, name: str, arguments: Json) -> str:
        """Call a tool by its name, for programs that have a loop of their own."""
        result = json.dumps(self._look_up(name, arguments))
        self.calls.append({"name": name, "arguments": arguments, "result": result})
        return result

    def _look_up(self, name: str, arguments: Json) -> Json:
        key, kept = {"find_order": ("order_id", ("status", "tracking")), "track_parcel": ("tracking", ("day",))}[name]
        for order in self.orders:
            if order[key] == arguments.get(key):
                return {{"day": "arrives"}.get(k, k): order[k] for k in kept}
        return {"error": "no such " + ("order" if name == "find_order" else "parcel")}

    def root_url(self) -> str:
        """The base URL without its /v1, for clients that add it themselves."""
        return self.base_url.removesuffix("/v1")

    def mcp_url(self) -> str:
        """Where the tools are, for programs that have them from an MCP server: beside the model."""
        return self.root_url() + "/mcp"


def schema(argument: str) -> Json:
    """The JSON schema of a tool with one argument."""
    return {"type": "object", "properties": {argument: {"type": "string"}}, "required": [argument]}


def main(answer: Callable[[Run], Awaitable[str]]) -> None:
    """Do every run of the tasks at once, and print what each saw."""
    os.environ.setdefault("OPENAI_API_KEY", "none")  # some clients look for it although they are given a key
    tasks = json.loads(Path(sys.argv[1]).read_text())
    asyncio.run(_all(tasks, frozenset(sys.argv[2:]), answer))


async def _all(tasks: Json, modes: frozenset[str], answer: Callable[[Run], Awaitable[str]]) -> None:
    common = {"api_key": tasks["api_key"], "model": tasks["model"], "orders": tasks["orders"], "modes": modes}
    runs = [Run(**run, **common) for run in tasks["runs"]]
    await asyncio.gather(*(_one(run, answer) for run in runs))


async def _one(run: Run, answer: Callable[[Run], Awaitable[str]]) -> None:
    line: Json = {"order_id": run.order_id, "base_url": run.base_url}
    try:
        line["answer"] = await answer(run)
    except Exception:  # noqa: BLE001 boundary: another run goes on, and the test reads the line
        line["error"] = traceback.format_exc()
    print(json.dumps(line | {"calls": run.calls}), flush=True)
