"""An engine to the letter of what the controller asks of one, with faults on request, on a real socket.

It keeps vLLM's rules: a known name is 400 whatever its path, a missing path 404, unloading an unknown name 404, names
are forgotten at a restart. It answers named tokens' logprobs from the probe.json of the folder that a name was loaded
from, as the new version would, or as the parent would when it is told to be stale.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import web

from tests.proxy.sleep_stand_in import SleepStandIn

PROMPT = [1, 2, 3]  # the ids of every conversation
WORD = 7  # the id of every token that is said


@dataclass(frozen=True)
class Speech:
    """How a version answers: so many tokens, each this likely to itself, and to those it is compared with."""

    tokens: int = 40
    logprob: float | None = -0.5
    to_others: float | None = None  # None: as to itself
    calls: str | None = None  # arguments of the tool call that it makes
    content: str = "It arrives on Monday."
    status: int = 200

    def message(self) -> dict[str, Any]:
        if self.calls is None:
            return {"role": "assistant", "content": self.content}
        function = {"name": "find", "arguments": self.calls}
        return {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c", "type": "function", "function": function}],
        }


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ScriptedEngine:
    """`await start()`, then change its public attributes to make it misbehave."""

    def __init__(self, bases: tuple[str, ...] = ("base",), key: str | None = None) -> None:
        self.bases = bases
        self.key = key
        self.adapters: dict[str, str] = {}
        self.calls: list[tuple[str, str]] = []  # (what, adapter), in order
        self.refuse_load: tuple[int, str] | None = None  # status and message
        self.stale = False
        self.probe_status = 200
        self.die_on_load = False
        self.load_gate = asyncio.Event()  # cleared: a load waits for it
        self.load_gate.set()
        self.runtime_lora = True
        self.lora = True  # started with --enable-lora
        self.max_lora_rank = 32
        self.routed = False  # behind a router that knows /v1 alone
        self.base_root = "/base"
        self.max_model_len = 64
        self.version = "0.32.0"
        self.disk: Path | None = None  # its host's folder of adapters, seen under every path; None: this machine's
        self.speech: dict[str, Speech] = {}  # engine name → how it answers, where not as all do
        self.chats = 0  # requests for one or more answers
        self.chats_to_break = 0  # so many next ones are cut off
        self.asked_at_once = 0  # requests for prompts' logprobs, at most
        self._asked_now = 0
        self.sleep: SleepStandIn | None = None  # its routes for sleeping
        self.more: dict[str, Handler] = {}  # path → what answers a POST there
        self.port = 0
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Listen, with nothing loaded; on the same port as before."""
        self.adapters = {}
        app = web.Application(middlewares=[self._guard])
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/version", self._version)
        app.router.add_get("/health", self._health)
        app.router.add_post("/v1/completions", self._completions)
        if "/v1/chat/completions" not in self.more:
            app.router.add_post("/v1/chat/completions", self._chat)
        for path, handler in self.more.items():
            app.router.add_post(path, handler)
        if self.sleep is not None:
            self.sleep.start(app)
        if self.runtime_lora:
            app.router.add_post("/v1/load_lora_adapter", self._load)
            app.router.add_post("/v1/unload_lora_adapter", self._unload)
        self._runner = web.AppRunner(app, shutdown_timeout=0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Die: connections are refused from now on."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def loads(self) -> list[str]:
        """The names it was asked to load, in order."""
        return [name for what, name in self.calls if what == "load"]

    def unloads(self) -> list[str]:
        """The names it was asked to unload, in order."""
        return [name for what, name in self.calls if what == "unload"]

    @web.middleware
    async def _guard(self, request: web.Request, handler: Any) -> web.StreamResponse:
        if self.key and request.path.startswith("/v1") and request.headers.get("authorization") != f"Bearer {self.key}":
            return web.json_response({"error": "Unauthorized"}, status=401)
        answer: web.StreamResponse = await handler(request)
        return answer

    async def _models(self, _request: web.Request) -> web.Response:
        cards = [
            {"id": name, "root": self.base_root, "parent": None, "max_model_len": self.max_model_len}
            for name in self.bases
        ]
        cards += [{"id": name, "root": path, "parent": self.bases[0]} for name, path in self.adapters.items()]
        return web.json_response({"object": "list", "data": cards})

    async def _version(self, _request: web.Request) -> web.Response:
        return web.json_response({"version": self.version}) if not self.routed else web.Response(status=404, text="no")

    async def _health(self, _request: web.Request) -> web.Response:
        return web.Response()

    async def _load(self, request: web.Request) -> web.Response:
        body = await request.json()
        name, path = body["lora_name"], body["lora_path"]
        self.calls.append(("load", name))
        await self.load_gate.wait()
        if self.die_on_load:
            assert request.transport is not None
            request.transport.abort()
        if self.refuse_load:
            return _error(*self.refuse_load)
        if name in self.adapters:
            return _error(400, f"The lora adapter '{name}' has already been loaded.")
        if not self.lora:
            return _error(500, "LoRA is not enabled. Use --enable-lora to enable LoRA.")
        if not self._seen(path).is_dir():
            return _error(404, f"Loading lora {name} failed: No adapter found for {path}")
        if (rank := _rank(self._seen(path))) > self.max_lora_rank:
            return _error(500, f"LoRA rank {rank} is greater than max_lora_rank {self.max_lora_rank}.")
        self.adapters[name] = path
        return web.Response(text=f"Success: LoRA adapter '{name}' added successfully.")

    def _seen(self, path: str) -> Path:
        return Path(path) if self.disk is None else self.disk / Path(path).name

    async def _unload(self, request: web.Request) -> web.Response:
        name = (await request.json())["lora_name"]
        self.calls.append(("unload", name))
        if name not in self.adapters:
            return _error(404, f"The lora adapter '{name}' cannot be found.")
        del self.adapters[name]
        return web.Response(text="Success")

    async def _completions(self, request: web.Request) -> web.Response:
        body = await request.json()
        if "prompt_logprobs" in body:
            return await self._prompt_logprobs(body)
        if body["model"] in self.bases:  # asked whether it still answers
            top = {f"token_id:{token}": -1.0 for token in body["logprob_token_ids"]}
            return web.json_response({"choices": [{"logprobs": {"top_logprobs": [top]}}]})
        self.calls.append(("probe", body["model"]))
        if self.probe_status != 200:
            return _error(self.probe_status, "no")
        if body["model"] not in self.adapters:
            return _error(404, f"The model `{body['model']}` does not exist.")
        probe = json.loads((self._seen(self.adapters[body["model"]]) / "probe.json").read_text())
        context = next(c for c in probe["contexts"] if c["prompt_token_ids"] == body["prompt"])
        values = context["parent" if self.stale else "new"]
        named = dict(zip(context["token_ids"], values, strict=True))
        assert body["max_tokens"] == 1
        assert body["return_tokens_as_token_ids"] is True
        top = {f"token_id:{token}": named[token] for token in body["logprob_token_ids"]}
        return web.json_response({"choices": [{"logprobs": {"top_logprobs": [top | {"token_id:999": -0.5}]}}]})

    async def _chat(self, request: web.Request) -> web.Response:
        body = await request.json()
        number = body.get("n", 1)
        self.calls += [("chat", body["model"])] * number  # one for each answer
        self.chats += 1
        if self.chats_to_break:
            self.chats_to_break -= 1
            assert request.transport is not None
            request.transport.abort()
        speech = self._speech(body["model"])
        if speech.status != 200:
            return _error(speech.status, "no")
        said = {"content": [{"token": "x", "logprob": speech.logprob}] * speech.tokens}
        choice = {"message": speech.message(), "token_ids": [WORD] * speech.tokens, "logprobs": said}
        return web.json_response(
            {
                "prompt_token_ids": PROMPT,
                "choices": [choice | {"index": at, "finish_reason": "stop"} for at in range(number)],
            }
        )

    async def _prompt_logprobs(self, body: dict[str, Any]) -> web.Response:
        """How likely the newest adapter's words are to the model that is asked."""
        self.calls.append(("far", body["model"]))
        self._asked_now += 1
        self.asked_at_once = max(self.asked_at_once, self._asked_now)
        await asyncio.sleep(0)  # let another in, if there is one
        self._asked_now -= 1
        speech = self._speech(next(reversed(self.adapters), body["model"]))
        value = speech.logprob if speech.to_others is None else speech.to_others
        rows = [None, *({str(token): {"logprob": value}} for token in body["prompt"][1:])]
        return web.json_response({"choices": [{"text": "x", "prompt_logprobs": rows}]})

    def _speech(self, model: str) -> Speech:
        return self.speech.get(model.rpartition("-")[0] or model, Speech())


def _rank(folder: Path) -> int:
    try:
        return int(json.loads((folder / "adapter_config.json").read_text())["r"])
    except (OSError, KeyError):  # some tests' folders hold a probe alone
        return 0


def _error(status: int, message: str) -> web.Response:
    return web.json_response({"error": {"message": message, "code": status}}, status=status)
