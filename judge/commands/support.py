"""What the judge's commands share: the exit status of a command that was stopped. Refuses: the commands."""

from __future__ import annotations

from typing import Final

INTERRUPTED: Final = 130  # the exit status of what SIGINT ended
