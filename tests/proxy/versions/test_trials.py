"""A trainer's adapter is loaded into every engine once and unloaded, and nobody can ask for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from proxy.engine.replica import Replica
from proxy.errors import EngineError
from recorder.queue.training import adapter_trials
from recorder.queue.training.adapter_trials import AdapterTrial
from recorder.store.database import Project, Store
from tests.proxy.adapters import Made, make_adapter, weights
from tests.proxy.controlled import World, controlled, hurry, served, up
from tests.proxy.scripted_engine import ScriptedEngine
from tests.proxy.until import until

pytestmark = pytest.mark.slow


async def offer(world: World, made: Made | None = None) -> tuple[str, Made]:
    alias = await world.alias()
    made = made or make_adapter(world.folder, "helpdesk@trial")
    id_ = await adapter_trials.begin_trial(Project(world.store, "default"), alias.id)
    await adapter_trials.offer_trial(
        world.store, id_, engine_name=made.engine_name, path=str(made.path), manifest_sha256=made.manifest_sha256
    )
    return id_, made


async def answer(world: World) -> AdapterTrial:
    alias = await world.alias()

    async def answered() -> AdapterTrial | None:
        found = await adapter_trials.find_trial(world.store, alias.id)
        return found if found is not None and found.answered_at is not None else None

    found: AdapterTrial = await until(answered)
    return found


async def test_an_adapter_is_loaded_once_and_unloaded_and_is_never_in_service(world: World) -> None:
    await until(lambda: up(world))
    _, made = await offer(world)
    assert (await answer(world)).refusal is None
    assert world.engine.calls == [("load", made.engine_name), ("unload", made.engine_name)]
    await world.rounds()
    assert world.engine.calls == [("load", made.engine_name), ("unload", made.engine_name)]
    assert world.engine.adapters == {}
    assert made.path.is_dir()  # its trainer removes it
    assert served(world) == "helpdesk@0"


async def test_nobody_can_ask_for_it_while_it_is_loaded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await until(lambda: up(world))
    stock, loaded, go_on = Replica.unload, asyncio.Event(), asyncio.Event()

    async def slow(replica: Any, name: str) -> None:
        loaded.set()
        await go_on.wait()
        await stock(replica, name)

    monkeypatch.setattr(Replica, "unload", slow)
    _, made = await offer(world)
    await loaded.wait()
    member = world.controller._fleet.members[0]
    await member.look()
    assert made.engine_name in member.adapters
    await world.versions.refresh()
    for name in (made.engine_name, "helpdesk@trial", made.engine_name.rpartition("-")[0]):
        assert world.versions.resolve(name) is None
    assert all(made.engine_name not in row.loaded for row in world.versions.snapshot.replicas)
    go_on.set()
    assert (await answer(world)).refusal is None


def of_too_high_a_rank(folder: Path) -> Made:
    return make_adapter(folder, "helpdesk@trial", tensors=weights(rank=128), rank=128)


def with_nan(folder: Path) -> Made:
    tensors = weights()
    next(iter(tensors.values()))[0, 0] = np.nan
    return make_adapter(folder, "helpdesk@trial", tensors=tensors)


def gone(folder: Path) -> Made:
    return Made(folder / "helpdesk@trial-000000000000", "0" * 64)


@pytest.mark.parametrize(
    ("make", "why"), [(of_too_high_a_rank, "rank 128"), (with_nan, "values that are NaN"), (gone, "manifest")]
)
async def test_one_that_must_not_be_loaded_is_refused_and_not_loaded(
    world: World, make: Callable[[Path], Made], why: str
) -> None:
    await until(lambda: up(world))
    await offer(world, make(world.folder))
    assert why in ((await answer(world)).refusal or "")
    assert world.engine.loads() == []


async def test_the_engine_s_own_words_are_the_refusal(world: World) -> None:
    await until(lambda: up(world))
    world.engine.max_lora_rank = 2
    _, made = await offer(world)
    refusal = (await answer(world)).refusal
    assert "LoRA rank 4 is greater than max_lora_rank 2" in (refusal or "")
    assert world.engine.adapters == {}
    await world.rounds()
    assert world.engine.loads() == [made.engine_name]  # it is not tried again


async def test_every_engine_tries_it_and_one_is_enough_to_refuse_it(
    store: Store, tmp_path: Path, engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    hurry(monkeypatch)
    second = ScriptedEngine()
    await second.start()
    second.max_lora_rank = 2
    async with controlled(store, tmp_path, engine, second) as both:
        await until(lambda: up(both, 2))
        _, made = await offer(both)
        assert second.url in ((await answer(both)).refusal or "")
        assert engine.loads() == engine.unloads() == [made.engine_name]
    await second.stop()


async def test_one_that_an_engine_dies_of_waits_for_the_engine(world: World) -> None:
    await until(lambda: up(world))
    world.engine.die_on_load = True
    _, made = await offer(world)
    await until(lambda: made.engine_name in world.engine.loads())
    alias = await world.alias()
    found = await adapter_trials.find_trial(world.store, alias.id)
    assert found is not None
    assert found.answered_at is None
    world.engine.die_on_load = False
    assert (await answer(world)).refusal is None


async def test_what_a_killed_proxy_had_loaded_is_unloaded_by_its_successor(world: World) -> None:
    await until(lambda: up(world))
    made = make_adapter(world.folder, "helpdesk@trial")
    world.engine.adapters[made.engine_name] = str(made.path)
    await offer(world, made)
    assert (await answer(world)).refusal is None
    assert world.engine.adapters == {}


async def test_one_that_is_not_unloaded_is_not_answered_before_it_is(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await until(lambda: up(world))
    stock, failures = Replica.unload, 0

    async def failing(replica: Any, name: str) -> None:
        nonlocal failures
        failures += 1
        if failures < 3:
            raise EngineError("the engine did not unload it")
        await stock(replica, name)

    monkeypatch.setattr(Replica, "unload", failing)
    await offer(world)
    assert (await answer(world)).refusal is None
    assert failures == 3
    assert world.engine.adapters == {}


async def test_an_engine_that_loses_its_base_with_its_last_adapter_keeps_this_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plain PEFT does: it stays on the adapter that was deleted until it is asked for another."""
    await until(lambda: up(world))
    asked = list[str]()

    async def logprobs(replica: Any, model: str, *given: Any) -> list[float]:
        asked.append(model)
        if not world.engine.adapters:
            raise EngineError("500: KeyError: 'a0_0'")
        return [-1.0]

    monkeypatch.setattr(Replica, "logprobs", logprobs)
    _, made = await offer(world)
    assert (await answer(world)).refusal is None
    calls = [("load", made.engine_name), ("unload", made.engine_name), ("load", made.engine_name)]
    assert world.engine.calls == calls
    assert asked == ["base", made.engine_name]
    await world.rounds()
    assert world.engine.calls == calls
    assert world.versions.resolve(made.engine_name) is None


async def test_a_trial_whose_trainer_has_ended_is_not_answered(world: World) -> None:
    await until(lambda: up(world))
    world.engine.load_gate.clear()
    id_, made = await offer(world)
    await until(lambda: made.engine_name in world.engine.loads())
    await adapter_trials.end_trial(world.store, id_)
    world.engine.load_gate.set()
    await until(lambda: made.engine_name in world.engine.unloads())
    alias = await world.alias()
    assert await adapter_trials.find_trial(world.store, alias.id) is None
    await world.live()  # versions go on
