"""A test on request, and the list: by the API, on the page Settings, and in a terminal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from proxy.notifications.target import Target
from recorder.queue.notifications import list_notifications
from recorder.registry import keys
from recorder.store.database import Project, Store
from tests.proxy.dashboard.reading import opened
from tests.proxy.fake_engine import FakeEngine
from tests.proxy.hone_command import hone
from tests.proxy.notifications.receiver import SECRET, Receiver
from tests.proxy.running import PROJECT, serving

pytestmark = pytest.mark.slow

TEST = "/hone/v1/notifications/test"


async def test_the_api_sends_a_test_and_lists_it(store: Store, receiver: Receiver, target: Target) -> None:
    _, admin = await keys.create_key(Project(store, PROJECT), "ops", ["admin"])
    _, reader = await keys.create_key(Project(store, PROJECT), "board", ["read"])
    async with FakeEngine() as engine, serving(store, engine, notified=target) as proxy:
        refused = await proxy.http.post(TEST, json={}, headers={"x-api-key": reader})
        assert refused.status_code == 403
        assert receiver.requests == []
        sent = (await proxy.http.post(TEST, json={}, headers={"x-api-key": admin})).json()
        assert (sent["state"], sent["kind"], sent["error"]) == ("sent", "test", None)
        receiver.answers = [403]
        failed = (await proxy.http.post(TEST, json={}, headers={"x-api-key": admin})).json()
        assert (failed["state"], failed["error"]) == ("failed", f"{target.host} answered 403")
        listed = (await proxy.http.get("/hone/v1/notifications", headers={"x-api-key": reader})).json()
        assert [one["id"] for one in listed] == [failed["id"], sent["id"]]
        assert "private-path" not in json.dumps(listed)
    assert [message["id"] for message in receiver.messages] == [sent["id"], failed["id"]]


async def test_without_an_address_there_is_nothing_to_test(store: Store) -> None:
    async with FakeEngine() as engine, serving(store, engine) as proxy:
        refused = await proxy.http.post(TEST, json={})
        assert refused.status_code == 409
        assert "[notify] section" in refused.json()["detail"]
        assert "Nothing is sent" in (await opened(proxy.http, "/hone/settings")).text


async def test_the_page_sends_a_test_and_shows_its_outcome(store: Store, receiver: Receiver, target: Target) -> None:
    async with FakeEngine() as engine, serving(store, engine, notified=target) as proxy:
        page = await opened(proxy.http, "/hone/settings")
        assert f"Hone reports to {target.host}" in page.text
        form = next(form for form in page.forms if form.action == "/hone/settings/notify")
        answer = await proxy.http.post(form.action, data=form.fields)
        assert (answer.status_code, answer.headers["location"]) == (303, "/hone/settings#notifications")
        after = await proxy.http.get("/hone/settings")
        assert "A test of notifications" in after.text
        assert "private-path" not in after.text
        refused = await proxy.http.post(form.action, data={"csrf": "guessed"})
        assert refused.status_code == 403
    assert len(receiver.requests) == 1


@pytest.mark.usefixtures("bare")
def test_the_command_says_what_is_missing() -> None:
    Path("hone.toml").write_text("")
    status, _, error = hone("notify", "test")
    assert status != 0
    assert "notifications are off: set `url` and `secret`" in error
    status, out, _ = hone("notify", "list")
    assert (status, out) == (0, "No notification yet. `hone notify test` sends one.\n")
    assert json.loads(hone("notify", "list", "--json")[1]) == []


@pytest.mark.usefixtures("bare")
def test_the_command_sends_a_test_and_lists_it(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("hone.toml").write_text('[notify]\nurl = "http://127.0.0.1:9/private-path"\nsecret_env = "SECRET_OF_HONE"\n')
    monkeypatch.setenv("SECRET_OF_HONE", SECRET)
    status, out, error = hone("notify", "test")
    assert status == 1
    assert error == (
        "The test was not accepted: 127.0.0.1:9 cannot be reached: nothing listens at its address (connection "
        "refused).\n"
    )
    (listed,) = json.loads(hone("notify", "list", "--json")[1])
    assert (listed["state"], listed["tries"]) == ("failed", 1)
    table = hone("notify", "list")[1]
    assert "A test of notifications, sent by `hone notify test`." in table
    assert "private-path" not in out + error + table + json.dumps(listed)
    assert SECRET not in hone("config", "notify")[1]


async def test_what_is_listed_is_of_the_project(store: Store) -> None:
    assert await list_notifications(Project(store, "other")) == []
