"""The simulated users of `make live`, against real tools and a small server that plays Hone and its model."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import repeat
from typing import Any

import pytest

from examples.helpdesk.orders import read_database
from examples.helpdesk.scenarios import DemoFiles
from examples.live.traffic import one_each
from examples.live.users import Run, measure, users
from tests.examples.test_helpdesk_agent import Model, calls, ideal

pytestmark = pytest.mark.slow

ReceivedRequests = list[tuple[str, dict[str, str], dict[str, Any]]]  # path, headers, body


@contextmanager
def served(model: Model = ideal, *, broken: bool = False) -> Iterator[tuple[str, ReceivedRequests]]:
    """A proxy whose answers name run and version; `broken`: it refuses everything."""
    asked: ReceivedRequests = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            asked.append((self.path, {name.lower(): value for name, value in self.headers.items()}, body))
            message = {"role": "assistant", "content": None, **model(body["messages"])} if "messages" in body else {}
            reason = "tool_calls" if "tool_calls" in message else "stop"
            answer = {"id": "c", "object": "chat.completion", "created": 0, "model": "m"}
            said = json.dumps(answer | {"choices": [{"index": 0, "message": message, "finish_reason": reason}]})
            self.send_response(400 if broken else 200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(said)))
            self.send_header("x-hone-trajectory", "traj_1")
            self.send_header("x-hone-version", "helpdesk@3")
            self.end_headers()
            self.wfile.write(said.encode())

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", asked
        server.shutdown()


class Always(random.Random):
    """Chance that always falls on one side: everybody gives thumbs."""

    def random(self) -> float:
        return 0.0


async def test_users_send_nothing_of_hones_and_are_told_which_version_answered(files: DemoFiles, mcp_url: str) -> None:
    questions, ended = one_each(read_database(files.database).train[:4], random.Random(1)), list[Run]()
    with served() as (url, asked):
        async with users(url, mcp_url, random.Random(1), ended.append) as population:
            await population.live(iter(questions), repeat(0.0), time.time() + 60)
    assert [(run.version, run.right, run.fault) for run in ended] == [("helpdesk@3", True, None)] * 4
    sent = [(path, headers) for path, headers, body in asked if "messages" in body]
    assert {path for path, _ in sent} == {"/v1/chat/completions"}
    assert not [name for _, headers in sent for name in headers if name.startswith("x-hone")]


async def test_a_run_that_ends_in_a_tools_result_is_no_answer(files: DemoFiles, mcp_url: str) -> None:
    order = read_database(files.database).train[0]
    ended: list[Run] = []
    with served(lambda _: calls("track_parcel", json.dumps({"tracking": order.tracking}))) as (url, _):
        async with users(url, mcp_url, random.Random(1), ended.append) as population:
            await population.live(iter(one_each([order], random.Random(1))), repeat(0.0), time.time() + 60)
    assert [run.right for run in ended] == [False]


async def test_thumbs_say_of_the_run_whether_it_was_answered_rightly(files: DemoFiles, mcp_url: str) -> None:
    questions = one_each(read_database(files.database).train[:1], random.Random(1))
    with served() as (url, asked):
        async with users(url, mcp_url, Always(), lambda run: None) as population:
            await population.live(iter(questions), repeat(0.0), time.time() + 60)
    assert asked[-1][0] == "/hone/v1/trajectories/traj_1/feedback"
    assert asked[-1][2] == {"name": "thumbs", "value": True}


async def test_a_call_that_fails_is_a_fault_of_that_run_alone(files: DemoFiles, mcp_url: str) -> None:
    questions, ended = one_each(read_database(files.database).train[:2], random.Random(1)), list[Run]()
    with served(broken=True) as (url, _):
        async with users(url, mcp_url, random.Random(1), ended.append) as population:
            await population.live(iter(questions), repeat(0.0), time.time() + 60)
    assert [run.right for run in ended] == [False, False]
    assert all("BadRequestError" in (run.fault or "") for run in ended)


async def test_nobody_asks_after_the_end(files: DemoFiles, mcp_url: str) -> None:
    questions, ended = one_each(read_database(files.database).train[:2], random.Random(1)), list[Run]()
    with served() as (url, asked):
        async with users(url, mcp_url, random.Random(1), ended.append) as population:
            await population.live(iter(questions), repeat(0.0), time.time() - 1)
    assert (ended, asked) == ([], [])


async def test_what_is_measured_is_no_user_and_asks_the_version_by_its_name(files: DemoFiles, mcp_url: str) -> None:
    questions = one_each(read_database(files.database).heldout[:3], random.Random(1))
    with served() as (url, asked):
        measured = await measure(url, mcp_url, "helpdesk@3", questions)
    assert [(run.version, run.right) for run in measured] == [("helpdesk@3", True)] * 3
    assert {(headers["x-hone-purpose"], body["model"]) for _, headers, body in asked} == {("none", "helpdesk@3")}
