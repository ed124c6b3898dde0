"""A real engine is paused for a trainer and woken: level 0 with `keep`, which vLLM does on a CPU too.

What needs a GPU (levels of sleep, releasing the cache) is played by a stand-in in tests/proxy/versions/test_pauses.py.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import httpx
import pytest

from proxy.http import sse
from recorder.queue import leases
from recorder.queue.leases import GPU
from recorder.queue.training import gpu_pauses
from recorder.store.bootstrap import DEFAULT_PROJECT, open_store
from recorder.store.database import Project
from tests.e2e.conftest import ROOT, Stack, at_once, wait_for
from tests.e2e.test_faults import answers

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

# A trainer as far as the GPU goes: when told to, it takes it as the real one does, says so, and computes until its end.
HOLDER = """
import asyncio, sys
from pathlib import Path
from recorder.queue.leases import holder_name
from recorder.settings import RecorderSettings
from recorder.store.bootstrap import open_store
from recorder.store.database import Project
from trainer.step.gpu_share import GpuShare

async def enter():
    print("in", flush=True)
    await asyncio.to_thread(sys.stdin.readline)

async def leave():
    return True

async def main(data):
    settings = RecorderSettings(**json.loads(sys.argv[2]))
    store = await open_store(data, settings, migrate=False)
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    async with GpuShare(Project(store, "default"), "sleep", holder_name(), 60).using(enter, leave):
        pass
    await store.close()

import json
asyncio.run(main(Path(sys.argv[1])))
"""
ASK = "Where is order 4821?"
MOST = 900  # a pause begins within a second, and is to find all streams in the middle
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": ASK}], "max_tokens": MOST},
    "/v1/completions": {"prompt": ASK, "max_tokens": MOST},
    "/v1/messages": {"messages": [{"role": "user", "content": ASK}], "max_tokens": MOST},
    "/v1/responses": {"input": ASK, "max_output_tokens": MOST},
}


class Holder:
    """A process that holds the GPU."""

    def __init__(self, stack: Stack) -> None:
        recording = stack.recording.model_dump_json(include={"url"})
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(stack.data), recording], cwd=ROOT, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def wait_until_ready(self) -> None:
        """Wait until its imports are done: a stream may be shorter than they are."""
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"

    def move_in(self) -> None:
        """Let it take the GPU, and wait until it has."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "in\n"

    def release(self) -> None:
        """Let it give the GPU back, and end."""
        self.process.communicate("\n", timeout=60)

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@contextmanager
def holding(stack: Stack) -> Iterator[Holder]:
    holder = Holder(stack)
    try:
        yield holder
    finally:
        if holder.process.poll() is None:
            holder.kill()


def is_paused(stack: Stack) -> bool:
    with stack.engine() as engine:
        return bool(engine.get("/is_sleeping").raise_for_status().json()["is_sleeping"])


def ask(stack: Stack, path: str, trajectory: str, received: bytearray | None = None) -> bytes:
    """One streamed answer; `received` grows as it comes."""
    received = bytearray() if received is None else received
    body = {"model": "helpdesk", "temperature": 1.0, "seed": 7, "stream": True, "ignore_eos": True} | BODIES[path]
    url = f"{stack.proxy_url}/t/{trajectory}{path}"
    with httpx.stream("POST", url, json=body, timeout=120) as answer:
        assert answer.status_code == 200, answer.read()
        for chunk in answer.iter_raw():
            received += chunk
    return bytes(received)


def said(stream: bytes) -> str:
    """What a stream says, in any format."""
    events = [json.loads(data) for data in sse.Parser().feed(stream) if data != sse.DONE]
    assert not [one for one in events if one.get("error")], events[-1]
    return "".join(map(_text_of, events))


def _text_of(event: dict[str, Any]) -> str:
    if "choices" in event:
        return "".join(one.get("text") or one.get("delta", {}).get("content") or "" for one in event["choices"])
    if event["type"] == "content_block_delta":
        return str(event["delta"].get("text", ""))
    return str(event["delta"]) if event["type"] == "response.output_text.delta" else ""


def exact(stack: Stack, trajectory: str) -> list[tuple[Any, ...]]:
    [call] = stack.calls_of(trajectory)
    assert call["status"] == "complete"
    return [(one["token_ids"], one["finish_reason"]) for one in call["choices"]]


def in_store(stack: Stack, read: Any) -> Any:
    @asynccontextmanager
    async def opened() -> AsyncIterator[Project]:
        store = await open_store(stack.data, stack.recording, migrate=False)
        try:
            yield Project(store, DEFAULT_PROJECT)
        finally:
            await store.close()

    async def run() -> Any:
        async with opened() as project:
            found: Coroutine[Any, Any, Any] = read(project)
            return await found

    return asyncio.run(run())


def test_streams_of_every_format_continue_after_a_pause(killable_stack: Stack) -> None:
    stack = killable_stack
    wait_for("an answer", lambda: answers(stack))
    paths = list(BODIES)
    answered = at_once(lambda at: ask(stack, paths[at], f"plain-{at}"), range(len(paths)))
    plain = {path: said(one) for path, one in zip(paths, answered, strict=True)}
    received = {path: bytearray() for path in BODIES}
    with holding(stack) as holder, ThreadPoolExecutor(len(BODIES) + 2) as threads:
        holder.wait_until_ready()
        running = {
            path: threads.submit(ask, stack, path, f"paused-{at}", received[path]) for at, path in enumerate(BODIES)
        }
        wait_for("tokens of every stream", lambda: all(len(one) > 1000 for one in received.values()))
        holder.move_in()
        in_flight = [path for path, one in running.items() if not one.done()]
        assert in_flight  # otherwise this shows nothing
        assert is_paused(stack)
        sizes = {path: len(received[path].replace(sse.KEEP_ALIVE, b"")) for path in in_flight}
        queued = threads.submit(ask, stack, "/v1/chat/completions", "queued")
        asleep = next(iter(json.loads(stack.hone("status", "--json"))["engines"]))
        assert (asleep["state"], asleep["detail"].startswith("a trainer uses its GPU")) == ("asleep", True)
        # `hone status` took seconds, and no token came
        assert {path: len(received[path].replace(sse.KEEP_ALIVE, b"")) for path in in_flight} == sizes
        assert not queued.done()
        holder.release()
        for path, one in running.items():
            assert said(one.result(120)) == plain[path], path
        assert said(queued.result(120)) == plain["/v1/chat/completions"]
    for at in range(len(BODIES)):
        assert exact(stack, f"paused-{at}") == exact(stack, f"plain-{at}")
    assert not is_paused(stack)
    [*_, pause] = in_store(stack, gpu_pauses.list_pauses)
    assert pause.ended_at is not None


def test_a_trainer_killed_in_a_pause_leaves_no_engine_asleep(killable_stack: Stack) -> None:
    stack = killable_stack
    wait_for("an answer", lambda: answers(stack))
    with holding(stack) as holder:
        holder.wait_until_ready()
        holder.move_in()
        assert is_paused(stack)
        asking = threading.Thread(target=ask, args=(stack, "/v1/chat/completions", "over-a-kill"))
        asking.start()
        holder.kill()
        asking.join(60)  # the lease would last 60 s more
        assert not asking.is_alive()
    assert exact(stack, "over-a-kill") == exact(stack, "plain-0")
    assert in_store(stack, lambda project: leases.find_lease(project, GPU)) is None


def test_nothing_in_front_of_the_proxy_reaches_the_routes_for_sleeping(killable_stack: Stack) -> None:
    with killable_stack.proxy() as proxy:
        for path in ("/sleep", "/wake_up", "/release_kv_cache_memory"):
            assert proxy.post(path, json={}).status_code == 404
    assert not is_paused(killable_stack)
