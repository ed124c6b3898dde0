"""A container file's steps, read and really run in a folder: what COPY takes, what RUN does, what is started.

The folder stands for the root of the image's file system: absolute paths of the image are moved into it. Refuses:
instructions that it does not know.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.deploy.reading import ROOT

_MOVED = ("/opt/hone", "/src")  # the folders of an image that its build writes to


@dataclass
class Stage:
    """One stage: its instructions in order, as (word, rest)."""

    name: str
    steps: list[tuple[str, str]] = field(default_factory=list)

    def all(self, word: str) -> list[str]:
        """What follows each instruction of this kind."""
        return [rest for one, rest in self.steps if one == word]

    def environment(self) -> dict[str, str]:
        """What ENV sets."""
        pairs = (word.partition("=") for rest in self.all("ENV") for word in rest.split())
        return {name: value for name, _, value in pairs}

    def argv(self) -> list[str]:
        """ENTRYPOINT and CMD."""
        return [*json.loads(self.all("ENTRYPOINT")[-1]), *json.loads(self.all("CMD")[-1])]


def stages(file: Path) -> list[Stage]:
    """The stages of a container file."""
    found: list[Stage] = []
    lines = "\n".join(line for line in file.read_text().splitlines() if not line.startswith("#"))
    for line in lines.replace("\\\n", " ").splitlines():
        word, _, rest = line.strip().partition(" ")
        if word == "FROM":
            found.append(Stage(rest.partition(" AS ")[2]))
        elif word and found:
            found[-1].steps.append((word, " ".join(rest.split())))
    return found


def apt_names(file: Path) -> list[str]:
    """The Debian packages that it installs."""
    runs = " ".join(rest for stage in stages(file) for rest in stage.all("RUN"))
    return [
        word
        for words in re.findall(r"apt-get install (.*?) &&", runs)
        for word in words.split()
        if not word.startswith("-")
    ]


def copied(stage: Stage) -> Iterator[tuple[str, str]]:
    """What is copied from the repository: each source and where to."""
    for rest in stage.all("COPY"):
        if not rest.startswith("--from="):
            *sources, target = rest.split()
            yield from ((source, target) for source in sources)


def is_sent(path: str) -> bool:
    """Whether .dockerignore lets a file or folder into a build: the last pattern that fits decides."""
    sent = True
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        pattern = line.strip().removeprefix("!").removeprefix("**/")
        if pattern and not pattern.startswith("#") and _fits(path, pattern, anywhere="**/" in line):
            sent = line.startswith("!")
    return sent


def _fits(path: str, pattern: str, *, anywhere: bool) -> bool:
    parts = path.split("/")
    paths = parts if anywhere else ["/".join(parts[: n + 1]) for n in range(len(parts))]
    return any(fnmatch.fnmatch(one, pattern) for one in paths)


def build(stage: Stage, image: Path, **arguments: str) -> None:
    """Run a stage's COPY and RUN steps, with `image` for the root folder. Raises CalledProcessError.

    `arguments` are in place of ARG's defaults.
    """
    folder, variables = image, {}
    for word, rest in stage.steps:
        if word == "WORKDIR":
            folder = image / rest.lstrip("/")
            folder.mkdir(parents=True, exist_ok=True)
        elif word == "COPY":
            *sources, target = rest.split()
            for source in sources:
                _copy(ROOT / source, folder / target)
        elif word == "ARG":
            name, _, value = rest.partition("=")
            variables[name] = arguments.get(name, value)
        elif word == "RUN":
            _run(rest, folder, image, variables)
        else:
            raise NotImplementedError(f"{word} {rest}")


def _copy(source: Path, target: Path) -> None:
    if not source.is_dir():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
        return

    def unsent(folder: str, names: list[str]) -> set[str]:
        relative = Path(folder).relative_to(ROOT)
        return {name for name in names if not is_sent(str(relative / name))}

    shutil.copytree(source, target, ignore=unsent)


def _run(command: str, folder: Path, image: Path, variables: dict[str, str]) -> None:
    for path in _MOVED:
        command = re.sub(rf"(?<![\w/]){path}\b", str(image / path.lstrip("/")), command)
    # The image's own python and pip are this one's; what runs the tests must not be found in their place.
    tools = image / "tools"
    tools.mkdir(exist_ok=True)
    own = f"python{sys.version_info.major}.{sys.version_info.minor}"
    programs = {"python": [str(Path(sys.base_prefix) / "bin" / own)], "pip": [sys.executable, "-m", "pip"]}
    for name, argv in programs.items():
        (tools / name).write_text(f'#!/bin/sh\nexec {" ".join(argv)} "$@"\n')
        (tools / name).chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    env = kept | variables | {"PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}
    subprocess.run(["sh", "-ec", command], cwd=folder, env=env, check=True, timeout=1700)


def mib(folder: Path) -> float:
    """The size of all files in a folder."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir()) / 2**20
