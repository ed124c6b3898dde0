"""Which version answers: what is live for new runs, what a run began on for its further turns."""

from __future__ import annotations

from typing import Any

import pytest

from recorder.registry.alias_moves import rollback, set_live
from recorder.registry.aliases import Holdback, ensure_alias
from recorder.registry.replicas import report_replica
from recorder.registry.versions import VersionView, allocate_version, mark_version
from recorder.states import VersionState
from recorder.store.database import Project, Store
from tests.proxy.fake_engine import FakeEngine
from tests.proxy.running import BASE, PROJECT, WITHOUT_PAGES, Proxy, serving

USER = [{"role": "user", "content": "Hi"}]


async def release(proxy: Proxy, engine: FakeEngine) -> VersionView:
    """Bring the next version of the alias into service."""
    base = proxy.alias.live_version_id
    assert base is not None
    version = await allocate_version(proxy.store, proxy.alias.id, base)
    for state in (VersionState.WRITTEN, VersionState.LOADED, VersionState.GATED):
        version = await mark_version(proxy.store, version.id, state)
    await holds(proxy, engine, BASE, version.engine_name)
    await set_live(proxy.store, proxy.alias.id, version.id, why="promote")
    await proxy.versions.refresh()
    return version


async def holds(proxy: Proxy, engine: FakeEngine, *loaded: str) -> None:
    await report_replica(
        Project(proxy.store, PROJECT),
        engine.url,
        base_model=BASE,
        base_fingerprint="fingerprint",
        state="up",
        detail=None,
        loaded=list(loaded),
    )
    await proxy.versions.refresh()


async def answered_by(proxy: Proxy, path: str = "", **more: Any) -> str:
    answer = await proxy.chat(path=path, **more)
    assert answer.status_code == 200, answer.text
    return answer.headers["x-hone-version"]


async def test_a_run_stays_on_the_version_it_began_on(proxy: Proxy, engine: FakeEngine) -> None:
    assert await answered_by(proxy, "/t/old") == "helpdesk@0"
    assert await answered_by(proxy, "/g/group/t/1") == "helpdesk@0"
    version = await release(proxy, engine)
    assert await answered_by(proxy, "/t/old") == "helpdesk@0"
    assert await answered_by(proxy, "/t/new") == "helpdesk@1"
    assert await answered_by(proxy) == "helpdesk@1"
    assert engine.requests[-1]["model"] == version.engine_name
    calls = await proxy.calls()
    assert [call["version"] for call in calls] == ["helpdesk@0"] * 3 + ["helpdesk@1"] * 2


async def test_a_declared_group_stays_on_its_version_as_a_whole(proxy: Proxy, engine: FakeEngine) -> None:
    declared = {"x-hone-group-size": "3"}
    assert await answered_by(proxy, "/g/group/t/1", headers=declared) == "helpdesk@0"
    await release(proxy, engine)
    assert await answered_by(proxy, "/g/group/t/2", headers=declared) == "helpdesk@0"
    assert await answered_by(proxy, "/g/other/t/1", headers=declared) == "helpdesk@1"


async def test_a_version_that_a_member_names_answers_it_alone_and_is_shown_with_it(
    proxy: Proxy, engine: FakeEngine
) -> None:
    """Two versions attempt a task in one blind group, whichever of them comes first."""
    await release(proxy, engine)
    declared = {"x-hone-group-size": "2"}
    models = {"live": ("helpdesk", "helpdesk@1"), "rival": ("helpdesk@0", "helpdesk@0")}
    for group, arms in (("one", ("rival", "live")), ("two", ("live", "rival"))):
        for arm in arms:
            model, wanted = models[arm]
            for _ in range(2):
                assert await answered_by(proxy, f"/g/{group}/t/{arm}", headers=declared, model=model) == wanted
    listed = (await proxy.http.get("/hone/v1/trajectories")).json()["trajectories"]
    shown = sorted((one["external_id"], one["version"]) for one in listed)
    assert shown == [("live", "helpdesk@1")] * 2 + [("rival", "helpdesk@0")] * 2
    of_base = (await proxy.http.get("/hone/v1/trajectories?version=helpdesk@0")).json()["trajectories"]
    assert [one["external_id"] for one in of_base] == ["rival", "rival"]


async def test_new_runs_without_a_group_are_held_back_and_stay_where_they_began(
    proxy: Proxy, engine: FakeEngine
) -> None:
    held = Holdback(0.5, 3600.0)
    await ensure_alias(Project(proxy.store, PROJECT), proxy.alias.name, BASE, None, held=held)
    await release(proxy, engine)
    runs = [f"/t/{n}" for n in range(16)]
    began = [await answered_by(proxy, run) for run in runs]
    assert set(began) == {"helpdesk@0", "helpdesk@1"}
    assert [await answered_by(proxy, run) for run in runs] == began
    assert {await answered_by(proxy, f"/g/group-{n}/t/1") for n in range(16)} == {"helpdesk@1"}
    measured = {"x-hone-purpose": "eval"}
    assert {await answered_by(proxy, f"/t/eval-{n}", headers=measured) for n in range(16)} == {"helpdesk@1"}


async def test_a_version_by_name_answers_whatever_is_live(proxy: Proxy, engine: FakeEngine) -> None:
    await release(proxy, engine)
    assert await answered_by(proxy, model="helpdesk@0") == "helpdesk@0"
    assert await answered_by(proxy, model="helpdesk@1") == "helpdesk@1"
    assert await answered_by(proxy) == "helpdesk@1"


async def test_a_rollback_moves_running_runs_at_once_and_they_are_mixed(proxy: Proxy, engine: FakeEngine) -> None:
    await release(proxy, engine)
    assert await answered_by(proxy, "/t/run") == "helpdesk@1"
    await rollback(proxy.store, proxy.alias.id)
    await proxy.versions.refresh()
    for _ in range(2):
        assert await answered_by(proxy, "/t/run") == "helpdesk@0"
    run = (await proxy.http.get("/hone/v1/trajectories/run")).json()
    assert (run["mixed"], run["version_id"]) == (True, proxy.alias.live_version_id)


async def test_a_version_that_no_engine_holds_is_a_503(proxy: Proxy, engine: FakeEngine) -> None:
    await release(proxy, engine)
    await holds(proxy, engine, BASE)
    answer = await proxy.chat(path="/t/new")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert "no engine holds helpdesk@1 now" in answer.json()["error"]["message"]
    assert engine.requests == []
    named = await proxy.chat(model="helpdesk@1")
    assert (named.status_code, named.headers["retry-after"]) == (503, "1")
    assert named.json()["error"]["code"] == "engine_unavailable"
    await rollback(proxy.store, proxy.alias.id)
    await proxy.versions.refresh()
    gone = await proxy.chat(model="helpdesk@1")
    assert (gone.status_code, gone.json()["error"]["code"]) == (404, "model_not_found")


@pytest.mark.parametrize(
    ("path", "more", "fault"),
    [
        ("/v1/chat/completions", {"messages": USER}, {"code": "engine_unavailable", "type": "server_error"}),
        ("/v1/completions", {"prompt": "Hi"}, {"code": "engine_unavailable", "type": "server_error"}),
        ("/v1/responses", {"input": "Hi"}, {"code": "engine_unavailable", "type": "server_error"}),
        ("/v1/messages", {"messages": USER, "max_tokens": 9}, {"type": "overloaded_error"}),
        ("/v1/messages/count_tokens", {"messages": USER}, {"type": "overloaded_error"}),
        ("/tokenize", {"prompt": "Hi"}, {"code": "engine_unavailable"}),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
@pytest.mark.parametrize("model", ["fresh", "fresh@0"])
async def test_a_declared_alias_is_a_503_in_every_format_until_the_store_has_it(
    store: Store, engine: FakeEngine, path: str, more: dict[str, Any], fault: dict[str, str], model: str
) -> None:
    async with serving(store, engine, settings=WITHOUT_PAGES, declared=["fresh"]) as proxy:
        early = await proxy.http.post(path, json={"model": model, **more})
        assert (early.status_code, early.headers["retry-after"]) == (503, "1")
        error = early.json()["error"]
        assert f"the alias '{model}' is not in service yet" in error["message"]
        assert {key: error.get(key) for key in fault} == fault
        other = await proxy.http.post(path, json={"model": "nobody", **more})
        assert other.status_code == 404
        assert (await proxy.http.get("/v1/models/fresh")).status_code == 200
    assert engine.requests == []
