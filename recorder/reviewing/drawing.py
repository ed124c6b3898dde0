"""What is drawn for people: which pairs, and which run stands first.

Owns: the draw, by a keyed hash. Refuses: what is drawn from. The key is the project's own, so a draw is the same
whenever it is looked at, and nobody foresees it.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from typing import Final

from sqlalchemy import select

from recorder.store.project import Project
from recorder.store.schema import projects

_BYTES: Final = 6  # as many as a float holds exactly, so that no number is 1
_NUMBERS: Final = 256.0**_BYTES


class Draw:
    """Numbers that stay what they are."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def number(self, *what: str) -> float:
        """From 0 to below 1, the same for the same words."""
        said = "".join(f"{len(one)}:{one}" for one in ("review", *what)).encode("utf-8", "surrogatepass")
        drawn = hmac.digest(self._key, said, "sha256")[:_BYTES]
        return int.from_bytes(drawn, "big") / _NUMBERS

    def order(self, what: str, among: Sequence[str]) -> list[str]:
        """All of them, shuffled."""
        return sorted(among, key=lambda one: (self.number(what, one), one))

    def sides(self, person: str, one: str, other: str) -> tuple[str, str]:
        """Two runs in the order in which this person is shown them."""
        low, high = sorted((one, other))
        return (low, high) if self.number("sides", person, low, high) < 0.5 else (high, low)


async def draw_of(project: Project) -> Draw:
    """The project's draw."""
    async with project.store.read() as conn:
        query = select(projects.c.node_key).where(projects.c.id == project.id)
        return Draw(bytes((await conn.execute(query)).scalar_one()))
