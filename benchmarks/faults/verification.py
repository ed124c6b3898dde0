"""Compare what clients heard with what the store holds, when all faults are over."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from sqlalchemy import func, select

from benchmarks.faults.traffic import HeardAnswer
from recorder.maintenance.export import raw_lines
from recorder.maintenance.integrity.invariants import check_store
from recorder.states import CallState, GroupState, TrajectoryState
from recorder.store.database import Project, Store
from recorder.store.schema import calls, groups, trajectories
from tests.proxy.fake_engine import ids_of, words

PROJECT: Final = "default"
_LOOKS_S: Final = 0.5
_CLOSE: Final = 1e-6  # nats: the store keeps float32
_SHOWN: Final = 5  # of each kind of finding


@dataclass
class Findings:
    """`lost`: heard answers that the store lacks, or does not hold as complete; `wrong`: those it holds with another
    text, other ids or logprobs; `doubled`: turns that count twice; `unfinished`: rows without a final state, by kind;
    `broken`: broken rules of `hone db check`. `examples` of each.
    """

    lost: int = 0
    doubled: int = 0
    wrong: int = 0
    unfinished: dict[str, int] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    examples: list[str] = field(default_factory=list)
    recorded: int = 0
    superseded: int = 0

    @property
    def clean(self) -> bool:
        """Whether nothing was found."""
        return not (self.lost or self.doubled or self.wrong or self.unfinished or self.broken)


async def until_settled(store: Store, within_s: float) -> dict[str, int]:
    """Wait until no row is without a final state; return those that still are after `within_s`, by kind."""
    deadline = time.monotonic() + within_s
    while True:
        left = await _unfinished(store)
        if not left or time.monotonic() > deadline:
            return left
        await asyncio.sleep(_LOOKS_S)


async def _unfinished(store: Store) -> dict[str, int]:
    open_ = {
        "calls": select(func.count()).select_from(calls).where(calls.c.state == CallState.OPEN),
        "trajectories": select(func.count())
        .select_from(trajectories)
        .where(trajectories.c.state == TrajectoryState.OPEN),
        "groups": select(func.count()).select_from(groups).where(groups.c.state == GroupState.OPEN),
    }
    async with store.read() as conn:
        counts = {name: int((await conn.execute(query)).scalar_one()) for name, query in open_.items()}
    return {name: count for name, count in counts.items() if count}


async def compare(store: Store, data: Path, heard: Sequence[HeardAnswer], unfinished: dict[str, int]) -> Findings:
    """Return what differs."""
    found = Findings(unfinished=unfinished)
    wanted = {one.call_id: one for one in heard}
    turns: Counter[tuple[str, str | None]] = Counter()
    async for line in raw_lines(Project(store, PROJECT)):
        found.recorded += 1
        found.superseded += line["status"] == "superseded"
        if line["status"] == CallState.COMPLETE:
            turns[line["trajectory_id"], line["parent_call_id"]] += 1
        if (one := wanted.pop(line["call_id"], None)) is not None:
            _compare_one(one, line, found)
    for one in wanted.values():
        _note(found, f"lost: {one}")
    found.lost += len(wanted)
    for (trajectory, parent), times in turns.items():
        if times > 1:
            found.doubled += times - 1
            _note(found, f"doubled: {times} answers of {trajectory} after {parent}")
    results = await check_store(store, data)
    found.broken = [f"{result.name}: {one.kind} {one.id}" for result in results for one in result.violations]
    return found


def _compare_one(one: HeardAnswer, line: dict[str, Any], found: Findings) -> None:
    if line["status"] not in (CallState.COMPLETE, "superseded"):
        found.lost += 1
        _note(found, f"lost: {one} is {line['status']}")
        return
    said = words(one.text)
    [choice] = line["choices"]
    same_logprobs = len(choice["logprobs"]) == len(said.logprobs()) and all(
        abs(stored - sent) <= _CLOSE for stored, sent in zip(choice["logprobs"], said.logprobs(), strict=True)
    )
    text = line["response"]["choices"][0]["message"]["content"]
    # The prompt ends with the words that ask for an assistant turn.
    ends_right = (line["prompt_token_ids"] or [])[-1:] == ids_of("assistant")
    if choice["token_ids"] != said.ids() or not same_logprobs or text != one.text or not ends_right:
        found.wrong += 1
        _note(found, f"wrong: {one} is {text!r}, {choice}")


def _note(found: Findings, text: str) -> None:
    if len(found.examples) < _SHOWN:
        found.examples.append(text)
