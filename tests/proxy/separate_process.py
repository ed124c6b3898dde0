"""An engine and a client in a process of their own: the event loop of the test has the proxy's work alone."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.proxy.raw_engine import HEAD, sized

_STREAM = HEAD.replace(b"application/json", b"text/event-stream")
_IDS = {"prompt_token_ids": [1, 2]}
_USAGE = {"prompt_tokens": 2, "completion_tokens": 1, "total_tokens": 3}
_LOGPROBS = {"content": [{"token": "It", "logprob": -0.1, "bytes": None, "top_logprobs": []}]}
_CHOICE = {"index": 0, "token_ids": [5], "logprobs": _LOGPROBS, "finish_reason": "stop", "stop_reason": None}
_HEAD = {"id": "chatcmpl-1", "created": 1, "model": "base-model", **_IDS}


@dataclass(frozen=True)
class SeparateProcess:
    """The other process. `url`: its engine's, which answers each chat completion with one token."""

    url: str
    process: asyncio.subprocess.Process
    folder: Path

    async def prepare(self, body: bytes) -> None:
        """Hand over a body, which `send` sends: a large one keeps the loop busy while it is written."""
        await asyncio.to_thread((self.folder / "body").write_bytes, body)

    async def send(self, url: str) -> tuple[int, str]:
        """Send the body that was handed over."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{url} {self.folder / 'body'}\n".encode())
        status, text = json.loads(await self.process.stdout.readline())
        return status, text


@contextlib.asynccontextmanager
async def separate_process(folder: Path) -> AsyncIterator[SeparateProcess]:
    """Start the process; `folder` is for the bodies."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.proxy.separate_process",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield SeparateProcess((await process.stdout.readline()).decode().strip(), process, folder)
    finally:
        process.stdin.close()
        await process.wait()


# --- the process


def _answer(head: bytes, body: bytes) -> bytes:
    if head.startswith(b"get /v1/models "):
        return sized(json.dumps({"data": [{"id": "base-model", "max_model_len": 1000}]}).encode())
    if head.startswith(b"post /tokenize "):
        return sized(json.dumps({"count": 1, "max_model_len": 1000, "tokens": [1]}).encode())
    said = {"role": "assistant", "content": "It"}
    if b'"stream":true' not in body:
        choice = _CHOICE | {"message": said}
        return sized(json.dumps({**_HEAD, "object": "chat.completion", "choices": [choice], "usage": _USAGE}).encode())
    chunk: dict[str, Any] = {**_HEAD, "object": "chat.completion.chunk", "choices": [_CHOICE | {"delta": said}]}
    events = [chunk, {**_HEAD, "object": "chat.completion.chunk", "choices": [], "usage": _USAGE}]
    lines = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)
    return sized(lines + b"data: [DONE]\n\n", _STREAM)


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            lengths = [int(line[15:]) for line in head.split(b"\r\n") if line.startswith(b"content-length:")]
            writer.write(_answer(head, await reader.readexactly(lengths[0]) if lengths else b""))
            await writer.drain()
    writer.close()


def _post(url: str, body: Path) -> tuple[int, str]:
    address, _, path = url.removeprefix("http://").partition("/")
    connection = http.client.HTTPConnection(address, timeout=60)
    connection.request("POST", f"/{path}", body.read_bytes(), {"content-type": "application/json"})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


async def _main() -> None:
    server = await asyncio.start_server(_serve, "127.0.0.1", 0, limit=1 << 20)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        url, body = line.split()
        print(json.dumps(await asyncio.to_thread(_post, url, Path(body))), flush=True)


if __name__ == "__main__":
    asyncio.run(_main())
