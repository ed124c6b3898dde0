"""When something is said to be due, held to the time itself, however long the answer took."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from recorder.store import sql
from tests.recorder.rows import Rows

CLOCK_S: Final = 0.01  # how finely both databases' clocks and columns tell times


async def is_said(rows: Rows, at: float, ask: Callable[[], Awaitable[float]]) -> bool:
    """Whether the answer says in how many seconds the database's clock comes to `at` (unix seconds)."""
    before = await _clock(rows)
    said_s = await ask()
    return at - await _clock(rows) - CLOCK_S <= said_s <= at - before + CLOCK_S


async def _clock(rows: Rows) -> float:
    async with rows.store.read() as conn:
        return await sql.current_time(conn)
