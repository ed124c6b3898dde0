"""Versions that must not serve, on a real engine: none answers anybody but the gate.

Users ask all the time. A good version is published first and comes through the gate, so that the bad ones are held to
something: one file is broken, one has a NaN, one a rank that the engine does not take; one repeats a word, one calls no
tools any more, one says three times as much; one looks up what nobody asked for, which a judge alone can tell.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from peft import PeftModel
from sqlalchemy import func, select

from examples.helpdesk.agent import MAX_TOKENS, SYSTEM
from examples.helpdesk.making.conversations import TOOLS
from recorder.reading.transcripts import load_group
from recorder.registry.aliases import get_alias
from recorder.registry.moves import list_moves
from recorder.registry.versions import VersionView, allocate, get_version, mark
from recorder.settings import RecorderSettings
from recorder.states import Purpose, VersionState
from recorder.store.changes import Topic
from recorder.store.database import Store
from recorder.store.migrate import open_store
from recorder.store.schema import calls, trajectories, versions
from recorder.work.claims import claim_for_judging
from recorder.work.presence import JUDGE, present
from recorder.work.scores import NewPart, NewScore, record_score
from tests.e2e import trained_adapters as made
from tests.e2e.conftest import CONFIG, Stack, started
from tests.proxy.until import until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]

DECIDED = (VersionState.LIVE, VersionState.REJECTED)
OPENINGS = 16  # recorded before anything is published: the gate asks so many anew
WITHIN_S = 300.0
SETTINGS = CONFIG.replace("[aliases.helpdesk]", '[aliases.helpdesk]\npromote = "gate"')


def good() -> PeftModel:
    return made.taught(made.well)


# what it is, how it is made, and the codes by which it may be rejected
BAD: list[tuple[Callable[[], PeftModel], int, set[str]]] = [
    (lambda: made.random_adapter(value=float("nan")), 0, {"not_finite"}),
    (lambda: made.random_adapter(rank=16), 0, {"rank"}),
    (made.random_adapter, 1000, {"not_safetensors"}),
    (lambda: made.taught(made.repeating), 0, {"length", "entropy", "tool_calls_lost"}),
    (lambda: made.taught(made.without_tools), 0, {"tool_calls_lost"}),
    (lambda: made.taught(made.at_length), 0, {"length"}),
    (lambda: made.taught(made.wrongly), 0, {"behaviour"}),
]


class Users(threading.Thread):
    """Ask about one order after another until told to stop, and remember which versions answered."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self.url, self.answered = url, Counter[str]()
        self.stopped = threading.Event()
        self._rng = random.Random(1)

    def ask(self, http: httpx.Client, number: int) -> None:
        order = self._rng.randrange(1000, 10000)
        body = {
            "model": "helpdesk",
            "messages": [
                {"role": "system", "content": SYSTEM},
                {"role": "user", "content": f"Where is my order {order}?"},
            ],
            "tools": TOOLS,
            "max_tokens": MAX_TOKENS,
        }
        answer = http.post(f"/t/user-{number}/v1/chat/completions", json=body, headers={"x-hone-done": "true"})
        self.answered[answer.raise_for_status().headers["x-hone-version"]] += 1

    def run(self) -> None:
        number = 0
        with httpx.Client(base_url=self.url, timeout=60) as http:
            while not self.stopped.is_set():
                self.ask(http, number)
                number += 1


def worth(messages: Sequence[Mapping[str, Any]]) -> float:
    """Whether the order that was asked for is looked up. Who only talks of it passes here: sanity is to see that."""
    wanted = re.search(r"\d+", str(messages[-2]["content"]))
    assert wanted is not None
    asked = [call["function"]["arguments"] for call in messages[-1].get("tool_calls") or ()]
    if not asked:
        return 1.0 if "on its way" in str(messages[-1]["content"]) else 0.0
    try:
        return float(json.loads(asked[0]).get("order_id") == wanted[0])
    except (ValueError, AttributeError):
        return 0.0


@asynccontextmanager
async def judging(store: Store) -> AsyncIterator[None]:
    """A judge that gives each run what it is worth."""

    async def judge() -> None:
        with store.watch.on(Topic.GROUPS) as news:
            while True:
                await news.wait(1.0)
                while claim := await claim_for_judging(store, "default", "judge", 60):
                    members = (await load_group(store, claim.group_id)).members
                    parts = [NewPart(m.id, "reward", worth(m.messages)) for m in members]
                    await record_score(store, claim, NewScore("recipe", parts=parts))

    async with present(store, "default", JUDGE, "judge", 60):
        task = asyncio.create_task(judge())
        yield
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def decided(store: Store, adapters: Path, model: PeftModel, *, cut_by: int = 0) -> VersionView:
    """A version of the live one, written as a trainer leaves it, once it is live or rejected."""
    alias = await get_alias(store, "default", "helpdesk")
    assert alias.live_version_id is not None
    version = await allocate(store, alias.id, alias.live_version_id)
    path, digest = made.publish(model, adapters, version.name, weights_cut_by=cut_by)
    await mark(store, version.id, VersionState.WRITTEN, path=str(path), engine_name=path.name, manifest_sha256=digest)

    async def look() -> VersionView | None:
        now = await get_version(store, version.id)
        return now if now.state in DECIDED else None

    return await until(look, within_s=WITHIN_S)


async def asked_by_users(store: Store) -> dict[int, int]:
    """Version number → calls of runs that were no eval."""
    query = (
        select(versions.c.number, func.count())
        .join(calls, calls.c.version_id == versions.c.id)
        .join(trajectories, trajectories.c.id == calls.c.trajectory_id)
        .where(trajectories.c.purpose == Purpose.TRAIN)
        .group_by(versions.c.number)
    )
    async with store.read() as conn:
        return {int(number): int(count) for number, count in await conn.execute(query)}


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with started(tmp_path_factory.mktemp("gate"), SETTINGS) as running:
        yield running


async def test_none_of_the_bad_versions_serves_more_than_the_gate(engine: Stack) -> None:
    adapters = engine.data.resolve() / "adapters"
    adapters.mkdir(exist_ok=True)
    store = await open_store(engine.data, RecorderSettings(), migrate=False)
    users = Users(engine.proxy_url)
    users.start()
    try:
        await until(lambda: users.answered.total() >= OPENINGS or not users.is_alive(), within_s=WITHIN_S)
        first = await decided(store, adapters, await asyncio.to_thread(good))  # no judge yet: its figures decide
        assert first.state is VersionState.LIVE, first.reason
        async with judging(store):
            for make, cut_by, codes in BAD:
                version = await decided(store, adapters, await asyncio.to_thread(make), cut_by=cut_by)
                code = (version.reason or "").partition(":")[0]
                assert (version.state, code in codes) == (VersionState.REJECTED, True), version.reason
        assert users.is_alive()
    finally:
        users.stopped.set()
        await asyncio.to_thread(users.join, 60)
    assert set(users.answered) == {"helpdesk@0", "helpdesk@1"}
    assert set(await asked_by_users(store)) == {0, 1}
    rejected = [move for move in await list_moves(store, "default") if move.move == "rejected"]
    assert [move.who for move in rejected] == ["controller"] * len(BAD)
    await store.close()
