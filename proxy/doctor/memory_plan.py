"""What `hone plan` says of a base on this machine's GPUs: asked in a child process, since the proxy loads no torch.

Owns: the question and the answer's parts that `hone init` and `hone doctor` use. Refuses: the computation
(`trainer.memory.plan`).
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

GIB: Final = 1 << 30
LIMIT_S: Final = 180.0  # importing torch and transformers may take a minute on a busy machine


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """The answer. Sizes in GiB. `engine_fixed`: all that the engine takes beside its cache. `settings`: what to set."""

    fits: bool
    sentence: str
    trainer: float
    engine_fixed: float
    settings: Mapping[str, Any]

    @classmethod
    def parse(cls, answer: Mapping[str, Any]) -> MemoryPlan:
        """Read the JSON of `hone plan`. Raises KeyError, TypeError."""
        engine = answer["engine"]
        fixed = engine["weights"] + engine["loras"] + engine["extra"]
        return cls(
            bool(answer["fits"]),
            str(answer["sentence"]),
            answer["trainer"]["total"] / GIB,
            fixed / GIB,
            dict(answer["settings"]),
        )


@dataclass(frozen=True, slots=True)
class NoPlan:
    """Why there is no answer."""

    reason: str


async def ask_plan(
    base: str, gpus: Sequence[float], *, config: Path | None = None, env: Mapping[str, str] | None = None
) -> MemoryPlan | NoPlan:
    """Plan a base on GPUs of these sizes (GiB), with the settings of a file. The smallest GPU counts.

    What has to be kept in the machine's memory is compared with all of it: a program that runs already uses some.
    """
    argv = [sys.executable, "-P", "-m", "proxy.cli", "plan", "--model", base, "--json"]
    argv += ["--gpu", f"{min(gpus):.2f}", "--gpus", str(len(gpus)), "--ram", f"{_ram_gib():.2f}"]
    argv += ["--config", str(config)] if config else []
    process = await asyncio.create_subprocess_exec(
        *argv, stdin=DEVNULL, stdout=PIPE, stderr=PIPE, env={**os.environ, **(env or {})}
    )
    try:
        async with asyncio.timeout(LIMIT_S):
            out, err = await process.communicate()
    except TimeoutError:
        return NoPlan(f"`hone plan` took longer than {LIMIT_S:.0f} s.")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    try:
        return MemoryPlan.parse(json.loads(out))
    except (ValueError, KeyError, TypeError):
        lines = err.decode(errors="replace").strip().splitlines()
        return NoPlan(lines[-1].removeprefix("hone: ") if lines else "`hone plan` printed nothing.")


def _ram_gib() -> float:
    import psutil

    return float(psutil.virtual_memory().total) / GIB
