"""Compressed request bodies: every coding, over every kind of route, and what is no such body."""

from __future__ import annotations

import bz2
import gzip
import json
import zlib
from collections.abc import Callable

import brotli
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from proxy.errors import BadRequest, TooLarge, UnknownCoding
from proxy.http.content_coding import codings_of, decode
from proxy.settings.sections import ProxySettings
from recorder.store.database import Store
from tests.proxy.fake_engine import FakeEngine
from tests.proxy.running import WITHOUT_PAGES, say, serving


def raw_deflate(data: bytes) -> bytes:
    """Deflate without zlib's frame, as many clients send it."""
    coder = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return coder.compress(data) + coder.flush()


def streamed_zstd(data: bytes) -> bytes:
    """A frame that does not name its size, and an empty one behind it."""
    coder = zstandard.ZstdCompressor().compressobj()
    return coder.compress(data) + coder.flush() + zstandard.compress(b"")


CODERS: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "gzip": ("gzip", gzip.compress),
    "x-gzip": ("x-gzip", gzip.compress),
    "two members": ("gzip", lambda data: gzip.compress(data[:3]) + gzip.compress(data[3:])),
    "deflate": ("deflate", zlib.compress),
    "raw deflate": ("deflate", raw_deflate),
    "zstd": ("zstd", zstandard.compress),
    "streamed zstd": ("zstd", streamed_zstd),
    "br": ("br", brotli.compress),
}
LIMIT = 1_000_000


@given(data=st.binary(max_size=3000), repeats=st.integers(1, 100), name=st.sampled_from(sorted(CODERS)))
def test_decoding_is_the_inverse(data: bytes, repeats: int, name: str) -> None:
    coding, coder = CODERS[name]
    assert decode(coder(data * repeats), [coding], LIMIT) == data * repeats


@given(data=st.binary(min_size=1, max_size=500), cut=st.integers(1, 499), name=st.sampled_from(sorted(CODERS)))
def test_a_part_is_never_taken_for_the_whole(data: bytes, cut: int, name: str) -> None:
    coding, coder = CODERS[name]
    coded = coder(data)
    part = coded[: max(1, len(coded) - cut)]
    between_members = {gzip.compress(data[:3]), gzip.compress(data[:3]) + gzip.compress(b"")}
    if part in between_members or (name == "streamed zstd" and len(coded) - len(part) == len(zstandard.compress(b""))):
        return
    with pytest.raises(BadRequest, match=coding):
        decode(part, [coding], LIMIT)


@given(junk=st.binary(min_size=1, max_size=300), name=st.sampled_from(["gzip", "zstd", "br"]))
def test_junk_behind_a_body_is_refused(junk: bytes, name: str) -> None:
    if junk.startswith((b"\x1f\x8b", b"\x28\xb5")) or (name == "zstd" and b"*M\x18" in junk[:4]):
        return
    with pytest.raises(BadRequest):
        decode(CODERS[name][1](b"body") + junk, [name], LIMIT)


@pytest.mark.parametrize("name", CODERS)
@pytest.mark.parametrize("size", [1, 262_143, 262_144, 262_145, 999_999])
def test_bodies_around_the_size_of_a_piece(name: str, size: int) -> None:
    coding, coder = CODERS[name]
    for body in (bytes(size), (b"a text " * size)[:size]):
        assert decode(coder(body), [coding], LIMIT) == body


@pytest.mark.parametrize("name", CODERS)
def test_a_bomb_is_refused(name: str) -> None:
    coding, coder = CODERS[name]
    with pytest.raises(TooLarge, match="max_body_bytes"):
        decode(coder(bytes(2 * LIMIT)), [coding], LIMIT)


def test_codings_around_each_other() -> None:
    coded = brotli.compress(gzip.compress(b"body"))
    assert decode(coded, codings_of(b"gzip, br"), LIMIT) == b"body"
    assert codings_of(b" GZIP ,identity,") == ["gzip"]
    for header in (b"compress", b"gzip, aes128gcm", b"gzip, gzip, gzip, gzip", b"\xff"):
        with pytest.raises(UnknownCoding):
            codings_of(header)


@pytest.mark.slow
class TestRoutes:
    async def test_a_call_is_served_and_recorded(self, store: Store) -> None:
        async with FakeEngine() as engine, serving(store, engine, settings=WITHOUT_PAGES) as proxy:
            for coding, coder in CODERS.values():
                headers = {"content-encoding": coding, "content-type": "application/json"}
                body = coder(json.dumps(say("Where is order 4821?")).encode())
                answer = await proxy.http.post("/v1/chat/completions", content=body, headers=headers)
                assert answer.status_code == 200, answer.text
            assert [call["status"] for call in await proxy.calls()] == ["complete"] * len(CODERS)

    async def test_every_model_route_decodes(self, store: Store) -> None:
        async with FakeEngine() as engine, serving(store, engine, settings=WITHOUT_PAGES) as proxy:
            headers = {"content-encoding": "gzip", "content-type": "application/json"}
            body = {"model": "nobody", "messages": [], "input": "x", "prompt": "x", "max_tokens": 5}
            for path in ("/v1/messages", "/v1/responses", "/v1/completions", "/v1/embeddings"):
                coded = await proxy.http.post(path, content=gzip.compress(json.dumps(body).encode()), headers=headers)
                plain = await proxy.http.post(path, json=body)
                assert (coded.status_code, coded.text) == (plain.status_code, plain.text)

    async def test_hones_own_routes_decode(self, store: Store) -> None:
        async with FakeEngine() as engine, serving(store, engine, settings=WITHOUT_PAGES) as proxy:
            headers = {"content-encoding": "zstd", "content-type": "application/json"}
            body = zstandard.compress(json.dumps({"trajectory": "run-1"}).encode())
            answer = await proxy.http.post("/hone/v1/trajectories", content=body, headers=headers)
            plain = await proxy.http.post("/hone/v1/trajectories", json={"trajectory": "run-1"})
            assert answer.status_code == plain.status_code < 300, answer.text

    async def test_what_is_not_decoded_is_named(self, store: Store) -> None:
        async with FakeEngine() as engine, serving(store, engine, settings=WITHOUT_PAGES) as proxy:
            headers = {"content-encoding": "bzip2", "content-type": "application/json"}
            coded = bz2.compress(json.dumps(say()).encode())
            answer = await proxy.http.post("/v1/chat/completions", content=coded, headers=headers)
            assert answer.status_code == 415
            assert "bzip2" in answer.json()["error"]["message"]
            assert answer.headers["accept-encoding"] == "gzip, deflate, zstd, br"
            of_messages = await proxy.http.post("/v1/messages", content=coded, headers=headers)
            assert (of_messages.status_code, of_messages.json()["type"]) == (415, "error")

    async def test_a_broken_body_names_its_coding(self, store: Store) -> None:
        async with FakeEngine() as engine, serving(store, engine, settings=WITHOUT_PAGES) as proxy:
            headers = {"content-encoding": "gzip", "content-type": "application/json"}
            for path in ("/v1/chat/completions", "/v1/messages", "/hone/v1/trajectories"):
                answer = await proxy.http.post(path, content=b"no gzip", headers=headers)
                assert answer.status_code == 400
                assert "gzip" in answer.text

    async def test_a_bomb_gets_413(self, store: Store) -> None:
        settings = ProxySettings(port=0, pages=False, max_body_bytes=100_000)
        async with FakeEngine() as engine, serving(store, engine, settings=settings) as proxy:
            headers = {"content-encoding": "br", "content-type": "application/json"}
            bomb = brotli.compress(bytes(10**7), quality=1)
            for path in ("/v1/chat/completions", "/hone/v1/trajectories"):
                answer = await proxy.http.post(path, content=bomb, headers=headers)
                assert answer.status_code == 413, answer.text
                assert "max_body_bytes" in answer.text

    async def test_an_empty_body_needs_no_coding(self, store: Store) -> None:
        async with FakeEngine() as engine, serving(store, engine, settings=WITHOUT_PAGES) as proxy:
            answer = await proxy.http.get("/v1/models", headers={"content-encoding": "gzip"})
            assert answer.status_code == 200
