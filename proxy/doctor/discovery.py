"""Find what `hone init` can use on this machine, and choose the lines of a first hone.toml.

It finds a running engine, cached models, GPUs and the name of a judge's API key (never its value). The choice of lines
is a pure function. Refuses: writing TOML (`proxy.settings.toml_writer`).
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx

from proxy.doctor.machine import VLLM_SHARE, list_gpus
from proxy.doctor.memory_plan import MemoryPlan
from proxy.doctor.model_settings import USUAL_CONTEXT, context_line, fit_context, parser_lines
from proxy.engine.device import Device, detect_device
from proxy.settings.gpus import split_gpus
from proxy.settings.sections import MODEL_NAME, EngineSettings
from proxy.settings.toml_writer import SettingLine
from recorder.models.base_model import ModelProfile
from recorder.models.on_disk import hub_cache

# vLLM's default port and common others; not 8700 and 8701, which Hone uses.
USUAL_PORTS: Final = (8000, 8001, 8002, 8080)
# The variable from which LiteLLM reads a key → a small model of that provider.
JUDGES: Final = {
    "OPENAI_API_KEY": "openai/gpt-5-mini",
    "ANTHROPIC_API_KEY": "anthropic/claude-haiku-4-5",
    "GEMINI_API_KEY": "gemini/gemini-2.5-flash",
    "MISTRAL_API_KEY": "mistral/mistral-small-latest",
    "DEEPSEEK_API_KEY": "deepseek/deepseek-chat",
}
_TIMEOUT_S: Final = 2.0  # of a whole answer
_MAX_BYTES: Final = 2**20  # a list of models has a few thousand; another program may send anything


@dataclass(frozen=True, slots=True)
class RunningEngine:
    """A running vLLM. `model`: its base model, None if it requires a key; `root`: where its weights are from."""

    url: str
    model: str | None
    root: str | None


@dataclass(frozen=True, slots=True)
class Discovery:
    """What was found. `model`: the newest in the Hugging Face cache; `gpus`: GiB; `judge_key`: a variable's name."""

    engine: RunningEngine | None
    model: str | None
    device: Device
    gpus: tuple[float, ...]
    judge_key: str | None

    def as_json(self) -> dict[str, object]:
        """The finding as JSON, for `hone init --json`."""
        engine = {"url": self.engine.url, "model": self.engine.model} if self.engine else None
        gib = [round(one, 1) for one in self.gpus]
        return {"engine": engine, "model": self.model, "device": self.device, "gpus_gib": gib, "judge": self.judge_key}


async def discover(env: Mapping[str, str] = os.environ, ports: tuple[int, ...] = USUAL_PORTS) -> Discovery:
    """Search this machine. Requests go to loopback only, without keys."""
    answers, there = await asyncio.gather(_engines(ports), asyncio.to_thread(list_gpus))
    return Discovery(
        engine=next((one for one in answers if one is not None), None),
        model=newest_model(hub_cache()),
        device=detect_device(EngineSettings()),
        gpus=tuple(there),
        judge_key=next((name for name in JUDGES if env.get(name, "").strip()), None),
    )


async def _engines(ports: tuple[int, ...]) -> list[RunningEngine | None]:
    async with httpx.AsyncClient(timeout=_TIMEOUT_S, trust_env=False) as client:
        return await asyncio.gather(*(_engine(client, f"http://127.0.0.1:{port}") for port in ports))


async def _engine(client: httpx.AsyncClient, url: str) -> RunningEngine | None:
    try:
        async with asyncio.timeout(_TIMEOUT_S), client.stream("GET", f"{url}/v1/models") as answer:
            body = json.loads(await _whole(answer))
    except (httpx.HTTPError, TimeoutError, ValueError, RecursionError):
        return None
    if answer.status_code == httpx.codes.UNAUTHORIZED:
        # this body is specific to vLLM
        return RunningEngine(url, None, None) if body == {"error": "Unauthorized"} else None
    return read_models(url, body) if answer.is_success else None


async def _whole(answer: httpx.Response) -> bytes:
    """The body of an answer. Raises ValueError above `_MAX_BYTES`."""
    body = b""
    async for chunk in answer.aiter_bytes():
        body += chunk
        if len(body) > _MAX_BYTES:
            raise ValueError("the answer is too long for a list of models")
    return body


def read_models(url: str, body: object) -> RunningEngine | None:
    """The engine of a `/v1/models` answer; None if it is not vLLM or serves no base model with a usable name."""
    cards = body.get("data") if isinstance(body, dict) else None
    for card in cards if isinstance(cards, list) else []:
        if not isinstance(card, dict) or card.get("owned_by") != "vllm" or card.get("parent"):
            continue
        name, root = str(card.get("id")), str(card.get("root") or "")
        if re.fullmatch(MODEL_NAME, name):
            return RunningEngine(url, name, root if _usable(root) else None)
    return None


def _usable(root: str) -> bool:
    """Whether the weights can be loaded here: a local folder, or a Hugging Face id."""
    return _is_hub_id(root) or (root.startswith("/") and root.isprintable() and Path(root).is_dir())


def _is_hub_id(name: str) -> bool:
    return bool(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)?", name))


def newest_model(cache: Path) -> str | None:
    """The language model added last to the Hugging Face cache; None if there is none."""
    return max(_models(cache), default=(0.0, None))[1]


def _models(cache: Path) -> Iterator[tuple[float, str]]:
    for config in cache.glob("models--*/snapshots/*/config.json"):
        folder = config.parents[2]
        name = folder.name.removeprefix("models--").replace("--", "/")
        try:
            architectures = json.loads(config.read_text("utf-8")).get("architectures") or []
            generates = any(str(one).endswith("ForCausalLM") for one in architectures)
            if generates and _is_hub_id(name):
                yield config.stat().st_mtime, name
        except (OSError, ValueError, AttributeError, TypeError):
            continue  # an incomplete download


# Small, free, and one of the two models with training measurements (docs/gpu.md).
SMALL_MODEL: Final = "Qwen/Qwen3-0.6B"
# On a CPU the default cache, 128 MiB, holds a few hundred tokens of a real model, and vLLM does not start where the
# longest context does not fit. 4,096 tokens take 1.2 GiB in float32 for 36 layers of 8 heads of 128, as an 8B has.
CPU_CACHE_BYTES: Final = 2 * 2**30
CPU_CONTEXT: Final = 4096
_FLOAT32_BYTES: Final = 4
_BFLOAT16_BYTES: Final = 2
_ENGINE_ROOM_BYTES: Final = 2 * 2**30  # what vLLM needs beside weights and cache

HEAD: Final = (
    "Settings of Hone, written by `hone init` for this machine. The comment above each setting explains it; a line "
    "that starts with # is not active. `hone config` shows all settings and their defaults."
)


def chosen_base(discovery: Discovery, base: str | None) -> str | None:
    """The base of an engine that Hone starts; None if a running engine is used."""
    if discovery.engine is not None and base is None:
        return None
    return base or discovery.model or SMALL_MODEL


def first_settings(
    discovery: Discovery,
    alias: str,
    base: str | None,
    model: ModelProfile | None = None,
    memory: MemoryPlan | None = None,
) -> list[SettingLine]:
    """The lines of hone.toml. `alias`: the model name that agents request; `base`: a given base model, else None.

    `model`: what is known of `chosen_base`, None if it is not on this machine. `memory`: how it fits on the GPUs, None
    if there are none, or it could not be computed.
    """
    if discovery.engine is not None and base is None:
        lines = [*_named(alias, discovery.engine), *_of_engine(discovery.engine)]
    else:
        lines = [*_named(alias, None), *_own_engine(discovery, base, model, memory)]
    return [*lines, *_judge(discovery)]


def _named(alias: str, engine: RunningEngine | None) -> Iterator[SettingLine]:
    yield SettingLine(("aliases", alias, "promote"), "gate")
    if engine is not None and engine.model is not None:
        yield SettingLine(("aliases", alias, "base_model"), engine.model, f"{engine.url} serves it.")


def _of_engine(engine: RunningEngine) -> Iterator[SettingLine]:
    if engine.model is None:
        key = "a running vLLM that requires a key: set HONE_ENGINE__API_KEY, so that the key is in no file."
        yield SettingLine(("engine", "urls"), [engine.url], key)
        yield SettingLine(
            ("engine", "base"),
            SMALL_MODEL,
            "name the weights that it serves; without them Hone cannot train.",
            off=True,
        )
        return
    yield SettingLine(("engine", "urls"), [engine.url], "a running vLLM (`hone doctor` checks it).")
    if engine.root is not None:
        yield SettingLine(("engine", "base"), engine.root, "the weights that it serves; the trainer loads them.")
    else:
        yield SettingLine(
            ("engine", "base"),
            SMALL_MODEL,
            "name the weights that it serves; without them Hone cannot train.",
            off=True,
        )


def _own_engine(
    discovery: Discovery, base: str | None, model: ModelProfile | None, memory: MemoryPlan | None
) -> Iterator[SettingLine]:
    why = (
        "the newest model in the Hugging Face cache."
        if discovery.model
        else "the Hugging Face cache has no model; this one is small and free."
    )
    chosen = base or discovery.model or SMALL_MODEL
    yield SettingLine(("engine", "base"), chosen, "" if base else why)
    if discovery.device == "cpu":
        yield SettingLine(("engine", "device"), "cpu", "the installed vLLM can use no GPU of this machine.")
        yield from _context_on_cpu(model)
        yield SettingLine(
            ("engine", "kv_cache_bytes"), CPU_CACHE_BYTES, "on a CPU the default of 128 MiB is too small."
        )
    else:
        yield from _context_on_gpu(discovery.gpus, model, memory)
    yield from parser_lines(model, chosen)
    if discovery.device == "cuda":
        yield from _on_gpus(discovery.gpus, memory)  # last, since it may begin another table


def _context_on_cpu(model: ModelProfile | None) -> Iterator[SettingLine]:
    tokens = fit_context(model, CPU_CACHE_BYTES, _FLOAT32_BYTES, CPU_CONTEXT) if model is not None else None
    if model is not None and tokens is not None:
        yield context_line(model, tokens, "the cache on a CPU")
    else:
        why = "the model's own context is not known here: lower this if it is shorter."
        yield SettingLine(("engine", "max_model_len"), CPU_CONTEXT, why)


def _context_on_gpu(
    gpus: tuple[float, ...], model: ModelProfile | None, memory: MemoryPlan | None
) -> Iterator[SettingLine]:
    """The context that fits beside the weights; none where the model's own is not known: vLLM then takes its own."""
    if model is None:
        return
    weights = model.parameter_bytes.total if model.parameter_bytes is not None else 0
    cache = min(gpus, default=math.inf) * 2**30 * VLLM_SHARE - weights - _ENGINE_ROOM_BYTES
    if memory is not None:
        cache = memory.settings.get("engine.kv_cache_bytes", cache)
    tokens = fit_context(model, cache, _BFLOAT16_BYTES, USUAL_CONTEXT)
    if tokens is not None:
        yield context_line(model, tokens, "the engine's part of the GPU")


def _on_gpus(gpus: tuple[float, ...], memory: MemoryPlan | None) -> Iterator[SettingLine]:
    yield SettingLine(("engine", "device"), "cuda", f"{len(gpus) or 'at least one'} GPU with a driver.")
    if len(gpus) == 1:
        yield from _split(gpus[0], memory)
    elif gpus:
        of_engine, of_trainer = split_gpus(len(gpus))
        why = f"{len(gpus)} GPUs, divided between engine and trainer."
        yield SettingLine(("engine", "gpus"), of_engine, why)
        yield SettingLine(("trainer", "gpus"), of_trainer)


def _split(gib: float, memory: MemoryPlan | None) -> Iterator[SettingLine]:
    """How engine and trainer share one GPU, as `hone plan` computes it."""
    share = ("engine", "gpu_memory_utilization")
    if memory is None:
        why = f"engine and trainer share one GPU of {gib:.0f} GiB: `hone plan` computes the engine's part."
        yield SettingLine(share, VLLM_SHARE, why, off=True)
        return
    why = f"one GPU of {gib:.0f} GiB, of which the trainer needs {memory.trainer:.1f} (`hone plan`)."
    yield SettingLine(share, memory.settings[".".join(share)], why)
    yield SettingLine(("engine", "kv_cache_bytes"), memory.settings["engine.kv_cache_bytes"], "what the engine gets.")


def _judge(discovery: Discovery) -> Iterator[SettingLine]:
    if discovery.judge_key is None:
        why = "no provider key in the environment. Without a judge, Hone records but does not train."
        yield SettingLine(("judge", "model"), JUDGES["OPENAI_API_KEY"], why, off=True)
    else:
        why = f"{discovery.judge_key} is set. Keep it set: its value is not written here."
        yield SettingLine(("judge", "model"), JUDGES[discovery.judge_key], why)
