"""Messages to the MCP servers of a proxy are bounded before their parser, which is not ours, reads them."""

from __future__ import annotations

import gzip
import json

import pytest

from proxy.settings.sections import ProxySettings
from recorder.store.database import Store
from tests.event_loop import GAP_S, loop_gaps
from tests.proxy.fake_engine import FakeEngine
from tests.proxy.running import serving

pytestmark = pytest.mark.slow

PATHS = ["/hone/mcp", "/t/run-1/mcp", "/mcp"]
HEADERS = {"content-type": "application/json", "accept": "application/json, text/event-stream"}


@pytest.mark.parametrize("path", PATHS)
async def test_a_message_of_very_many_values_is_refused(store: Store, path: str) -> None:
    async with FakeEngine() as engine, serving(store, engine) as proxy:
        body = b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": [' + b"[]," * 5_000_000 + b"1]}"
        async with loop_gaps() as gaps:
            answer = await proxy.http.post(path, content=body, headers=HEADERS)
        assert answer.status_code == 413
        assert "max_body_values" in answer.text
        assert gaps.busy_s < GAP_S


async def test_a_message_may_be_compressed(store: Store) -> None:
    async with FakeEngine() as engine, serving(store, engine) as proxy:
        params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
        body = gzip.compress(json.dumps(message).encode())
        answer = await proxy.http.post("/hone/mcp", content=body, headers=HEADERS | {"content-encoding": "gzip"})
        assert answer.status_code == 200, answer.text
        assert "protocolVersion" in answer.text


async def test_a_large_one_is_refused(store: Store) -> None:
    settings = ProxySettings(port=0, max_body_bytes=10_000)
    async with FakeEngine() as engine, serving(store, engine, settings=settings) as proxy:
        answer = await proxy.http.post("/hone/mcp", content=b'"' + b"x" * 20_000 + b'"', headers=HEADERS)
        assert answer.status_code == 413
