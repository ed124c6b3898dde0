"""How two judges stand to one another, by alias and recipe: how far they agree, and which of them scores.

Owns: putting the newest figures beside whose turn it is, and the sentences. Refuses: the rule
(`recorder.queue.judging.switches`), the rows (`recorder.queue.judging.cross_checks`,
`recorder.queue.judging.switches`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.queue.judging import cross_checks, switches
from recorder.queue.judging.cross_checks import CrossCheck
from recorder.queue.judging.switches import DRIFT, STRONG, Judge, JudgeSwitch


@dataclass(frozen=True, slots=True)
class JudgeAgreement:
    """Two judges of an alias's groups by one recipe, as of the newest group that both were to judge.

    `scores`: which of them does. `groups`, and the mean tau-b with where it is: over the newest that both judged.
    `turn`: the newest change of who scores, in words. `failed`: why nothing came of asking the other one. `alarms`:
    what somebody should look at, as sentences.
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
    switch: str | None = None
    failed: str | None = None
    alarms: tuple[str, ...] = ()


async def list_judge_agreement(conn: AsyncConnection, project_id: str) -> list[JudgeAgreement]:
    """Wherever two judges judge. One that is set no more stands as it last stood, and scores nothing."""
    newest = {(one.alias, one.recipe): one for one in await switches.project_switches(conn, project_id)}
    found = await cross_checks.newest_of_each(conn, project_id)
    return [_stand(one, newest.get((one.alias, one.recipe))) for one in found]


def _stand(of: CrossCheck, turn: JudgeSwitch | None) -> JudgeAgreement:
    scores = switches.scoring_judge(turn, of.pair)
    return JudgeAgreement(
        alias=of.alias,
        recipe=of.recipe,
        scores=scores,
        groups=of.groups,
        mean=of.mean,
        low=of.low,
        high=of.high,
        at=of.created_at,
        since=turn.at if turn is not None else None,
        switch=str(turn) if turn is not None else None,
        failed=of.failed,
        alarms=tuple(_alarms(of, turn if scores == STRONG else None)),
    )


def _alarms(of: CrossCheck, drifted: JudgeSwitch | None) -> Iterator[str]:
    if drifted is not None:
        now = "" if of.mean is None else f"; now by {of.mean:.2f}"
        yield f"{DRIFT}: {drifted}{now} (docs/judging.md)"
    if of.failed is not None:
        whose = f"{of.alias or 'no alias'}, recipe {of.recipe}"
        yield f"{whose}: the judge that is asked beside said nothing of the newest group: {of.failed}"
