"""Hone's own routes together: what is none of them, which methods a path has, and what /schema tells."""

from __future__ import annotations

import pytest

from tests.proxy.api.asking import PROBLEM, get
from tests.proxy.running import Proxy

pytestmark = pytest.mark.slow


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


@pytest.mark.parametrize("path", ["/schema", "/schema/openapi.json"])
async def test_the_schema_is_json_and_no_page_that_loads_anything(proxy: Proxy, path: str) -> None:
    answer = await proxy.http.get(path)
    assert answer.status_code == 200
    assert "json" in answer.headers["content-type"]
    assert answer.json()["info"]["title"] == "Hone"


@pytest.mark.parametrize("page", ["redoc", "swagger", "elements", "rapidoc", "scalar", "openapi.yml", "x"])
async def test_the_schema_has_no_pages(proxy: Proxy, page: str) -> None:
    answer = await proxy.http.get(f"/schema/{page}")
    assert answer.status_code == 404
    assert "script" not in answer.text


async def test_the_schema_tells_every_route(proxy: Proxy) -> None:
    schema = (await get(proxy, "/schema/openapi.json"))[1]
    assert {"/hone/v1/trajectories", "/hone/v1/feedback", "/hone/v1/groups/{group}/close"} <= schema["paths"].keys()
