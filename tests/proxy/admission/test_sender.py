"""Whose failed sign-ins count: the sender behind load balancers that settings trust."""

from __future__ import annotations

import ipaddress

import pytest

from proxy.admission.sender import UNKNOWN, sender_address
from proxy.settings.sections import ProxySettings
from recorder.registry.keys import create_key
from recorder.store.database import Project, Store
from tests.proxy.dashboard.walking import sign_in
from tests.proxy.fake_engine import FakeEngine
from tests.proxy.running import PROJECT, serving

TRUSTED = [ipaddress.ip_network("10.0.0.0/8"), ipaddress.ip_network("fd00::/8")]


@pytest.mark.parametrize(
    ("peer", "forwarded", "sender"),
    [
        ("203.0.113.7", ["198.51.100.1"], "203.0.113.7"),  # a stranger writes what it likes
        ("10.0.0.1", ["198.51.100.1"], "198.51.100.1"),
        ("10.0.0.1", ["1.1.1.1, 198.51.100.1"], "198.51.100.1"),  # the first one is the client's own word
        ("10.0.0.1", ["198.51.100.1, 10.2.3.4"], "198.51.100.1"),
        ("10.0.0.1", ["1.1.1.1", "198.51.100.1", "10.9.9.9"], "198.51.100.1"),  # a repeated header
        ("10.0.0.1", [], "10.0.0.1"),
        ("10.0.0.1", ["10.0.0.5, 10.0.0.6"], "10.0.0.5"),
        ("10.0.0.1", ["198.51.100.1, nonsense"], "10.0.0.1"),
        ("10.0.0.1", ["198.51.100.1, nonsense, 10.0.0.9"], "10.0.0.9"),
        ("10.0.0.1", ["198.51.100.1:4711"], "198.51.100.1"),
        ("10.0.0.1", ["[2001:db8::1]:4711"], "2001:db8::1"),
        ("10.0.0.1", ["2001:db8::1"], "2001:db8::1"),
        ("::ffff:10.0.0.1", ["198.51.100.1"], "198.51.100.1"),
        ("fd00::1", ["198.51.100.1"], "198.51.100.1"),
        (None, ["198.51.100.1"], UNKNOWN),
    ],
)
def test_the_last_untrusted_address_counts(peer: str | None, forwarded: list[str], sender: str) -> None:
    headers = [(b"x-forwarded-for", value.encode()) for value in forwarded]
    assert sender_address(peer, headers, TRUSTED) == sender


def test_without_trusted_proxies_the_peer_counts() -> None:
    assert sender_address("10.0.0.1", [(b"x-forwarded-for", b"198.51.100.1")], []) == "10.0.0.1"


@pytest.mark.slow
@pytest.mark.parametrize("trusted", [True, False])
async def test_one_senders_failures_lock_no_other_out(store: Store, trusted: bool) -> None:
    await create_key(Project(store, PROJECT), "reader", ["read"])
    settings = ProxySettings.model_validate({"port": 0, "trusted_proxies": ["127.0.0.1"] if trusted else []})
    async with FakeEngine() as engine, serving(store, engine, settings=settings) as proxy:

        async def fail(sender: str) -> int:
            proxy.http.headers["x-forwarded-for"] = f"1.2.3.4, {sender}"
            return (await sign_in(proxy.http, "hone_no")).status_code

        assert [await fail("198.51.100.1") for _ in range(11)] == [403] * 10 + [429]
        assert await fail("198.51.100.2") == (403 if trusted else 429)
