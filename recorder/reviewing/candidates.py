"""Groups that are worth a person's minutes: judges disagree about them, an alarm names a run, or they were drawn.

Owns: which those are, and which two runs of each. Refuses: runs of two versions (`recorder.reviewing.gains`), who is
asked (`recorder.reviewing.queue`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import select

from recorder.judged.choices import Choice, next_pair
from recorder.judged.disputed import Disputed
from recorder.reviewing.drawing import Draw
from recorder.reviewing.runs import members_of
from recorder.reviewing.shapes import Candidate, Why
from recorder.store import sql
from recorder.store.project import Project
from recorder.store.schema import groups, ledger, trajectories

RANKED: Final = 8  # runs of a group that are put in order: a person answers about 17 pairs for them
SHARE: Final = 0.05  # of judged groups that are drawn
DRAWN: Final = 10  # of these, the newest
_LOOKED_AT: Final = 500  # of the newest judged groups
_ALARMS: Final = 20  # the newest
_NAMED: Final = 8  # runs that one alarm names
_ALARM: Final = "alarm"  # the code of a campaign's alarm in the ledger


def ranking(
    why: Why,
    about: str,
    group: str,
    runs: Sequence[str],
    said: Iterable[Choice],
    passed: Collection[frozenset[str]],
    draw: Draw,
) -> Candidate | None:
    """The next two runs of a group to ask about, until what people said orders all; of many runs, of a few drawn."""
    asked = draw.order(group, runs)[:RANKED]
    pair = next_pair(asked, said, lambda a, b: draw.number("next", a, b), passed)
    return Candidate(why, about, group, pair) if pair is not None else None


def disagreement(one: Disputed) -> str:
    """Why such a group waits."""
    return f"The judges agree by {one.agreement:.2f} about the group: a person's choice scores it"


async def alarmed(project: Project, draw: Draw) -> list[Candidate]:
    """Runs that a campaign's alarms name, newest alarm first, each beside another run of its group."""
    query = select(ledger.c.detail).where(
        ledger.c.project_id == project.id, ledger.c.object_kind == "campaign", ledger.c.code == _ALARM
    )
    async with project.store.read() as conn:
        rows = await conn.execute(query.order_by(ledger.c.id.desc()).limit(_ALARMS))
        details = [row.detail for row in rows if isinstance(row.detail, Mapping)]
    named = {run: detail for detail in reversed(details) for run in _evidence(detail)}
    t = trajectories.c
    query = select(t.id, t.group_id).where(
        sql.passed_by(t.project_id) == project.id, t.id.in_(sorted(named)), t.group_id.is_not(None)
    )
    async with project.store.read() as conn:
        groups_of = {row.id: row.group_id for row in await conn.execute(query)}
    members = await members_of(project, set(groups_of.values()))
    return [
        Candidate(Why.ALARM, _alarm(named[run]), groups_of[run], (run, other))
        for run in reversed(named)
        if run in groups_of
        for other in _beside(run, members.get(groups_of[run], ()), draw)
    ]


def _evidence(detail: Mapping[str, Any]) -> list[str]:
    told = detail.get("evidence")
    named = [one.get("trajectory") for one in told if isinstance(one, Mapping)] if isinstance(told, list) else []
    return [run for run in named if isinstance(run, str)][:_NAMED]


def _alarm(detail: Mapping[str, Any]) -> str:
    return f"The alarm {detail.get('rule')} after step {detail.get('step')} names one of the two"


def _beside(run: str, members: Sequence[str], draw: Draw) -> list[str]:
    """Another run of its group, if it can be shown itself."""
    return draw.order(run, [one for one in members if one != run])[:1] if run in members else []


async def drawn(project: Project, draw: Draw) -> list[Candidate]:
    """A random share of the judged groups, newest first, two runs of each."""
    g = groups.c
    query = select(g.id).where(g.project_id == project.id, g.current_score_id.is_not(None))
    async with project.store.read() as conn:
        newest = (await conn.execute(query.order_by(g.id.desc()).limit(_LOOKED_AT))).scalars()
        taken = [group for group in newest if draw.number("share", group) < SHARE][:DRAWN]
    members = await members_of(project, taken)
    pairs = [(group, draw.order(group, members.get(group, ()))[:2]) for group in taken]
    about = f"Drawn at random, as {SHARE:.0%} of the judged groups are"
    return [Candidate(Why.RANDOM, about, group, (pair[0], pair[1])) for group, pair in pairs if len(pair) == 2]
