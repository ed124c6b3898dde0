"""The output file of generated scenarios: appended durably, so that a stop or a crash loses no checked scenario.

Owns: continuing the file of an earlier run, recognising such a file, durable writes, and a line torn by a crash.
Refuses: the form of a scenario (`trainer.tasks.scenarios`), and which are generated.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Sequence
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import Final

from recorder.processes import file_modes
from trainer.errors import NoTasks, ScenariosInvalid
from trainer.scenario_generation.prompts import Difficulty, scenario_difficulty
from trainer.tasks.scenarios import Scenario, parse_scenarios, scenario_line

_HEADS: Final = tuple(f'{{"id": "{kind.replace("_", "-")}-'.encode() for kind in Difficulty)  # how Hone's lines begin


class ScenarioWriter:
    """A scenario file. `begun`: the scenarios of an earlier run. One process at a time; `close()` at the end."""

    def __init__(self, path: Path) -> None:
        """Opens an existing file; a new one is created for the first scenario.

        Raises `NoTasks` if it holds anything but generated scenarios, another process writes it, or it cannot be
        opened.
        """
        self._path = path
        self._file: FileIO | None = None
        self.begun: list[Scenario] = []
        if path.exists():
            try:
                self._resume()
            except NoTasks:
                self.close()
                raise

    def add(self, made: Sequence[Scenario]) -> None:
        """Append scenarios; they are on disk when this returns. Raises `NoTasks`."""
        if not made:
            return
        # a lone surrogate becomes its JSON escape, and is read back unchanged
        data = "".join(scenario_line(one) + "\n" for one in made).encode(errors="backslashreplace")
        try:
            _write(self._file or self._new(), data)
        except OSError as e:
            raise self._unusable(f"cannot be written: {e.strerror or e}") from e

    def close(self) -> None:
        """Release the file for other processes."""
        if self._file is not None:
            self._file.close()

    def _new(self) -> FileIO:
        try:
            self._file = self._locked(open(self._path, "xb", buffering=0, opener=file_modes.private_opener))  # noqa: SIM115
        except FileExistsError:
            raise self._taken() from None
        folder = os.open(self._path.absolute().parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        return self._file

    def _resume(self) -> None:
        if not self._path.is_file():  # reading a terminal or a pipe would block
            raise self._taken()
        try:
            self._file = file = self._locked(self._path.open("r+b", buffering=0))
        except OSError as e:
            raise self._unusable(f"cannot be opened: {e.strerror or e}") from e
        content = file.readall()
        whole, torn = content[: content.rfind(b"\n") + 1], content[content.rfind(b"\n") + 1 :]
        try:
            self.begun = parse_scenarios(whole.split(b"\n"), str(self._path)) if whole else []
        except ScenariosInvalid:
            raise self._taken() from None
        if not all(map(scenario_difficulty, self.begun)) or not _is_head(torn):
            raise self._taken()
        file.truncate(len(whole))  # a torn line was never reported as written
        file.seek(len(whole))

    def _locked(self, file: FileIO) -> FileIO:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the lock ends with the process, however it ends
        except BlockingIOError:
            file.close()
            raise self._unusable("is being written by another process") from None
        return file

    def _taken(self) -> NoTasks:
        return self._unusable("already exists, and holds more than generated scenarios")

    def _unusable(self, why: str) -> NoTasks:
        return NoTasks(f"{self._path} {why}: name another file with --out")


def _write(file: FileIO, data: bytes) -> None:
    """Append all data durably, or, as far as possible, nothing. Raises OSError."""
    end = file.tell()
    try:
        while data:
            data = data[file.write(data) :]
        os.fsync(file.fileno())
    except OSError:
        with suppress(OSError):
            file.truncate(end)
            file.seek(end)
        raise


def _is_head(torn: bytes) -> bool:
    """Whether the text after the last whole line is the beginning of one of Hone's lines, or empty."""
    return any(head.startswith(torn) or torn.startswith(head) for head in _HEADS)
