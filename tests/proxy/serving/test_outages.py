"""Calls that begin or end while the store is away: they are served, and recorded when it is back."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest

from recorder.capture import backlog
from recorder.capture.backlog import call_bytes
from recorder.messages.calls import TrajectoryRef
from recorder.registry import keys
from recorder.settings import RecorderSettings
from recorder.store import write_backends
from recorder.store.database import Project, Store
from tests.postgres import Postgres
from tests.proxy.fake_engine import FakeEngine, Script, words
from tests.proxy.running import PROJECT, WITHOUT_PAGES, Proxy, serving
from tests.proxy.serving.test_versions_in_calls import release
from tests.proxy.until import until
from tests.recorder.talk import assistant, choice, request, turn, user
from tests.stores import on_its_own_server

Away = tuple[Postgres, Store]
WAIT_S = 0.3
FLOCK = {"x-hone-group": "flock"}


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Away]:
    async with on_its_own_server(tmp_path) as made:
        yield made


@pytest.fixture(autouse=True)
def _each_answer_is_another(engine: FakeEngine) -> None:
    numbers = count()
    engine.default = lambda _: Script([words(f"This is answer {next(numbers)}")])


def before(store: Store, engine: FakeEngine, **recording: Any) -> contextlib.AbstractAsyncContextManager[Proxy]:
    recording = {"commit_timeout_s": WAIT_S} | recording
    return serving(store, engine, settings=WITHOUT_PAGES, recording=RecorderSettings.model_validate(recording))


@contextlib.asynccontextmanager
async def away(postgres: Postgres, how: str = "fast") -> AsyncIterator[None]:
    await asyncio.to_thread(postgres.halt, how)
    try:
        yield
    finally:
        await asyncio.to_thread(postgres.start)


class Conversation:
    """An agent: each of its calls repeats the conversation so far."""

    def __init__(self, proxy: Proxy, first: str, path: str = "", headers: dict[str, str] | None = None) -> None:
        self._proxy = proxy
        self._said = [first]
        self._how: dict[str, Any] = {"path": path, "headers": headers}
        self.answers: list[httpx.Response] = []

    async def turn(self, turns: int = 1, **more: Any) -> None:
        for _ in range(turns):
            answer = await self._proxy.chat(*self._said, **self._how, **more)
            assert answer.status_code == 200, answer.text
            self.answers.append(answer)
            text = answer.json()["choices"][0]["message"]["content"]
            self._said += [text, f"turn {len(self.answers) + 1}"]

    @property
    def ids(self) -> list[str]:
        return [answer.headers["x-hone-call"] for answer in self.answers]

    async def recorded(self) -> list[dict[str, Any]]:
        """Its calls' rows, in order, once all are there: one trajectory, each call the next one's parent."""
        rows = await rows_of(self._proxy, self.ids)
        assert len({row["trajectory_id"] for row in rows}) == 1
        assert [row["parent_call_id"] for row in rows] == [None, *self.ids[:-1]]
        assert "ambiguous" not in {row["attribution"]["confidence"] for row in rows}
        return rows


async def rows_of(proxy: Proxy, ids: list[str]) -> list[dict[str, Any]]:
    rows: dict[str, dict[str, Any]] = {}

    async def there() -> bool:
        nonlocal rows
        rows = {row["call_id"]: row for row in await proxy.calls()}
        return set(ids) <= set(rows)

    await until(there)
    return [rows[id_] for id_ in ids]


PLACES = [("", {}), ("/t/new", {}), ("/t/known", {}), ("", FLOCK), ("/g/flock/t/one", {})]


@pytest.mark.parametrize(("path", "headers"), PLACES)
async def test_a_conversation_begun_in_an_outage_becomes_one_trajectory_in_its_group(
    server: Away, engine: FakeEngine, path: str, headers: dict[str, str]
) -> None:
    postgres, store = server
    async with before(store, engine) as proxy:
        earlier = Conversation(proxy, "a", "", FLOCK if headers or path.startswith("/g") else None)
        await earlier.turn()
        if path == "/t/known":
            await proxy.chat("warm", path=path)
        during = Conversation(proxy, "a", path, headers)
        async with away(postgres):
            await during.turn(3)
        await during.turn()  # at once, as soon as the store is back
        rows = await during.recorded()
        assert await proxy.metric("hone_unrecorded_calls_total") == 0
        [first] = await earlier.recorded()
        if path != "/t/known":
            assert rows[0]["group_id"] == first["group_id"] is not None
        told = [answer.headers.get("x-hone-trajectory") for answer in during.answers[:3]]
        assert set(told) <= {None, rows[0]["trajectory_id"]}
        assert (None in told) == (path != "/t/known")
        assert [row["version"] for row in rows] == [answer.headers["x-hone-version"] for answer in during.answers]


async def test_a_conversation_begun_before_an_outage_goes_on_in_it_and_after_it(
    server: Away, engine: FakeEngine
) -> None:
    postgres, store = server
    async with before(store, engine) as proxy:
        talks = [Conversation(proxy, f"agent {n}") for n in range(3)]
        for talk in talks:
            await talk.turn()
        async with away(postgres, "immediate"):
            for _ in range(2):
                await asyncio.gather(*(talk.turn() for talk in talks))
        await asyncio.gather(*(talk.turn() for talk in talks))
        for talk in talks:
            await talk.recorded()


@pytest.mark.parametrize("how", ["fast", "immediate"])
async def test_all_calls_of_a_load_are_recorded_around_a_restart(server: Away, engine: FakeEngine, how: str) -> None:
    postgres, store = server
    ended = asyncio.Event()
    talks: list[Conversation] = []

    async def agent(proxy: Proxy, number: int) -> None:
        for attempt in count():
            talks.append(Conversation(proxy, f"agent {number}, {attempt}", *places(number, attempt)))
            await talks[-1].turn(4)
            if ended.is_set():
                return

    def places(number: int, attempt: int) -> tuple[str, dict[str, str]]:
        path, headers = PLACES[number % len(PLACES)]
        return path and f"{path}-{number}-{attempt}", headers

    async with before(store, engine) as proxy, asyncio.TaskGroup() as agents:
        for number in range(5):
            agents.create_task(agent(proxy, number))
        await asyncio.sleep(0.5)
        async with away(postgres, how):
            await asyncio.sleep(1.5)
        await asyncio.sleep(0.5)
        ended.set()
    served = [id_ for talk in talks for id_ in talk.ids]
    async with before(store, engine) as proxy:
        assert sorted(row["call_id"] for row in await proxy.calls()) == sorted(served)
        for talk in talks:
            talk._proxy = proxy
            await talk.recorded()


async def test_an_agent_waits_at_most_for_the_time_limit_of_a_commit(server: Away, engine: FakeEngine) -> None:
    postgres, store = server
    async with before(store, engine, commit_timeout_s=1.0) as proxy:
        await proxy.chat("warm")
        took: list[float] = []
        with postgres.hung():
            for n in range(6):
                began = time.monotonic()
                assert (await proxy.chat("?", path=f"/t/{n % 2}" if n % 3 else "")).status_code == 200
                took.append(time.monotonic() - began)
        await until(lambda: has_calls(proxy, 7))
        assert max(took) < 1.8, took


async def has_calls(proxy: Proxy, number: int) -> bool:
    return len(await proxy.calls()) == number


async def test_in_an_outage_a_known_key_is_served_and_another_is_refused(server: Away, engine: FakeEngine) -> None:
    postgres, store = server
    (_, known), (_, unknown) = [await keys.create_key(Project(store, PROJECT), n, ["infer"]) for n in "ab"]

    def bearer(secret: str) -> dict[str, str]:
        return {"authorization": f"Bearer {secret}"}

    async with before(store, engine) as proxy:
        warm = await proxy.chat("warm", headers=bearer(known))
        assert warm.status_code == 200
        async with away(postgres):
            await asyncio.sleep(1.1)  # a check of a key is remembered for a second
            refused = await proxy.chat("?", headers=bearer(unknown))
            assert refused.status_code == 503
            assert refused.headers["retry-after"]
            assert "the key cannot be checked now" in refused.text
            answers = [await proxy.chat("?", headers=bearer(known)) for _ in range(2)]
            assert [answer.status_code for answer in answers] == [200, 200]
        await rows_of(proxy, [answer.headers["x-hone-call"] for answer in answers])


async def test_in_an_outage_the_pinned_version_answers_where_it_is_known_and_else_the_live_one(
    server: Away, engine: FakeEngine
) -> None:
    postgres, store = server
    async with before(store, engine) as proxy:
        old = Conversation(proxy, "old", "/t/old")
        await old.turn()
        await release(proxy, engine)
        new = Conversation(proxy, "new", "/g/declared/t/new", {"x-hone-group-size": "2"})
        async with away(postgres):
            await proxy.chat("?")  # from now on every call is recorded later
            await old.turn(2)
            await new.turn(2)
        await new.turn()
        assert [row["version"] for row in await old.recorded()] == ["helpdesk@0"] * 3
        assert [row["version"] for row in await new.recorded()] == ["helpdesk@1"] * 3
        listed = (await proxy.http.get("/hone/v1/trajectories")).json()["trajectories"]
        assert {one["external_id"]: one["version"] for one in listed if one["external_id"]} == {
            "old": "helpdesk@0",
            "new": "helpdesk@1",
        }


async def test_a_response_of_an_outage_is_continued_and_its_trajectory_ended_at_once_after_it(
    server: Away, engine: FakeEngine
) -> None:
    postgres, store = server
    async with before(store, engine, commit_timeout_s=2.0) as proxy:
        await proxy.chat("warm")
        body = {"model": "helpdesk", "input": "first"}
        async with away(postgres):
            paths = ("/t/one/v1/responses", "/v1/responses")
            answers = await asyncio.gather(*(proxy.http.post(path, json=body) for path in paths))
        [first, other] = [answer.json() for answer in answers]
        second = await proxy.http.post("/t/one/v1/responses", json=body | {"previous_response_id": first["id"]})
        assert second.status_code == 200, second.text
        third = await proxy.http.post("/v1/responses", json=body | {"previous_response_id": other["id"]})
        assert third.status_code == 200, third.text
        ended = await proxy.http.post("/t/one/hone/v1/done", json={})
        assert ended.json()["state"] == "completed"
        await until(lambda: has_calls(proxy, 5))


@pytest.mark.parametrize("on_failure", ["serve", "refuse"])
async def test_a_full_queue_follows_the_setting(server: Away, engine: FakeEngine, on_failure: str) -> None:
    postgres, store = server
    async with before(store, engine, queue_bytes=30_000, on_failure=on_failure) as proxy:
        await proxy.chat("warm")
        async with away(postgres):
            answers = [await proxy.chat("x" * 10_000, path=f"/t/{n}") for n in range(5)]
            if on_failure == "refuse":
                assert {(a.status_code, a.json()["error"]["code"]) for a in answers} == {(503, "unrecorded")}
                return
            assert {a.status_code for a in answers} == {200}
            assert all("x-hone-call" in a.headers for a in answers)
            lost = await proxy.metric("hone_unrecorded_calls_total")
            assert 1 <= lost <= 4
            assert await proxy.metric("hone_queue_bytes") <= 30_000
        await until(lambda: has_calls(proxy, int(6 - lost)))


async def test_a_call_of_an_outage_that_lasts_is_given_up_and_told(
    server: Away, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    postgres, store = server
    for module in (backlog, write_backends):
        monkeypatch.setattr(module, "PATIENCE_S", 0.5)
    async with before(store, engine) as proxy:
        await proxy.chat("warm")
        async with away(postgres):
            for path in ("/t/1", "/t/2"):
                assert (await proxy.chat("?", path=path)).status_code == 200
            await until(lambda: lost(proxy, 2))
        after = Conversation(proxy, "after")
        await until(lambda: has_calls(proxy, 1))
        await after.turn(2)
        await after.recorded()


async def lost(proxy: Proxy, number: int) -> bool:
    return await proxy.metric("hone_unrecorded_calls_total") == number


# --- SQLite

pages_of_sqlite = pytest.mark.sqlite_only("how many pages its file may have")


@contextlib.contextmanager
def full(proxy: Proxy) -> Iterator[None]:
    """The recorder's writing connection may hold no more pages, as on a full disk."""
    writer = proxy.recorder._backend._writer  # type: ignore[attr-defined]
    writer.execute("PRAGMA max_page_count=1")
    try:
        yield
    finally:
        writer.execute("PRAGMA max_page_count=1000000")


@pages_of_sqlite
@pytest.mark.parametrize(("path", "headers"), PLACES)
async def test_a_conversation_on_a_full_disk_is_recorded_when_there_is_room(
    store: Store, engine: FakeEngine, path: str, headers: dict[str, str]
) -> None:
    async with before(store, engine) as proxy:
        await proxy.chat("warm", path="/t/known")
        talk = Conversation(proxy, "x" * 50_000, path, headers)
        with full(proxy):
            await talk.turn(3)
            assert len(await proxy.calls()) == 1
        await talk.turn()
        await talk.recorded()
        assert await proxy.metric("hone_unrecorded_calls_total") == 0


async def open_call(proxy: Proxy, engine: FakeEngine) -> tuple[asyncio.Future[httpx.Response], asyncio.Event]:
    """A call whose row is open, and the event that lets the engine answer it."""
    gate = asyncio.Event()
    engine.next.append(Script([words("y" * 50_000)], gate=gate))
    asking = asyncio.ensure_future(proxy.chat("?", path="/t/long"))
    await until(lambda: states(proxy, "open"))
    return asking, gate


async def states(proxy: Proxy, *wanted: str) -> bool:
    return [row["status"] for row in await proxy.calls()] == list(wanted)


@pages_of_sqlite
async def test_a_call_that_ended_on_a_full_disk_completes_when_there_is_room(store: Store, engine: FakeEngine) -> None:
    async with before(store, engine, open_row_after_s=0.0) as proxy:
        asking, gate = await open_call(proxy, engine)
        with full(proxy):
            gate.set()
            assert (await asking).status_code == 200
            assert await states(proxy, "open")
        await until(lambda: states(proxy, "complete"))


@pages_of_sqlite
async def test_a_call_that_ended_on_a_disk_that_stays_full_is_errored_with_the_reason(
    store: Store, engine: FakeEngine
) -> None:
    async with before(store, engine, open_row_after_s=0.0) as proxy:
        proxy.recorder._backend._patience_s = 0.5  # type: ignore[attr-defined]
        asking, gate = await open_call(proxy, engine)
        with full(proxy):
            gate.set()
            assert (await asking).status_code == 200
            await until(lambda: lost(proxy, 1))
        await until(lambda: states(proxy, "errored"))
        [row] = await proxy.calls()
        assert "could not be recorded" in row["response"]["error"]
        assert "full" in row["response"]["error"]
        assert row["timings"]["total_s"] > 0


async def test_the_size_of_a_waiting_call_is_about_its_size_in_memory() -> None:
    text = "x" * 10_000
    small = turn(TrajectoryRef("t", None), request([user("?")]), [choice(assistant("!"))])
    large = turn(
        TrajectoryRef("t", None), request([user(text)]), [choice(assistant(text))], prompt_token_ids=list(range(1000))
    )
    assert 20_000 + 36_000 < call_bytes(large) - call_bytes(small) < 2 * (20_000 + 36_000)
    nested: Any = "x"
    for _ in range(5_000):
        nested = [nested]
    assert call_bytes(turn(TrajectoryRef("t", None), request([user("?")], rest={"x": nested}), [])) > 5_000
