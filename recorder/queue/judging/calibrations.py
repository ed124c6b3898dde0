"""How well judges agree with people, as `hone calibrate` measured it.

Owns: the rows, the newest measurement of each judge. Refuses: measuring (`judge.calibration`), and what a trainer makes
of it (`trainer.objectives.pair_weights`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass

from sqlalchemy import select

from recorder.store import sql
from recorder.store.database import Project
from recorder.store.schema import calibrations


@dataclass(frozen=True, slots=True)
class JudgeAgreement:
    """A judge, by the hash that its scores have, and the share of `pairs` that it orders as people do (0 to 1).

    `judge`: its name when it was measured. A tie of the judge counts one half.
    """

    judge_hash: str
    judge: str
    agreement: float
    pairs: int


async def record_agreements(project: Project, measured: Iterable[JudgeAgreement]) -> None:
    """Store the measurements, each in place of an earlier one of the same judge."""
    async with project.store.write() as conn:
        at = await sql.current_time(conn)
        for one in measured:
            values = {"project_id": project.id, **asdict(one), "at": at}
            await conn.execute(sql.upsert(conn, calibrations, ("project_id", "judge_hash"), values))


async def load_agreements(project: Project, judge_hashes: Collection[str]) -> dict[str, JudgeAgreement]:
    """Return the measurements of judges by their hash, as far as there are any."""
    if not judge_hashes:
        return {}
    mine = (calibrations.c.project_id == project.id, calibrations.c.judge_hash.in_(sorted(judge_hashes)))
    async with project.store.read() as conn:
        rows = await conn.execute(select(calibrations).where(*mine))
    return {row.judge_hash: sql.as_view(JudgeAgreement, row) for row in rows}
