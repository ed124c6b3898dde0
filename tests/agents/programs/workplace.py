"""What the programs of command-line agents share: a folder and a home for each run, the desk's tools as commands in it.

Owns: `./find_order 4821` and `./track_parcel P12345`, which note each call; running an agent's command with a fresh
HOME and no way out but loopback. Refuses to know any agent.
"""

from __future__ import annotations

import asyncio
import json
import os
import stat
import sys
import tempfile
from collections.abc import Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from desk import PARAMETERS, Run

AT_ONCE = asyncio.Semaphore(3)  # each is a process of its own, or several
NOWHERE = "http://127.0.0.1:9"
HINT = "Run `./find_order ORDER` and then `./track_parcel TRACKING` in this folder to find out."

_COMMAND = """\
#!{python}
import json, pathlib, sys
sys.path.insert(0, {programs!r})
from desk import Run
here = pathlib.Path({noted!r})
run = Run(**json.loads((here / "run.json").read_text()))
run.call({name!r}, {{{argument!r}: sys.argv[1]}})
with (here / "calls.jsonl").open("a") as calls:
    calls.write(json.dumps(run.calls[-1]) + "\\n")
print(run.calls[-1]["result"])
"""


@dataclass(frozen=True)
class Workplace:
    """One run's folders: `work`, where its agent starts, and `home`."""

    run: Run
    work: Path
    home: Path

    async def run_command(self, *command: str, variables: Mapping[str, str] | None = None) -> str:
        """What the command printed. Raises RuntimeError, with all that it said, when it fails."""
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=self.work,
            env=self.environment() | dict(variables or {}),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        said, complained = (text.decode(errors="replace") for text in await process.communicate())
        if process.returncode:
            raise RuntimeError(f"{command[0]} ended with {process.returncode}: {said}\n{complained}")
        return said

    def environment(self) -> dict[str, str]:
        """The variables of whatever runs here."""
        return {
            "HOME": str(self.home),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            "CI": "1",
            "DO_NOT_TRACK": "1",
            **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), NOWHERE),
            **dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost"),
        }


@asynccontextmanager
async def workplace(run: Run):
    """A workplace until the block ends; then the calls that were noted are the run's."""
    async with AT_ONCE:
        with tempfile.TemporaryDirectory(prefix="agent-", ignore_cleanup_errors=True) as name:
            place = Workplace(run, Path(name) / "work", Path(name) / "home")
            for folder in (place.work, place.home):
                folder.mkdir()
            _write_commands(run, place.work, Path(name))
            try:
                yield place
            finally:
                noted = Path(name) / "calls.jsonl"
                run.calls += [json.loads(line) for line in noted.read_text().splitlines()] if noted.exists() else []


def package(*inside: str) -> str:
    """A file of a package of npm, or of the one that is there of several for different machines (`*` in its name)."""
    found = sorted((Path(sys.prefix) / "node_modules").glob("/".join(inside)))
    if not found:
        raise RuntimeError(f"no {'/'.join(inside)} in {sys.prefix}")
    return str(found[0])


def _write_commands(run: Run, work: Path, noted: Path) -> None:
    kept = asdict(run) | {"modes": sorted(run.modes)}
    (noted / "run.json").write_text(json.dumps(kept))
    for name, (_, argument) in PARAMETERS.items():
        command = work / name
        command.write_text(
            _COMMAND.format(
                python=sys.executable,
                programs=str(Path(__file__).parent),
                noted=str(noted),
                name=name,
                argument=argument,
            )
        )
        command.chmod(command.stat().st_mode | stat.S_IXUSR)
