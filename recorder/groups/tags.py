"""Tags of a run: what people call it, to find it again.

Owns: setting and removing one by hand. Refuses: those that a client sends with its calls (`recorder.capture`).
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import select, update

from recorder.errors import NotFound
from recorder.ids import check_external
from recorder.store.project import Project
from recorder.store.schema import trajectories

MOST: Final = 100
MAX_CHARS: Final = 1000  # of a value


async def set_tag(project: Project, trajectory_id: str, name: str, value: str | None) -> None:
    """Give a run a tag; None takes it away. Raises NotFound, InvalidId (name), ValueError (too long, too many)."""
    if value is not None:
        _check(name, value)
    t = trajectories.c
    own = select(t.tags).where(t.id == trajectory_id, t.project_id == project.id).with_for_update()
    async with project.store.write() as conn:
        row = (await conn.execute(own)).first()
        if row is None:
            raise NotFound(f"no trajectory {trajectory_id!r} in project {project.id!r}")
        tags = {key: kept for key, kept in row.tags.items() if key != name}
        if value is not None:
            tags[name] = value
        if len(tags) > MOST:
            raise ValueError(f"the run has {len(row.tags)} tags already: remove one first")
        await conn.execute(update(trajectories).where(t.id == trajectory_id).values(tags=tags))


def _check(name: str, value: str) -> None:
    check_external(name, "the tag")
    if len(value) > MAX_CHARS:
        raise ValueError(f"the tag {name!r} has {len(value)} characters: at most {MAX_CHARS}")
