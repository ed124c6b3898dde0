"""The state `tried`, and the trajectories of each step: `trained` is written when a version goes live.

In an older store the ledger has the trajectories of each step. Trajectories that it calls trained, though their version
is not in the live ancestry, become untrained; those of an undecided version wait for its decision.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_DECIDED = ("live", "retired", "rejected", "abandoned")


def upgrade() -> None:
    op.create_index(op.f("ix_steps_version_id"), "steps", ["version_id"], unique=False)
    op.create_index(op.f("ix_step_groups_group_id"), "step_groups", ["group_id"], unique=False)
    op.create_table(
        "step_trajectories",
        sa.Column("step_id", sa.Text(), nullable=False),
        sa.Column("trajectory_id", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["step_id"], ["steps.id"], name=op.f("fk_step_trajectories_step_id")),
        sa.PrimaryKeyConstraint("step_id", "trajectory_id", name=op.f("pk_step_trajectories")),
    )
    conn = op.get_bind()
    for alias_id, name, live in conn.execute(sa.text("select id, name, live_version_id from aliases")).all():
        _straighten(conn, alias_id, name, live)


def _straighten(conn: sa.Connection, alias_id: str, name: str, live: str | None) -> None:
    query = "select id, number, parent_id, state from versions where alias_id = :alias"
    versions = {row.id: row for row in conn.execute(sa.text(query), {"alias": alias_id})}
    line = set(_line({id_: row.parent_id for id_, row in versions.items()}, live))
    query = "select id, project_id, version_id from steps where alias_id = :alias and state = 'done'"
    for step in conn.execute(sa.text(query), {"alias": alias_id}).all():
        version = versions.get(step.version_id)
        if version is None:
            continue
        trained = _trained(conn, step.id, f"{name}@{version.number}")
        for trajectory_id in trained:
            row = {"step": step.id, "run": trajectory_id}
            conn.execute(sa.text("insert into step_trajectories values (:step, :run)"), row)
        if version.id not in line:
            _take_back(conn, step, trained, f"{name}@{version.number}", decided=version.state in _DECIDED)


def _line(parents: dict[str, str | None], live: str | None) -> Iterator[str]:
    while live is not None and live in parents:
        yield live
        live = parents[live]


def _trained(conn: sa.Connection, step_id: str, version: str) -> list[str]:
    query = (
        "select l.object_id, l.detail from ledger l join trajectories t on t.id = l.object_id "
        "join step_groups s on s.group_id = t.group_id "
        "where s.step_id = :step and l.object_kind = 'trajectory' and l.code = 'trained'"
    )
    found = conn.execute(sa.text(query), {"step": step_id}).all()
    details = [(id_, json.loads(detail) if isinstance(detail, str) else detail) for id_, detail in found]
    return sorted({id_ for id_, detail in details if detail and detail.get("version") == version})


def _take_back(
    conn: sa.Connection, step: sa.Row[tuple[str]], trained: list[str], version: str, *, decided: bool
) -> None:
    state, reason = ("left_out", "version_rejected") if decided else ("tried", None)
    conn.execute(
        sa.text(
            "update groups set state = :state, reason = :reason where state = 'trained' "
            "and id in (select group_id from step_groups where step_id = :step)"
        ),
        {"state": state, "reason": reason, "step": step.id},
    )
    detail = json.dumps({"version": version, "why": "its version is not in the line of the live one"})
    for trajectory_id in trained:
        conn.execute(
            sa.text(
                "insert into ledger (project_id, object_kind, object_id, code, detail, at) "
                "select :project, 'trajectory', :run, 'untrained', :detail, coalesce(max(at), 0) from ledger"
            ),
            {"project": step.project_id, "run": trajectory_id, "detail": detail},
        )
