"""The engine that Hone starts: vLLM's command line and environment, its key, its health, and engine.json.

Owns: which flags vLLM needs for exact tokens and swappable adapters, on a CPU and on a GPU; and engine.json, by which a
`hone up` finds the `hone engine` of the same data folder, unless its writer is gone. Refuses: importing vLLM (it runs
in its own process), and what is loaded into it (the controller does that).
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shlex
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import httpx

from proxy.engine import cpu_server
from proxy.engine.base import require_base
from proxy.engine.device import Device, detect_device
from proxy.engine.parsers import engine_parsers
from proxy.engine.replica import tls_for
from proxy.errors import ConfigError, PortInUse
from proxy.settings.gpus import visible_gpus
from proxy.settings.sections import EngineSettings, base_name
from recorder.models.context import stated_context
from recorder.processes import file_modes
from recorder.registry.fingerprint import base_fingerprint

KEY_FILE = "engine.key"
CPU_KV_CACHE_BYTES = 128 * 1024 * 1024
KEEP_ALIVE_S = 3600  # vLLM closes idle connections after 5 s, and a proxy idles while its trainer works
HEALTH_TIMEOUT_S = 5.0
# Under a CPU's load everything is slow but alive: these flags took a cold start from 33 s to 15 s on two cores.
_CPU_ENV = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_WAIT_POLICY": "PASSIVE",
    # In eager mode vLLM still compiles one function, at the first answer with logprobs: with a C++ compiler.
    "TORCH_COMPILE_DISABLE": "1",
}
# It overrides --kv-cache-memory-bytes, and an inherited value could take all memory.
_CPU_UNSET = frozenset({"VLLM_CPU_KVCACHE_SPACE"})


@dataclass(frozen=True, slots=True)
class EngineCommand:
    """How to start the engine: arguments, variables to set (the key among them) and to unset, the address it will
    listen on.
    """

    argv: tuple[str, ...]
    env: dict[str, str]
    unset: frozenset[str]
    url: str
    key: str | None

    def shown(self, key_file: Path | None) -> str:
        """Return the command for a shell. The key is read from its file, or omitted, but never shown."""
        variables = [f"{name}={shlex.quote(value)}" for name, value in self.env.items() if name != "VLLM_API_KEY"]
        if self.key is not None and key_file is not None:
            variables.append(f'VLLM_API_KEY="$(cat {shlex.quote(str(key_file))})"')
        unset = [f"-u {name}" for name in sorted(self.unset)]
        words = ["env", *unset, *variables, *_lines(self.argv)]
        return " \\\n  ".join(words)


def _lines(argv: Sequence[str]) -> list[str]:
    """The command, then one line for each option with its values."""
    lines: list[str] = []
    for argument in argv:
        quoted = shlex.quote(argument)
        if not lines or argument.startswith("--"):
            lines.append(quoted)
        else:
            lines[-1] += " " + quoted
    return lines


def engine_command(
    engine: EngineSettings, *, key: str | None, served_names: Sequence[str] = (), device: Device | None = None
) -> EngineCommand:
    """Return the command that starts vLLM for these settings.

    `served_names`: further names for the base (aliases' `base_model`). Raises ConfigError if no base is set, or
    it cannot be served (`proxy.engine.base`).
    """
    if engine.base is None:
        raise ConfigError(
            "no base model is named: set `base` in [engine] of hone.toml (a folder or a Hugging Face id), "
            "or give the URL of a running engine with --engine."
        )
    require_base(engine)
    device = device or detect_device(engine)
    python = str(engine.python) if engine.python else sys.executable
    own_name = base_name(engine)
    assert own_name is not None
    names = list(dict.fromkeys([own_name, *served_names]))
    argv = [python, *_server(device), "--model", engine.base, "--served-model-name", *names]
    argv += ["--host", engine.host, "--port", str(engine.port)]
    argv += ["--dtype", dtype_of(engine, device), *_exact(), *_lora(engine), *_optional(engine)]
    argv += [*_cache(engine, device), *_on_gpus(engine)]
    if engine.share != "split" and device == "cuda":  # on a CPU vLLM refuses it, and pauses without it
        argv.append("--enable-sleep-mode")
    if device == "cpu":  # compiling needs a C++ compiler, delays the start by seconds, and made nothing faster
        argv.append("--enforce-eager")
    argv += ["--disable-uvicorn-access-log", *engine.args]
    env = {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True", "VLLM_NO_USAGE_STATS": "1"}
    env["VLLM_HTTP_TIMEOUT_KEEP_ALIVE"] = str(KEEP_ALIVE_S)
    env |= visible_gpus(engine.gpus)
    if engine.share != "split":  # the routes for sleeping exist only so
        env["VLLM_SERVER_DEV_MODE"] = "1"
    if Path(engine.base).is_dir():
        env["HF_HUB_OFFLINE"] = "1"
    if device == "cpu":
        env |= _CPU_ENV | {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // 2))}
    if key:
        env["VLLM_API_KEY"] = key
    return EngineCommand(
        argv=tuple(argv),
        env=env | engine.env,
        unset=(_CPU_UNSET - engine.env.keys()) if device == "cpu" else frozenset(),
        url=f"http://{url_host(engine.host)}:{engine.port}",
        key=key,
    )


def _server(device: Device) -> list[str]:
    """vLLM's API server; on a CPU through the script that fixes answers for the base while adapters are loaded."""
    return [str(Path(cpu_server.__file__).absolute())] if device == "cpu" else ["-m", cpu_server.SERVER]


def _exact() -> list[str]:
    """Flags for logprobs of the sampled distribution, for no sampling defaults but the request's, and for a usage with
    cached tokens, which the Responses API reports.
    """
    return ["--logprobs-mode", "processed_logprobs", "--generation-config", "vllm", "--enable-prompt-tokens-details"]


def _lora(engine: EngineSettings) -> list[str]:
    return [
        "--enable-lora",
        "--max-loras",
        str(engine.max_loras),
        "--max-cpu-loras",
        str(2 * engine.max_loras),
        "--max-lora-rank",
        str(engine.max_lora_rank),
    ]


def _optional(engine: EngineSettings) -> list[str]:
    parts: list[str] = []
    tools, thinking = engine_parsers(engine).names
    if tools:
        parts += ["--enable-auto-tool-choice", "--tool-call-parser", tools]
    if thinking:
        parts += ["--reasoning-parser", thinking]
    if engine.chat_template:
        parts += ["--chat-template", str(engine.chat_template)]
    if engine.max_model_len:
        parts += ["--max-model-len", str(engine.max_model_len)]
    return parts


def _cache(engine: EngineSettings, device: Device) -> list[str]:
    size = engine.kv_cache_bytes or (CPU_KV_CACHE_BYTES if device == "cpu" else None)
    parts = ["--kv-cache-memory-bytes", str(size)] if size else []
    if device == "cuda" and engine.gpu_memory_utilization is not None:
        parts += ["--gpu-memory-utilization", str(engine.gpu_memory_utilization)]
    return parts


_PARALLEL: Final = ("--tensor-parallel-size", "-tp", "--pipeline-parallel-size", "-pp", "--data-parallel-size", "-dp")


def _on_gpus(engine: EngineSettings) -> list[str]:
    """Compute one model on all of `engine.gpus`, unless `engine.args` divides the work."""
    divided = any(argument.partition("=")[0] in _PARALLEL for argument in engine.args)
    return [] if len(engine.gpus) < 2 or divided else ["--tensor-parallel-size", str(len(engine.gpus))]


def dtype_of(engine: EngineSettings, device: Device | None = None) -> str:
    """Return the precision in which the engine serves."""
    if engine.dtype != "auto":
        return engine.dtype
    return "float32" if (device or detect_device(engine)) == "cpu" else "bfloat16"


def served_fingerprint(engine: EngineSettings, folder: Path) -> str:
    """Return the fingerprint of a base as these settings serve it. Raises NotFound."""
    return base_fingerprint(folder, dtype_of(engine), stated_context(engine.max_model_len, engine.args))


def engine_key(engine: EngineSettings, data: Path) -> str | None:
    """Return the engine's key: as set, else the random one in the data folder (mode 0600).

    It is created for an engine that Hone starts; it is None for engines given by URL without a key.
    """
    if engine.api_key is not None:
        return engine.api_key.get_secret_value()
    path = data / KEY_FILE
    if not engine.urls:
        _make_key(path)
    return path.read_text().strip() if path.exists() else None


def _make_key(path: Path) -> None:
    """Create the key unless it exists; atomic, so that a concurrent process never reads a part of it."""
    if path.exists():
        return
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f"{KEY_FILE}.{os.getpid()}")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as f:
        f.write(secrets.token_urlsafe(32))
    with contextlib.suppress(FileExistsError):
        os.link(draft, path)
    draft.unlink()


def engine_urls(engine: EngineSettings) -> list[str]:
    """Return the URLs of the engines: those given, else that of the engine that Hone starts."""
    return engine.urls or [f"http://{url_host(engine.host)}:{engine.port}"]


def url_host(host: str) -> str:
    """Return an address as a URL needs it: IPv6 in brackets."""
    return f"[{host}]" if ":" in host else host


def require_free(host: str, port: int, setting: str) -> None:
    """Raise PortInUse if a program listens on the port. `setting` is the setting to change."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as e:
            raise PortInUse(
                f"cannot listen on {host}:{port}: {e.strerror}. Stop the program that uses the port, or set {setting}."
            ) from e


def health_check(url: str, path: str = "/health") -> Callable[[], Awaitable[bool]]:
    """Return a check whether the server at `url` is healthy: it answers `path` with 200."""

    tls = tls_for(url)

    async def is_healthy() -> bool:
        try:
            async with httpx.AsyncClient(timeout=HEALTH_TIMEOUT_S, trust_env=False, verify=tls) as client:
                return (await client.get(url + path)).status_code == httpx.codes.OK
        except httpx.HTTPError:
            return False

    return is_healthy


ENGINE_FILE = "engine.json"


@dataclass(frozen=True, slots=True)
class EngineAddress:
    """A running engine, kept by the process `pid`."""

    host: str
    port: int
    base: str | None
    pid: int


@contextmanager
def write_engine_address(data: Path, engine: EngineSettings) -> Iterator[None]:
    """Keep engine.json in the data folder until the block ends; it is written atomically."""
    file_modes.make_folder(data)
    path = data / ENGINE_FILE
    draft = path.with_suffix(".new")
    file_modes.write_private(
        draft, json.dumps(asdict(EngineAddress(engine.host, engine.port, engine.base, os.getpid())))
    )
    draft.replace(path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def running_engine(data: Path) -> EngineAddress | None:
    """Return the address in engine.json; None if no `hone engine` of this data folder runs."""
    try:
        address = EngineAddress(**json.loads((data / ENGINE_FILE).read_text()))
        os.kill(address.pid, 0)
    except (OSError, ValueError, TypeError):
        return None
    return address
