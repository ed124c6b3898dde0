"""What there is to start with, for `hone init`: an engine that runs, models on the disk, GPUs, a key for a judge.

Owns: looking, on this machine alone. Refuses: values of keys (a name is all that is kept), and writing.

What a first hone.toml says, out of what was found.

Owns: that choice, as lines; pure. Refuses: looking (`proxy.doctor.discovery`), and TOML
(`proxy.settings.toml_writer`).
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx

from proxy.doctor.machine import list_gpus, share_beside_a_trainer
from proxy.engine.command import Device, detect_device, hub_cache
from proxy.settings.sections import MODEL_NAME, EngineSettings
from proxy.settings.toml_writer import SettingLine

# vLLM's own port and its neighbours; not 8700 and 8701, which are Hone's.
USUAL_PORTS: Final = (8000, 8001, 8002, 8080)
# The variable that LiteLLM reads a key from → a small model behind it.
JUDGES: Final = {
    "OPENAI_API_KEY": "openai/gpt-5-mini",
    "ANTHROPIC_API_KEY": "anthropic/claude-haiku-4-5",
    "GEMINI_API_KEY": "gemini/gemini-2.5-flash",
    "MISTRAL_API_KEY": "mistral/mistral-small-latest",
    "DEEPSEEK_API_KEY": "deepseek/deepseek-chat",
}
_TIMEOUT_S: Final = 2.0  # for all of an answer
_MOST_BYTES: Final = 2**20  # a list of models has a few thousand; whoever listens there may send anything


@dataclass(frozen=True, slots=True)
class RunningEngine:
    """A vLLM that answers. `model`: what it serves, None where it wants a key; `root`: what it was loaded from."""

    url: str
    model: str | None
    root: str | None


@dataclass(frozen=True, slots=True)
class Discovery:
    """All of it. `model`: the newest in Hugging Face's cache; `judge_key`: a variable's name; `list_gpus`: GiB each."""

    engine: RunningEngine | None
    model: str | None
    device: Device
    gpus: tuple[float, ...]
    judge_key: str | None

    def as_json(self) -> dict[str, object]:
        """For a program."""
        engine = {"url": self.engine.url, "model": self.engine.model} if self.engine else None
        gib = [round(one, 1) for one in self.gpus]
        return {"engine": engine, "model": self.model, "device": self.device, "gpus_gib": gib, "judge": self.judge_key}


async def discover(env: Mapping[str, str] = os.environ, ports: tuple[int, ...] = USUAL_PORTS) -> Discovery:
    """Look. Nothing is sent anywhere but to loopback, and no key with it."""
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
        # vLLM alone says this so, and its /health needs no key
        return RunningEngine(url, None, None) if body == {"error": "Unauthorized"} else None
    return read_models(url, body) if answer.is_success else None


async def _whole(answer: httpx.Response) -> bytes:
    """Raises ValueError where there is too much of it."""
    body = b""
    async for chunk in answer.aiter_bytes():
        body += chunk
        if len(body) > _MOST_BYTES:
            raise ValueError("no list of models")
    return body


def read_models(url: str, body: object) -> RunningEngine | None:
    """The engine behind an answer of /v1/models; None if it is no vLLM, or serves no base that Hone could name."""
    cards = body.get("data") if isinstance(body, dict) else None
    for card in cards if isinstance(cards, list) else []:
        if not isinstance(card, dict) or card.get("owned_by") != "vllm" or card.get("parent"):
            continue
        name, root = str(card.get("id")), str(card.get("root") or "")
        if re.fullmatch(MODEL_NAME, name):
            return RunningEngine(url, name, root if _usable(root) else None)
    return None


def _usable(root: str) -> bool:
    """Whether weights of that name are to be had here: a folder of this disk, or a hub id."""
    return _is_hub_id(root) or (root.startswith("/") and root.isprintable() and Path(root).is_dir())


def _is_hub_id(name: str) -> bool:
    return bool(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)?", name))


def newest_model(cache: Path) -> str | None:
    """The language model that came into Hugging Face's cache last."""
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
            continue  # a download that was cut short


# Small, free, and one of the two whose training was measured (docs/gpu.md).
SMALL_MODEL: Final = "Qwen/Qwen3-0.6B"
# On a CPU the default cache, 128 MiB, holds a few hundred tokens of a real model, and vLLM does not start where the
# longest context does not fit. 4,096 tokens take 1.2 GiB in float32 for 36 layers of 8 heads of 128, as an 8B has.
CPU_CACHE_BYTES: Final = 2 * 2**30
CPU_CONTEXT: Final = 4096

HEAD: Final = (
    "Settings of Hone, written by `hone init` from what it found on this machine. Above each one is what it means; a "
    "line behind a # is not in force. `hone config` shows all settings, with those that are not here."
)


def first_settings(found: Discovery, alias: str, base: str | None) -> list[SettingLine]:
    """The lines. `alias`: the model name that agents will ask for. `base`: as given, where nothing is to be chosen."""
    if found.engine is not None and base is None:
        lines = [*_named(alias, found.engine), *_of_engine(found.engine)]
    else:
        lines = [*_named(alias, None), *_own_engine(found, base)]
    return [*lines, *_judge(found)]


def _named(alias: str, engine: RunningEngine | None) -> Iterator[SettingLine]:
    yield SettingLine(("aliases", alias, "promote"), "gate")
    if engine is not None and engine.model is not None:
        yield SettingLine(("aliases", alias, "base_model"), engine.model, f"{engine.url} serves it.")


def _of_engine(engine: RunningEngine) -> Iterator[SettingLine]:
    if engine.model is None:
        key = "a vLLM answers there and wants its key: set HONE_ENGINE__API_KEY, so that it stands in no file."
        yield SettingLine(("engine", "urls"), [engine.url], key)
        yield SettingLine(
            ("engine", "base"), SMALL_MODEL, "name the weights that it serves, or nothing is trained.", off=True
        )
        return
    yield SettingLine(
        ("engine", "urls"), [engine.url], "a vLLM answers there (`hone doctor` asks it all that Hone needs)."
    )
    if engine.root is not None:
        yield SettingLine(
            ("engine", "base"), engine.root, "it says that it serves these weights. The trainer reads them."
        )
    else:
        yield SettingLine(
            ("engine", "base"), SMALL_MODEL, "name the weights that it serves, or nothing is trained.", off=True
        )


def _own_engine(found: Discovery, base: str | None) -> Iterator[SettingLine]:
    why = "the newest in Hugging Face's cache." if found.model else "no model on this disk; this one is small and free."
    yield SettingLine(("engine", "base"), base or found.model or SMALL_MODEL, "" if base else why)
    if found.device == "cpu":
        yield SettingLine(("engine", "device"), "cpu", "no GPU that the installed vLLM could use.")
        yield SettingLine(("engine", "max_model_len"), CPU_CONTEXT)
        yield SettingLine(
            ("engine", "kv_cache_bytes"), CPU_CACHE_BYTES, "a CPU; 128 MiB hold too little of a real model."
        )
    yield SettingLine(("engine", "tool_call_parser"), "hermes", "it fits Qwen's models.")
    if found.device == "cuda":
        yield from _on_gpus(found.gpus)  # last: a table of variables may end it


def _on_gpus(gpus: tuple[float, ...]) -> Iterator[SettingLine]:
    yield SettingLine(("engine", "device"), "cuda", f"{len(gpus) or 'at least one'} GPU, with a driver.")
    if len(gpus) == 1:
        why = f"one GPU of {gpus[0]:.0f} GiB, and the trainer needs room on it (docs/gpu.md)."
        yield SettingLine(("engine", "gpu_memory_utilization"), share_beside_a_trainer(gpus[0]), why)
    elif gpus:
        yield SettingLine(
            ("engine", "env", "CUDA_VISIBLE_DEVICES"), str(len(gpus) - 1), "the trainer takes the first GPU."
        )


def _judge(found: Discovery) -> Iterator[SettingLine]:
    if found.judge_key is None:
        nobody = "no key of a provider in the environment. Without a judge, runs are recorded and nothing is learned."
        yield SettingLine(("judge", "model"), JUDGES["OPENAI_API_KEY"], nobody, off=True)
    else:
        kept = f"{found.judge_key} is set. Its value is not written here: keep it set."
        yield SettingLine(("judge", "model"), JUDGES[found.judge_key], kept)
