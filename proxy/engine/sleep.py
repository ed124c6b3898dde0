"""Pausing an engine for a trainer on the same GPU, by vLLM's routes for sleeping, and waking it.

Owns: the requests of each way to share a GPU, in their order. Refuses: when an engine is paused or woken
(`proxy.versions.pauses`).

Every pause keeps the requests: new ones queue, running ones are computed again after it where the cache was given up.
Level 2 is never used: it drops the slots of LoRAs that the engine still lists.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import httpx

from proxy.engine.device import Device
from proxy.engine.replica import Replica, error_message
from proxy.errors import EngineError, SleepUnsupported
from proxy.settings.sections import Share

# Weights are copied to host memory and back, and the first time that memory is pinned: minutes for a large base.
MOVE_TIMEOUT_S: Final = 900.0


@dataclass(frozen=True, slots=True)
class PauseMethod:
    """How an engine gives up memory. `level`: of vLLM's sleep. `frees_cache`: its KV cache is released besides.

    `tags`: what is woken; empty: everything.
    """

    level: int
    frees_cache: bool
    tags: tuple[str, ...]


_METHODS: Final = {
    "cache": PauseMethod(0, True, ("kv_cache",)),
    "sleep": PauseMethod(1, False, ()),
}
_SCHEDULING: Final = PauseMethod(0, False, ("scheduling",))


def pause_method(share: Share, device: Device) -> PauseMethod:
    """Return how an engine pauses. On a CPU it only stops to schedule: vLLM moves no memory there."""
    return _METHODS[share] if device == "cuda" else _SCHEDULING


async def pause_engine(replica: Replica, method: PauseMethod) -> None:
    """Pause an engine; return once its memory is released. An engine that is paused so already stays as it is.

    Raises EngineUnreachable, EngineError, and SleepUnsupported for an engine without these routes.
    """
    await _post(replica, "/sleep", level=str(method.level), mode="keep")
    if method.frees_cache:
        await _release_cache(replica)


async def _release_cache(replica: Replica) -> None:
    """Release the KV cache. Where an earlier controller did so already, vLLM refuses it: the engine is woken once."""
    try:
        await _post(replica, "/release_kv_cache_memory")
    except EngineError:
        await _post(replica, "/wake_up")
        await _post(replica, "/sleep", level="0", mode="keep")
        await _post(replica, "/release_kv_cache_memory")


async def wake_engine(replica: Replica, method: PauseMethod) -> None:
    """Wake an engine; its requests continue. Raises EngineUnreachable, EngineError."""
    await _post(replica, "/wake_up", **({"tags": list(method.tags)} if method.tags else {}))
    if await is_paused(replica):  # another way to pause was set when it fell asleep
        await _post(replica, "/wake_up")
        if await is_paused(replica):
            raise EngineError(f"the engine {replica.url} is still asleep after /wake_up")


async def is_paused(replica: Replica) -> bool:
    """Return whether an engine is paused or asleep at any level. Raises EngineUnreachable, EngineError."""
    answer = await replica.send("GET", "/is_sleeping")
    try:
        return bool(_checked(replica, "/is_sleeping", answer).json()["is_sleeping"])
    except (ValueError, KeyError, TypeError) as e:
        raise EngineError(f"{replica.url}/is_sleeping answered without its state: is it vLLM?") from e


async def _post(replica: Replica, path: str, **params: Any) -> None:
    _checked(replica, path, await replica.send("POST", path, timeout_s=MOVE_TIMEOUT_S, params=params))


def _checked(replica: Replica, path: str, answer: httpx.Response) -> httpx.Response:
    if answer.status_code == httpx.codes.NOT_FOUND:
        raise SleepUnsupported(
            f"the engine {replica.url} has no {path}: restart it with VLLM_SERVER_DEV_MODE=1 and, on a GPU, "
            "--enable-sleep-mode (`hone engine --print` shows the whole command)."
        )
    if answer.is_error:
        raise EngineError(
            f"the engine {replica.url} answered {path} with {answer.status_code}: {error_message(answer)}"
        )
    return answer
