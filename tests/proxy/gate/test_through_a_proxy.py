"""Held-out scenarios through the whole proxy, which asks for keys: each side is answered by its own version."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from recorder.queue import campaigns, gate_requests, leases
from recorder.queue.gate_requests import GatePair
from recorder.registry.keys import Scope, create_key
from recorder.registry.replicas import report_replica
from recorder.registry.versions import allocate_version, get_version, mark_version
from recorder.states import CampaignState, GroupState, VersionState
from recorder.store.changes import Topic
from recorder.store.database import Project, Store
from recorder.views.lists.groups import list_groups
from tests.proxy.fake_engine import FakeEngine, Script, words
from tests.proxy.running import BASE, PROJECT, WITHOUT_PAGES, serving
from tests.trainer.ring import RecordedProgress, held_to_scenarios
from trainer.runtime.examiner import Examiner

ENGINE_NAME = "helpdesk@1-0123456789ab"
AGENT = """
import asyncio, json, urllib.request

def ask(task):
    body = json.dumps({"model": task.model, "messages": [{"role": "user", "content": task.input}]}).encode()
    headers = {"content-type": "application/json", "authorization": f"Bearer {task.api_key}"}
    request = urllib.request.Request(task.base_url + "/chat/completions", body, headers)
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)["choices"][0]["message"]["content"]

async def run(task):
    return await asyncio.to_thread(ask, task)

def solved(trajectory):
    return trajectory.messages[-1]["content"] == "right"
"""


def answered(body: dict[str, Any]) -> Script:
    """The base knows, the new version has forgotten."""
    return Script([words("right" if body["model"] == BASE else "wrong")])


@pytest.mark.slow
async def test_each_side_is_answered_by_its_own_version_and_recorded_so(store: Store, tmp_path: Path) -> None:
    (tmp_path / "my_agent.py").write_text(AGENT)
    (tmp_path / "val.jsonl").write_text(
        "".join(json.dumps({"id": f"s{n}", "input": f"Task {n}"}) + "\n" for n in (1, 2))
    )
    async with FakeEngine() as engine, serving(store, engine, settings=WITHOUT_PAGES) as proxy:
        engine.default = answered
        live = await get_version(store, proxy.alias.live_version_id or "")
        version = await allocate_version(store, proxy.alias.id, live.id)
        await mark_version(
            store,
            version.id,
            VersionState.WRITTEN,
            path="/nowhere",
            engine_name=ENGINE_NAME,
            manifest_sha256="0" * 64,
        )
        await mark_version(store, version.id, VersionState.LOADED)
        await report_replica(
            Project(store, PROJECT), engine.url, base_model=BASE, base_fingerprint="fingerprint",
            state="up", detail=None, loaded=[BASE, ENGINE_NAME],
        )  # fmt: skip
        await create_key(Project(store, PROJECT), "guards the proxy", [Scope.ADMIN])
        (tmp_path / "run.json").write_text(json.dumps({"proxy_url": proxy.url}))
        told = RecordedProgress()
        examiner = asyncio.create_task(Examiner(store, proxy.alias, held_to_scenarios(tmp_path, tmp_path), told).run())
        wish = await gate_requests.request_gate(store, version, live, 2)
        await _over(store, wish)
        examiner.cancel()
        await asyncio.gather(examiner, return_exceptions=True)
        assert (await gate_requests.gate_result(store, wish)).pairs == [GatePair(candidate=0.0, live=1.0)] * 2, (
            told.events
        )
        asked_and_answered = [(call["model"], call["version"]) for call in await proxy.calls()]
        assert sorted(asked_and_answered) == [(name, name) for name in (live.name,) * 2 + (version.name,) * 2]
    groups = (await list_groups(Project(store, PROJECT))).lines
    assert {(group.state, group.reason) for group in groups} == {(GroupState.MEASURED, "measured")}


async def _over(store: Store, wish: str) -> None:
    with store.watch.on(Topic.CAMPAIGNS) as news:
        while (await campaigns.get_campaign(store, wish)).state is CampaignState.RUNNING:
            await news.wait()
    await leases.wait_until_free(Project(store, PROJECT), campaigns.lease_name(wish))
