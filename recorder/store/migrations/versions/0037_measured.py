"""Groups of validations, gates and evaluations are `measured`; they were `scored`, or excluded with ledger entries.

Their reason stays: it says why they have no score. Ledger entries are never deleted: those that excluded such a group
or one of its trajectories get the code `measured`, which is no exclusion.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0037"
down_revision = "0036"
branch_labels = None
depends_on = None

_groups = sa.table("groups", sa.column("id"), sa.column("state"), sa.column("reason"))
_members = sa.table("trajectories", sa.column("id"), sa.column("group_id"), sa.column("purpose"))
_ledger = sa.table("ledger", sa.column("object_kind"), sa.column("object_id"), sa.column("code"))


def upgrade() -> None:
    of_group = _members.c.group_id == _groups.c.id
    measures = sa.or_(
        _groups.c.reason == "measured", sa.exists().where(of_group, _members.c.purpose.in_(("val", "eval")))
    )
    measures = sa.and_(measures, ~sa.exists().where(of_group, _members.c.purpose == "train"))
    excluded = sa.and_(_groups.c.state == "left_out", _groups.c.reason == _ledger.c.code, measures)

    group = sa.exists().where(_groups.c.id == _ledger.c.object_id, excluded)
    own = _members.alias("own")
    member = sa.exists().where(own.c.id == _ledger.c.object_id, own.c.group_id == _groups.c.id, excluded)
    for kind, was_excluded in (("group", group), ("trajectory", member)):
        op.execute(sa.update(_ledger).where(_ledger.c.object_kind == kind, was_excluded).values(code="measured"))
    op.execute(sa.update(_groups).where(_groups.c.state.in_(("left_out", "scored")), measures).values(state="measured"))
