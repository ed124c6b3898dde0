"""The cost of an adapter in an engine on a CPU: vLLM's own operations against Hone's replacements.

    python -m benchmarks.cpu_adapters [--rounds 5] [--save]

Two real engines, one thread each, with the demo's model and one adapter of random numbers: the one that `hone up`
starts (`proxy/engine/cpu_server.py`), and `python -m vllm…api_server` with the same arguments. In alternation each
answers `REQUESTS` concurrent requests, with the adapter and with the base; reported is the median of tokens a second
over the rounds. The most likely tokens of both must agree, or the program fails.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import httpx
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from benchmarks.load import free_port, machine
from proxy.engine.command import engine_command
from proxy.engine.cpu_server import SERVER
from proxy.settings.sections import EngineSettings

RESULTS: Final = Path(__file__).parent / "results" / "cpu_adapters.json"
MODEL: Final = Path(__file__).parent.parent / "examples" / "helpdesk" / "model"
START_TIMEOUT_S: Final = 120.0
REQUESTS, PROMPT_TOKENS, TOKENS = 64, 200, 32
BASE, ADAPTER = "base", "adapter"


def make_adapter(folder: Path) -> None:
    """Write an adapter of rank 8 on all linear layers, with random weights that change every answer."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(MODEL)
    adapted = get_peft_model(model, LoraConfig(r=8, lora_alpha=16, target_modules="all-linear"))
    with torch.no_grad():
        for name, weights in adapted.named_parameters():
            if "lora_B" in name:
                weights.normal_(std=0.02)
    adapted.save_pretrained(folder)


@contextlib.contextmanager
def engine(adapter: Path, log: Path, *, own: bool) -> Iterator[str]:
    """Run an engine with the adapter on a free port until the block ends; yield its URL. `own`: vLLM's operations."""
    settings = EngineSettings(base=str(MODEL), name=BASE, port=free_port(), max_model_len=512, max_lora_rank=8)
    command = engine_command(settings, key=None, device="cpu")
    argv = [command.argv[0], "-m", SERVER, *command.argv[2:]] if own else [*command.argv]
    env = {name: value for name, value in os.environ.items() if name not in command.unset} | command.env
    with log.open("wb") as out:
        process = subprocess.Popen(argv, env=env | {"OMP_NUM_THREADS": "1"}, stdout=out, stderr=out)
        try:
            _load(command.url, adapter, process)
            yield command.url
        finally:
            process.terminate()
            process.wait(60)


def _load(url: str, adapter: Path, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(f"{url}/health", timeout=5).status_code == httpx.codes.OK:
                given = {"lora_name": ADAPTER, "lora_path": str(adapter)}
                httpx.post(f"{url}/v1/load_lora_adapter", json=given, timeout=60).raise_for_status()
                return
        time.sleep(0.2)
    raise SystemExit(f"the engine at {url} did not start")


async def ask(url: str, models: Sequence[str]) -> tuple[float, list[str]]:
    """Request one answer per named model, all at once, each with its own prompt; return the seconds and the answers."""
    async with httpx.AsyncClient(base_url=url, timeout=300, limits=httpx.Limits(max_connections=None)) as http:

        async def one(number: int, model: str) -> str:
            prompt = [(7 * number + 11 * place) % 300 + 5 for place in range(PROMPT_TOKENS)]
            body = {"model": model, "prompt": prompt, "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True}
            answer = await http.post("/v1/completions", json=body)
            return str(answer.raise_for_status().json()["choices"][0]["text"])

        began = time.perf_counter()
        said = await asyncio.gather(*(one(number, model) for number, model in enumerate(models)))
        return time.perf_counter() - began, list(said)


KINDS: Final = {
    "by the adapter": [ADAPTER] * REQUESTS,
    "by the base": [BASE] * REQUESTS,
}


def measure(urls: dict[str, str], rounds: int) -> list[dict[str, Any]]:
    """Return a row for each kind of batch; the first round does not count."""
    rows = []
    for kind, models in KINDS.items():
        seconds: dict[str, list[float]] = {name: [] for name in urls}
        for _ in range(rounds + 1):
            said = {}
            for name, url in urls.items():
                took, said[name] = asyncio.run(ask(url, models))
                seconds[name].append(took)
            first, second = said.values()
            same = sum(a == b for a, b in zip(first, second, strict=True))
            if same < 0.95 * REQUESTS:  # a tie between two tokens may be resolved either way
                raise SystemExit(f"{kind}: {same} of {REQUESTS} answers are the same by both")
        per_s = {name: REQUESTS * TOKENS / statistics.median(took[1:]) for name, took in seconds.items()}
        rows.append({"kind": kind, "tokens_per_s": {name: round(rate) for name, rate in per_s.items()}})
        print(f"{kind:20}", "  ".join(f"{name} {rate:7.0f} tokens/s" for name, rate in per_s.items()), flush=True)
    return rows


def main() -> None:
    """Measure and print; with `--save`, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--save", action="store_true", help=f"write {RESULTS.name}")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as engines:
        adapter = Path(folder) / "adapter"
        make_adapter(adapter)
        urls = {
            name: engines.enter_context(engine(adapter, Path(folder) / f"{name}.log", own=own))
            for name, own in (("vLLM's", True), ("Hone's", False))
        }
        rows = measure(urls, asked.rounds)
    if asked.save:
        told = {"requests": REQUESTS, "prompt_tokens": PROMPT_TOKENS, "tokens": TOKENS, "machine": machine()}
        RESULTS.write_text(json.dumps(told | {"batches": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
