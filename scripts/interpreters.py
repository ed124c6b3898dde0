"""The other Pythons of this machine that Hone may run under: found by their names, and asked.

Owns: where they lie (the search path, pyenv's and uv's folders), and whether one that is found really runs. Refuses:
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
# A final CPython that can make an environment prints its version, and nothing else prints one.
_ASKED: Final = """
import ensurepip, sys, venv
if sys.implementation.name == "cpython" and sys.version_info.releaselevel == "final":
    print(*sys.version_info[:3], sep=".")
"""
_LIMIT_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python that runs."""

    program: Path
    version: tuple[int, ...]

    @property
    def minor(self) -> str:
        """Which language it is: 3.12."""
        return ".".join(map(str, self.version[:2]))

    def __str__(self) -> str:
        return ".".join(map(str, self.version))


def others(env: Mapping[str, str] = os.environ) -> list[Interpreter]:
    """One of each version of the language but ours, the newest of it, oldest first."""
    ours = sys.version_info[:2]
    runs = [one for program in programs(env) if (one := ask(program)) is not None]
    newest = {one.version[:2]: one for one in sorted(runs, key=lambda one: one.version) if one.version[:2] != ours}
    return [newest[version] for version in sorted(newest) if version >= OLDEST]


def programs(env: Mapping[str, str]) -> Iterator[Path]:
    """Programs that are named like one that is new enough. Some may be pyenv's, that only say what is not chosen."""
    home = Path(env.get("HOME", "/nonexistent"))
    pyenv = Path(env.get("PYENV_ROOT") or home / ".pyenv")
    uv = Path(env.get("UV_PYTHON_INSTALL_DIR") or Path(env.get("XDG_DATA_HOME") or home / ".local/share") / "uv/python")
    folders = [Path(folder) for folder in env.get("PATH", "").split(os.pathsep) if folder]
    for folder in [*folders, *sorted(pyenv.glob("versions/*/bin")), *sorted(uv.glob("*/bin"))]:
        for program in sorted(folder.glob("python3.*")):
            if (named := _NAME.fullmatch(program.name)) and (3, int(named[1])) >= OLDEST:
                yield program


def ask(program: Path) -> Interpreter | None:
    """The Python behind a name; None where none runs, or none that can make an environment."""
    try:
        said = subprocess.run(
            [program, "-I", "-c", _ASKED], capture_output=True, text=True, timeout=_LIMIT_S, check=True
        ).stdout.strip()
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return Interpreter(program, tuple(map(int, said.split(".")))) if re.fullmatch(r"\d+\.\d+\.\d+", said) else None
