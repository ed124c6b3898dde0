"""Judge and Tools: figures, what fails in sentences, words as they were said; and what to do where nothing is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from proxy.settings.mcp import McpServerSettings
from recorder.ids import new_id
from recorder.queue import claims
from recorder.queue.judging import scores
from recorder.store.database import Store
from recorder.store.schema import tool_calls
from tests.proxy.dashboard.reading import opened
from tests.proxy.fake_engine import FakeEngine
from tests.proxy.running import PROJECT, serving
from tests.recorder.rows import Rows

pytestmark = pytest.mark.slow


async def test_without_anything_they_say_what_to_do(store: Store) -> None:
    async with FakeEngine() as engine, serving(store, engine) as proxy:
        assert "hone judge" in (await opened(proxy.http, "/hone/judge")).text
        tools = await opened(proxy.http, "/hone/tools")
        assert f"{proxy.url}/mcp" in tools.text
        assert "[mcp.orders]" in tools.text


async def test_the_judges_figures_and_what_it_fails_at(store: Store) -> None:
    rows = Rows(store)
    alias = await rows.alias()
    group = await rows.ready_group(3, alias_id=alias.id)
    claim = await claims.claim_one_for_judging(store, group, "j", 60)
    assert claim is not None
    asked = replace(await rows.judgement(claim), judge_model="m<1>", tokens_in=1200, tokens_out=34, latency_s=2.5)
    await scores.record_score(store, claim, asked)
    claim = await claims.claim_one_for_judging(store, await rows.ready_group(), "j", 60)
    assert claim is not None
    await scores.mark_unscored(store, claim, "parts_missing", {"message": "f: KeyError: '<x>'"}, 60)
    async with FakeEngine() as engine, serving(store, engine) as proxy:
        page = await opened(proxy.http, "/hone/judge")
        assert "1 group could not be scored (parts_missing), next retry" in page.text
        assert "f: KeyError: '<x>'" in page.text
        assert "m<1>" in page.text
        assert f"/hone/groups/{group}" in page.links
        told = (await proxy.http.get("/hone/v1/judge")).json()
        assert told["latency"] == {"p50_s": 2.5, "p99_s": 2.5}
        assert [(one["model"], one["tokens_in"], one["cost_usd"]) for one in told["days"]] == [("m<1>", 1200, None)]


async def test_tools_by_how_they_ended_with_their_servers_and_no_secret(store: Store) -> None:
    rows = Rows(store)
    run = await rows.trajectory()
    call = {"project_id": PROJECT, "join_source": "path", "join_confidence": "stated", "server": "orders"}
    for seconds, outcome in enumerate(("complete", "complete", "failed")):
        said = {"content": [{"type": "text", "text": "no <order>"}, {"type": "image"}]}
        of = {"id": new_id("tool"), "trajectory_id": run, "name": "orders__find", "tool": "find", "result": said}
        await rows.insert(
            tool_calls, {**call, **of, "outcome": outcome, "started_at": 10.0, "finished_at": 10.0 + seconds}
        )
    mcp = {"orders": McpServerSettings(url="http://127.0.0.1:9/mcp?token=very-secret")}
    async with FakeEngine() as engine, serving(store, engine, mcp=mcp) as proxy:
        page = await opened(proxy.http, "/hone/tools")
        assert "1 (33%)" in page.text
        assert "no <order>" in page.text
        assert f"/hone/trajectories/{run}" in page.links
        answer = await proxy.http.get("/hone/v1/tools")
        assert "very-secret" not in page.text + answer.text
        [tool] = answer.json()["usage"]["tools"]
        assert tool["outcomes"] == {"complete": 2, "failed": 1}
        assert tool["latency"] == {"p50_s": 1.0, "p99_s": 2.0}
