"""Checks of an engine (key, base model, adapters), and of the base model that the stored versions were trained on.

Refuses: starting an engine, loading a usable adapter into one, and changing the base model of an alias
(`recorder.registry.aliases`).

The adapter check loads an adapter that every engine refuses: its config claims a rank above every limit. vLLM reads the
config first, then checks the rank, then reads weights. Its refusal therefore distinguishes four cases: no such route
(the variable is missing), LoRA not enabled (the flag is missing), not found (it cannot read the folder), or the rank
limit, which means that adapters can be loaded.
"""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import shutil
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Final

from proxy.engine.base import base_folder
from proxy.engine.command import served_fingerprint
from proxy.engine.replica import NO_FOLDER, Replica, ServedModels, differing_bases, same_weights
from proxy.errors import EngineError, EngineUnreachable
from proxy.settings.hone import HoneSettings
from proxy.settings.sections import base_name
from recorder.adapters.storage import storage_at
from recorder.base.findings import Finding, FindingLevel
from recorder.errors import AdaptersUnavailable, NotFound, StoreError
from recorder.processes import file_modes
from recorder.registry.aliases import get_aliases, other_base
from recorder.store.bootstrap import open_store
from recorder.store.data_folder import ADAPTERS, share_adapters
from recorder.store.database import Project, Store

_MEDIA: Final = ("vision", "audio", "video")  # of a base's configuration: vision_config …
_IMPOSSIBLE_RANK: Final = 1_000_000  # above the limit of every engine
_LIMIT: Final = re.compile(r"max_lora_rank\s+(\d+)")
_BY_URL = "engine-"  # the prefix of fingerprints made without reading weights


async def check_engine(url: str, key: str | None, settings: HoneSettings) -> AsyncIterator[Finding]:
    """All checks of one engine."""
    replica = Replica(url, key)
    try:
        served = await replica.served()
    except EngineUnreachable as e:
        yield Finding("engine", FindingLevel.WRONG, f"{e}.", "Start it, or correct engine.urls (--engine).")
    except EngineError as e:
        yield Finding("engine", FindingLevel.WRONG, str(e))
    else:
        yield Finding("engine", FindingLevel.FINE, f"{url} answers and accepts the key.")
        for finding in _bases(url, served, settings):
            yield finding
        yield await _adapters(replica, settings)
        for finding in _media(settings):
            yield finding
        if settings.engine.urls and settings.engine.device == "cpu":
            yield _base_on_cpu(url)
    finally:
        await replica.close()


def _base_on_cpu(url: str) -> Finding:
    """A defect of vLLM on CPUs that no answer shows; `proxy.engine.cpu_server` works around it."""
    return Finding(
        "base on a cpu",
        FindingLevel.NOTE,
        f"{url} runs on a CPU (engine.device). There, vLLM answers for the base model with an adapter once all LoRA "
        "slots are in use.",
        "Start it with `hone engine`, which avoids this, or set --max-loras above the number of loaded versions "
        "(docs/your-vllm.md).",
    )


def _bases(url: str, served: ServedModels, settings: HoneSettings) -> Iterator[Finding]:
    """Whether the engine serves the base models of all aliases, from the weights that Hone trains."""
    default = base_name(settings.engine)
    for alias, one in settings.declared_aliases().items():
        base = one.base_model or default or alias
        if base in served.bases:
            yield _weights(url, base, served.bases[base], settings)
            continue
        there = ", ".join(sorted(served.bases)) or "nothing"
        kind = "is an adapter of" if base in served.adapters else "is not served by"
        yield Finding(
            "engine base",
            FindingLevel.WRONG,
            f"{base!r}, the base model of the alias {alias!r}, {kind} {url}, which serves {there}.",
            f"Set base_model in [aliases.{alias}] to one of these, or start the engine with --served-model-name.",
        )


def _media(settings: HoneSettings) -> Iterator[Finding]:
    """A note if the base model reads more than text, by its configuration: such calls are not trained on."""
    folder = base_folder(settings.engine)
    if folder is None:
        return
    try:
        config = json.loads((folder / "config.json").read_text("utf-8"))
    except (OSError, ValueError):
        return
    kinds = [name for name in _MEDIA if isinstance(config, dict) and config.get(f"{name}_config")]
    if kinds:
        yield Finding(
            "media",
            FindingLevel.NOTE,
            f"{settings.engine.base} reads {' and '.join(kinds)} input. Calls whose prompt holds a picture, audio or "
            "video are recorded and judged, and not trained on (reason `media`).",
            "Calls with text alone are trained on. See docs/your-agent.md.",
        )


def _weights(url: str, name: str, root: str, settings: HoneSettings) -> Finding:
    base = settings.engine.base
    if base is None or not settings.engine.urls or same_weights(base, root):
        return Finding("engine base", FindingLevel.FINE, f"{url} serves {name}.")
    return Finding(
        "engine base",
        FindingLevel.NOTE,
        f"{url} serves {name} from {root}, and engine.base is {base}.",
        "If these weights differ, every trained version is wrong: let both name the same model.",
    )


async def _adapters(replica: Replica, settings: HoneSettings) -> Finding:
    """Whether the engine can load adapters: it has to refuse the impossible one."""
    folder = (settings.data / ADAPTERS / f"doctor-{secrets.token_hex(6)}").absolute()
    try:
        _write_impossible(folder, settings)
        status, reply = await replica.answer_to_load(folder.name, str(folder))
        if status < 300:  # not vLLM
            await replica.unload(folder.name)
    except (OSError, StoreError, EngineError) as e:
        return Finding("adapters", FindingLevel.WRONG, f"{e}.")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return read_refusal(
        replica.url, status, reply, folder.parent, settings.trainer.rank, is_shared=settings.adapters.url is not None
    )


def _write_impossible(folder: Path, settings: HoneSettings) -> None:
    file_modes.make_folder(folder)
    config = {"peft_type": "LORA", "r": _IMPOSSIBLE_RANK, "lora_alpha": 1, "target_modules": ["q_proj"], "bias": "none"}
    file_modes.write_private(folder / "adapter_config.json", json.dumps(config))
    if settings.engine.adapter_group is not None:
        share_adapters(settings.data, settings.engine.adapter_group)


def read_refusal(url: str, status: int, reply: str, adapters: Path, rank: int, *, is_shared: bool = False) -> Finding:
    """The finding for an engine's answer to the impossible adapter. `rank`: of the trainer. `is_shared`: its host
    fetches adapters from `adapters.url`.
    """
    if status == 405 or (status == 404 and NO_FOLDER not in reply):
        return _cannot(
            f"{url} loads no adapters while it runs.",
            "Start it with VLLM_ALLOW_RUNTIME_LORA_UPDATING=True in its environment (docs/your-vllm.md).",
        )
    if "not enabled" in reply or "--enable-lora" in reply:
        flags = f"--enable-lora --max-loras 4 --max-cpu-loras 8 --max-lora-rank {max(rank, 32)}"
        return _cannot(f"{url} was started without LoRA.", f"Start it with {flags} (docs/your-vllm.md).")
    if status == 404 and is_shared:
        return Finding(
            "adapters",
            FindingLevel.NOTE,
            f"{url} loads adapters while it runs, and does not see this machine's: its highest rank is not known.",
            "Run `hone adapters sync` on its host. The learner lets it try an adapter when it starts.",
        )
    if status == 404:
        return _cannot(
            f"{url} cannot see {adapters}.",
            "Mount the data folder for the engine under the same path (a shared disk or volume), and let its user read "
            "the adapters (engine.adapter_group).",
        )
    if (limit := _LIMIT.search(reply)) is None:
        return Finding(
            "adapters", FindingLevel.NOTE, f"{url} gave an unknown answer to the adapter check ({status}): {reply}"
        )
    if int(limit[1]) < rank:
        return _cannot(
            f"{url} takes adapters up to rank {limit[1]}, and trainer.rank is {rank}.",
            f"Start it with --max-lora-rank {rank} or more, or lower trainer.rank.",
        )
    return Finding("adapters", FindingLevel.FINE, f"{url} loads adapters from {adapters}, up to rank {limit[1]}.")


def _cannot(fault: str, todo: str) -> Finding:
    return Finding("adapters", FindingLevel.WRONG, fault, f"Until then, trained versions cannot be served. {todo}")


async def check_engines(urls: Sequence[str], key: str | None, settings: HoneSettings) -> list[Finding]:
    """The checks of all engines; skipped if no alias needs an engine."""
    if not settings.declared_aliases():
        return [Finding("engine", FindingLevel.SKIPPED, "without an alias, no engine is needed.")]
    findings = [finding for url in urls async for finding in check_engine(url, key, settings)]
    return [*findings, *await _one_base(urls, key), *await _shared(settings)]


async def _shared(settings: HoneSettings) -> list[Finding]:
    """Whether the place of `adapters.url` answers, if it is set."""
    storage = storage_at(settings.adapters.url)
    if storage is None:
        return []
    try:
        names = await asyncio.to_thread(storage.names)
    except AdaptersUnavailable as e:
        return [Finding("adapters.url", FindingLevel.WRONG, str(e), "Until then, no version can be shared.")]
    return [Finding("adapters.url", FindingLevel.FINE, f"{storage.url} answers, and holds {len(names)} adapters.")]


async def _one_base(urls: Sequence[str], key: str | None) -> list[Finding]:
    """Findings for engines that serve other weights than the first one: all have to serve the same base model."""
    if len(urls) < 2:
        return []
    replies = [(url, await _served(url, key)) for url in urls]
    answered = [(url, served) for url, served in replies if served is not None]
    findings = []
    for url, served in answered[1:]:
        first, served_first = answered[0]
        if differ := differing_bases(served_first, served):
            name, there, here = differ
            what = f"{first} serves {name} from {there}, and {url} from {here}."
            todo = "All engines must serve the same base model: correct engine.urls, or start them with the same model."
            findings.append(Finding("engine base", FindingLevel.WRONG, what, todo))
    return findings


async def _served(url: str, key: str | None) -> ServedModels | None:
    replica = Replica(url, key)
    try:
        return await replica.served()
    except EngineError:  # `check_engine` reports it
        return None
    finally:
        await replica.close()


async def check_stored_bases(store: Store, settings: HoneSettings) -> list[Finding]:
    """Findings for declared aliases with versions of another base; none if the base is not on this disk."""
    folder = base_folder(settings.engine)
    if folder is None:
        return []
    try:
        served = await asyncio.to_thread(served_fingerprint, settings.engine, folder)
    except NotFound as e:
        return [Finding("base", FindingLevel.WRONG, f"{e}.", "Correct engine.base.")]
    findings = []
    declared, default = settings.declared_aliases(), base_name(settings.engine)
    for alias in await get_aliases(Project(store, settings.project)):
        if alias.name not in declared or (alias.base_fingerprint or _BY_URL).startswith(_BY_URL):
            continue
        base_model = declared[alias.name].base_model or default or alias.name
        if other := await other_base(store, alias, base_model, served):
            findings.append(Finding("base", FindingLevel.WRONG, other.found, other.todo))
    return findings


async def bases_on_disk(settings: HoneSettings) -> list[Finding]:
    """`check_stored_bases` with a store that it opens itself; none if there is no store yet."""
    if settings.recorder.url is None and not (settings.data / "hone.db").exists():
        return []
    try:
        store = await open_store(settings.data, settings.recorder, migrate=False, project=settings.project)
    except StoreError as e:
        return [Finding("store", FindingLevel.WRONG, str(e))]
    try:
        return await check_stored_bases(store, settings)
    finally:
        await store.close()
