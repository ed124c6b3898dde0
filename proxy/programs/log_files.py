"""Log files of programs: their last lines and what was added since, with keys masked, and keeping a file short.

Owns: which part of a file is read (a bounded one, in whole lines), masking, and the form in which lines are shown.
Refuses: which files there are (`proxy.programs.service`), and writing them, which the programs do themselves.

A line is returned once it is complete: half of a key could not be recognised. A log that grew too long is copied to
NAME.log.1 and emptied, because a program keeps its file open for appending.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from recorder.base.terminal import clean
from recorder.base.urls import MASK, SECRET_NAMES
from recorder.llm.litellm_edge import mask_secrets
from recorder.processes import file_modes
from recorder.registry.keys import PREFIX

MOST_LINES: Final = 1000
WINDOW_BYTES: Final = 512 * 1024  # read of a file for one answer, where 1,000 lines take about 150 kB
LINE_CHARS: Final = 2000
LOG_BYTES: Final = 20 * 1024 * 1024  # of a file; the one before it, .1, may have as many

_ESCAPES: Final = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\n]*(?:\x07|\x1b\\))")  # colours, titles
_NAMES: Final = "|".join(SECRET_NAMES)
_VALUE: Final = r"""([^\s"',;)\]}]{8,})"""
_NAMED: Final = re.compile(rf"""((?:{_NAMES})["']?[ \t]*[=:][ \t]*\[?["']?){_VALUE}""", re.IGNORECASE)
_OPTION: Final = re.compile(rf"""(--[\w-]*(?:{_NAMES})["']?[ \t,=]+["']?){_VALUE}""", re.IGNORECASE)
_FORMS: Final = re.compile(
    rf"\b(?:{PREFIX}(?=[\w-]*[A-Z0-9])[\w-]{{32,}}|sk-[\w-]{{16,}}|hf_[A-Za-z0-9]{{16,}})|"
    r"(?i:\b(?:bearer|basic)[ \t]+)[\w.~+/=-]{8,}"
)


@dataclass(frozen=True, slots=True)
class LogPart:
    """Complete lines of a log, oldest first, with keys masked and control characters visible.

    `next`: where to go on reading, in bytes; `skipped`: whether lines before these were left out.
    """

    lines: list[str]
    next: int
    skipped: bool


def read_tail(path: Path, secrets: Collection[str], lines: int = MOST_LINES) -> LogPart:
    """The last lines of a log, also of the file before it where the log was emptied lately. Raises OSError.

    A file that does not exist has no lines.
    """
    content, start, end = _read(path, None)
    before = b""
    if start == 0 and content.count(b"\n") < lines:
        before, first, _ = _read(old_log(path), None)
        start = first
    found = _lines(before) + _lines(content)
    return LogPart(_shown(found[-lines:], secrets), end, start > 0 or len(found) > lines)


def read_after(path: Path, after: int, secrets: Collection[str], lines: int = MOST_LINES) -> LogPart:
    """The lines that were added after a place in a log, at most the last `lines` of them. Raises OSError.

    If the log was emptied since, all that it has.
    """
    content, start, end = _read(path, after)
    found = _lines(content)
    return LogPart(_shown(found[-lines:], secrets), end, start != after or len(found) > lines)


def cut_log(path: Path, limit: int = LOG_BYTES) -> bool:
    """Empty a log that is longer than `limit` bytes, and keep its content as NAME.log.1. Returns whether it did.

    What a program writes between the copy and the cut is lost. Raises OSError.
    """
    try:
        if path.stat().st_size <= limit:
            return False
    except FileNotFoundError:
        return False
    old = old_log(path)
    with path.open("rb") as source, open(old, "wb", opener=file_modes.private_opener) as copy:
        shutil.copyfileobj(source, copy)
    os.truncate(path, 0)
    return True


def old_log(path: Path) -> Path:
    """The file that holds what a log had before it was emptied."""
    return path.with_suffix(path.suffix + ".1")


def mask_log(text: str, secrets: Collection[str]) -> str:
    """A log's text without keys: those given, the environment's, what is named as one, and what has the form of one."""
    masked = mask_secrets(_ESCAPES.sub("", text), *secrets)
    for pattern in (_OPTION, _NAMED):
        masked = pattern.sub(rf"\1{MASK}", masked)
    return _FORMS.sub(MASK, masked)


def _read(path: Path, after: int | None) -> tuple[bytes, int, int]:
    """Whole lines of a file in at most `WINDOW_BYTES`, and where they begin and end. `after` None: the last ones."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if after is not None and after > size:
                after = 0
            start = max(after or 0, size - WINDOW_BYTES)
            file.seek(max(0, start - 1))
            content = file.read(WINDOW_BYTES + 1)
    except FileNotFoundError:
        return b"", 0, 0
    if start > 0:  # the byte before tells whether a line begins here
        cut = content.find(b"\n") + 1
        if not cut:
            return b"", start, start if start == after else size
        start, content = start - 1 + cut, content[cut:]
    whole = content.rfind(b"\n") + 1
    return content[:whole], start, start + whole


def _lines(content: bytes) -> list[str]:
    """The lines, as text. Of a line that a program wrote over itself, as progress bars do, the last state."""
    rows = content.decode("utf-8", "replace").split("\n")[:-1]
    return [row.rstrip("\r").rpartition("\r")[2] for row in rows]


def _shown(lines: list[str], secrets: Collection[str]) -> list[str]:
    masked = mask_log("\n".join(lines), secrets).split("\n") if lines else []
    return [_short(clean(line)) for line in masked]


def _short(line: str) -> str:
    return line if len(line) <= LINE_CHARS else f"{line[:LINE_CHARS]} … {len(line) - LINE_CHARS:,} characters more"
