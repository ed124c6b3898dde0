"""What there is to start with, for `hone init`: an engine that runs, models on the disk, GPUs, a key for a judge.

Owns: looking, on this machine alone. Refuses: values of keys (a name is all that is kept), and writing.
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

from proxy.doctor.gpus import gpus
from proxy.engine.command import Device, detect_device, hub_cache
from proxy.settings.sections import MODEL_NAME, EngineSettings

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
class EngineThere:
    """A vLLM that answers. `model`: what it serves, None where it wants a key; `root`: what it was loaded from."""

    url: str
    model: str | None
    root: str | None


@dataclass(frozen=True, slots=True)
class Found:
    """All of it. `model`: the newest in Hugging Face's cache; `judge_key`: a variable's name; `gpus`: GiB each."""

    engine: EngineThere | None
    model: str | None
    device: Device
    gpus: tuple[float, ...]
    judge_key: str | None

    def as_json(self) -> dict[str, object]:
        """For a program."""
        engine = {"url": self.engine.url, "model": self.engine.model} if self.engine else None
        gib = [round(one, 1) for one in self.gpus]
        return {"engine": engine, "model": self.model, "device": self.device, "gpus_gib": gib, "judge": self.judge_key}


async def look_around(env: Mapping[str, str] = os.environ, ports: tuple[int, ...] = USUAL_PORTS) -> Found:
    """Look. Nothing is sent anywhere but to loopback, and no key with it."""
    answers, there = await asyncio.gather(_engines(ports), asyncio.to_thread(gpus))
    return Found(
        engine=next((one for one in answers if one is not None), None),
        model=newest_model(hub_cache()),
        device=detect_device(EngineSettings()),
        gpus=tuple(there),
        judge_key=next((name for name in JUDGES if env.get(name, "").strip()), None),
    )


async def _engines(ports: tuple[int, ...]) -> list[EngineThere | None]:
    async with httpx.AsyncClient(timeout=_TIMEOUT_S, trust_env=False) as client:
        return await asyncio.gather(*(_engine(client, f"http://127.0.0.1:{port}") for port in ports))


async def _engine(client: httpx.AsyncClient, url: str) -> EngineThere | None:
    try:
        async with asyncio.timeout(_TIMEOUT_S), client.stream("GET", f"{url}/v1/models") as answer:
            body = json.loads(await _whole(answer))
    except (httpx.HTTPError, TimeoutError, ValueError, RecursionError):
        return None
    if answer.status_code == httpx.codes.UNAUTHORIZED:
        # vLLM alone says this so, and its /health needs no key
        return EngineThere(url, None, None) if body == {"error": "Unauthorized"} else None
    return read_models(url, body) if answer.is_success else None


async def _whole(answer: httpx.Response) -> bytes:
    """Raises ValueError where there is too much of it."""
    body = b""
    async for chunk in answer.aiter_bytes():
        body += chunk
        if len(body) > _MOST_BYTES:
            raise ValueError("no list of models")
    return body


def read_models(url: str, body: object) -> EngineThere | None:
    """The engine behind an answer of /v1/models; None if it is no vLLM, or serves no base that Hone could name."""
    cards = body.get("data") if isinstance(body, dict) else None
    for card in cards if isinstance(cards, list) else []:
        if not isinstance(card, dict) or card.get("owned_by") != "vllm" or card.get("parent"):
            continue
        name, root = str(card.get("id")), str(card.get("root") or "")
        if re.fullmatch(MODEL_NAME, name):
            return EngineThere(url, name, root if _usable(root) else None)
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
