"""The agent, against a small HTTP server that plays the model: one call, and what was said."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import openai
import pytest

from examples.rlvr.agent import MAX_TOKENS, run

asked: list[tuple[str, str, dict[str, Any]]] = []


class Model(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        asked.append((self.path, self.headers["authorization"], request))
        choice = {"index": 0, "message": {"role": "assistant", "content": "1. lamp 3"}, "finish_reason": "stop"}
        body = json.dumps({"id": "c", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]})
        self.send_response(200 if request["model"] == "rlvr" else 404)
        self.send_header("content-type", "application/json")
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *args: object) -> None:
        pass


@dataclass
class Task:
    base_url: str
    input: str = "Write a list."
    api_key: str = "k-1"
    model: str = "rlvr"


@pytest.fixture
def base_url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Model) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()


def test_it_asks_once_at_temperature_one_and_returns_what_was_said(base_url: str) -> None:
    asked.clear()
    assert asyncio.run(run(Task(base_url))) == "1. lamp 3"
    [(path, authorization, request)] = asked
    assert (path, authorization) == ("/v1/chat/completions", "Bearer k-1")
    assert request == {
        "model": "rlvr",
        "messages": [{"role": "user", "content": "Write a list."}],
        "temperature": 1.0,
        "max_tokens": MAX_TOKENS,
    }


def test_a_model_that_is_not_there_is_an_error_and_no_answer(base_url: str) -> None:
    with pytest.raises(openai.NotFoundError):
        asyncio.run(run(Task(base_url, model="another")))
