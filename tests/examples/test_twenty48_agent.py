"""The agent that plays 2048, against a real HTTP server that answers as it is told."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from examples.twenty48.agent import run
from examples.twenty48.episode import NO_WORD, SYSTEM, TURNS, begin, replay


@dataclass(frozen=True)
class Played:
    """A task as a campaign hands it over."""

    input: dict[str, int]
    base_url: str
    api_key: str = "key"
    model: str = "twenty48"


@contextmanager
def model_that_says(*words: str | None) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Its address, and the bodies of the requests that it heard. It says the words again and again."""
    heard: list[dict[str, Any]] = []
    saying = itertools.cycle(words)

    class Answers(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            heard.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            message = {"role": "assistant", "content": next(saying)}
            choice = {"index": 0, "finish_reason": "stop", "message": message}
            whole = {"id": "x", "object": "chat.completion", "created": 0, "model": "twenty48", "choices": [choice]}
            body = json.dumps(whole).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/v1", heard
        server.shutdown()


@pytest.mark.parametrize("words", [("up", "left"), ("Let me think.", "down", "right"), ("", None, "left")])
async def test_an_attempt_is_one_growing_conversation_that_a_replay_ends_the_same_way(
    words: tuple[str | None, ...],
) -> None:
    with model_that_says(*words) as (url, heard):
        ended = await run(Played({"seed": 4821}, url))
    answers = [word or "" for word, _ in zip(itertools.cycle(words), heard, strict=False)]
    episode = replay(4821, answers)
    assert episode.over
    assert episode.turns == len(heard) <= TURNS
    assert ended == episode.shown()
    for before, after in itertools.pairwise(body["messages"] for body in heard):
        assert after[: len(before)] == before
    assert heard[0]["messages"] == [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": begin(4821).shown()},
    ]


async def test_talk_is_answered_with_what_to_say() -> None:
    with model_that_says("I like this game.") as (url, heard):
        await run(Played({"seed": 1}, url))
    assert heard[1]["messages"][-1]["content"] == f"{NO_WORD}\n{begin(1).shown()}"
    assert {body["temperature"] for body in heard} == {1.0}
