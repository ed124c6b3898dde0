"""Hone's own routes, asked."""

from __future__ import annotations

from typing import Any

from tests.proxy.running import Proxy

PROBLEM = "application/problem+json"


async def post(proxy: Proxy, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
    answer = await proxy.http.post(path, json={} if body is None else body, headers=headers)
    return answer.status_code, answer.json()


async def get(proxy: Proxy, path: str) -> tuple[int, Any]:
    answer = await proxy.http.get(path)
    return answer.status_code, answer.json()
