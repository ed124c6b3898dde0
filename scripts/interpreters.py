"""The other Pythons of this machine that Hone may run under, found by name and probed.

Owns: where to search (PATH, pyenv's and uv's folders), and whether a program that is found works. Refuses:
installing any.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

OLDEST: Final = (3, 11)  # pyproject.toml's requires-python
_NAME: Final = re.compile(r"python3\.(\d+)")
# Only a released CPython that can create an environment prints its version.
_PROBE: Final = """
import ensurepip, sys, venv
if sys.implementation.name == "cpython" and sys.version_info.releaselevel == "final":
    print(*sys.version_info[:3], sep=".")
"""
_LIMIT_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A working Python."""

    program: Path
    version: tuple[int, ...]

    @property
    def minor(self) -> str:
        """Return the version of the language, for example 3.12."""
        return ".".join(map(str, self.version[:2]))

    def __str__(self) -> str:
        return ".".join(map(str, self.version))


def other_interpreters(env: Mapping[str, str] = os.environ) -> list[Interpreter]:
    """Return the newest Python of each minor version except ours, the oldest version first."""
    ours = sys.version_info[:2]
    working = [one for program in programs(env) if (one := read_interpreter(program)) is not None]
    newest = {one.version[:2]: one for one in sorted(working, key=lambda one: one.version) if one.version[:2] != ours}
    return [newest[version] for version in sorted(newest) if version >= OLDEST]


def programs(env: Mapping[str, str]) -> Iterator[Path]:
    """Yield programs with the name of a new enough Python. Some may be pyenv's shims without a chosen version, which
    fail.
    """
    home = Path(env.get("HOME", "/nonexistent"))
    pyenv = Path(env.get("PYENV_ROOT") or home / ".pyenv")
    uv = Path(env.get("UV_PYTHON_INSTALL_DIR") or Path(env.get("XDG_DATA_HOME") or home / ".local/share") / "uv/python")
    folders = [Path(folder) for folder in env.get("PATH", "").split(os.pathsep) if folder]
    for folder in [*folders, *sorted(pyenv.glob("versions/*/bin")), *sorted(uv.glob("*/bin"))]:
        for program in sorted(folder.glob("python3.*")):
            if (named := _NAME.fullmatch(program.name)) and (3, int(named[1])) >= OLDEST:
                yield program


def read_interpreter(program: Path) -> Interpreter | None:
    """Return the Python of a program; None if it does not work or cannot create an environment."""
    try:
        version = subprocess.run(
            [program, "-I", "-c", _PROBE], capture_output=True, text=True, timeout=_LIMIT_S, check=True
        ).stdout.strip()
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return (
        Interpreter(program, tuple(map(int, version.split(".")))) if re.fullmatch(r"\d+\.\d+\.\d+", version) else None
    )
