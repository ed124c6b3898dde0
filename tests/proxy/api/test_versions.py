"""Aliases and versions over /hone/v1."""

from __future__ import annotations

from recorder.registry.versions import allocate_version, reject_version
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


async def test_what_was_decided_about_versions_is_read_with_who_why_and_figures(proxy: Proxy) -> None:
    [alias] = (await get(proxy, "/hone/v1/aliases"))[1]
    version = await allocate_version(proxy.store, alias["id"], alias["live_version_id"])
    await reject_version(
        proxy.store, version.id, "kl: too far", lessons="left_out", who="controller", figures={"kl_live": 9.5}
    )
    status, [move] = await get(proxy, "/hone/v1/versions/moves?alias=helpdesk")
    shown = {name: move[name] for name in ("version", "move", "who", "why", "figures")}
    assert (status, shown) == (
        200,
        {
            "version": "helpdesk@1",
            "move": "rejected",
            "who": "controller",
            "why": "kl: too far",
            "figures": {"kl_live": 9.5},
        },
    )
    assert (await get(proxy, "/hone/v1/versions/moves?alias=nobody"))[1] == []
