"""Versions that must not serve, on a real engine: none answers anybody but the gate, and a canary's share of users.

Users ask all the time. A good version comes through first, so that the bad ones are held to something. What one is bad
at decides where it must be found: in its files, in its answers' figures, by a judge, or on trial among users.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from peft import PeftModel
from sqlalchemy import func, select

from examples.helpdesk.making.conversations import ideal
from recorder.registry.aliases import get_alias
from recorder.registry.moves import VersionMove, list_moves
from recorder.registry.versions import VersionView, allocate_version, get_version, mark_version
from recorder.states import Origin, Purpose, VersionState
from recorder.store.bootstrap import open_store
from recorder.store.changes import Topic
from recorder.store.database import Project, Store
from recorder.store.schema import calls, trajectories, versions
from tests.e2e import trained_adapters as made
from tests.e2e.conftest import CONFIG, Stack, served_beside
from tests.e2e.desk_users import PROJECT, judge, users
from tests.stores import Stores

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]

SHARE = 0.25
# Each run is judged by itself, and at once; 24 pairs tell what loses them all. No run is held back on the version
# before: one trial at a time.
ALIAS = f"""
[aliases.helpdesk]
promote = "canary"
canary_share = {SHARE}
baseline = "running"
holdback_share = 0.0

[aliases.helpdesk.gate]
max_samples = 24
"""
SETTINGS = CONFIG.replace("\n[aliases.helpdesk]\n", ALIAS) + "\n[recorder]\ngroup_window_s = 0\n"
DECIDED = (VersionState.LIVE, VersionState.REJECTED, VersionState.RETIRED)
OPENINGS = 16  # the gate asks so many anew
WITHIN_S = 400.0
BY_GATE = (Purpose.EVAL, Origin.SHADOW)
BY_USERS = (Purpose.TRAIN, Origin.LIVE)


@dataclass(frozen=True)
class Bad:
    """What it is called here, how it is made, and the codes of the verdicts that fit. `cut_by`: bytes of its file."""

    name: str
    make: Callable[[], PeftModel]
    codes: frozenset[str]
    cut_by: int = 0


BAD = (
    Bad("a number that is none", lambda: made.untaught(value=math.nan), frozenset({"not_finite"})),
    Bad("numbers whose products are none", lambda: made.untaught(value=3e38), frozenset({"not_finite"})),
    Bad("a rank above the engine's", lambda: made.untaught(rank=16), frozenset({"rank"})),
    Bad("a file cut short", made.untaught, frozenset({"not_safetensors"}), cut_by=1000),
    Bad("repeats a word", lambda: made.taught(made.repeating), frozenset({"length"})),
    Bad("calls no tool", lambda: made.taught(made.without_tools), frozenset({"tool_calls_lost"})),
    Bad("three times as long", lambda: made.taught(made.at_length), frozenset({"length"})),
    Bad("asks for the wrong order", lambda: made.taught(made.wrongly), frozenset({"behaviour"})),
)

# `make test` publishes the versions that need no training, one that its figures exclude, and one that a comparison of
# calls excludes. `make long` publishes all.
SHORT_FORM = tuple(bad for bad in BAD if bad.name not in ("repeats a word", "three times as long"))


async def decided(store: Store, adapters: Path, model: PeftModel, *, cut_by: int = 0) -> VersionView:
    """A version of the live one, written as a trainer leaves it, once it is live or out."""
    alias = await get_alias(Project(store, PROJECT), "helpdesk")
    assert alias.live_version_id is not None
    version = await allocate_version(store, alias.id, alias.live_version_id)
    path, digest = made.publish(model, adapters, version.name, weights_cut_by=cut_by)
    await mark_version(
        store, version.id, VersionState.WRITTEN, path=str(path), engine_name=path.name, manifest_sha256=digest
    )
    with store.watch.on(Topic.SERVICE) as news:
        async with asyncio.timeout(WITHIN_S):
            while (version := await get_version(store, version.id)).state not in DECIDED:
                await news.wait()
    return version


async def asked(store: Store) -> dict[int, set[tuple[str, str]]]:
    """Version number → for what it was asked, by whom."""
    query = (
        select(versions.c.number, trajectories.c.purpose, trajectories.c.origin)
        .join(calls, calls.c.version_id == versions.c.id)
        .join(trajectories, trajectories.c.id == calls.c.trajectory_id)
        .where(trajectories.c.purpose != Purpose.NONE)  # who looked whether the proxy is up
        .distinct()
    )
    found: dict[int, set[tuple[str, str]]] = {}
    async with store.read() as conn:
        for number, purpose, origin in await conn.execute(query):
            found.setdefault(number, set()).add((purpose, origin))
    return found


async def moves_of(store: Store, version: VersionView) -> dict[str, VersionMove]:
    """What was decided about a version, by what it is called."""
    return {move.move: move for move in await list_moves(Project(store, PROJECT)) if move.version_id == version.id}


async def runs_between(store: Store, since: float, until: float) -> Counter[str]:
    """Version id → users' runs that began on it in this time (unix seconds)."""
    t = trajectories.c
    query = select(t.version_id, func.count()).where(t.purpose == Purpose.TRAIN, t.started_at.between(since, until))
    async with store.read() as conn:
        return Counter({str(id_): int(count) for id_, count in await conn.execute(query.group_by(t.version_id))})


@pytest.fixture
def gated(stack: Stack, stores: Stores, tmp_path: Path) -> Iterator[Stack]:
    """A proxy whose alias has a gate and a canary, and whose store is new."""
    with (
        stores.unmade(tmp_path / "data") as recording,
        served_beside(stack, tmp_path, recording, SETTINGS) as running,
    ):
        yield running


@pytest.fixture
async def store(gated: Stack) -> AsyncIterator[Store]:
    opened = await open_store(gated.data, gated.recording, migrate=False)
    try:
        yield opened
    finally:
        await opened.close()


@pytest.mark.parametrize(
    "bad_versions", [pytest.param(SHORT_FORM, id="short"), pytest.param(BAD, id="all", marks=pytest.mark.long)]
)
async def test_no_bad_version_serves_more_than_the_gate_and_a_canarys_share(
    gated: Stack, store: Store, bad_versions: Sequence[Bad]
) -> None:
    adapters = gated.data.resolve() / "adapters"
    adapters.mkdir(exist_ok=True)

    # Before the users begin: while a model is trained, their calls would decide nothing.
    good_model = await asyncio.to_thread(made.taught, ideal)
    guessing_model = await asyncio.to_thread(made.taught, made.guessing)
    bad_models = [(bad, await asyncio.to_thread(bad.make)) for bad in bad_versions]

    async with judge(store), users(gated.proxy_url) as asking:
        await asking.answers(4 * OPENINGS)
        good = await decided(store, adapters, good_model)
        assert good.state is VersionState.LIVE, good.reason

        guesses = await decided(store, adapters, guessing_model)  # begins as the good one does: no gate can tell
        assert guesses.state is VersionState.RETIRED, guesses.reason
        trial = await moves_of(store, guesses)
        assert trial["canary_ended"].figures["worse_by"] == ["reward"]

        for bad, model in bad_models:
            version = await decided(store, adapters, model, cut_by=bad.cut_by)
            code = (version.reason or "").partition(":")[0]
            assert (bad.name, version.state, code in bad.codes) == (bad.name, VersionState.REJECTED, True), (
                version.reason
            )
            assert "canary" not in await moves_of(store, version)
        assert set(await asking.answers(OPENINGS)) == {good.name}

    assert set(asking.answered) == {"helpdesk@0", good.name, guesses.name}
    by_whom = await asked(store)
    assert {number for number, whom in by_whom.items() if BY_USERS in whom} == {0, good.number, guesses.number}
    assert all(whom <= {BY_GATE, BY_USERS} for whom in by_whom.values())
    runs = await runs_between(store, trial["canary"].at, trial["canary_ended"].at)
    chance = math.sqrt(runs.total() * SHARE * (1 - SHARE))
    assert 0 < runs[guesses.id] <= SHARE * runs.total() + 5 * chance  # more is chance once in a million
