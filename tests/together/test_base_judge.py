"""The judge `base` on the real proxy: the alias's base judges, by its name, and its requests are no traffic."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from judge.adversarial.check import CheckRequest, check_base
from judge.calibration.judged_groups import judge_all, judge_settings
from judge.errors import JudgeDown, JudgeMisconfigured
from judge.scoring.setup import open_judge_context
from judge.scoring.worker import JudgeWorker
from judge.settings import JudgeSettings
from recorder.queue.judging import cross_checks, scores
from recorder.queue.judging.switches import STRONG
from recorder.registry import keys
from recorder.registry.aliases import ensure_alias
from recorder.registry.keys import Scope
from recorder.settings import RecorderSettings
from recorder.store.database import Project, Store
from recorder.store.schema import calls, trajectories
from recorder.views.trajectories.transcripts import load_group
from tests.judge.judge_server import by_worth, entries
from tests.judge.judge_server import serve as serve_judge
from tests.judge.recorded import PROJECT, Recorded
from tests.proxy.fake_engine import FakeEngine, Script, words
from tests.proxy.running import BASE, Proxy, serving
from tests.proxy.until import until
from tests.stores import Stores, opened

pytestmark = pytest.mark.slow

SETTINGS = {"model": "base", "retries": 0, "retry_wait_s": 0.001, "backoff_s": 0.05}
NAMED = f"helpdesk@0 {BASE} fingerprint"


def verdict(body: dict[str, Any]) -> Script:
    """What the base says of a group."""
    return Script([words(json.dumps({"trajectories": entries(body, by_worth)}))])


@pytest.fixture
async def store(tmp_path: Path, stores: Stores) -> AsyncIterator[Store]:
    async with opened(stores, tmp_path / "data") as made:
        yield made


@pytest.fixture
async def engine() -> AsyncIterator[FakeEngine]:
    async with FakeEngine() as running:
        running.default = verdict
        yield running


@pytest.fixture
async def proxy(store: Store, engine: FakeEngine) -> AsyncIterator[Proxy]:
    async with serving(store, engine) as running:
        yield running


@pytest.fixture
async def group(proxy: Proxy) -> str:
    """Two runs of the alias."""
    recorded = Recorded(proxy.store, proxy.recorder, proxy.alias.id)
    group_id, _ = await recorded.group("g", ["worth 0.2", "worth 0.9"])
    return group_id


async def count(store: Store) -> list[int]:
    async with store.read() as conn:
        return [
            (await conn.execute(select(func.count()).select_from(one))).scalar_one() for one in (calls, trajectories)
        ]


async def scored(store: Store, group_id: str, **more: Any) -> scores.StoredScore:
    """The group's score by a worker."""
    stop = asyncio.Event()
    async with open_judge_context(JudgeSettings.model_validate(SETTINGS | more), Project(store, PROJECT)) as context:
        running = asyncio.create_task(JudgeWorker(Project(store, PROJECT), context, RecorderSettings()).run(stop))
        try:
            await until(lambda: scores.list_scores(store, group_id))
            if context.strong is not None:
                await until(lambda: cross_checks.list_cross_checks(store, group_id))
        finally:
            stop.set()
            await running
    [score] = await scores.list_scores(store, group_id)
    return score


async def test_the_base_judges_and_its_requests_are_no_traffic(store: Store, group: str, engine: FakeEngine) -> None:
    before = await count(store)
    score = await scored(store, group)
    assert (score.judge_model, score.judge_version, score.cost_usd) == ("helpdesk@0", NAMED, 0)
    assert sorted((await scores.score_rewards(store, score.id)).values(), key=str) == [0.2, 0.9]
    assert score.tokens_in > 0
    [asked] = engine.requests
    assert asked["model"] == BASE
    assert await count(store) == before


async def test_where_there_are_keys_it_has_one_while_it_judges(store: Store, group: str) -> None:
    await keys.create_key(Project(store, PROJECT), "agents", [Scope.INFER])
    score = await scored(store, group)
    assert score.judge_version == NAMED
    [own] = [one for one in await keys.list_keys(Project(store, PROJECT)) if one.name.startswith("judge ")]
    assert own.scopes == {Scope.EVAL}
    assert own.revoked_at is not None
    assert own.expires_at is not None


async def test_the_base_is_held_against_a_strong_judge(store: Store, group: str) -> None:
    async with serve_judge() as server:
        strong = {"model": "openai/strong", "api_base": server.url, "every": 1}
        score = await scored(store, group, strong=strong)
    [said] = await cross_checks.list_cross_checks(store, group)
    assert (score.judge_model, said.judge, said.judge_model, said.tau) == ("helpdesk@0", STRONG, "openai/strong", 1)


async def test_the_base_is_the_strong_one_beside_a_panel(store: Store, group: str, engine: FakeEngine) -> None:
    async with serve_judge() as server:
        panel = [{"model": "openai/a", "api_base": server.url}, {"model": "openai/b", "api_base": server.url}]
        score = await scored(store, group, model="", panel=panel, strong={"model": "base", "every": 1})
    [said] = await cross_checks.list_cross_checks(store, group)
    assert (score.judge_model, said.judge_model) == ("openai/a + openai/b", "helpdesk@0")
    assert len(engine.requests) == 1


async def test_people_s_labels_are_held_against_it_too(store: Store, group: str) -> None:
    settings = judge_settings(JudgeSettings(model="openai/judge", api_base="http://elsewhere/v1"), "base")
    [judged] = await judge_all(Project(store, PROJECT), [await load_group(store, group)], settings, lambda _: None)
    assert sorted(judged.scores.values()) == [0.2, 0.9]
    assert judged.spent.cost_usd == 0


async def test_it_is_tried_on_known_tricks_though_their_groups_are_of_no_alias(
    store: Store, group: str, engine: FakeEngine
) -> None:
    engine.default = lambda body: Script([words(json.dumps({"trajectories": entries(body, lambda _: 0.5)}))])
    wanted = CheckRequest(kinds=("longer",), groups=2)
    found = await check_base(Project(store, PROJECT), JudgeSettings.model_validate(SETTINGS), wanted, lambda _: None)
    assert (found.stopped, found.versions, found.requests) == (None, {NAMED}, 2)
    assert found.by_model[0].fooled == 2  # whoever ties all is fooled by all


async def test_of_several_aliases_the_one_is_tried_that_is_named(store: Store, group: str, engine: FakeEngine) -> None:
    await ensure_alias(Project(store, PROJECT), "other", "base", None)
    engine.default = lambda body: Script([words(json.dumps({"trajectories": entries(body, lambda _: 0.5)}))])
    settings, wanted = JudgeSettings.model_validate(SETTINGS), CheckRequest(kinds=("longer",), groups=2)
    with pytest.raises(JudgeMisconfigured, match="name the alias with --alias; there is: helpdesk, other"):
        await check_base(Project(store, PROJECT), settings, wanted, lambda _: None)
    with pytest.raises(JudgeMisconfigured, match=r"no alias 'nobody' \(--alias\); there is: helpdesk, other"):
        await check_base(Project(store, PROJECT), settings, replace(wanted, alias="nobody"), lambda _: None)
    assert engine.requests == []
    found = await check_base(Project(store, PROJECT), settings, replace(wanted, alias="helpdesk"), lambda _: None)
    assert (found.stopped, found.versions, found.model) == (None, {NAMED}, "helpdesk@0")
    assert found.by_model[0].fooled == 2


async def test_without_a_proxy_its_groups_wait_and_say_what_to_do(store: Store) -> None:
    recorded = await Recorded.start(store)
    try:
        group_id, _ = await recorded.group("g", ["worth 0.2", "worth 0.9"])
        settings, groups = judge_settings(JudgeSettings(), "base"), [await load_group(store, group_id)]
        with pytest.raises(JudgeDown, match=r"start `hone up` or `hone serve`, or set judge\.model"):
            await judge_all(Project(store, PROJECT), groups, settings, lambda _: None)
    finally:
        await recorded.stop()
