"""What a real vLLM does with one family: serves the base with the adapter of one step, or says why not.

Owns: starting an engine with the flags of `hone engine`, the comparison with the probe that the trainer published, and
the reason when it does not start. Refuses: making models and adapters (`benchmarks.families.trainer_half`), and two
engines at once.

A probe holds the trainer's logprobs of named tokens after contexts, for the new version and for its parent.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from benchmarks.families.catalog import CONTEXT
from examples.running.programs import free_ports
from proxy.engine.base import WITHOUT_LORA
from proxy.engine.command import EngineCommand, engine_command
from proxy.engine.device import Device
from proxy.engine.replica import Replica
from proxy.errors import AdapterError, ConfigError, EngineError, EngineUnreachable
from proxy.settings.sections import EngineSettings

T = TypeVar("T")

START_S: Final = 600.0  # a start takes 15 s on two idle cores, and minutes where others use them
_STOP_S: Final = 30.0
_GPU_CACHE_BYTES: Final = 1 << 30
_ASKED: Final = 4  # times, each up to a minute
_NAME: Final = "base"
_KEY: Final = "families"
# The last lines of vLLM's log say only that the engine died: the reason is the first error that is none of these.
_ERROR: Final = re.compile(
    r"^(?:\(.*?\) )?(?:ERROR .*?\] )?"
    r"(?P<text>(?!subprocess|pydantic)[\w.]*(?:Error|Exception): (?!Error raised in sub).+)$"
    r"|^  Value error, (?P<setting>.+?) \[type=",
    re.MULTILINE,
)
_URL: Final = re.compile(r"http://\S+")
_PREFIX: Final = re.compile(r"^[\w.]*\.(?=\w+: )")


@dataclass(frozen=True, slots=True)
class EngineFigures:
    """The engine's half. `refusal`: why the adapter is not served. Gaps are the largest |Δ| of a logprob (nats).

    `gap`: of the version with its adapter; `base_gap`: of the base. `effect`: how far the step moved the probed
    logprobs; a gap far below it shows that the adapter is used. `merged_gap`: of the version merged into the base and
    served without LoRA, where the adapter itself is not served; `merged_refusal`: why that is not served either.
    """

    refusal: str | None = None
    gap: float | None = None
    base_gap: float | None = None
    effect: float | None = None
    merged_gap: float | None = None
    merged_refusal: str | None = None


@dataclass(frozen=True, slots=True)
class EngineWay:
    """How an engine is started: the precision, further arguments of vLLM, environment variables, device, and the
    Python that has vLLM [this one].
    """

    dtype: str = "float32"
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    device: Device = "cpu"
    python: Path | None = None


_PLAIN: Final = EngineWay()


class EngineDied(Exception):
    """The engine ended before it served; the text is the reason in its log."""


def serve_adapter(
    base: Path, adapter: Path, probe: Mapping[str, Any], log: Path, way: EngineWay = _PLAIN
) -> EngineFigures:
    """Start an engine for a base, load the adapter, and compare. `log`: where the engine writes."""
    try:
        return asyncio.run(_served(base, adapter, probe, log, way))
    except (ConfigError, EngineDied, EngineError, EngineUnreachable, AdapterError, TimeoutError) as e:
        return EngineFigures(refusal=_one_line(str(e)).replace(str(base), "BASE"))


def serve_merged(model: Path, probe: Mapping[str, Any], log: Path, way: EngineWay = _PLAIN) -> float | str:
    """Start an engine without LoRA for a base with its adapter merged; the largest gap to the new version, or why
    there is none.
    """

    async def compare() -> float:
        async with engine(model, log, replace(way, arguments=(*way.arguments, WITHOUT_LORA))) as replica:
            return await _gap(replica, _NAME, probe, "new")

    try:
        return asyncio.run(compare())
    except (EngineDied, EngineError, EngineUnreachable, TimeoutError) as e:
        return _one_line(str(e))


async def _served(base: Path, adapter: Path, probe: Mapping[str, Any], log: Path, way: EngineWay) -> EngineFigures:
    async with engine(base, log, way) as replica:
        await _patiently(partial(replica.load, adapter.name, str(adapter)))
        gap = await _gap(replica, adapter.name, probe, "new")
        return EngineFigures(None, gap, await _gap(replica, _NAME, probe, "parent"), float(probe["separation"]))


async def _gap(replica: Replica, model: str, probe: Mapping[str, Any], version: str) -> float:
    largest = 0.0
    for one in probe["contexts"]:
        found = await _patiently(partial(replica.logprobs, model, one["prompt_token_ids"], one["token_ids"]))
        largest = max(largest, *(abs(a - b) for a, b in zip(found, one[version], strict=True)))
    return largest


async def _patiently(ask: Callable[[], Awaitable[T]]) -> T:
    """Ask again where the engine did not answer in time: its first answers are slow on a busy machine."""
    for _ in range(_ASKED):
        with contextlib.suppress(EngineUnreachable):
            return await ask()
    return await ask()


@asynccontextmanager
async def engine(base: Path, log: Path, way: EngineWay = _PLAIN) -> AsyncIterator[Replica]:
    """Within: an engine serves the base as `base`. Raises `EngineDied` with the reason in its log, or TimeoutError."""
    settings = EngineSettings(
        base=str(base), name=_NAME, port=free_ports(1)[0], device=way.device, dtype=way.dtype, max_model_len=CONTEXT,
        max_lora_rank=8, max_loras=2, tool_call_parser=None, args=list(way.arguments), env=dict(way.environment),
        python=way.python, kv_cache_bytes=None if way.device == "cpu" else _GPU_CACHE_BYTES,
    )  # fmt: skip
    command = engine_command(settings, key=_KEY, device=way.device)
    process = _start(command, log)
    replica = Replica(command.url, _KEY)
    try:
        await _until_served(process, replica, log)
        yield replica
    except EngineError as e:
        reason = first_error(log)  # its answer says only that it died
        raise EngineDied(reason) if reason else e from e
    finally:
        await replica.close()
        _stop(process)


def _start(command: EngineCommand, log: Path) -> subprocess.Popen[bytes]:
    environment = {name: value for name, value in os.environ.items() if name not in command.unset}
    with log.open("wb") as out:
        return subprocess.Popen(
            command.argv, stdout=out, stderr=out, env=environment | command.env, start_new_session=True
        )


async def _until_served(process: subprocess.Popen[bytes], replica: Replica, log: Path) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise EngineDied(first_error(log) or "the engine ended without a word")
        try:
            await replica.served()
        except (EngineError, EngineUnreachable):
            await asyncio.sleep(0.5)
        else:
            return
    raise TimeoutError(f"the engine did not start within {START_S:.0f} s")


def first_error(log: Path) -> str | None:
    """The first error in an engine's log that says something, without its timestamps."""
    found = _ERROR.search(log.read_text("utf-8", "replace"))
    return _PREFIX.sub("", found["text"] or found["setting"]).removesuffix(" Reasons:") if found else None


def _one_line(text: str) -> str:
    return " ".join(_URL.sub("URL", text).split())[:300]


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End the engine and the processes that it started: they are a session of their own."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
