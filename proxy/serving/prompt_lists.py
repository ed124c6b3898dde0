"""Completions with a list of prompts, as one call for each prompt: each is a trajectory of its own.

Owns: splitting such a request, running the calls concurrently, and merging their answers in the engine's order (all
choices of the first prompt, then those of the second). Each call is attributed, recorded and trained on by itself:
different prompts are not choices of one call. Refuses: anything about a single call (`proxy.serving.calls`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from proxy.admission.replies import send_error
from proxy.dialects import engine_fields
from proxy.dialects.base import DialectRules
from proxy.dialects.completions import split_prompts
from proxy.errors import BadRequest, CallerError, ClientDisconnected, TooLarge
from proxy.http import sse
from proxy.http.asgi import (
    App,
    Message,
    RawHeaders,
    Receive,
    Scope,
    Send,
    begin_stream,
    read_body,
    respond,
)
from proxy.serving.body_reading import dialect_rules, work_beside_loop
from proxy.settings.sections import ProxySettings

MAX_PROMPTS: Final = 1024  # the engine's own limit (VLLM_MAX_COMPLETION_PROMPTS)
_STARTED_AT_ONCE: Final = 8  # calls: 4 ms until each waits for its engine
MAX_LISTED: Final = 32  # most calls with their ids in an answer's headers: clients read some 64 KB of them at most
_COUNTS: Final = ("prompt_tokens", "completion_tokens", "total_tokens")
Body = dict[str, Any]


class PromptLists:
    """Wraps the app that serves one prompt."""

    def __init__(self, app: App, path: str, settings: ProxySettings) -> None:
        self._app = app
        self._path = path
        self._max_body_bytes = settings.max_body_bytes
        self._rules = dialect_rules(settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request; one with a single prompt is passed on unchanged."""
        try:
            body = await read_body(scope["hone.headers"], receive, self._max_body_bytes)
            bodies = await work_beside_loop(len(body), lambda: _split_body(body, self._rules, self._max_body_bytes))
        except CallerError as e:
            await send_error(send, self._path, e)
        except ClientDisconnected:
            return
        else:
            if bodies is None:
                await self._app(scope, _BodyReplay(body, receive), send)
            else:
                await self._serve(scope, bodies, receive, send)

    async def _serve(self, scope: Scope, bodies: list[Body], receive: Receive, send: Send) -> None:
        choices = bodies[0].get("n") or 1
        together: _CombinedAnswers = (_StreamedAnswers if bodies[0].get("stream") else _PlainAnswers)(
            len(bodies), send, choices
        )
        left = _SharedDisconnect(receive)
        try:
            async with asyncio.TaskGroup() as tasks:
                for at, body in enumerate(bodies):
                    tasks.create_task(self._one(scope, _BodyReplay(orjson.dumps(body), left), together.sender(at)))
                    if at % _STARTED_AT_ONCE == _STARTED_AT_ONCE - 1:
                        await asyncio.sleep(0)  # others are served meanwhile
        finally:
            left.stop()
        await together.end()

    async def _one(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app({**scope}, receive, send)


def _split_body(body: bytes, rules: DialectRules, limit_bytes: int) -> list[Body] | None:
    """A body for each prompt; None for a single prompt or a malformed request, which the serving path refuses."""
    try:
        fields = engine_fields.load_body(body, rules)
    except BadRequest:
        return None
    prompts = split_prompts(fields.get("prompt"))
    if prompts is None:
        return None
    if len(prompts) > MAX_PROMPTS:
        raise BadRequest(f"the field 'prompt' has {len(prompts)} prompts: at most {MAX_PROMPTS}.", param="prompt")
    if not isinstance(fields.get("n") or 1, int):
        raise BadRequest("the field 'n' must be a whole number.", param="n", code="invalid_type")
    if len({type(prompt) for prompt in prompts}) > 1:
        raise BadRequest("the field 'prompt' must be a list of texts or a list of lists of token ids.", param="prompt")
    rest = {name: value for name, value in fields.items() if name != "prompt"}
    _require_small(len(orjson.dumps(rest)), len(prompts), limit_bytes)
    return [{**rest, "prompt": prompt} for prompt in prompts]


def _require_small(rest_bytes: int, prompts: int, limit_bytes: int) -> None:
    """Refuse fields that, repeated in each call's body, exceed the limit of one request."""
    if rest_bytes * prompts > limit_bytes:
        raise TooLarge(
            f"the fields other than 'prompt' have {rest_bytes} bytes, and each of the {prompts} prompts becomes a call "
            f"with all of them; the limit is {limit_bytes} bytes for one request. Send fewer prompts at a time, or "
            "raise `max_body_bytes` in the [proxy] section of hone.toml."
        )


class _BodyReplay:
    """A `receive` that returns a body that was read already, and then the messages after it."""

    def __init__(self, body: bytes, then: Receive) -> None:
        self._body: bytes | None = body
        self._then = then

    async def __call__(self) -> Message:
        if self._body is None:
            return await self._then()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}


class _SharedDisconnect:
    """One client's disconnect, which every call receives."""

    def __init__(self, receive: Receive) -> None:
        self._watch = asyncio.ensure_future(self._until_gone(receive))

    @staticmethod
    async def _until_gone(receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    async def __call__(self) -> Message:
        await asyncio.shield(self._watch)
        return {"type": "http.disconnect"}

    def stop(self) -> None:
        """Stop watching the client."""
        self._watch.cancel()


@dataclass(slots=True)
class _Answer:
    """The answer of one call."""

    status: int = 0
    headers: RawHeaders = field(default_factory=list)
    body: bytes = b""


class _CombinedAnswers:
    """The answers of several calls, merged into one."""

    def __init__(self, calls: int, send: Send, choices: int) -> None:
        self._answers = [_Answer() for _ in range(calls)]
        self._send = send
        self._choices = choices  # per prompt

    def sender(self, at: int) -> Send:
        """Return the `send` of one call."""

        async def send(message: Message) -> None:
            answer = self._answers[at]
            if message["type"] == "http.response.start":
                answer.status, answer.headers = message["status"], list(message["headers"])
                await self._on_start()
            elif answer.status == 200:
                await self._on_body(at, message.get("body", b""))
            else:
                answer.body += message.get("body", b"")

        return send

    async def _on_start(self) -> None:
        """A call has sent its headers."""

    async def _on_body(self, at: int, body: bytes) -> None:
        self._answers[at].body += body

    async def end(self) -> None:
        """Finish after the last call."""
        refused = next((answer for answer in self._answers if answer.status != 200), None)
        if refused is None:
            await self._finish()
        elif refused.status:  # a call without a status has lost its client
            about = [h for h in refused.headers if h[0] not in (b"content-type", b"content-length")]
            await respond(self._send, refused.status, refused.body, headers=about)

    async def _finish(self) -> None:
        raise NotImplementedError

    def _about(self) -> RawHeaders:
        """The calls' own headers, as many as clients can read."""
        return [h for answer in self._answers[:MAX_LISTED] for h in answer.headers if h[0].startswith(b"x-hone-")]

    def _renumber(self, at: int, body: Body) -> Body:
        for choice in body["choices"]:
            choice["index"] += at * self._choices
        return body


class _PlainAnswers(_CombinedAnswers):
    """Answers without streaming."""

    async def _finish(self) -> None:
        if not all(answer.body for answer in self._answers):
            return  # the client disconnected, which ended its calls
        parts = [self._renumber(at, orjson.loads(answer.body)) for at, answer in enumerate(self._answers)]
        choices = [choice for part in parts for choice in part["choices"]]
        whole = {**parts[0], "choices": choices, "usage": _summed([part.get("usage") or {} for part in parts])}
        await respond(self._send, 200, orjson.dumps(whole), headers=self._about())


class _StreamedAnswers(_CombinedAnswers):
    """Streamed answers. The stream begins when all have begun, so that the refusal of any is an answer of its own."""

    def __init__(self, calls: int, send: Send, choices: int) -> None:
        super().__init__(calls, send, choices)
        self._parsers = [sse.Parser() for _ in range(calls)]
        self._all_began = asyncio.Event()
        self._streaming = False
        self._usages: list[tuple[int, Body]] = []  # the last event of each call, where the client wants usage

    async def _on_start(self) -> None:
        if all(answer.status for answer in self._answers) and not self._all_began.is_set():
            self._streaming = all(answer.status == 200 for answer in self._answers)
            if self._streaming:
                await begin_stream(self._send, self._about())
            self._all_began.set()
        await self._all_began.wait()

    async def _on_body(self, at: int, body: bytes) -> None:
        if not self._streaming:
            return
        events = b"".join([self._passed(at, data) for data in self._parsers[at].feed(body)])
        if not events and body.startswith(b":"):
            events = sse.KEEP_ALIVE
        if events:
            await self._send({"type": "http.response.body", "body": events, "more_body": True})

    def _passed(self, at: int, data: bytes) -> bytes:
        if data == sse.DONE:
            return b""
        chunk = orjson.loads(data)
        if "choices" not in chunk:  # an error
            return sse.encode_event(data)
        if not chunk["choices"]:
            self._usages.append((at, chunk))
            return b""
        return sse.encode_event(orjson.dumps(self._renumber(at, chunk)))

    async def _finish(self) -> None:
        last = sse.encode_event(sse.DONE)
        if self._usages:
            ordered = [chunk for _, chunk in sorted(self._usages, key=lambda pair: pair[0])]
            usage = _summed([chunk.get("usage") or {} for chunk in ordered])
            last = sse.encode_event(orjson.dumps({**ordered[-1], "usage": usage})) + last
        await self._send({"type": "http.response.body", "body": last})


def _summed(usages: list[Mapping[str, Any]]) -> Body:
    return {**usages[-1], **{name: sum(usage.get(name) or 0 for usage in usages) for name in _COUNTS}}
