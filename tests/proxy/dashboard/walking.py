"""Every page and every form, found in the table of pages: one made tomorrow is walked too; and a browser's way to them.

Owns: the addresses of the handlers, with something in place of what each names, and signing in.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
from litestar.handlers import HTTPRouteHandler
from sqlalchemy import Column, Table, select

from proxy.dashboard.routes import HANDLERS
from recorder.store.database import Store
from recorder.store.schema import metadata
from tests.proxy.running import NO_TLS, Proxy

FORM = {"content-type": "application/x-www-form-urlencoded"}
OPEN = ("/hone/sign-in", "/hone/static/")  # to everybody
BY_FEEDBACK = ("/feedback", "/preference", "/selection")
CSRF = re.compile(r'name="csrf" value="([0-9a-f]{64})"')


@dataclass(frozen=True, slots=True)
class Walked:
    """One way to ask one handler. `path`: with a name that is there nowhere in each place."""

    method: str
    path: str

    @property
    def opened_by_all(self) -> bool:
        return self.path.startswith(OPEN)


def walked(*methods: str) -> Iterator[Walked]:
    """All handlers that answer to these methods."""
    for handler in HANDLERS:
        assert isinstance(handler, HTTPRouteHandler)
        for path in handler.paths:
            named = re.sub(r"\{[^}]*\}", "nothing", path)
            for method in sorted(handler.http_methods):
                if method in methods:
                    yield Walked(method, "/hone" + named)


def changes() -> list[Walked]:
    """Every form, but those of signing in and out."""
    return [one for one in walked("POST", "PUT", "PATCH", "DELETE") if "/sign-" not in one.path]


@contextlib.asynccontextmanager
async def browser(proxy: Proxy, secret: str | None = None) -> AsyncIterator[httpx.AsyncClient]:
    """Another browser, signed in by a key where one is given."""
    async with httpx.AsyncClient(base_url=proxy.url, timeout=20, verify=NO_TLS) as http:
        if secret is not None:
            answer = await sign_in(http, secret)
            assert answer.status_code == 303, answer.text
        yield http


async def sign_in(http: httpx.AsyncClient, secret: str, onward: str = "/hone/") -> httpx.Response:
    token = await token_of(http, "/hone/sign-in")
    return await http.post("/hone/sign-in", data={"csrf": token, "key": secret, "onward": onward})


async def token_of(http: httpx.AsyncClient, path: str) -> str:
    """The token of a page's form."""
    found = CSRF.search((await http.get(path)).text)
    assert found is not None
    return found[1]


async def headers_of(http: httpx.AsyncClient, one: Walked, **headers: str) -> httpx.Response:
    """The answer, of which no more than the head is read: some never end."""
    async with http.stream(one.method, one.path, headers=headers) as answer:
        return answer


async def content(store: Store) -> dict[str, list[str]]:
    """All that a store holds, but when programs were last seen."""
    async with store.read() as conn:
        return {
            table.name: sorted(str(tuple(row)) for row in await conn.execute(select(*_lasting(table))))
            for table in metadata.sorted_tables
        }


def _lasting(table: Table) -> list[Column[Any]]:
    return [
        one
        for one in table.columns
        if one.name != "seen_at" and (table.name, one.name) != ("leases", "lease_expires_at")
    ]
