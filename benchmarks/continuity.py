"""How often chat templates rewrite earlier turns, and the cost: breaks a turn, rows a trajectory, cached tokens.

Without an engine: simulated trajectories (questions, tools, thinking, JSON with and without spaces, white space) and
the demo's own are rendered by templates that behave like those of Qwen3, Llama 3.1 and Hermes, and by the demo's. A
turn breaks its trajectory if its prompt does not begin with the previous prompt and sample; the cause is the part of
that sample that was rendered differently. With `--engine`, trajectories go through a real vLLM whose template drops
thinking, by two proxies, with token continuity off and on. Writes results/continuity.json.

    python benchmarks/continuity.py [--conversations 300] [--engine]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, islice
from pathlib import Path
from typing import Any

import httpx

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from examples.helpdesk.making.conversations import TOOLS, conversations
from proxy.serving.prompt_splice import Fallback, new_ids
from recorder.settings import RecorderSettings
from tests.templates.rendering import Answer, Message, Templated

RESULTS = Path(__file__).parent / "results" / "continuity.json"
SEED = 1
# Habits of a model that a template renders differently. Each is measured alone, then all of them mixed.
HABITS: dict[str, dict[str, float]] = {
    "none": {},
    "thinks": {"thinking": 1.0},
    "writes JSON without spaces": {"compact": 1.0},
    "puts white space around": {"padded": 1.0},
    "speaks beside its calls": {"text": 1.0},
    "half of the time each": {"thinking": 0.5, "compact": 0.5, "padded": 0.5, "text": 0.5},
}
CAUSES = {
    "thinking": "stripped thinking",
    "compact": "re-spaced JSON",
    "padded": "trimmed white space",
    "text": "dropped text beside a call",
}
AS_WRITTEN: dict[str, dict[str, Any]] = {
    "thinking": {"thinking": None},
    "compact": {"compact": False},
    "padded": {"padded": False},
    "text": {"text": ""},
}


@dataclass
class Turn:
    """One sampled turn: its prompt and its answer."""

    messages: list[Message]
    answer: Answer


@dataclass
class Count:
    """Counts over some trajectories."""

    runs: int = 0
    turns: int = 0  # that continue another
    breaks: int = 0
    rows: int = 0
    rows_on: int = 0  # with continuity
    fallbacks: int = 0
    causes: Counter[str] = field(default_factory=Counter)

    def shown(self) -> dict[str, Any]:
        """Return the counts in the results' format."""
        return {
            "runs": self.runs,
            "turns_that_go_on": self.turns,
            "breaks": self.breaks,
            "breaks_per_turn": round(self.breaks / self.turns, 4) if self.turns else 0.0,
            "rows_per_run": round(self.rows / self.runs, 3),
            "rows_per_run_with_continuity": round(self.rows_on / self.runs, 3),
            "fallbacks_with_continuity": self.fallbacks,
            "causes": dict(self.causes.most_common()),
        }


def simulated(rng: random.Random, habits: dict[str, float], calls_may_speak: bool) -> list[Turn]:
    """Return an agent's trajectory: some questions, each answered after zero to three tool calls."""

    def has(habit: str) -> bool:
        return rng.random() < habits.get(habit, 0.0)

    messages: list[Message] = [{"role": "system", "content": "You tell customers when their order arrives."}]
    turns: list[Turn] = []
    for _ in range(rng.randint(1, 4)):
        messages = [*messages, {"role": "user", "content": f"Where is my order {rng.randint(1000, 9999)}?"}]
        for step in range(rng.randint(0, 3), -1, -1):
            thought = f"step {step}, so I look" if has("thinking") else None
            common: dict[str, Any] = {"thinking": thought, "padded": has("padded"), "compact": has("compact")}
            if step:
                said = "I will look." if has("text") else ""
                arguments = {"order_id": str(rng.randint(1000, 9999)), "limit": 2}
                answer = Answer(said, "find_order", arguments, **common)
            else:
                answer = Answer(f"It arrives on {rng.choice(('Monday', 'Friday'))}.", **common)
            turns.append(Turn(messages, answer))
            call_id = f"call_{len(turns)}"
            messages = [*messages, answer.message(call_id)]
            if step:
                messages = [*messages, {"role": "tool", "tool_call_id": call_id, "content": "shipped, parcel ZX81"}]
    return turns


def of_the_demo(messages: Sequence[Message]) -> list[Turn]:
    """Return the turns of a conversation from the training data of the demo's model."""
    turns = []
    for at, message in enumerate(messages):
        if message["role"] == "assistant":
            call = (message.get("tool_calls") or [{"function": {}}])[0]["function"]
            arguments = json.loads(call["arguments"]) if call else None
            turns.append(Turn(list(messages[:at]), Answer(message["content"] or "", call.get("name"), arguments)))
    return turns


async def measure(template: Templated, runs: Iterator[list[Turn]]) -> Count:
    """Measure all trajectories with one template."""
    count = Count()
    for run in runs:
        await _measure_run(template, run, count)
    return count


async def _measure_run(template: Templated, run: list[Turn], count: Count) -> None:
    count.runs += 1
    rows: list[list[int]] = []
    stitched: list[list[int]] = []
    before: tuple[Turn, list[int], list[int]] | None = None
    for turn in run:
        prompt = await template.render(turn.messages, ask=True)
        sent = prompt
        if before is not None:
            earlier, its_prompt, its_sent = before
            count.turns += 1
            whole = its_prompt + template.sampled(earlier.answer)
            if prompt[: len(whole)] != whole:
                count.breaks += 1
                count.causes[await _cause(template, earlier, turn, its_prompt, prompt)] += 1
            sent = await _continued(template, earlier, turn, its_sent, prompt, count)
        sampled = template.sampled(turn.answer)
        _extend(rows, prompt, sampled)
        _extend(stitched, sent, sampled)
        before = (turn, prompt, sent)
    count.rows += len(rows)
    count.rows_on += len(stitched)


async def _continued(
    template: Templated, earlier: Turn, turn: Turn, its_sent: list[int], prompt: list[int], count: Count
) -> list[int]:
    try:
        new = await new_ids(template, turn.messages, len(earlier.messages), template.end)
    except Fallback:
        count.fallbacks += 1
        return prompt
    return [*its_sent, *template.sampled(earlier.answer), *new]


def _extend(rows: list[list[int]], prompt: list[int], sampled: list[int]) -> None:
    """Make rows as the trainer does: a prompt continues the longest row that it begins with."""
    row = max((row for row in rows if prompt[: len(row)] == row), key=len, default=None)
    if row is not None:
        rows.remove(row)
    rows.append([*prompt, *sampled])


async def _cause(template: Templated, earlier: Turn, turn: Turn, its_prompt: list[int], prompt: list[int]) -> str:
    """Return which part of the previous turn was rendered differently."""
    if prompt[: len(its_prompt)] != its_prompt:
        # earlier turns were rendered differently: templates change only thinking later in a conversation
        shared = next(at for at, (a, b) in enumerate(zip(its_prompt, prompt, strict=False)) if a != b)
        rest = template.decode(its_prompt[shared:])
        return "stripped thinking" if re.match(r"[^<]*</?think>", rest) or "</think>" in rest else "other"
    for size in range(1, len(AS_WRITTEN) + 1):
        for habits in combinations(AS_WRITTEN, size):
            changes = {name: value for habit in habits for name, value in AS_WRITTEN[habit].items()}
            if "text" in habits and earlier.answer.tool is None:
                continue
            whole = its_prompt + template.sampled(replace(earlier.answer, **changes))
            if prompt[: len(whole)] == whole:
                return " + ".join(CAUSES[habit] for habit in habits)
    return "other"


def without_engine(conversations_: int) -> dict[str, Any]:
    """Return the table: template → habit → counts."""
    table: dict[str, Any] = {}
    for name in ("demo", "qwen3", "llama3", "hermes"):
        template, told = Templated(name, TOOLS), {}
        own = (of_the_demo(messages) for messages in islice(conversations(SEED), conversations_))
        told["the demo's conversations"] = asyncio.run(measure(template, own)).shown()
        for habit, shares in HABITS.items():
            rng = random.Random(SEED)
            runs = (simulated(rng, shares, name == "qwen3") for _ in range(conversations_))
            told[habit] = asyncio.run(measure(template, runs)).shown()
        table[name] = told
    return table


def with_engine(runs: int, asks: int) -> dict[str, Any]:
    """Send the same trajectories through two proxies and one vLLM; return rows, cached tokens, and latency."""
    from tests.e2e import test_continuity as e2e
    from tests.e2e.conftest import started

    told: dict[str, Any] = {"runs": runs, "turns_a_run": e2e.TURNS, "block_tokens": e2e.BLOCK}
    plain = RecorderSettings()
    with (
        tempfile.TemporaryDirectory() as folder,
        started(Path(folder), plain, e2e.ENGINE) as stack,
        e2e.both(stack, Path(folder), plain, plain) as proxies,
    ):
        for mode in ("off", "on"):
            usages, rows, whole = [], 0, 0
            for seed in range(runs):
                used = e2e.converse(proxies.urls[mode], f"run-{seed}", seed)
                if used is None:  # the model did not end its turn
                    continue
                whole += 1
                usages += used[1:]
                rows += len(e2e.rows_of(e2e.recorded(proxies, mode, f"run-{seed}")))
            prompt = sum(usage["prompt_tokens"] for usage in usages)
            cached = sum(usage["prompt_tokens_details"]["cached_tokens"] for usage in usages)
            told[mode] = {
                "whole_runs": whole,
                "rows_per_run": round(rows / whole, 3),
                "prompt_tokens_of_later_turns": prompt,
                "cached_tokens_of_later_turns": cached,
                "cached_share": round(cached / prompt, 4),
            }
        told |= {"added": _added(proxies, asks)}
    return told


def _added(proxies: Any, asks: int) -> dict[str, Any]:
    """Measure, in alternation, a short turn at the end of a recorded trajectory: one sampled token, all else cached."""
    from tests.e2e import test_continuity as e2e
    from tests.e2e.test_capture import TOOLS

    longest = max(
        (e2e.recorded(proxies, "on", f"run-{seed}") for seed in range(2)), key=lambda run: len(run.calls[-1].messages)
    )
    messages = list(longest.calls[-1].messages)
    body = {"model": "helpdesk", "messages": messages, "tools": TOOLS, "max_tokens": 1}
    path, seconds = f"/t/{longest.external_id}/v1/chat/completions", dict[str, list[float]](on=[], off=[])
    with httpx.Client(timeout=60) as http:
        for ask in range(asks + 5):
            for mode, taken in seconds.items():
                began = time.perf_counter()
                http.post(proxies.urls[mode] + path, json=body).raise_for_status()
                if ask >= 5:
                    taken.append(time.perf_counter() - began)
    told = {f"{mode}_median_ms": round(1000 * statistics.median(taken), 2) for mode, taken in seconds.items()}
    prompt = longest.calls[-1].prompt_token_ids
    return {"asks": asks, "prompt_tokens": len(prompt or ()), "messages": len(messages), **told}


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--conversations", type=int, default=300, help="0 omits the templates")
    parser.add_argument("--engine", action="store_true", help="also through a real vLLM")
    parser.add_argument("--runs", type=int, default=12, help="trajectories per proxy, with --engine")
    arguments = parser.parse_args()
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    count = arguments.conversations
    if count:
        results |= {"conversations": count, "seed": SEED, "templates": without_engine(count)}
    for name, told in results["templates"].items():
        for habit, shown in told.items():
            rows = f"{shown['rows_per_run']:5.2f} → {shown['rows_per_run_with_continuity']:4.2f} rows a run"
            print(f"{name:7} {habit:27} {shown['breaks_per_turn']:6.1%} of turns break {rows} {shown['causes']}")
    if arguments.engine:
        results["engine"] = with_engine(arguments.runs, asks=100)
        print(json.dumps(results["engine"], indent=2))
    RESULTS.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
