"""Groups over /hone/v1: closed and read."""

from __future__ import annotations

from tests.proxy.api.asking import get, post
from tests.proxy.running import Proxy


async def test_a_group_is_closed_and_read(proxy: Proxy) -> None:
    for run in ("1", "2"):
        await proxy.chat(path=f"/g/orders/t/{run}", headers={"x-hone-group-size": "3"})
    status, group = await get(proxy, "/hone/v1/groups/orders")
    assert (status, group["state"], group["declared_size"], len(group["members"])) == (200, "open", 3, 2)
    status, closed = await post(proxy, "/hone/v1/groups/orders/close")
    assert (status, closed["state"]) == (200, "ready")
    assert (await post(proxy, "/hone/v1/groups/orders/close"))[1]["state"] == "ready"
    status, told = await post(proxy, "/hone/v1/groups/nobody/close")
    assert (status, told["code"]) == (404, "not_found")
