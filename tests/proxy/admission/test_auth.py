"""Who may do what, with keys and without."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import httpx
import pytest

from proxy.admission import auth
from proxy.admission.auth import Guard, is_loopback, needed_scope
from proxy.errors import CallerError, Forbidden, Unauthorized, Unavailable, WrongMediaType
from recorder.errors import StoreUnavailable
from recorder.registry import keys
from recorder.registry.keys import Scope
from recorder.store.database import Project, Store
from tests.proxy.fake_engine import FakeEngine
from tests.proxy.running import NO_TLS, PROJECT, Proxy, say, serving

LOCAL = {b"host": b"127.0.0.1:8700", b"content-type": b"application/json"}
CHAT = ("POST", "/v1/chat/completions")


@pytest.fixture
def guard(store: Store, monkeypatch: pytest.MonkeyPatch) -> Guard:
    monkeypatch.setattr(auth, "REMEMBER_S", 0.0)  # what the store says counts at once
    return Guard(Project(store, PROJECT))


async def key(store: Store, *scopes: str, **more: Any) -> dict[bytes, bytes]:
    _, secret = await keys.create_key(Project(store, PROJECT), "test", scopes, **more)
    return {b"host": b"hone.example.com", b"authorization": b"Bearer " + secret.encode()}


# A key with feedback needs infer too, and feedback-all includes feedback.
HOLD = {Scope.FEEDBACK: (Scope.FEEDBACK, Scope.INFER)}
INCLUDED = HOLD | {Scope.FEEDBACK_ALL: (Scope.FEEDBACK_ALL, Scope.FEEDBACK)}


@pytest.mark.parametrize(
    ("host", "own"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("localhost", True),
        ("LOCALHOST.", True),
        ("localhost.evil.net", False),
        ("127.0.0.1.evil.net", False),
        ("10.0.0.1", False),
        ("0.0.0.0", False),
        ("", False),
        (None, False),
    ],
)
def test_loopback_is_told_from_what_looks_like_it(host: str | None, own: bool) -> None:
    assert is_loopback(host) is own


async def test_without_keys_this_machine_may_do_everything(guard: Guard) -> None:
    for host in (b"127.0.0.1:8700", b"localhost", b"[::1]:8700"):
        caller = await guard.admit(*CHAT, {**LOCAL, b"host": host, b"authorization": b"Bearer sk-none"}, "127.0.0.1")
        assert caller.may(Scope.ADMIN)
    own_page = {**LOCAL, b"origin": b"http://127.0.0.1:8700"}
    assert (await guard.admit(*CHAT, own_page, "::1")).may(Scope.ADMIN)
    form = {**LOCAL, b"origin": b"null", b"sec-fetch-site": b"same-origin"}  # of a page that sends no referrer
    assert (await guard.admit(*CHAT, form, "127.0.0.1")).may(Scope.ADMIN)


@pytest.mark.parametrize(
    ("headers", "peer", "words"),
    [
        (LOCAL, "10.0.0.7", r"from 10\.0\.0\.7"),
        (LOCAL, None, "an unknown peer"),
        ({**LOCAL, b"host": b"evil.net"}, "127.0.0.1", "'evil.net' is not this machine"),
        ({**LOCAL, b"host": b""}, "127.0.0.1", "is not this machine"),
        ({**LOCAL, b"host": b"127.0.0.1@evil.net"}, "127.0.0.1", "is not this machine"),
        ({**LOCAL, b"origin": b"https://evil.net"}, "127.0.0.1", "may not call Hone"),
        ({**LOCAL, b"origin": b"http://127.0.0.1:3000"}, "127.0.0.1", "may not call Hone"),
        ({**LOCAL, b"origin": b"null"}, "127.0.0.1", "may not call Hone"),
        ({**LOCAL, b"origin": b"null", b"sec-fetch-site": b"cross-site"}, "127.0.0.1", "may not call Hone"),
        ({**LOCAL, b"x-forwarded-for": b"10.0.0.7"}, "127.0.0.1", "another proxy forwarded"),
        ({**LOCAL, b"forwarded": b"for=10.0.0.7"}, "127.0.0.1", "another proxy forwarded"),
    ],
)
async def test_without_keys_nobody_else_may_do_anything(
    guard: Guard, headers: dict[bytes, bytes], peer: str | None, words: str
) -> None:
    with pytest.raises(Forbidden, match=words):
        await guard.admit("GET", "/v1/models", headers, peer)


@pytest.mark.parametrize("sent", [b"text/plain", b"application/x-www-form-urlencoded", b""])
async def test_without_keys_a_changing_request_must_be_json(guard: Guard, sent: bytes) -> None:
    with pytest.raises(WrongMediaType):
        await guard.admit(*CHAT, {**LOCAL, b"content-type": sent}, "127.0.0.1")
    await guard.admit(*CHAT, {**LOCAL, b"content-type": b"Application/JSON; charset=utf-8"}, "127.0.0.1")
    await guard.admit("GET", "/v1/models", {**LOCAL, b"content-type": sent}, "127.0.0.1")


async def test_the_first_key_closes_the_proxy_and_its_revocation_opens_it(guard: Guard, store: Store) -> None:
    made, _ = await keys.create_key(Project(store, PROJECT), "first", ["infer"])
    with pytest.raises(Unauthorized, match="needs a key"):
        await guard.admit(*CHAT, LOCAL, "127.0.0.1")
    await keys.revoke_key(Project(store, PROJECT), made.id)
    await guard.admit(*CHAT, LOCAL, "127.0.0.1")


async def test_a_key_for_one_run_leaves_the_proxy_open_and_names_its_run(guard: Guard, store: Store) -> None:
    headers = {**LOCAL, **{b"authorization": (await key(store, "infer", trajectory_id="orders/one"))[b"authorization"]}}
    caller = await guard.admit(*CHAT, headers, "127.0.0.1")
    assert (str(caller.run), caller.may(Scope.ADMIN)) == ("orders/one", True)
    assert (await guard.admit(*CHAT, LOCAL, "127.0.0.1")).run is None
    with pytest.raises(Unauthorized):
        await guard.admit(*CHAT, {**LOCAL, b"authorization": b"Bearer hone_wrong"}, "127.0.0.1")


@pytest.mark.parametrize(
    ("method", "path", "scope"),
    [
        ("POST", "/v1/chat/completions", "infer"),
        ("GET", "/v1/models", "infer"),
        ("POST", "/tokenize", "infer"),
        ("DELETE", "/hone/v1/trajectories/traj_1", "admin"),
        ("POST", "/hone/v1/trajectories", "infer"),
        ("POST", "/hone/v1/trajectories/x/done", "feedback"),
        ("POST", "/hone/v1/trajectories/x/feedback", "feedback"),
        ("POST", "/hone/v1/groups/x/close", "feedback"),
        ("POST", "/hone/v1/done", "feedback"),
        ("POST", "/hone/v1/feedback", "feedback"),
        ("GET", "/hone/v1/trajectories/x", "read"),
        ("GET", "/hone/v1/groups/x", "read"),
        ("GET", "/hone/v1/aliases", "read"),
        ("GET", "/hone/v1/versions", "read"),
        ("GET", "/hone/v1/traffic", "read"),
        ("GET", "/hone/v1/charts/steps", "read"),
        ("GET", "/hone/v1/notifications", "read"),
        ("POST", "/hone/v1/notifications/test", "admin"),
        ("GET", "/metrics", "read"),
        ("GET", "/healthz", None),
        ("GET", "/schema/other", "admin"),
        ("POST", "/hone/v1/something-new", "admin"),
        ("GET", "/", "admin"),
    ],
)
async def test_each_route_needs_its_scope(
    guard: Guard, store: Store, method: str, path: str, scope: str | None
) -> None:
    assert needed_scope(method, path) == scope
    for held in Scope:
        headers = await key(store, *HOLD.get(held, (held,)))
        if scope is None or scope in INCLUDED.get(held, (held,)) or held == "admin":
            await guard.admit(method, path, headers, "10.0.0.1")
        else:
            with pytest.raises(Forbidden, match=f"needs a key with the scope '{scope}'"):
                await guard.admit(method, path, headers, "10.0.0.1")


@pytest.mark.parametrize("path", ["/schema", "/schema/openapi.json", "/schema/"])
async def test_the_schema_needs_a_key_whichever(guard: Guard, store: Store, path: str) -> None:
    for held in set(Scope) - {Scope.FEEDBACK}:  # it is only given together with infer
        await guard.admit("GET", path, await key(store, held), "10.0.0.1")
    with pytest.raises(Unauthorized):
        await guard.admit("GET", path, {b"host": b"hone.example.com"}, "127.0.0.1")


@pytest.mark.parametrize("name", ["Host", "Origin"])
@pytest.mark.parametrize("path", ["/v1/models", "/hone/v1/aliases", "/healthz"])
async def test_a_header_that_tells_where_from_comes_once(store: Store, name: str, path: str) -> None:
    async with FakeEngine() as engine, serving(store, engine) as proxy:
        own = proxy.url.removeprefix("http://")
        lines = [f"GET {path} HTTP/1.1", "Connection: close", f"Host: {own}", f"Origin: {proxy.url}"]
        for more, status in ([], 200), ([f"{name}: {own if name == 'Host' else proxy.url}"], 400):
            reader, writer = await asyncio.open_connection(*own.split(":"))
            writer.write("\r\n".join([*lines, *more, "", ""]).encode())
            answer = (await reader.read()).decode()
            writer.close()
            assert answer.startswith(f"HTTP/1.1 {status}"), answer


async def test_a_key_works_in_either_header_until_its_time(guard: Guard, store: Store) -> None:
    headers = await key(store, "infer")
    secret = headers[b"authorization"].removeprefix(b"Bearer ")
    await guard.admit(*CHAT, {b"x-api-key": secret}, None)
    expired = await key(store, "infer", expires_at=time.time() - 1)
    for wrong in (expired, {b"authorization": b"Basic " + secret}, {b"x-api-key": secret + b"x"}, {}):
        with pytest.raises(CallerError) as refused:
            await guard.admit(*CHAT, wrong, None)
        assert refused.value.status == 401


async def test_a_key_of_another_project_is_no_key(store: Store) -> None:
    guard = Guard(Project(store, "another"))
    await keys.create_key(Project(store, PROJECT), "x", ["admin"])
    headers = {**LOCAL, **await key(store, "admin"), b"host": LOCAL[b"host"]}
    with pytest.raises(Unauthorized):
        await guard.admit(*CHAT, headers, "127.0.0.1")


# --- through the proxy


@pytest.fixture
async def proxy(store: Store) -> Any:
    async with FakeEngine() as engine, serving(store, engine) as running:
        yield running


async def test_a_page_in_a_browser_can_not_make_calls(proxy: Proxy) -> None:
    for headers, status in (
        ({"origin": "https://evil.net"}, 403),
        ({"host": "evil.net"}, 403),
        ({"content-type": "text/plain"}, 415),
    ):
        answer = await proxy.http.post("/v1/chat/completions", json=say(), headers=headers)
        assert (answer.status_code, "message" in answer.json()["error"]) == (status, True)
    assert await proxy.calls() == []


async def test_versions_by_name_and_measuring_runs_need_eval(proxy: Proxy, store: Store) -> None:
    _, infer = await keys.create_key(Project(store, PROJECT), "agent", ["infer"])
    _, gate = await keys.create_key(Project(store, PROJECT), "gate", ["infer", "eval"])
    await proxy.http.get("/v1/models")  # believed open for a moment longer: ask until it is not
    while (await proxy.http.get("/v1/models")).status_code != 401:
        pass
    pinned = {"model": "helpdesk@0"}
    for secret, more, headers, status in (
        (infer, {}, {}, 200),
        (infer, pinned, {}, 403),
        (gate, pinned, {}, 200),
        (infer, {}, {"x-hone-purpose": "val"}, 403),
        (infer, {}, {"x-hone-purpose": "none"}, 200),
        (gate, {}, {"x-hone-purpose": "val"}, 200),
        ("hone_nothing", {}, {}, 401),
    ):
        answer = await proxy.chat(headers=headers | {"authorization": f"Bearer {secret}"}, **more)
        assert answer.status_code == status, answer.text
    refused = await proxy.chat()
    assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
    assert refused.json()["error"]["code"] == "invalid_api_key"
    async with httpx.AsyncClient(base_url=proxy.url, verify=NO_TLS) as http:
        assert (await http.get("/healthz")).status_code == 200
        assert (await http.get("/metrics")).status_code == 401
        problem = await http.get("/hone/v1/aliases")
        assert (problem.status_code, problem.headers["content-type"]) == (401, "application/problem+json")


@pytest.mark.parametrize("path", ["/v1/models", "/hone/"])
async def test_before_the_stores_first_answer_nobody_is_told_that_a_key_is_needed(
    guard: Guard, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    async def away(_: Project) -> bool:
        raise StoreUnavailable("away")

    with monkeypatch.context() as patched:
        patched.setattr(keys, "has_keys", away)
        for _ in range(2):
            with pytest.raises(Unavailable, match="whether this proxy needs a key cannot be checked now"):
                await guard.admit("GET", path, LOCAL, "127.0.0.1")
    while guard._away:  # the next check is made beside a request
        with pytest.raises(Unavailable):
            await guard.admit("GET", path, LOCAL, "127.0.0.1")
        await asyncio.sleep(0.01)
    assert not (await guard.admit("GET", path, LOCAL, "127.0.0.1")).guarded
