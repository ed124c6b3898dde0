"""Faults of benchmarks/faults, a few of each: nothing is lost, doubled or wrong, and the comparison would see it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.faults.kinds import KINDS
from benchmarks.faults.results import BAD
from benchmarks.faults.ring import StoreKind, running
from benchmarks.faults.session import run_session
from benchmarks.faults.traffic import Traffic
from benchmarks.faults.verification import compare

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

OFTEN = {("proxy-killed", "sqlite"), ("engine-killed", "sqlite"), ("store-restarts", "postgresql")}
TIMES = 3
EVERY = [
    pytest.param(name, store, marks=[] if (name, store) in OFTEN else pytest.mark.long, id=f"{name}-{store}")
    for name, kind in KINDS.items()
    for store in kind.stores
]


@pytest.mark.parametrize(("name", "store"), EVERY)
async def test_a_fault_costs_no_answer_whose_end_a_client_saw(name: str, store: StoreKind, tmp_path: Path) -> None:
    outcome = await run_session(KINDS[name], store, tmp_path, TIMES, seed=7)
    result = outcome.as_json()
    assert {key: result[key] for key in BAD if result[key]} == {}, result["examples"]
    assert result["times"] == TIMES
    assert result["answers"] >= TIMES


async def test_the_comparison_sees_what_is_lost_wrong_or_doubled(tmp_path: Path) -> None:
    async with running(tmp_path, "sqlite") as ring:
        traffic = Traffic(ring.at)
        await traffic.converse("one")
        store = await ring.open_store()
        try:
            first, second, third = traffic.heard
            assert (await compare(store, ring.data, traffic.heard, {})).clean
            changed = [replace(first, call_id="call_nowhere"), replace(second, text="Order 7 is lost"), third]
            found = await compare(store, ring.data, changed, {"calls": 1})
            assert (found.lost, found.wrong, found.doubled, found.unfinished) == (1, 1, 0, {"calls": 1})
            assert not found.clean
            assert "call_nowhere" in " ".join(found.examples)
            for _ in range(2):  # one turn twice, and no word that it is a retry
                await traffic.converse("two", turns=1)
            assert (await compare(store, ring.data, traffic.heard, {})).doubled == 1
        finally:
            await store.close()
