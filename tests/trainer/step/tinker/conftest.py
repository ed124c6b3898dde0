"""A stand-in for a training service, and a core of the trainer that uses it through the real `tinker` library."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tinker.lib import internal_client_holder

from tests.trainer.plain_settings import PLAIN
from tests.trainer.tinker_server import KEY, NAME, TinkerServer
from trainer.settings import TrainerSettings
from trainer.step.state.folders import TrainerFolders
from trainer.step.tinker.remote_core import TinkerCore
from trainer.step.tinker.secret import VARIABLE

OpenCore = Callable[..., TinkerCore]


@pytest.fixture(autouse=True)
def _no_request_outlives_its_test() -> Iterator[None]:
    """The library asks on for minutes when nobody waits any more, in a thread of its own, and draws each delay from the
    global `random`: a test with Hypothesis that runs meanwhile fails, because the state of `random` changes in it.
    """
    yield
    loop = internal_client_holder._internal_client_holder_thread_singleton.loop_if_started()
    if loop is not None:
        assert asyncio.run_coroutine_threadsafe(_cancel_others(), loop).result(30) == []


async def _cancel_others() -> list[asyncio.Task[object]]:
    """Cancel every other task of the running loop; return those that go on."""
    for _ in range(10):  # a task that ends may begin another, which cleans up
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        if not others:
            break
        for task in others:
            task.cancel()
        await asyncio.wait(others, timeout=2)
    return [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]


@pytest.fixture
def service(tiny_base: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TinkerServer]:
    """The stand-in, whose key is in the environment."""
    monkeypatch.setenv(VARIABLE, KEY)
    with TinkerServer(tiny_base).running() as running:
        yield running


def settings_of(base: Path, url: str, **changes: Any) -> TrainerSettings:
    """Settings that the stand-in can compute."""
    limits = {"base_model": NAME, "url": url, "answer_timeout_s": 30.0, **changes.pop("tinker", {})}
    given: dict[str, Any] = {"backend": "tinker", "base": str(base), "device": "cpu", "rank": 4, "alpha": 8.0}
    given |= {"lr": 1e-2, "token_budget": 64, "weight_decay": 0.01, "tinker": limits}
    return TrainerSettings(**{**PLAIN, **given, **changes})


@pytest.fixture
def open_core(service: TinkerServer, tiny_base: Path, tmp_path: Path) -> Iterator[OpenCore]:
    """Opens a core with changed settings; closed at the end."""
    opened: list[TinkerCore] = []

    def open_with(**changes: Any) -> TinkerCore:
        settings = settings_of(tiny_base, service.url, **changes)
        folders = TrainerFolders.of(tmp_path / "remote")
        opened.append(TinkerCore(tiny_base, settings, folders, lambda: False))
        return opened[-1]

    yield open_with
    for one in opened:
        one.close()
