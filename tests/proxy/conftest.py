"""A real store for every test that wants one, a world around it, and a bare place for tests of settings."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from proxy.settings.sections import AliasSettings
from recorder.store.database import Store
from tests.proxy.controlled import World, controlled, hurry, up
from tests.proxy.scripted_engine import ScriptedEngine
from tests.proxy.until import until
from tests.stores import SqliteStores, Stores, opened


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No settings but a test's own: no `HONE_…` variable from outside, and an empty working directory."""
    for name in list(os.environ):
        if name.upper().startswith("HONE_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated SQLite file, whatever `--store` says: for tests of the file, and of programs over one."""
    return SqliteStores(tmp_path_factory.mktemp("migrated_file")).file


@pytest.fixture
async def store(tmp_path: Path, stores: Stores) -> AsyncIterator[Store]:
    async with opened(stores, tmp_path / "data") as made:
        yield made


@pytest.fixture
async def engine() -> AsyncIterator[ScriptedEngine]:
    """An engine to the letter of what the controller asks of one."""
    engine = ScriptedEngine(key="engine-key")
    await engine.start()
    yield engine
    await engine.stop()


@pytest.fixture
def make_world(
    store: Store, tmp_path: Path, engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Any]:
    """A controller with its engine up, looking more often than a real engine would like to be asked."""
    hurry(monkeypatch)

    @asynccontextmanager
    async def make(policy: AliasSettings | None = None, **fields: Any) -> AsyncIterator[World]:
        async with controlled(store, tmp_path, engine, policy=policy, **fields) as world:
            await until(lambda: up(world))
            yield world

    return make


@pytest.fixture
async def world(make_world: Callable[..., Any]) -> AsyncIterator[World]:
    async with make_world() as made:
        yield made
