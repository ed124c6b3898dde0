"""Addresses that pages had before: each answers 308 with the page's address of today."""

from __future__ import annotations

import pytest

from proxy.dashboard.pages.lists import SEARCH
from proxy.dashboard.routes import moved_address
from tests.proxy.dashboard.reading import opened
from tests.proxy.running import Proxy

MOVED = [
    ("GET", "/hone/runs", "/hone/trajectories"),
    ("GET", "/hone/runs?state=open&tag=a%3Db&tag=c", "/hone/trajectories?state=open&tag=a%3Db&tag=c"),
    ("GET", "/hone/runs?said=blue+kettle&limit=5", f"/hone/trajectories?{SEARCH}=blue+kettle&limit=5"),
    ("GET", "/hone/runs/traj_1", "/hone/trajectories/traj_1"),
    ("GET", "/hone/runs/a%2Fb%20c", "/hone/trajectories/a%2Fb%20c"),
    (
        "GET",
        "/hone/runs/traj_1?tokens=call_1&choice=0&prompt=true",
        "/hone/trajectories/traj_1?tokens=call_1&choice=0&prompt=true",
    ),
    ("GET", "/hone/runs/traj_1?from=3", "/hone/trajectories/traj_1?from=3"),
    ("GET", "/hone/runs/traj_1/calls/call_1", "/hone/trajectories/traj_1/calls/call_1"),
    ("GET", "/hone/runs/traj_1/delete", "/hone/trajectories/traj_1/delete"),
    ("POST", "/hone/runs/traj_1/delete", "/hone/trajectories/traj_1/delete"),
    ("POST", "/hone/runs/traj_1/feedback", "/hone/trajectories/traj_1/feedback"),
    ("POST", "/hone/runs/traj_1/tags", "/hone/trajectories/traj_1/tags"),
    ("POST", "/hone/groups/grp_1/again", "/hone/groups/grp_1/rescore"),
    ("GET", "/hone/charts/lessons.svg?dark=1", "/hone/charts/outcomes.svg?dark=1"),
    (
        "GET",
        "/hone/versions/helpdesk@2?beside=helpdesk@0&task=t",
        "/hone/versions/helpdesk@2?compare=helpdesk%400&task=t",
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(("method", "old", "new"), MOVED)
async def test_an_old_address_leads_to_the_page_of_today(proxy: Proxy, method: str, old: str, new: str) -> None:
    answer = await proxy.http.request(method, old)
    assert (answer.status_code, answer.headers["location"]) == (308, new)
    assert answer.content == b""


@pytest.mark.slow
async def test_a_form_that_an_old_page_sends_arrives_once_at_the_new_address(proxy: Proxy) -> None:
    chat = await proxy.chat("Where is order 4821?")
    run = chat.headers["x-hone-trajectory"]
    form = (await opened(proxy.http, f"/hone/trajectories/{run}")).form(f"/hone/trajectories/{run}/tags")
    told = form.fields | {"tag": "team", "value": "blue"}
    answer = await proxy.http.post(f"/hone/runs/{run}/tags", data=told, follow_redirects=True)
    assert answer.status_code == 200
    assert "team=blue" in answer.text


def test_addresses_of_today_are_left_alone_and_no_old_one_leads_to_an_old_one() -> None:
    for path in ("/hone/", "/hone/trajectories", "/hone/trajectories/runs", "/hone/groups/again", "/hone/versions"):
        assert moved_address(path, "beside=x&state=open") is None
    for _, _, new in MOVED:
        path, _, query = new.partition("?")
        assert moved_address(path, query) is None
