"""A judge whose PostgreSQL is taken away while it asks: it goes on behind that, and pays for nothing twice."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from judge.scoring import worker as worker_module
from recorder.errors import StoreError
from recorder.states import GroupState
from recorder.store.database import Store
from tests.judge.judge_server import Json, JudgeServer, verdicts
from tests.judge.recorded import Recorded
from tests.judge.scoring.test_worker import reaches, until, working
from tests.stores import on_its_own_server, take_away

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("how", ["cut", pytest.param("fast", marks=pytest.mark.long), "immediate"])
async def test_a_judge_goes_on_behind_a_database_that_was_away_while_it_asked(
    tmp_path: Path,
    settings: Callable[..., Any],
    server: JudgeServer,
    monkeypatch: pytest.MonkeyPatch,
    how: str,
) -> None:
    monkeypatch.setattr(worker_module, "HICCUP_S", 0.01)
    async with on_its_own_server(tmp_path) as (database, store):

        async def away(body: Json) -> web.StreamResponse:
            await take_away(database, how)
            return await verdicts()(body)

        server.behave(away, verdicts())
        recorded = await Recorded.start(store)
        async with working(store, settings()):
            for name in ("under it", "behind it"):
                group_id, _ = await recorded.group(name, [f"{name} 0.2", f"{name} 0.9"])
                await until(scored(store, group_id))
        await recorded.stop()
    assert len(server.requests) == 2


def scored(store: Store, group_id: str) -> Callable[[], Awaitable[bool]]:
    async def there() -> bool:
        with contextlib.suppress(StoreError):  # it is away just now
            return await reaches(store, group_id, GroupState.SCORED)()
        return False

    return there
