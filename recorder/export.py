"""Recorded calls as JSON lines: every detail (raw), or conversations for fine-tuning (openai).

Owns: the shape of exported lines. Refuses: files and printing (`recorder.commands`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from recorder.store import Store


def raw_lines(
    store: Store, project_id: str, *, trajectory_id: str | None = None, since: float | None = None
) -> AsyncIterator[dict[str, Any]]:
    """One line a call, trajectory by trajectory in the order they began."""
    raise NotImplementedError


def openai_lines(
    store: Store, project_id: str, *, trajectory_id: str | None = None, since: float | None = None
) -> AsyncIterator[dict[str, Any]]:
    """One line a completed trajectory: `{"messages": […], "tools": […]}`."""
    raise NotImplementedError
