"""A stand-in for vLLM's routes for sleeping on a GPU, which no CPU can play: levels, tags, and the memory they free.

It keeps the rules of vLLM 0.32's engine core: a pause at level 0 stops scheduling alone; the cache is released only
from an engine that is paused and whole; scheduling goes on once everything is awake. The GPU is a number of parts:
weights and cache of the engine, and what a trainer holds. An engine that wakes into memory that is not free dies.
"""

from __future__ import annotations

import asyncio

from aiohttp import web

WEIGHTS, CACHE = "weights", "kv_cache"


class SleepStandIn:
    """The state of an engine on a GPU. `trainer_holds`: whether a trainer's base is on it."""

    def __init__(self, *, on_gpu: bool = True) -> None:
        self.on_gpu = on_gpu
        self.asked: list[str] = []  # paths with their queries, in order
        self.trainer_holds = False
        self.died = False  # it woke into memory that was not free
        self.fail_next: set[str] = set()  # paths that answer 500 once
        self.running = asyncio.Event()  # set: requests are computed
        self.queries = self.hits = 0  # tokens of prompts that were looked up in the prefix cache, and found
        self._asleep: set[str] = set()

    def start(self, app: web.Application) -> None:
        """Begin awake, and answer at these routes."""
        self._asleep = set()
        self.running.set()
        app.router.add_post("/sleep", self._sleep)
        app.router.add_post("/wake_up", self._wake)
        app.router.add_post("/release_kv_cache_memory", self._release)
        app.router.add_get("/is_sleeping", self._is_sleeping)
        app.router.add_get("/metrics", self._metrics)

    @property
    def free_mib(self) -> list[int]:
        """What the driver shows as free on the one GPU."""
        held = {WEIGHTS: 20_000, CACHE: 50_000}
        engine = sum(size for part, size in held.items() if part not in self._asleep)
        return [80_000 - engine - (40_000 if self.trainer_holds else 0)]

    @property
    def is_paused(self) -> bool:
        """Whether it computes nothing."""
        return bool(self._asleep) or not self.running.is_set()

    def _note(self, request: web.Request) -> web.Response | None:
        self.asked.append(request.path_qs)
        if request.path in self.fail_next:
            self.fail_next.remove(request.path)
            return web.json_response({"error": {"message": "on request"}}, status=500)
        return None

    async def _sleep(self, request: web.Request) -> web.Response:
        if (failure := self._note(request)) is not None:
            return failure
        assert request.query["mode"] == "keep"
        assert request.query["level"] in ("0", "1")  # level 2 drops the slots of LoRAs
        self.running.clear()
        if request.query["level"] == "1" and self.on_gpu:
            self._asleep |= {WEIGHTS, CACHE}
        return web.json_response({"status": "sleeping"})

    async def _release(self, request: web.Request) -> web.Response:
        if (failure := self._note(request)) is not None:
            return failure
        if self.running.is_set() or self._asleep or not self.on_gpu:
            return web.json_response({"error": {"message": "requires a completed pause first"}}, status=500)
        self._asleep.add(CACHE)
        return web.json_response({"status": "kv_cache_released"})

    async def _wake(self, request: web.Request) -> web.Response:
        if (failure := self._note(request)) is not None:
            return failure
        tags = [tag for tag in request.query.getall("tags", []) if tag != "scheduling"]
        woken = self._asleep & set(tags) if request.query.getall("tags", []) else set(self._asleep)
        if woken and self.trainer_holds:
            self.died = True
        self._asleep -= woken
        if not self._asleep:
            self.running.set()
        return web.json_response({"status": "awake"})

    async def _metrics(self, _request: web.Request) -> web.Response:
        counted = {"prefix_cache_queries_total": self.queries, "prefix_cache_hits_total": self.hits}
        counted |= {"prompt_tokens_total": self.queries, "request_prefill_time_seconds_sum": 2}
        return web.Response(text="".join(f'vllm:{name}{{engine="0"}} {n}\n' for name, n in counted.items()))

    async def _is_sleeping(self, request: web.Request) -> web.Response:
        return web.json_response({"is_sleeping": self.is_paused})
