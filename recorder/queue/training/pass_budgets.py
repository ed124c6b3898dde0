"""How many tokens of a pass fitted into a device's memory, so that a trainer does not find out at every start.

Owns: the rows, one for each base and device. Refuses: measuring memory and repeating a step (`trainer.step.core`).
"""

from __future__ import annotations

from sqlalchemy import delete, select

from recorder.store import sql
from recorder.store.database import Project
from recorder.store.schema import pass_budgets


async def load_pass_budget(project: Project, base_fingerprint: str, device: str, token_budget: int) -> int:
    """Return the tokens of a pass that fitted under this `trainer.token_budget`; the budget itself if none is stored.

    What was stored under another `token_budget` is deleted: the setting was changed.
    """
    mine = (
        pass_budgets.c.project_id == project.id,
        pass_budgets.c.base_fingerprint == base_fingerprint,
        pass_budgets.c.device == device,
    )
    async with project.store.read() as conn:
        row = (await conn.execute(select(pass_budgets).where(*mine))).first()
    if row is None:
        return token_budget
    if row.token_budget == token_budget:
        return min(int(row.pass_budget), token_budget)
    async with project.store.write() as conn:
        await conn.execute(delete(pass_budgets).where(*mine, pass_budgets.c.token_budget != token_budget))
    return token_budget


async def record_pass_budget(
    project: Project, base_fingerprint: str, device: str, *, token_budget: int, pass_budget: int
) -> None:
    """Store the tokens of a pass that fitted."""
    async with project.store.write() as conn:
        values = {
            "project_id": project.id,
            "base_fingerprint": base_fingerprint,
            "device": device,
            "token_budget": token_budget,
            "pass_budget": pass_budget,
            "at": await sql.current_time(conn),
        }
        await conn.execute(sql.upsert(conn, pass_budgets, ("project_id", "base_fingerprint", "device"), values))
