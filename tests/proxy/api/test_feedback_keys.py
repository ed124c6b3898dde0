"""Whose trajectories a key may end and give feedback on: its family's, or with `feedback-all` everybody's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from proxy.settings.sections import ProxySettings
from recorder.queue import feedback
from recorder.registry import keys
from recorder.registry.keys import Scope
from recorder.states import GroupState
from recorder.store.database import Project, Store
from recorder.views.trajectories.transcripts import load_group, load_trajectory
from tests.proxy.fake_engine import FakeEngine
from tests.proxy.running import PROJECT, Proxy, serving

pytestmark = pytest.mark.slow

AGENT = (Scope.INFER, Scope.FEEDBACK)


@dataclass(frozen=True)
class Made:
    """A trajectory in a group, made by one of the keys."""

    trajectory: str
    group: str
    call: str


class Keys:
    """Secrets by name, made on demand."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def headers(self, name: str, *scopes: Scope) -> dict[str, str]:
        _, secret = await keys.create_key(Project(self._store, PROJECT), name, scopes or AGENT)
        return {"authorization": f"Bearer {secret}"}


async def made_by(proxy: Proxy, bearer: dict[str, str], name: str = "one") -> Made:
    answer = await proxy.chat(path=f"/g/orders/t/{name}", headers=bearer)
    assert answer.status_code == 200
    trajectory, call = answer.headers["x-hone-trajectory"], answer.headers["x-hone-call"]
    group = (await load_trajectory(proxy.store, trajectory)).group_id
    assert group is not None
    return Made(trajectory, group, call)


def attempts(one: Made) -> list[tuple[str, dict[str, Any], dict[str, str]]]:
    """Every way to change a trajectory or its group: path, body, headers."""
    noted = {"name": "solved", "value": True}
    address = {"x-hone-trajectory": "one", "x-hone-group": "orders"}
    return [
        (f"/hone/v1/trajectories/{one.trajectory}/feedback", noted, {}),
        ("/hone/v1/feedback", noted | {"trajectory_id": one.trajectory}, {}),
        ("/hone/v1/feedback", noted | {"call_id": one.call}, {}),
        ("/hone/v1/feedback", noted, address),
        ("/g/orders/t/one/hone/v1/feedback", noted, {}),
        (f"/hone/v1/trajectories/{one.trajectory}/done", {"state": "errored"}, {}),
        ("/hone/v1/done", {"state": "errored"}, address),
        ("/g/orders/t/one/hone/v1/done", {"state": "errored"}, {}),
        (f"/hone/v1/groups/{one.group}/close", {}, {}),
    ]


async def send(proxy: Proxy, bearer: dict[str, str], attempt: tuple[str, dict[str, Any], dict[str, str]]) -> Any:
    path, body, headers = attempt
    return await proxy.http.post(path, json=body, headers=bearer | headers)


async def test_another_key_changes_nothing_and_its_own_and_a_backends_change_all(store: Store) -> None:
    known = Keys(store)
    own, other = await known.headers("own"), await known.headers("other")
    backend = await known.headers("backend", Scope.FEEDBACK_ALL)
    async with FakeEngine() as engine, serving(store, engine) as proxy:
        one = await made_by(proxy, own)
        for attempt in attempts(one):
            answer = await send(proxy, other, attempt)
            assert answer.status_code in (403, 404), attempt
            assert answer.status_code == 404 or "feedback-all" in answer.text, attempt
        seen = await load_trajectory(store, one.trajectory)
        assert (seen.state, await feedback.list_feedback(store, one.trajectory)) == ("open", [])
        assert (await load_group(store, one.group)).state == GroupState.OPEN
        for bearer in (own, backend):
            for attempt in attempts(one):
                answer = await send(proxy, bearer, attempt)
                # an address names a trajectory of the caller's own groups
                assert answer.is_success or (bearer is backend and answer.status_code == 404), (attempt, answer.text)
        assert (await load_group(store, one.group)).state != GroupState.OPEN


async def test_a_choice_needs_both_trajectories(store: Store) -> None:
    known = Keys(store)
    first, second = await known.headers("first"), await known.headers("second")
    backend = await known.headers("backend", Scope.FEEDBACK_ALL)
    async with FakeEngine() as engine, serving(store, engine) as proxy:
        mine, theirs = await made_by(proxy, first), await made_by(proxy, second, "two")
        chosen = {"name": "preference", "value": True, "tags": {"loser": theirs.trajectory, "group": mine.group}}
        path = f"/hone/v1/trajectories/{mine.trajectory}/feedback"
        assert (await proxy.http.post(path, json=chosen, headers=first)).status_code == 403
        assert (await proxy.http.post(path, json=chosen, headers=backend)).is_success


async def test_a_group_with_a_foreign_member_is_closed_by_nobody_but_a_backend(store: Store) -> None:
    known = Keys(store)
    first, second = await known.headers("first"), await known.headers("second")
    backend = await known.headers("backend", Scope.FEEDBACK_ALL)
    shared = ProxySettings(port=0, key_groups="project")
    async with FakeEngine() as engine, serving(store, engine, settings=shared) as proxy:
        for bearer, name in ((first, "one"), (second, "two")):
            assert (await proxy.chat(path=f"/g/orders/t/{name}", headers=bearer)).is_success
        for bearer in (first, second):
            answer = await proxy.http.post("/hone/v1/groups/orders/close", json={}, headers=bearer)
            assert (answer.status_code, "feedback-all" in answer.text) == (403, True)
        assert (await proxy.http.post("/hone/v1/groups/orders/close", json={}, headers=backend)).is_success


async def test_a_trajectory_without_a_key_takes_feedback_from_any(store: Store) -> None:
    async with FakeEngine() as engine, serving(store, engine) as proxy:
        answer = await proxy.chat(path="/t/one")
    bearer = await Keys(store).headers("later")
    async with FakeEngine() as engine, serving(store, engine) as proxy:
        path = f"/hone/v1/trajectories/{answer.headers['x-hone-trajectory']}/feedback"
        told = await proxy.http.post(path, json={"name": "solved", "value": True}, headers=bearer)
        assert told.is_success, told.text


async def test_a_key_that_replaced_another_and_a_trajectorys_key_are_of_its_family(store: Store) -> None:
    old, secret = await keys.create_key(Project(store, PROJECT), "agents", AGENT)
    async with FakeEngine() as engine, serving(store, engine) as proxy:
        one = await made_by(proxy, {"authorization": f"Bearer {secret}"})
        _, newer = await keys.rotate_key(Project(store, PROJECT), old.id)
        bearer = {"authorization": f"Bearer {newer}"}
        path = f"/hone/v1/trajectories/{one.trajectory}/feedback"
        assert (await proxy.http.post(path, json={"name": "solved", "value": 1}, headers=bearer)).is_success
        made = await proxy.http.post(
            "/hone/v1/trajectories", json={"trajectory": "one", "group": "orders"}, headers=bearer
        )
        its = {"authorization": f"Bearer {made.json()['api_key']}"}
        assert (await proxy.http.post("/hone/v1/feedback", json={"name": "solved", "value": 0}, headers=its)).is_success


@pytest.mark.parametrize("scopes", [[Scope.FEEDBACK], [Scope.FEEDBACK, Scope.READ], [Scope.FEEDBACK, Scope.EVAL]])
async def test_feedback_without_infer_is_refused_with_what_to_create(store: Store, scopes: list[Scope]) -> None:
    with pytest.raises(ValueError, match=r"feedback-all in place of feedback"):
        await keys.create_key(Project(store, PROJECT), "backend", scopes)
    for allowed in ([*scopes, Scope.INFER], [*scopes, Scope.ADMIN], [Scope.FEEDBACK_ALL]):
        await keys.create_key(Project(store, PROJECT), "backend", allowed)
