"""The agent, against real tools and a small HTTP server that plays the model."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any

import openai
import pytest

from examples.helpdesk.agent import MAX_TURNS, SYSTEM, run
from examples.helpdesk.orders import Order, read_database
from examples.helpdesk.scenarios import DemoFiles
from tests.examples.conftest import tools_served
from tests.proxy.until import until

pytestmark = pytest.mark.slow

Json = dict[str, Any]
Model = Callable[[list[Json]], Json]


@dataclass
class Task:
    input: Json | str
    base_url: str
    id: str = "a1"
    api_key: str = "k-1"
    model: str = "helpdesk"


@contextmanager
def played(model: Model) -> Iterator[tuple[str, list[tuple[str, str, Json]]]]:
    """A chat completions server that answers with what ``model`` says; yields its address and what it was asked."""
    asked: list[tuple[str, str, Json]] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))
            asked.append((self.path, self.headers["authorization"], request))
            message = {"role": "assistant", "content": None, **model(request["messages"])}
            reason = "tool_calls" if "tool_calls" in message else "stop"
            choice = {"index": 0, "message": message, "finish_reason": reason}
            body = json.dumps({"id": "c", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]})
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", asked
        server.shutdown()


def calls(name: str, arguments: str, identity: str = "call_1") -> Json:
    return {"tool_calls": [{"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}]}


def ideal(messages: list[Json]) -> Json:
    """Plays a model that looks up, tracks and answers."""
    order_id = next(word.rstrip("?.") for word in messages[1]["content"].split() if word[0].isdigit())
    results = [json.loads(message["content"]) for message in messages if message["role"] == "tool"]
    if not results:
        return calls("find_order", json.dumps({"order_id": order_id}))
    if len(results) == 1:
        return calls("track_parcel", json.dumps({"tracking": results[0]["tracking"]}))
    return {"content": f"Your order {order_id} arrives on {results[1]['arrives']}."}


@pytest.fixture
def order(files: DemoFiles) -> Order:
    return read_database(files.database).heldout[3]


@pytest.fixture(autouse=True)
def tools(mcp_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HELPDESK_MCP_URL", mcp_url)


async def test_it_looks_up_tracks_and_answers(order: Order) -> None:
    with played(ideal) as (url, asked):
        said = await run(Task({"question": f"Where is my order {order.order_id}?"}, f"{url}/g/7/t/1/v1"))
    assert said == f"Your order {order.order_id} arrives on {order.day}."
    assert len(asked) == 3
    path, key, request = asked[0]
    assert (path, key) == ("/g/7/t/1/v1/chat/completions", "Bearer k-1")
    assert (request["model"], request["temperature"], request["tool_choice"]) == ("helpdesk", 1.0, "auto")
    assert [tool["function"]["name"] for tool in request["tools"]] == ["find_order", "track_parcel"]
    assert request["messages"][0] == {"role": "system", "content": SYSTEM}


async def test_each_turn_sends_the_turn_before_unchanged(order: Order) -> None:
    with played(ideal) as (url, asked):
        await run(Task(f"Where is my order {order.order_id}?", f"{url}/v1"))
    histories = [request["messages"] for _, _, request in asked]
    for earlier, later in pairwise(histories):
        assert later[: len(earlier)] == earlier
        assert later[len(earlier)] == {"role": "assistant", **ideal(earlier), "content": None}


async def test_concurrent_runs_keep_their_own_addresses(files: DemoFiles) -> None:
    orders = read_database(files.database).train[:8]
    with played(ideal) as (url, asked):
        tasks = [
            Task(f"Where is my order {order.order_id}?", f"{url}/t/{order.order_id}/v1", api_key=order.order_id)
            for order in orders
        ]
        said = await asyncio.gather(*map(run, tasks))
    assert said == [f"Your order {order.order_id} arrives on {order.day}." for order in orders]
    for path, key, request in asked:
        order_id = path.split("/")[2]
        assert key == f"Bearer {order_id}"
        assert order_id in request["messages"][1]["content"]


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (calls("find_order", "{"), "Expecting"),
        (calls("find_order", "[1]"), "a JSON object"),
        (calls("find_order", "{}"), "order_id"),
        (calls("refund", "{}"), "refund"),
    ],
)
async def test_a_malformed_call_is_answered_with_what_is_wrong(call: Json, complaint: str) -> None:
    def model(messages: list[Json]) -> Json:
        return {"content": messages[-1]["content"]} if messages[-1]["role"] == "tool" else call

    with played(model) as (url, _):
        assert complaint in await run(Task("Where is my order 4821?", f"{url}/v1"))


async def test_a_model_that_never_stops_calling_is_stopped() -> None:
    with played(lambda _: calls("find_order", '{"order_id": "0001"}')) as (url, asked):
        said = await run(Task("Where is my order 0001?", f"{url}/v1"))
    assert len(asked) == MAX_TURNS
    assert "no such order" in said


async def test_two_calls_in_one_turn_are_both_answered() -> None:
    def model(messages: list[Json]) -> Json:
        if messages[-1]["role"] == "tool":
            return {"content": " ".join(m["tool_call_id"] for m in messages if m["role"] == "tool")}
        two = [calls("find_order", '{"order_id": "1"}', identity)["tool_calls"][0] for identity in ("a", "b")]
        return {"content": "Looking.", "tool_calls": two}

    with played(model) as (url, asked):
        assert await run(Task("Where?", f"{url}/v1")) == "a b"
    assert asked[1][2]["messages"][2]["content"] == "Looking."


async def test_a_refusal_of_the_model_reaches_the_caller(mcp_url: str) -> None:
    with pytest.raises(openai.NotFoundError):  # the tools' server has no such page
        await run(Task("Where?", mcp_url.replace("/mcp", "/v1")))


async def test_tools_that_are_not_there_are_an_error_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HELPDESK_MCP_URL", "http://127.0.0.1:9/mcp")
    with played(ideal) as (url, asked):
        for _ in range(2):
            with pytest.raises(ConnectionError, match=r"no tools at http://127\.0\.0\.1:9/mcp"):
                await run(Task("Where?", f"{url}/v1"))
    assert not asked


async def test_a_cancelled_first_run_does_not_take_the_connections_with_it(order: Order) -> None:
    with played(ideal) as (url, _):
        task = Task(f"Where is my order {order.order_id}?", f"{url}/v1")
        first = asyncio.create_task(run(task))
        second = asyncio.create_task(run(task))
        await asyncio.sleep(0)  # both have begun to wait for the connections
        first.cancel()
        assert await second == f"Your order {order.order_id} arrives on {order.day}."
    assert first.cancelled()


async def test_tools_that_went_away_and_came_back_are_found_again(
    files: DemoFiles, order: Order, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = f"Your order {order.order_id} arrives on {order.day}."
    with played(ideal) as (url, _):
        task = Task(f"Where is my order {order.order_id}?", f"{url}/v1")
        async with tools_served(files) as port:
            monkeypatch.setenv("HELPDESK_MCP_URL", f"http://127.0.0.1:{port}/mcp")
            assert await run(task) == answer
        with pytest.raises((openai.APIConnectionError, ConnectionError)):
            await run(task)
        async with tools_served(files, port):
            assert await run(task) == answer


async def test_a_session_that_ended_with_its_server_is_told_and_leaves_no_failed_task(
    files: DemoFiles, order: Order, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    left: list[Json] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: left.append(context))
    with played(ideal) as (url, _):
        task = Task(f"Where is my order {order.order_id}?", f"{url}/v1")
        async with tools_served(files) as port:
            monkeypatch.setenv("HELPDESK_MCP_URL", f"http://127.0.0.1:{port}/mcp")
            await run(task)
        with pytest.raises((openai.APIConnectionError, ConnectionError)):
            await run(task)
    await until(lambda: f"the session with the tools at http://127.0.0.1:{port}/mcp ended" in caplog.text)
    gc.collect()  # what nobody asked a task for is told when the task goes
    assert not left


@pytest.mark.slow
async def test_a_person_can_ask_it(order: Order, tmp_path: Path) -> None:
    script = Path(__file__).parents[2] / "examples" / "helpdesk" / "agent.py"
    with played(ideal) as (url, _):
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(script),
            f"Where is my order {order.order_id}?",
            cwd=tmp_path,
            env={**os.environ, "OPENAI_BASE_URL": f"{url}/v1"},
            stdout=asyncio.subprocess.PIPE,
        )
        said, _ = await process.communicate()
    assert process.returncode == 0
    assert said.decode() == f"Your order {order.order_id} arrives on {order.day}.\n"
