"""Aliases and versions over /hone/v1."""

from __future__ import annotations

from tests.proxy.api.asking import get
from tests.proxy.running import Proxy


async def test_aliases_and_versions_are_read(proxy: Proxy) -> None:
    status, [alias] = await get(proxy, "/hone/v1/aliases")
    assert (status, alias["name"]) == (200, "helpdesk")
    status, [version] = await get(proxy, "/hone/v1/versions?alias=helpdesk")
    assert (status, version["name"], version["state"], version["id"]) == (
        200,
        "helpdesk@0",
        "live",
        alias["live_version_id"],
    )
    assert (await get(proxy, "/hone/v1/versions?alias=nobody"))[0] == 404
