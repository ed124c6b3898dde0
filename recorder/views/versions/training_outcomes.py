"""Training outcomes over time: how many trajectories were trained on or excluded, by the ledger's codes.

Owns: these counts, over the newest rows of the ledger. Refuses: what the codes mean (`recorder.reasons`), and totals
since the beginning (`recorder.views.status.figures`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Integer, cast, func, select

from recorder.store import sql
from recorder.store.database import Project
from recorder.store.schema import ledger

ROWS: Final = 10_000  # the newest rows of the ledger that are read
_SPANS_S: Final = (60.0, 600.0, 3600.0, 6 * 3600.0, 86400.0, 7 * 86400.0, 28 * 86400.0)
_MOST: Final = 24  # spans in the result


@dataclass(frozen=True, slots=True)
class OutcomeCounts:
    """Numbers of trajectories by ledger code, in a span of time that begins at `since` (unix seconds)."""

    since: float
    span_s: float
    trajectories: dict[str, int]


async def training_outcomes(project: Project) -> list[OutcomeCounts]:
    """Count the ledger's newest rows by span, oldest first. All spans have one length; some may be empty."""
    newest = (
        select(ledger.c.object_kind, ledger.c.code, ledger.c.at)
        .where(sql.without_index(ledger.c.project_id) == project.id)
        .order_by(ledger.c.id.desc())
        .limit(ROWS)
        .subquery()
    )
    minute = cast(newest.c.at / _SPANS_S[0], Integer)
    query = select(minute, newest.c.code, func.count()).where(newest.c.object_kind == "trajectory")
    async with project.store.read() as conn:
        rows = [
            (int(at), str(code), int(n)) for at, code, n in await conn.execute(query.group_by(minute, newest.c.code))
        ]
    return outcome_spans([(at * _SPANS_S[0], code, n) for at, code, n in rows])


def outcome_spans(rows: Sequence[tuple[float, str, int]]) -> list[OutcomeCounts]:
    """Sum counts (unix seconds, code, number) by span, with the shortest span of which at most 24 are needed."""
    if not rows:
        return []
    first, last = min(at for at, _, _ in rows), max(at for at, _, _ in rows)
    span_s = next((s for s in _SPANS_S if last // s - first // s < _MOST), _SPANS_S[-1])
    counts: dict[int, Counter[str]] = {}
    for at, code, number in rows:
        counts.setdefault(int(at // span_s), Counter())[code] += number
    newest = int(last // span_s)
    oldest = max(int(first // span_s), newest - _MOST + 1)
    return [OutcomeCounts(n * span_s, span_s, dict(counts.get(n, Counter()))) for n in range(oldest, newest + 1)]
