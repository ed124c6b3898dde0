"""What the store holds when all is over, beside what the clients heard."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from sqlalchemy import func, select

from benchmarks.several.clients import GroupTraffic, HeardCall
from recorder.maintenance.export import raw_lines
from recorder.maintenance.integrity.invariants import check_store
from recorder.states import CallState, VersionState
from recorder.store.database import Project, Store
from recorder.store.schema import groups, scores, step_groups, steps, versions
from tests.proxy.fake_engine import words

PROJECT: Final = "default"
_STAND_IN: Final = re.compile(r"Order \d+ arrives on Monday")
_SHOWN: Final = 5
_SERVED: Final = (VersionState.LIVE, VersionState.RETIRED)


@dataclass
class Findings:
    """Each figure but the last four must be 0 or empty. `of_real_engine`: answers heard that no stand-in gave.

    `moved`: trajectories that changed their version within; that is right only where their version left its engines.
    """

    lost: int = 0
    wrong: int = 0
    doubled: int = 0
    judged_twice: int = 0
    trained_twice: int = 0
    refused: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    examples: list[str] = field(default_factory=list)
    of_real_engine: int = 0
    moved: int = 0
    versions: dict[str, int] = field(default_factory=dict)
    groups: dict[str, int] = field(default_factory=dict)

    @property
    def clean(self) -> bool:
        """Whether nothing is wrong, and the real engine answered too."""
        counts = (self.lost, self.wrong, self.doubled, self.judged_twice, self.trained_twice)
        return not any(counts) and not self.refused and not self.broken and self.of_real_engine > 0


async def compare(store: Store, data: Path, traffic: GroupTraffic) -> Findings:
    """Return what differs, and the counts."""
    found = Findings(refused=traffic.refused)
    wanted = {one.call_id: one for one in traffic.heard}
    turns: Counter[tuple[str, str | None]] = Counter()
    served: defaultdict[str, set[str | None]] = defaultdict(set)
    async for line in raw_lines(Project(store, PROJECT)):
        if line["status"] == CallState.COMPLETE:
            turns[line["trajectory_id"], line["parent_call_id"]] += 1
            served[line["trajectory_id"]].add(line["version"])
        if (one := wanted.pop(line["call_id"], None)) is not None:
            _compare_one(one, line, found)
    found.lost += len(wanted)
    found.examples += [f"lost: {one}" for one in wanted.values()][:_SHOWN]
    found.doubled = sum(times - 1 for times in turns.values())
    found.moved = sum(len(names) > 1 for names in served.values())
    async with store.read() as conn:
        found.judged_twice = len((await conn.execute(_more_than_once(scores.c.group_id))).all())
        # A group whose version was rejected may be tried again: what counts is versions that served.
        trained = (
            select(step_groups.c.group_id)
            .join(steps, steps.c.id == step_groups.c.step_id)
            .join(versions, versions.c.id == steps.c.version_id)
            .where(versions.c.state.in_(_SERVED))
            .group_by(step_groups.c.group_id)
            .having(func.count() > 1)
        )
        found.trained_twice = len((await conn.execute(trained)).all())
        found.groups = await _by_state(conn, groups)
        found.versions = await _by_state(conn, versions)
    results = await check_store(store, data)
    found.broken = [f"{one.name}: {row.kind} {row.id}" for one in results for row in one.violations]
    return found


def _compare_one(one: HeardCall, line: dict[str, Any], found: Findings) -> None:
    if line["status"] not in (CallState.COMPLETE, "superseded"):
        found.lost += 1
        found.examples.append(f"lost: {one} is {line['status']}")
        return
    [choice] = line["choices"]
    text = line["response"]["choices"][0]["message"]["content"]
    ids, logprobs = choice["token_ids"] or [], choice["logprobs"] or []
    right = text == one.text and line["version"] == one.version and ids and len(ids) == len(logprobs)
    if not _STAND_IN.fullmatch(one.text):
        found.of_real_engine += 1
    else:  # the ids of a stand-in's words are known
        right = right and ids == words(one.text).ids()
    if not right:
        found.wrong += 1
        found.examples.append(f"wrong: {one} is {text!r} of {line['version']}, {choice}"[:400])


def _more_than_once(column: Any) -> Any:
    return select(column).group_by(column).having(func.count() > 1)


async def _by_state(conn: Any, table: Any) -> dict[str, int]:
    rows: Sequence[Any] = (await conn.execute(select(table.c.state, func.count()).group_by(table.c.state))).all()
    return {str(state): count for state, count in rows}
