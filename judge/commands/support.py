"""What the judge's commands share: what they find in click's context.

Refuses: the commands.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from judge.settings import JudgeSettings

if TYPE_CHECKING:
    from recorder.settings import LearnSettings, RecorderSettings


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
