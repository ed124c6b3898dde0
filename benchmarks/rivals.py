"""The gateways that Hone is compared with, in their own environment: LiteLLM's proxy and vLLM's router.

Owns: making that environment (`.venv-bench` in the repository, from requirements-rivals.txt), and running each with one
worker and without recording or logging, its fastest configuration. Refuses: measuring.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks import load

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv-bench"
REQUIREMENTS = Path(__file__).with_name("requirements-rivals.txt")
START_S = 120.0


@dataclass(frozen=True, slots=True)
class Rival:
    """One gateway: its name, its port, and its command."""

    name: str
    port: int
    argv: tuple[str, ...]
    health: str
    env: Mapping[str, str]


def ensure() -> None:
    """Create the environment if it is missing or older than its requirements."""
    made = VENV / "made"
    if made.exists() and made.read_text() == REQUIREMENTS.read_text():
        return
    print(f"installing the other gateways into {VENV} (once, some minutes)", flush=True)
    subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True)
    pip = [str(VENV / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    subprocess.run([*pip, "-r", str(REQUIREMENTS)], check=True)
    made.write_text(REQUIREMENTS.read_text())


def rivals(upstream_port: int, folder: Path) -> list[Rival]:
    """Return both, for the upstream on this port; `folder`: for their files."""
    return [_litellm(load.free_port(), upstream_port, folder), _router(load.free_port(), upstream_port)]


def _litellm(port: int, upstream_port: int, folder: Path) -> Rival:
    model = {"model": "openai/bench", "api_base": f"http://127.0.0.1:{upstream_port}/v1", "api_key": "none"}
    config = folder / "litellm.yaml"
    config.write_text(json.dumps({"model_list": [{"model_name": "bench", "litellm_params": model}]}))  # JSON is YAML
    argv = (str(VENV / "bin" / "litellm"), "--config", str(config), "--num_workers", "1")
    env = {
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_LOG": "ERROR",
        "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",  # the others need no key either
    }
    address = ("--host", "127.0.0.1", "--port", str(port))
    return Rival("LiteLLM proxy", port, (*argv, *address), "/health/liveliness", env)


def _router(port: int, upstream_port: int) -> Rival:
    argv = (str(VENV / "bin" / "python"), "-m", "vllm_router.launch_router", "--policy", "round_robin")
    before = ("--worker-urls", f"http://127.0.0.1:{upstream_port}", "--prometheus-port", str(load.free_port()))
    address = ("--host", "127.0.0.1", "--port", str(port), "--log-level", "error")
    return Rival("vllm-router", port, (*argv, *before, *address), "/health", {})


@contextlib.contextmanager
def running(rival: Rival, folder: Path) -> Iterator[psutil.Process]:
    """Run a rival until the block ends; begin the block when its health check succeeds."""
    log = folder / f"{rival.name.split()[0]}.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            rival.argv, env={**os.environ, **rival.env}, stdout=out, stderr=subprocess.STDOUT, cwd=folder
        )
        try:
            _wait(rival, process, log)
            yield psutil.Process(process.pid)
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()
            process.wait()


def _wait(rival: Rival, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        with contextlib.suppress(OSError):
            urllib.request.urlopen(f"http://127.0.0.1:{rival.port}{rival.health}", timeout=2).close()
            return
        time.sleep(0.2)
    raise RuntimeError(f"{rival.name} did not start: {log.read_text(errors='replace')[-2000:]}")
