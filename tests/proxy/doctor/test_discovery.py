"""What there is to start with: engines on loopback, models in a cache, the name of a judge's key."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from proxy.doctor import discovery
from proxy.doctor.discovery import JUDGES, RunningEngine, discover, newest_model, read_models
from recorder.llm import litellm_edge
from tests.proxy.raw_engine import CHUNKED, Raw, RawEngine, framed, sized

CARD = {"id": "qwen", "owned_by": "vllm", "root": "Qwen/Qwen3-0.6B", "parent": None}


@contextmanager
def answering(status: int, body: object) -> Iterator[int]:
    """A server that answers everything with this; its port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            assert self.path == "/v1/models"
            assert "authorization" not in self.headers
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


async def engine_at(port: int, monkeypatch: pytest.MonkeyPatch) -> RunningEngine | None:
    monkeypatch.setattr(discovery, "list_gpus", list)
    return (await discover({}, (port,))).engine


async def test_a_vllm_is_found_with_its_base(monkeypatch: pytest.MonkeyPatch) -> None:
    adapter = {"id": "helpdesk@3", "owned_by": "vllm", "root": "/x", "parent": "qwen"}
    with answering(200, {"data": [adapter, CARD]}) as port:
        there = await engine_at(port, monkeypatch)
    assert there == RunningEngine(f"http://127.0.0.1:{port}", "qwen", "Qwen/Qwen3-0.6B")


async def test_a_vllm_that_wants_its_key_is_found_without_one_being_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    with answering(401, {"error": "Unauthorized"}) as port:
        assert await engine_at(port, monkeypatch) == RunningEngine(f"http://127.0.0.1:{port}", None, None)


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, {"data": [{**CARD, "owned_by": "library"}]}),
        (200, {"data": "no list"}),
        (200, []),
        (200, {"data": [{**CARD, "id": 'a"\n[proxy]'}]}),
        (404, {}),
        (401, {"detail": "log in"}),
    ],
)
async def test_what_is_no_vllm_is_left_alone(status: int, body: object, monkeypatch: pytest.MonkeyPatch) -> None:
    with answering(status, body) as port:
        assert await engine_at(port, monkeypatch) is None


@pytest.mark.parametrize(
    "answer",
    [
        Raw((sized(b"[" * 200_000),)),
        Raw((sized(b"\xff\xfe"),)),
        Raw((CHUNKED, framed(b"{")), then="drip"),
        Raw((CHUNKED, *[framed(b" " * 2**18)] * 6), then="stall"),
        Raw((CHUNKED,), then="stall"),
        Raw((b"SSH-2.0-OpenSSH_9\r\n",), then="close"),
    ],
    ids=["deep", "no text", "endless", "large", "silent", "no http"],
)
async def test_whatever_listens_on_a_usual_port_it_ends(answer: Raw, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "_TIMEOUT_S", 0.5)
    async with RawEngine() as server:
        server.models = answer
        assert await engine_at(int(server.url.rpartition(":")[2]), monkeypatch) is None


async def test_no_more_is_read_than_a_list_of_models_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """What stalls behind it is not waited for."""
    monkeypatch.setattr(discovery, "_TIMEOUT_S", 600.0)
    async with RawEngine() as server:
        server.models = Raw((CHUNKED, *[framed(b" " * 2**18)] * 6), then="stall")
        assert await engine_at(int(server.url.rpartition(":")[2]), monkeypatch) is None


async def test_a_port_where_nobody_listens_is_no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await engine_at(9, monkeypatch) is None


@pytest.mark.parametrize("root", ["/no/such/folder", "", 'x"', "~/weights"])
def test_weights_that_are_not_to_be_had_here_are_not_named(root: str) -> None:
    assert read_models("u", {"data": [{**CARD, "root": root}]}) == RunningEngine("u", "qwen", None)


def test_the_newest_language_model_of_the_cache_is_found(tmp_path: Path) -> None:
    def cached(name: str, config: str, at: int) -> None:
        file = tmp_path / f"models--{name.replace('/', '--')}" / "snapshots" / "abc" / "config.json"
        file.parent.mkdir(parents=True)
        file.write_text(config)
        os.utime(file, (at, at))

    assert newest_model(tmp_path) is None
    cached("org/old", '{"architectures": ["Qwen3ForCausalLM"]}', 1)
    cached("org/new", '{"architectures": ["Qwen3ForCausalLM"]}', 2)
    cached("org/embeds", '{"architectures": ["BertModel"]}', 3)
    cached("org/torn", '{"archit', 4)
    assert newest_model(tmp_path) == "org/new"


async def test_a_judges_key_is_known_by_its_name_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "list_gpus", list)
    around = await discover({"ANTHROPIC_API_KEY": "sk-secret", "OPENAI_API_KEY": " "}, ())
    assert around.judge_key == "ANTHROPIC_API_KEY"
    assert "sk-secret" not in repr(around)


@pytest.mark.slow
@pytest.mark.parametrize(("variable", "model"), JUDGES.items())
def test_a_judge_that_is_proposed_is_known_and_takes_the_key_that_was_found(
    variable: str, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    litellm = litellm_edge.load_litellm()
    for name in JUDGES:
        monkeypatch.delenv(name, raising=False)
    assert variable in litellm.validate_environment(model)["missing_keys"]  # Gemini has two names for it
    assert litellm.get_model_info(model)
