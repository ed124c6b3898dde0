"""What one worker does for another: background responses, and who may ask for it."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path
from typing import Any

from proxy.worker_ipc.peers import WorkerPeers
from recorder.store.database import Store
from tests.proxy.fake_engine import FakeEngine, Script, words
from tests.proxy.running import ALIAS, Proxy
from tests.proxy.until import until
from tests.proxy.worker_ipc.pair import both, worker

JSON = {"content-type": "application/json"}


async def queued(proxy: Proxy) -> str:
    """A background response that does not end; its id."""
    request = {"model": ALIAS, "input": "Where is order 4821?", "background": True}
    answer = await proxy.http.post("/v1/responses", json=request)
    assert answer.json()["status"] == "queued", answer.text
    return str(answer.json()["id"])


async def stored_response(proxy: Proxy, response_id: str) -> dict[str, Any]:
    answer = await proxy.http.get(f"/v1/responses/{response_id}")
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def test_a_background_response_is_asked_for_and_cancelled_at_any_worker(
    store: Store, engine: FakeEngine, meeting: Path
) -> None:
    engine.default = Script([words("On Monday")], gate=asyncio.Event())
    async with both(store, engine, meeting) as (one, two):
        response_id = await queued(one)
        assert (await stored_response(two, response_id))["status"] == "in_progress"
        cancelled = await two.http.post(f"/v1/responses/{response_id}/cancel", headers=JSON)
        assert (cancelled.status_code, cancelled.json()["status"]) == (200, "cancelled")
        assert (await stored_response(one, response_id))["status"] == "cancelled"


async def test_a_worker_that_began_later_does_not_call_it_failed(
    store: Store, engine: FakeEngine, meeting: Path
) -> None:
    engine.default = Script([words("On Monday")], gate=asyncio.Event())
    async with worker(store, engine, meeting, 1) as one:
        response_id = await queued(one)
        async with worker(store, engine, meeting, 2) as two:
            assert (await stored_response(two, response_id))["status"] == "in_progress"
            gone = await two.http.delete(f"/v1/responses/{response_id}", headers=JSON)
            assert (gone.status_code, gone.json()["deleted"]) == (200, True)
        await until(lambda: ended(one))


async def ended(proxy: Proxy) -> bool:
    return [call["status"] for call in await proxy.calls()] == ["aborted"]


async def test_the_door_is_its_owners_alone(store: Store, engine: FakeEngine, meeting: Path) -> None:
    async with worker(store, engine, meeting, 1):
        assert stat.S_IMODE((meeting / "1.sock").stat().st_mode) == 0o600
    assert not (meeting / "1.sock").exists()


async def test_one_that_is_not_there_ends_nothing_and_tells_nothing(meeting: Path) -> None:
    peers = WorkerPeers(meeting, 1, 3)
    async with peers.running():
        assert await peers.figures() == {2: None, 3: None}
        assert not await peers.cancel("resp_1")
