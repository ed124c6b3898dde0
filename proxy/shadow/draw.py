"""Which runs have a turn answered again, and which turn: by hashes of their ids, so that whoever draws draws the same.

Owns: the draw. Pure. Refuses: what a run or a turn is, beside its id.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Literal


def is_drawn(run_id: str, share: float) -> bool:
    """Whether a run is one of the share."""
    return _uniform("run", run_id) < share


def drawn_turn(call_ids: Iterable[str], at: Literal["any", "first"]) -> str | None:
    """The turn of a run that is answered again, of those given in order; None where there is none.

    `any`: the one with the highest number, where each has a number of its own, uniform and independent of the others.
    So every turn is as likely as any other, however many there are, and none has to be known in advance: a reservoir
    of one.
    """
    turns = iter(call_ids)
    if at == "first":
        return next(turns, None)
    return max(turns, key=lambda call_id: _uniform("turn", call_id), default=None)


def _uniform(what: str, of: str) -> float:
    """A number in 0..1 that follows from an id, and one for another question from the same id does not."""
    return int.from_bytes(blake2b(f"shadow {what}\0{of}".encode(), digest_size=8).digest()) / 2**64
