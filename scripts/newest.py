"""Run the trainer with the newest torch, transformers and PEFT, and serve its step with this environment's engine.

    python -m scripts.newest            (`make newest`)

vLLM's build holds older versions, so they get an environment of their own without vLLM, in build/newest. There the
trainer's tests run, and one step of each of `FAMILIES` is made; the engine of this environment loads the adapters and
must answer with the trainer's logprobs.

Owns: that environment, and the comparison across both. Refuses: choosing the `train` extra's upper bounds
(pyproject.toml): they are as high as this program passes. Exit status 1 if something failed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.families.engine_half import serve_adapter

ROOT: Final = Path(__file__).resolve().parent.parent
FOLDER: Final = ROOT / "build" / "newest"
PACKAGES: Final = ("torch", "transformers", "peft")  # the newest that pip finds
TESTS: Final = (
    "tests/trainer/artifacts",
    "tests/trainer/batch",
    "tests/trainer/lora",
    "tests/trainer/memory",
    "tests/trainer/policy",
    "tests/trainer/step",
    "tests/benchmarks/test_families.py",
)
FAMILIES: Final = ("Qwen3", "Mistral with a window", "Granite hybrid")
MOST_NATS: Final = 1e-4  # both sides in float32
_VERSIONS: Final = (
    "from importlib.metadata import version; print(*(f'{n} {version(n)}' for n in ('torch', 'transformers', 'peft')))"
)


@dataclass(frozen=True, slots=True)
class ServedStep:
    """A step of the newest packages in this environment's engine. `fault`: what is wrong, None if nothing is."""

    family: str
    gap: float | None = None
    fault: str | None = None


def set_up() -> bool:
    """Create or update the environment. Returns whether that worked; pip says why not."""
    if not (FOLDER / "bin" / "python").exists():
        subprocess.run([sys.executable, "-m", "venv", FOLDER], check=True)
    command = [_python(), "-m", "pip", "install", "--quiet", "--upgrade", *PACKAGES, "--editable", f"{ROOT}[dev]"]
    return subprocess.run(command, check=False).returncode == 0


def run_tests() -> int:
    """Run the trainer's tests there, with pytest's own output; its exit status."""
    marks = "not e2e and not agents and not long"
    # packages of different ages warn about each other, and pytest's settings make a warning an error
    command = [_python(), "-m", "pytest", "-q", "-W", "ignore::FutureWarning", "--numprocesses", "auto", "-m", marks]
    command += TESTS
    return subprocess.run(command, cwd=ROOT, env=_environment(), check=False).returncode


def serve_steps() -> Iterator[ServedStep]:
    """Make a step of each family there, and serve it here."""
    for family in FAMILIES:
        with tempfile.TemporaryDirectory(prefix="newest-") as folder:
            yield _serve_step(family, Path(folder))


def _serve_step(family: str, folder: Path) -> ServedStep:
    command = [_python(), "-m", "benchmarks.families.step", family, str(folder)]
    done = subprocess.run(command, cwd=ROOT, env=_environment(), stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        return ServedStep(family, fault="no version was published: the reason is above")
    adapter = Path(done.stdout.strip().splitlines()[-1])
    probe = json.loads((adapter / "probe.json").read_text("utf-8"))
    found = serve_adapter(folder / "model", adapter, probe, folder / "engine.log")
    if found.gap is None:
        return ServedStep(family, fault=found.refusal or "the engine did not answer")
    fault = f"the engine's logprobs differ by more than {MOST_NATS:g}" if found.gap > MOST_NATS else None
    return ServedStep(family, found.gap, fault)


def _python() -> str:
    return str(FOLDER / "bin" / "python")


def _environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT)}


def main() -> int:
    """Set up, run and report. Return the exit status."""
    if not set_up():
        sys.stdout.write(f"{', '.join(PACKAGES)} could not be installed: nothing was run.\n")
        return 1
    versions = subprocess.run([_python(), "-I", "-c", _VERSIONS], capture_output=True, text=True, check=True).stdout
    sys.stdout.write(f"The trainer runs with {versions}")
    status = run_tests()
    lines = [f"trainer's tests: {'passed' if status == 0 else f'FAILED (pytest ended with {status})'}"]
    served = list(serve_steps())
    for one in served:
        gap = "" if one.gap is None else f"largest difference {one.gap:.0e} nats"
        lines.append(f"{one.family}: {'; '.join(part for part in (gap, one.fault) if part)}")
    sys.stdout.write("\n".join([f"With {versions.strip()}:", *lines]) + "\n")
    return int(status != 0 or any(one.fault for one in served))


if __name__ == "__main__":
    sys.exit(main())
