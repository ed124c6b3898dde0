"""Control of versions whose PostgreSQL is taken away: it goes on behind that, with what is in service as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.proxy.controlled import controlled, hurry, served, up
from tests.proxy.scripted_engine import ScriptedEngine
from tests.proxy.until import until
from tests.stores import on_its_own_server, take_away

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("how", ["cut", pytest.param("fast", marks=pytest.mark.long), "immediate"])
async def test_versions_come_into_service_behind_a_database_that_was_away(
    tmp_path: Path, engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    hurry(monkeypatch)
    async with on_its_own_server(tmp_path / "data") as (database, store), controlled(store, tmp_path, engine) as world:
        await until(lambda: up(world))
        first = await world.live()
        await take_away(database, how)
        assert served(world) == first.name
        second = await world.live()
        assert engine.loads() == [first.engine_name, second.engine_name]
