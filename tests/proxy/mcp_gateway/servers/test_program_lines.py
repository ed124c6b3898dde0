"""What a program on this machine writes: halves of characters, broken bytes, and lines without end."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from proxy.settings.mcp import McpServerSettings
from recorder.store.database import Store
from tests.proxy.fake_engine import FakeEngine
from tests.proxy.raw_mcp import LEGACY, RawCaller
from tests.proxy.running import WITHOUT_PAGES, Proxy, serving

PROGRAM = r"""
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    method, head = asked["method"], b'{"jsonrpc":"2.0","id":%d,' % asked["id"]
    if method == "initialize":
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}
        result["serverInfo"] = {"name": "x", "version": "1"}
    elif method == "tools/list":
        result = {"tools": [{"name": "run", "inputSchema": {"type": "object"}}]}
    elif method == "tools/call":
        how = asked["params"]["arguments"].get("how", "well")
        if how == "half":
            body = head + rb'"result":{"content":[{"type":"text","text":"half \ud83d"}]}}'
        elif how == "bytes":
            body = head + b'"result":{"content":[{"type":"text","text":"broken \xff"}]}}'
        elif how == "large":
            body = head + b'"result":{"content":[{"type":"text","text":"' + b"x" * 3000000 + b'"}]}}'
        elif how == "large, the id last":
            body = b'{"result":{"content":[{"type":"text","text":"' + b"x" * 3000000 + b'"}]},"jsonrpc":"2.0",'
            body += b'"id":%d}' % asked["id"]
        elif how == "many":
            body = head + b'"result":{"content":[],"structuredContent":{"x":[' + b"0," * 200000 + b"0]}}}"
        else:
            body = head + b'"result":{"content":[{"type":"text","text":"well"}]}}'
        sys.stdout.buffer.write(body + b"\n"); sys.stdout.buffer.flush()
        continue
    else:
        sys.stdout.buffer.write(head + b'"error":{"code":-32601,"message":"no"}}\n'); sys.stdout.buffer.flush()
        continue
    sys.stdout.buffer.write(head + b'"result":' + json.dumps(result).encode() + b"}\n"); sys.stdout.buffer.flush()
"""


@contextlib.asynccontextmanager
async def before(store: Store, tmp_path: Path) -> AsyncIterator[Proxy]:
    program = tmp_path / "server.py"
    program.write_text(PROGRAM)
    server = McpServerSettings(command=sys.executable, args=[str(program)], max_answer_mib=1.0, timeout_s=20)
    async with FakeEngine() as engine, serving(store, engine, settings=WITHOUT_PAGES, mcp={"s": server}) as proxy:
        yield proxy


@pytest.mark.slow
async def test_a_line_of_a_program_is_mended_and_bounded(store: Store, tmp_path: Path) -> None:
    async with before(store, tmp_path) as proxy:
        caller = RawCaller(proxy.http, LEGACY)

        async def run(how: str) -> str:
            answer = await caller.ask("tools/call", {"name": "s__run", "arguments": {"how": how}})
            text: str = answer["result"]["content"][0]["text"]
            return text

        assert await run("well") == "well"
        assert await run("half") == "half \ufffd"
        assert await run("bytes") == "broken \ufffd"
        for how in ("large", "large, the id last"):
            assert "more than 1 MiB, the limit of `max_answer_mib` in [mcp.s]" in await run(how)
            assert await run("well") == "well"
        assert "more than 100000 JSON values" in await run("many")
        assert await run("well") == "well"
