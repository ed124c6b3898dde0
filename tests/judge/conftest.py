"""What the judge's tests share: a judge server, settings that point to it, and `hone score` at the terminal."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from judge.commands import score as commands
from judge.settings import JudgeSettings
from proxy.settings.hone import HoneSettings, LoadedSettings
from proxy.settings.sections import AliasSettings
from recorder.commands.context import Context
from recorder.settings import RecorderSettings
from recorder.store.bootstrap import open_store
from recorder.store.database import Store
from tests.judge.judge_server import JudgeServer, serve
from tests.judge.recorded import Recorded
from tests.stores import Stores


@pytest.fixture
async def server() -> AsyncIterator[JudgeServer]:
    async with serve() as running:
        yield running


@pytest.fixture
def settings(server: JudgeServer) -> Callable[..., JudgeSettings]:
    """Settings under which the judge server judges, and failures cost no time."""

    def make(**more: Any) -> JudgeSettings:
        base = {"model": "openai/judge", "api_base": server.url, "retry_wait_s": 0.001, "backoff_s": 0.001}
        return JudgeSettings.model_validate(base | more)

    return make


@pytest.fixture
def recording(tmp_path: Path, stores: Stores) -> Iterator[RecorderSettings]:
    """Of the test's store, for what opens it anew."""
    with stores.made(tmp_path / "data") as made:
        yield made


@pytest.fixture
async def store(tmp_path: Path, recording: RecorderSettings) -> AsyncIterator[Store]:
    opened = await open_store(tmp_path / "data", recording, migrate=False)
    yield opened
    await opened.close()


@pytest.fixture
async def recorded(store: Store) -> AsyncIterator[Recorded]:
    made = await Recorded.start(store)
    yield made
    await made.stop()


def context_of(settings: HoneSettings, *, as_json: bool = False) -> Context:
    """What a command finds in click's context under these settings."""
    made = Context(lambda _config, _overrides: LoadedSettings(settings, {}, None))
    made.json = as_json
    return made


@pytest.fixture
def score(settings: Callable[..., JudgeSettings], tmp_path: Path, recording: RecorderSettings) -> Callable[..., Any]:
    """Run `hone score` in a thread of its own, as it starts an event loop."""

    async def run(*args: str, as_json: bool = False, of_alias: Mapping[str, str] | None = None, **more: Any) -> Result:
        aliases = {name: AliasSettings(judge_recipe=recipe) for name, recipe in (of_alias or {}).items()}
        given = HoneSettings(data=tmp_path / "data", judge=settings(**more), recorder=recording, aliases=aliases)
        context = context_of(given, as_json=as_json)
        return await asyncio.to_thread(CliRunner().invoke, commands.score, args, obj=context)

    return run
