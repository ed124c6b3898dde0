"""What a first hone.toml says, out of what was found.

Owns: that choice, as lines; pure. Refuses: looking (`proxy.doctor.found`), and TOML (`proxy.settings.writing`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from proxy.doctor.found import JUDGES, EngineThere, Found
from proxy.doctor.gpus import share_beside_a_trainer
from proxy.settings.writing import Line

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


def first_settings(found: Found, alias: str, base: str | None) -> list[Line]:
    """The lines. `alias`: the model name that agents will ask for. `base`: as given, where nothing is to be chosen."""
    if found.engine is not None and base is None:
        lines = [*_named(alias, found.engine), *_of_engine(found.engine)]
    else:
        lines = [*_named(alias, None), *_own_engine(found, base)]
    return [*lines, *_judge(found)]


def _named(alias: str, engine: EngineThere | None) -> Iterator[Line]:
    yield Line(("aliases", alias, "promote"), "gate")
    if engine is not None and engine.model is not None:
        yield Line(("aliases", alias, "base_model"), engine.model, f"{engine.url} serves it.")


def _of_engine(engine: EngineThere) -> Iterator[Line]:
    if engine.model is None:
        key = "a vLLM answers there and wants its key: set HONE_ENGINE__API_KEY, so that it stands in no file."
        yield Line(("engine", "urls"), [engine.url], key)
        yield Line(("engine", "base"), SMALL_MODEL, "name the weights that it serves, or nothing is trained.", off=True)
        return
    yield Line(("engine", "urls"), [engine.url], "a vLLM answers there (`hone doctor` asks it all that Hone needs).")
    if engine.root is not None:
        yield Line(("engine", "base"), engine.root, "it says that it serves these weights. The trainer reads them.")
    else:
        yield Line(("engine", "base"), SMALL_MODEL, "name the weights that it serves, or nothing is trained.", off=True)


def _own_engine(found: Found, base: str | None) -> Iterator[Line]:
    why = "the newest in Hugging Face's cache." if found.model else "no model on this disk; this one is small and free."
    yield Line(("engine", "base"), base or found.model or SMALL_MODEL, "" if base else why)
    if found.device == "cpu":
        yield Line(("engine", "device"), "cpu", "no GPU that the installed vLLM could use.")
        yield Line(("engine", "max_model_len"), CPU_CONTEXT)
        yield Line(("engine", "kv_cache_bytes"), CPU_CACHE_BYTES, "a CPU; 128 MiB hold too little of a real model.")
    yield Line(("engine", "tool_call_parser"), "hermes", "it fits Qwen's models.")
    if found.device == "cuda":
        yield from _on_gpus(found.gpus)  # last: a table of variables may end it


def _on_gpus(gpus: tuple[float, ...]) -> Iterator[Line]:
    yield Line(("engine", "device"), "cuda", f"{len(gpus) or 'at least one'} GPU, with a driver.")
    if len(gpus) == 1:
        why = f"one GPU of {gpus[0]:.0f} GiB, and the trainer needs room on it (docs/gpu.md)."
        yield Line(("engine", "gpu_memory_utilization"), share_beside_a_trainer(gpus[0]), why)
    elif gpus:
        yield Line(("engine", "env", "CUDA_VISIBLE_DEVICES"), str(len(gpus) - 1), "the trainer takes the first GPU.")


def _judge(found: Found) -> Iterator[Line]:
    if found.judge_key is None:
        nobody = "no key of a provider in the environment. Without a judge, runs are recorded and nothing is learned."
        yield Line(("judge", "model"), JUDGES["OPENAI_API_KEY"], nobody, off=True)
    else:
        kept = f"{found.judge_key} is set. Its value is not written here: keep it set."
        yield Line(("judge", "model"), JUDGES[found.judge_key], kept)
