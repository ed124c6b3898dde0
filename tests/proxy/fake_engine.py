"""An engine that says what a test tells it to say, in vLLM 0.32's own shapes, on a raw socket, with faults on request.

Its tokens are words: a message is [role] words [end], so that the prompt of a next turn begins with the prompt and the
sampled ids of the one before, as a real template's does. Logprobs count down: -0.01, -0.02 …
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

END = 2
CONTEXT_LENGTH = 1000


def ids_of(text: str) -> list[int]:
    """The ids of a text: one a word."""
    return [10 + zlib.crc32(word.encode()) % 50_000 for word in text.split()]


def prompt_ids(messages: list[dict[str, Any]], ask: bool = True) -> list[int]:
    """The ids of a conversation, with the prompt for an assistant turn at its end.

    As real templates do, it drops the thinking of turns before the last user message.
    """
    ids: list[int] = []
    asked = max((at for at, message in enumerate(messages) if message["role"] == "user"), default=-1)
    for at, message in enumerate(messages):
        content = message.get("content") or ""
        said = content if isinstance(content, str) else " ".join(part.get("text", "<media>") for part in content)
        if at < asked and message["role"] == "assistant":
            said = said.rpartition("</think>")[2]
        calls = [_call_text(call["function"]) for call in message.get("tool_calls") or ()]
        ids += [*ids_of(message["role"]), *ids_of(" ".join([said, *calls])), END]
    return ids + ids_of("assistant") if ask else ids


def _call_text(function: dict[str, Any]) -> str:
    """A call as a template writes it: vLLM parses the arguments first, so the client's white space is lost."""
    arguments = function["arguments"]
    with contextlib.suppress(ValueError):
        arguments = json.dumps(json.loads(arguments))
    return json.dumps({"name": function["name"], "arguments": arguments})


def prompt_of(body: dict[str, Any]) -> list[int]:
    """The prompt that a request is answered on: the ids that it brings, else its messages rendered."""
    given: list[int] | None = (body.get("kv_transfer_params") or {}).get("prompt_token_ids")
    return given or prompt_ids(body["messages"])


@dataclass
class Step:
    """What one streamed chunk brings: a delta, and the tokens behind it (it may be empty and still carry some)."""

    delta: dict[str, Any]
    ids: list[int]


@dataclass
class Said:
    """One choice."""

    steps: list[Step]
    message: dict[str, Any]
    finish: str = "stop"

    def ids(self) -> list[int]:
        return [token for step in self.steps for token in step.ids]

    def logprobs(self) -> list[float]:
        return [-0.01 * (at + 1) for at in range(len(self.ids()))]


def words(text: str, finish: str = "stop") -> Said:
    """A choice that says `text`, a word a token, and an end token that shows nothing."""
    parts = text.split(" ")
    deltas = [part if at == 0 else f" {part}" for at, part in enumerate(parts)]
    steps = [Step({"content": delta}, ids_of(delta)) for delta in deltas]
    if finish == "stop":
        steps.append(Step({}, [END]))
    return Said(steps, {"role": "assistant", "content": text}, finish)


def tool_call(name: str, arguments: dict[str, Any], call_id: str) -> Said:
    """A choice that calls a tool, with chunks that show nothing between those that do, as vLLM's parsers make them."""
    text = json.dumps({"name": name, "arguments": json.dumps(arguments)})
    call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
    first = {"id": call_id, "type": "function", "index": 0, "function": {"name": name, "arguments": ""}}
    rest = {"index": 0, "function": {"arguments": json.dumps(arguments)}}
    ids = ids_of(text)
    steps = [
        Step({}, ids[:1]),
        Step({"tool_calls": [first]}, ids[1:2]),
        Step({"content": ""}, ids[2:3]),
        Step({"tool_calls": [rest]}, ids[3:]),
        Step({}, [END]),
    ]
    return Said(steps, {"role": "assistant", "content": None, "tool_calls": [call]}, "tool_calls")


@dataclass
class Script:
    """One answer, and what goes wrong with it."""

    choices: list[Said] = field(default_factory=lambda: [words("It arrives on Monday")])
    status: int = 200
    error: dict[str, Any] | str | None = None  # the body where `status` is not 200
    after_events: int | None = None  # send so many events, then do what `then` says
    then: str = "die"  # die, end, hang, error, garbage
    cut_bytes: int | None = None  # write the stream in pieces of so many bytes
    gate: asyncio.Event | None = None  # answer only when it is set
    pause_at: int | None = None  # stand still before this event of a stream …
    resume: asyncio.Event | None = None  # … until this is set
    close: bool = False  # close the connection after the answer, without having said so
    hang_up: bool = False  # close the connection instead of answering
    body: bytes | None = None  # a body in place of the right one
    chat_id: str = "chatcmpl-1"


Scripted = Script | Callable[[dict[str, Any]], Script]


class FakeEngine:
    """`async with FakeEngine() as engine:`; put scripts into `engine.next`, read `engine.requests` afterwards."""

    def __init__(self, context_length: int = CONTEXT_LENGTH) -> None:
        self.context_length: int | None = context_length
        self.default: Scripted = Script()
        self.next: list[Scripted] = []
        self.requests: list[dict[str, Any]] = []
        self.heads: list[str] = []
        self.renders: list[dict[str, Any]] = []  # what was asked of /tokenize with messages
        self.render: Callable[[dict[str, Any]], dict[str, Any]] = rendered
        self.aborted: list[int] = []  # numbers of the requests whose client hung up
        self.connections = 0
        self.sent_events = 0
        self.port = 0
        self._server: asyncio.Server | None = None
        self._serving: dict[asyncio.StreamWriter, asyncio.Task[None]] = {}
        self._changed = asyncio.Condition()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> FakeEngine:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Die: every connection breaks, and new ones are refused."""
        if self._server is not None:
            self._server.close()
            for writer in self._serving:
                writer.transport.abort()
            await asyncio.gather(*self._serving.values(), return_exceptions=True)
            await self._server.wait_closed()
            self._server = None

    async def until(self, look: Callable[[FakeEngine], bool], within_s: float = 10.0) -> None:
        """Wait until `look(engine)` holds."""
        async with asyncio.timeout(within_s), self._changed:
            await self._changed.wait_for(lambda: look(self))

    async def _note(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._serving[writer] = task
        try:
            while await self._one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            del self._serving[writer]
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        lines = head.lower().split("\r\n")
        length = next((int(line.split(":")[1]) for line in lines if line.startswith("content-length:")), 0)
        body = json.loads(await reader.readexactly(length)) if length else {}
        if head.startswith("GET /v1/models "):  # no call: it takes no script
            card = {"id": "base-model", "object": "model", "max_model_len": self.context_length, "parent": None}
            await _whole(writer, 200, _bytes({"object": "list", "data": [card]}))
            return True
        if "add_generation_prompt" in body and " /tokenize " in head:
            self.renders.append(body)
            await _whole(writer, 200, _bytes(self.render(body)))
            return True
        number = len(self.requests)
        self.heads.append(head)
        self.requests.append(body)
        scripted = self.next.pop(0) if self.next else self.default
        script = scripted(body) if callable(scripted) else scripted
        await self._note()
        answering = asyncio.ensure_future(self._answer(head, body, script, writer))
        hanging_up = asyncio.ensure_future(reader.read(1))
        await asyncio.wait({answering, hanging_up}, return_when=asyncio.FIRST_COMPLETED)
        if not answering.done() or writer.transport.is_closing():
            answering.cancel()
            self.aborted.append(number)
            await asyncio.gather(answering, hanging_up, return_exceptions=True)
            await self._note()
            return False
        hanging_up.cancel()
        await asyncio.gather(hanging_up, return_exceptions=True)
        goes_on: bool = answering.result()
        return goes_on

    async def _answer(self, head: str, body: dict[str, Any], script: Script, writer: asyncio.StreamWriter) -> bool:
        if script.gate is not None:
            await script.gate.wait()
        if script.hang_up:
            writer.transport.abort()
            return False
        if script.status != 200:
            await _whole(writer, script.status, _bytes(script.error))
        elif body.get("stream"):
            return await self._stream(body, script, writer)
        else:
            await _whole(writer, 200, script.body if script.body is not None else _plain(head, body, script))
        return not script.close

    async def _stream(self, body: dict[str, Any], script: Script, writer: asyncio.StreamWriter) -> bool:
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        text = "prompt" in body
        events = text_events_of(body, script.choices) if text else events_of(body, script.choices, script.chat_id)
        for at, event in enumerate(events):
            if at == script.after_events:
                if script.then == "die":
                    await writer.drain()
                    writer.transport.abort()
                    return False
                if script.then == "hang":
                    await asyncio.Event().wait()
                if script.then == "end":
                    break
                fault = {"error": {"message": f"the model {body['model']} is lost", "type": "E", "code": 500}}
                said = b"data: {not json\n\n" if script.then == "garbage" else b"data: " + _bytes(fault) + b"\n\n"
                _chunk(writer, said)
                _chunk(writer, b"data: [DONE]\n\n")
                break
            if at == script.pause_at and script.resume is not None:
                await script.resume.wait()
            await _write_cut(writer, event, script.cut_bytes)
            self.sent_events += 1
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return not script.close


def _plain(head: str, body: dict[str, Any], script: Script) -> bytes:
    route = head.split(" ")[1]
    if route == "/v1/completions":
        return _bytes(text_completion_of(body, script.choices))
    if route == "/v1/chat/completions":
        return _bytes(completion_of(body, script.choices, script.chat_id))
    return _bytes({"object": "passed", "model": body.get("model"), "route": route})


async def _write_cut(writer: asyncio.StreamWriter, event: bytes, cut_bytes: int | None) -> None:
    for at in range(0, len(event), cut_bytes or len(event)):
        _chunk(writer, event[at : at + (cut_bytes or len(event))])
        await writer.drain()


def _chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(b"%x\r\n" % len(data) + data + b"\r\n")


async def _whole(writer: asyncio.StreamWriter, status: int, body: bytes) -> None:
    head = f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    await writer.drain()


def rendered(body: dict[str, Any]) -> dict[str, Any]:
    """What `/tokenize` says of a conversation."""
    return {"tokens": prompt_ids(body["messages"], body["add_generation_prompt"]), "max_model_len": 4096}


def _bytes(value: object) -> bytes:
    return value.encode() if isinstance(value, str) else json.dumps(value, ensure_ascii=False).encode()


def _logprobs(body: dict[str, Any], logprobs: list[float], start: int, ids: list[int]) -> dict[str, Any] | None:
    if not body.get("logprobs"):
        return None
    top = [{"token": "x", "logprob": -3.0, "bytes": [120]}] * (body.get("top_logprobs") or 0)
    pairs = zip(ids, logprobs[start : start + len(ids)], strict=True)
    return {"content": [{"token": f"t{t}", "logprob": p, "bytes": [1], "top_logprobs": top} for t, p in pairs]}


def _usage(body: dict[str, Any], choices: list[Said]) -> dict[str, Any]:
    prompt, sampled = len(prompt_of(body)), sum(len(said.ids()) for said in choices)
    return {"prompt_tokens": prompt, "total_tokens": prompt + sampled, "completion_tokens": sampled}


def completion_of(body: dict[str, Any], choices: list[Said], chat_id: str = "chatcmpl-1") -> dict[str, Any]:
    """A whole answer as `ChatCompletionResponse.model_dump()` writes it, nulls and all."""
    if "messages" not in body:
        return {}
    shown = [
        {
            "index": at,
            "message": {"refusal": None, "annotations": None, "audio": None, "function_call": None, "reasoning": None}
            | said.message,
            "logprobs": _logprobs(body, said.logprobs(), 0, said.ids()),
            "finish_reason": said.finish,
            "stop_reason": None,
            "token_ids": said.ids() if body.get("return_token_ids") else None,
            "routed_experts": None,
        }
        for at, said in enumerate(choices)
    ]
    return {
        "id": chat_id,
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": body["model"],
        "choices": shown,
        "service_tier": None,
        "system_fingerprint": "vllm-0.32.0",
        "usage": _usage(body, choices),
        "prompt_logprobs": None,
        "prompt_token_ids": prompt_of(body) if body.get("return_token_ids") else None,
        "prompt_text": None,
        "kv_transfer_params": None,
        "ec_transfer_params": None,
        "metrics": None,
    }


def events_of(body: dict[str, Any], choices: list[Said], chat_id: str = "chatcmpl-1") -> Iterator[bytes]:
    """A streamed answer as `chat_completion_stream_generator` writes it; several choices take turns."""

    def event(**fields: Any) -> bytes:
        head = {"id": chat_id, "object": "chat.completion.chunk", "created": 1_700_000_000, "model": body["model"]}
        return b"data: " + _bytes(head | fields) + b"\n\n"

    want_ids = bool(body.get("return_token_ids"))
    for at in range(len(choices)):
        first = {"index": at, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}
        ids = prompt_of(body) if want_ids else None
        yield event(choices=[first], prompt_token_ids=ids, prompt_text=None)
    want_usage = bool((body.get("stream_options") or {}).get("include_usage"))
    longest = max(len(said.steps) for said in choices)
    logprobs, starts = [said.logprobs() for said in choices], [0] * len(choices)
    for turn in range(longest):
        for at, said in enumerate(choices):
            if turn >= len(said.steps):
                continue
            step, last = said.steps[turn], turn == len(said.steps) - 1
            said_so = _logprobs(body, logprobs[at], starts[at], step.ids)
            starts[at] += len(step.ids)
            choice = {"index": at, "delta": step.delta, "logprobs": said_so}
            choice |= {"finish_reason": said.finish, "stop_reason": None} if last else {"finish_reason": None}
            choice["token_ids"] = step.ids if want_ids else None
            mark = {"system_fingerprint": "vllm-0.32.0"} if last and not want_usage else {}
            yield event(choices=[choice], **mark)
    if want_usage:
        yield event(choices=[], usage=_usage(body, choices), system_fingerprint="vllm-0.32.0")
    yield b"data: [DONE]\n\n"


# --- completions


def _prompt_of(body: dict[str, Any]) -> list[int]:
    return ids_of(body["prompt"]) if isinstance(body["prompt"], str) else list(body["prompt"])


def _text_choice(body: dict[str, Any], said: Said, at: int, start: int, step: Step) -> dict[str, Any]:
    logprobs = None
    if body.get("logprobs") is not None:
        values = said.logprobs()[start : start + len(step.ids)]
        tokens = [f"t{token}" for token in step.ids]
        logprobs = {
            "text_offset": [0] * len(values),
            "token_logprobs": values,
            "tokens": tokens,
            "top_logprobs": [{token: p} for token, p in zip(tokens, values, strict=True)],
        }
    want_ids = bool(body.get("return_token_ids"))
    return {
        "index": at,
        "text": step.delta.get("content", ""),
        "logprobs": logprobs,
        "stop_reason": None,
        "token_ids": step.ids if want_ids else None,
        "prompt_token_ids": _prompt_of(body) if want_ids and start == 0 else None,
    }


def _text_usage(body: dict[str, Any], choices: list[Said]) -> dict[str, Any]:
    prompt, sampled = len(_prompt_of(body)), sum(len(said.ids()) for said in choices)
    return {"prompt_tokens": prompt, "total_tokens": prompt + sampled, "completion_tokens": sampled}


def text_completion_of(body: dict[str, Any], choices: list[Said]) -> dict[str, Any]:
    """A whole answer as `CompletionResponse.model_dump()` writes it."""
    shown = [
        _text_choice(body, said, at, 0, Step({"content": said.message["content"]}, said.ids()))
        | {"finish_reason": said.finish, "prompt_logprobs": None, "routed_experts": None}
        for at, said in enumerate(choices)
    ]
    head = {"id": "cmpl-1", "object": "text_completion", "created": 1_700_000_000, "model": body["model"]}
    rest = {"system_fingerprint": "vllm-0.32.0", "usage": _text_usage(body, choices), "metrics": None}
    return head | {"choices": shown, "service_tier": None} | rest


def text_events_of(body: dict[str, Any], choices: list[Said]) -> Iterator[bytes]:
    """A streamed answer as `completion_stream_generator` writes it; several choices take turns."""
    head = {"id": "cmpl-1", "object": "text_completion", "created": 1_700_000_000, "model": body["model"]}
    want_usage = bool((body.get("stream_options") or {}).get("include_usage"))
    for turn in range(max(len(said.steps) for said in choices)):
        for at, said in enumerate(choices):
            if turn >= len(said.steps):
                continue
            last = turn == len(said.steps) - 1
            start = sum(len(earlier.ids) for earlier in said.steps[:turn])
            choice = _text_choice(body, said, at, start, said.steps[turn])
            choice["finish_reason"] = said.finish if last else None
            mark = {"system_fingerprint": "vllm-0.32.0"} if last and not want_usage else {}
            yield b"data: " + _bytes(head | {"choices": [choice]} | mark) + b"\n\n"
    if want_usage:
        rest = {"choices": [], "usage": _text_usage(body, choices), "system_fingerprint": "vllm-0.32.0"}
        yield b"data: " + _bytes(head | rest) + b"\n\n"
    yield b"data: [DONE]\n\n"


def plain_of(body: dict[str, Any], choices: list[Said]) -> bytes:
    """A whole answer as bytes."""
    return _bytes(completion_of(body, choices))
