"""How two judges stand to one another, by alias and recipe: how far they agree, and which of them scores.

Owns: putting the newest figures beside whose turn it is, and the sentences. Refuses: the rule
(`recorder.judged.drift`), the rows (`recorder.judged.seconds`, `recorder.judged.turns`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.judged import seconds, turns
from recorder.judged.drift import STRONG, Judge
from recorder.judged.seconds import Second
from recorder.judged.turns import DRIFT, Turn


@dataclass(frozen=True, slots=True)
class JudgesStand:
    """Two judges of an alias's groups by one recipe, as of the newest group that both were to judge.

    `scores`: which of them does. `groups`, and the mean tau-b with where it is: over the newest that both judged.
    `turn`: the newest change of who scores, in words. `failed`: why nothing came of asking the other one.
    """

    alias: str
    recipe: str
    scores: Judge
    groups: int
    mean: float | None
    low: float | None
    high: float | None
    at: float
    since: float | None = None
    turn: str | None = None
    failed: str | None = None

    def alarms(self) -> Iterator[str]:
        """What somebody should look at, as sentences."""
        if self.scores == STRONG:
            now = "" if self.mean is None else f"; now by {self.mean:.2f}"
            yield f"{DRIFT}: {self.turn}{now} (docs/judging.md)"
        if self.failed is not None:
            of = f"{self.alias or 'no alias'}, recipe {self.recipe}"
            yield f"{of}: the judge that is asked beside said nothing of the newest group: {self.failed}"


async def judges_stand(conn: AsyncConnection, project_id: str) -> list[JudgesStand]:
    """Wherever two judges judge. One that is set no more stands as it last stood, and scores nothing."""
    newest = {(one.alias, one.recipe): one for one in await turns.of_project(conn, project_id)}
    found = await seconds.newest_of_each(conn, project_id)
    return [_stand(one, newest.get((one.alias, one.recipe))) for one in found]


def _stand(of: Second, turn: Turn | None) -> JudgesStand:
    return JudgesStand(
        alias=of.alias,
        recipe=of.recipe,
        scores=turns.scores_now(turn, of.pair),
        groups=of.groups,
        mean=of.mean,
        low=of.low,
        high=of.high,
        at=of.created_at,
        since=turn.at if turn is not None else None,
        turn=str(turn) if turn is not None else None,
        failed=of.failed,
    )
