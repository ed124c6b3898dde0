"""A header of which only one may count is refused if it comes twice: another proxy may use the other one."""

from __future__ import annotations

import pytest

from recorder.store.database import Store
from tests.proxy.fake_engine import FakeEngine
from tests.proxy.running import serving

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", ["Authorization", "x-api-key"])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/hone/v1/done"])
async def test_a_repeated_key_is_refused(store: Store, name: str, path: str) -> None:
    async with FakeEngine() as engine, serving(store, engine) as proxy:
        headers = [(name, "Bearer hone_one"), (name, "Bearer hone_two")]
        answer = await proxy.http.post(path, json={"model": "m"}, headers=headers)
        assert answer.status_code == 400
        assert "is repeated" in answer.text
        assert "hone_" not in answer.text
