"""What the judge's commands share: what they find in click's context.

Owns: the exit status of a command that was stopped. Refuses: the commands.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from judge.settings import JudgeSettings

if TYPE_CHECKING:
    from recorder.settings import LearnSettings, RecorderSettings

INTERRUPTED: Final = 130  # the exit status of what SIGINT ended


class Settings(Protocol):
    """What these commands read of Hone's settings."""

    project: str
    data: Path
    judge: JudgeSettings
    recorder: RecorderSettings
    learn: LearnSettings


class Context(Protocol):
    """What these commands find in click's context."""

    json: bool

    def settings(self) -> Settings:
        """The settings in force."""
