"""The socket, starting and stopping, and silent streams."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from proxy.errors import ConfigError, PortInUse
from proxy.http.sse import KEEP_ALIVE, KeepAliveStream
from proxy.settings.sections import ProxySettings
from proxy.supervision.app import AppParts, create_app
from proxy.supervision.serve import serve
from proxy.supervision.sockets import listen
from proxy.versions.routing import ServiceRouter
from recorder.capture.recorder import Recorder
from recorder.registry import keys
from recorder.settings import RecorderSettings
from recorder.store.database import Project, Store
from tests.proxy.fake_engine import FakeEngine, Script, words
from tests.proxy.running import PROJECT, say, serving


def test_a_port_in_use_is_named() -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortInUse, match=f"port {port} on 127.0.0.1 is in use .* choose another port with --port"):
            listen("127.0.0.1", port)


@pytest.mark.parametrize("host", ["203.0.113.7", "no-such-host.invalid"])
def test_an_address_that_is_not_ours_is_named(host: str) -> None:
    with pytest.raises(ConfigError, match=r"cannot listen on .*\[proxy\]"):
        listen(host, 0)


def deps(store: Store, settings: ProxySettings) -> AppParts:
    recording = RecorderSettings()
    return AppParts(
        Project(store, PROJECT),
        settings,
        recording,
        Recorder(store, recording),
        ServiceRouter(Project(store, PROJECT), settings),
    )


async def test_without_keys_nobody_else_is_listened_to(store: Store) -> None:
    app = create_app(deps(store, ProxySettings(host="0.0.0.0", port=0)))
    with pytest.raises(ConfigError, match=r"create a key first \(`hone keys create`\)"), listen("127.0.0.1", 0) as sock:
        await serve(app, sock)
    await keys.create_key(Project(store, PROJECT), "first", ["infer"])
    async with app.running():
        pass


async def test_what_runs_beside_the_app_starts_last_and_stops_first(store: Store) -> None:
    seen: list[str] = []

    @contextlib.asynccontextmanager
    async def beside() -> AsyncIterator[None]:
        seen.append("started")
        yield
        seen.append("stopped")

    settings = ProxySettings(port=0)
    made = deps(store, settings)
    app = create_app(
        AppParts(Project(store, PROJECT), settings, RecorderSettings(), made.recorder, made.versions, [beside])
    )
    async with app.running():
        assert seen == ["started"]
    assert seen == ["started", "stopped"]


async def test_running_calls_are_finished_before_the_server_stops(store: Store) -> None:
    gate = asyncio.Event()
    async with FakeEngine() as engine:
        engine.default = Script([words("On Monday")], gate=gate)
        async with serving(store, engine) as proxy:
            asking = asyncio.ensure_future(proxy.http.post("/v1/chat/completions", json=say()))
            await engine.until(lambda e: len(e.requests) == 1)
            gate.set()
            assert (await asking).status_code == 200
    # the recorder is stopped by now, and nothing of it is lost
    assert len(await proxy.calls()) == 1


async def test_a_silent_stream_gets_comments() -> None:
    sent: asyncio.Queue[bytes] = asyncio.Queue()

    async def send(message: dict[str, object]) -> None:
        body = message["body"]
        assert isinstance(body, bytes)
        await sent.put(body)

    with KeepAliveStream(send, every_s=0.01) as pulse:  # type: ignore[arg-type]  # a dict is what ASGI sends
        await pulse.send(b"data: a\n\n")
        assert [await sent.get() for _ in range(3)] == [b"data: a\n\n", KEEP_ALIVE, KEEP_ALIVE]


async def test_nothing_is_said_between_to_a_reader_that_is_slow() -> None:
    sent: list[bytes] = []
    slow = asyncio.Event()

    async def send(message: dict[str, object]) -> None:
        body = message["body"]
        assert isinstance(body, bytes)
        sent.append(body)
        await slow.wait()

    with KeepAliveStream(send, every_s=0.001) as pulse:  # type: ignore[arg-type]  # a dict is what ASGI sends
        sending = asyncio.ensure_future(pulse.send(b"data: a\n\n"))
        ticks = asyncio.Event()
        asyncio.get_running_loop().call_later(0.05, ticks.set)
        await ticks.wait()
        assert sent == [b"data: a\n\n"]
        slow.set()
        await sending
