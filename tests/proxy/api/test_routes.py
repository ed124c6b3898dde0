"""Hone's own routes together: what is none of them, which methods a path has, and what /schema tells."""

from __future__ import annotations

import pytest

from tests.proxy.api.asking import PROBLEM, get
from tests.proxy.running import Proxy


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/hone/v1/nothing", 404), ("GET", "/hone/v1/done", 405), ("DELETE", "/hone/v1/aliases", 405)],
)
async def test_routes_that_are_none_are_problems(proxy: Proxy, method: str, path: str, status: int) -> None:
    answer = await proxy.http.request(method, path, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.headers["content-type"]) == (status, PROBLEM)
    assert path in answer.json()["detail"]


async def test_a_path_tells_all_its_methods_whichever_handler_they_are_of(proxy: Proxy) -> None:
    headers = {"content-type": "application/json"}
    answer = await proxy.http.request("OPTIONS", "/hone/v1/trajectories/one", headers=headers)
    assert (answer.status_code, answer.headers["allow"]) == (204, "DELETE, GET, OPTIONS")
    answer = await proxy.http.request("PUT", "/hone/v1/trajectories/one", headers=headers)
    assert (answer.status_code, answer.headers["allow"]) == (405, "DELETE, GET, OPTIONS")


async def test_the_schema_tells_every_route(proxy: Proxy) -> None:
    schema = (await get(proxy, "/schema/openapi.json"))[1]
    assert {"/hone/v1/trajectories", "/hone/v1/feedback", "/hone/v1/groups/{group}/close"} <= schema["paths"].keys()
