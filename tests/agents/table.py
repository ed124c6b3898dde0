"""The table of clients in docs/agents.md, made from the results of the tests.

Owns: its columns and how they are counted. Refuses: running clients.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scripts.pages.marks import Marks
from tests.agents.clients import CLIENTS, Client
from tests.agents.notes import MISSING, TODAY, WAYS
from tests.agents.runs import Outcome

ROOT = Path(__file__).parent.parent.parent
FILE = ROOT / "docs" / "agents.md"
PAGE = ROOT / "docs" / "your-agent.md"
OFTEN = " †"  # behind the name of a row that is part of `make test`
MARKS = Marks("make agents-table")

_HEAD = """\
# Agents that were tried

**For:** engineers who want to know whether Hone records their agent exactly. **You will have:** the measured result for
each client, version and wire format.

`make agents-table` writes this page. `make agents` runs all rows, and fails if a result differs from its row.
`make test` does the same for the rows marked †, one for each kind of agent stack.

Each client is a program in `tests/agents/programs`. It runs in its own environment, and knows nothing of Hone but the
base URL. It answers six questions at once, with two tool calls each. Two of the questions are the same, except where
tool calls are text without ids: equal questions then need an address. Two of the six trajectories have an address.

- *engine*: `vLLM` is a real vLLM with the helpdesk's tiny model. Some agents have prompts that this model cannot read.
  For them, `scripted` is an engine in vLLM's format that follows rules (`tests/agents/acting`). Hone and the agent are
  real in both cases.
- *attributed by*: the evidence that linked the later calls of a trajectory without an address. With an address it is
  always `path`. First calls begin a new trajectory.
- *exact*: calls with the engine's prompt ids, its sampled ids and as many logprobs, of all calls.
- *one row*: trajectories in which every prompt begins with the ids of the turn before, so that they train as one row.
- *trainable*: calls whose logprobs describe the sampled distribution. Hone offers strict and forced tools as plain
  tools here (`proxy.strict_tools`, `proxy.forced_tools` = "plain"), because sampling through a grammar cannot be
  trained on.

| client | version | engine | format | streaming | attributed by | exact | one row | trainable |
|---|---|---|---|---|---|---|---|---|
"""


def render(outcomes: Mapping[Client, Outcome], before: str) -> str:
    """The whole file; rows of clients that did not run are as they were before."""
    kept = {key(line): line for line in before.splitlines(keepends=True) if line.startswith("| ")}
    rows = [
        _row(client, outcomes[client]) if client in outcomes else kept.get(key(start(client)), "") for client in CLIENTS
    ]
    return _HEAD + "".join(rows) + _notes()


def _notes() -> str:
    failing = {name: " ".join(dict.fromkeys(reasons.values())) for name, reasons in TODAY.items()}
    parts = (("Notes on single clients", WAYS), ("Known failures", failing), ("Not supported", MISSING))
    return "".join(f"\n## {title}\n\n{_lines(said)}" for title, said in parts if said)


def _lines(said: Mapping[str, str]) -> str:
    return "".join(f"- {name}: {words}\n" for name, words in said.items())


def write(outcomes: Mapping[Client, Outcome]) -> None:
    """Write the rows of these clients to docs/agents.md, and the short table to docs/your-agent.md."""
    FILE.write_text(render(outcomes, FILE.read_text(encoding="utf-8")), encoding="utf-8")
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(with_short_table(page, FILE.read_text(encoding="utf-8")), encoding="utf-8")


def with_short_table(page: str, table: str) -> str:
    """docs/your-agent.md with the short form of the table that `render` wrote, between its marks."""
    return MARKS.put(page, _short(table))


def _short(table: str) -> str:
    """A row a client and format, where streaming made no difference."""
    rows: dict[tuple[str, ...], list[str]] = {}
    for line in table.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| ") and cells[0] != "client":
            client, version, _, form, streaming, attributed, exact, *_ = cells
            rows.setdefault((f"{client.removesuffix(OFTEN)} {version}", form, attributed, exact), []).append(streaming)
    head = "| client | format | streaming | attributed by | exact |\n|---|---|---|---|---|\n"
    return head + "".join(
        f"| {client} | {form} | {', '.join(streaming)} | {attributed} | {exact} |\n"
        for (client, form, attributed, exact), streaming in rows.items()
    )


def _row(client: Client, outcome: Outcome) -> str:
    calls = outcome.calls
    runs = list(outcome.trajectories.values())
    cells = (
        _attributed(runs),
        f"{sum(map(_exact, calls))}/{len(calls)}",
        f"{sum(map(_one_row, runs))}/{len(runs)}",
        f"{sum(_trainable(call) for call in calls)}/{len(calls)}",
    )
    return f"{start(client)} | {' | '.join(cells)} |\n"


def start(client: Client) -> str:
    """The cells of a row that are known before its client runs."""
    name = client.name + OFTEN if client.representative else client.name
    return f"| {name} | {client.version} | {client.engine} | {client.format} | {'yes' if client.stream else 'no'}"


def key(line: str) -> tuple[str, ...]:
    """What tells a row from others."""
    return tuple(cell.strip() for cell in line.split("|")[1:6])


def _attributed(runs: list[list[dict[str, Any]]]) -> str:
    """The sources of the later calls of runs without an address (of all where each has one), with how sure they are."""
    without = [calls for calls in runs if calls[0]["trajectory_external_id"] is None]
    later = [call["attribution"] for calls in without or runs for call in calls[1:]]
    return ", ".join(sorted({f"{how['source'].replace('_', ' ')} ({how['confidence']})" for how in later}))


def _exact(call: dict[str, Any]) -> bool:
    return bool(call["prompt_token_ids"]) and all(
        len(choice["token_ids"] or ()) == len(choice["logprobs"] or ()) > 0 for choice in call["choices"]
    )


def _one_row(calls: list[dict[str, Any]]) -> bool:
    pasts = [call["prompt_token_ids"] + call["choices"][0]["token_ids"] for call in calls]
    return all(call["prompt_token_ids"][: len(past)] == past for past, call in zip(pasts, calls[1:], strict=False))


def _trainable(call: dict[str, Any]) -> bool:
    return all(choice["trainable"] for choice in call["choices"])
