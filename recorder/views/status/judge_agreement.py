"""How far two judges of an alias and judge recipe agree, and which of them scores.

Owns: combining the newest figures with the newest switch, and the alarms. Refuses: the rule for switching
(`recorder.queue.judging.switches`) and the rows (`recorder.queue.judging.cross_checks`,
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
    """Two judges of an alias's groups by one judge recipe, as of the newest group that both should judge.

    `scores`: the judge that scores now. `mean`: the mean Kendall's tau-b over the newest `groups` that both judged,
    with its interval from `low` to `high`. `switch`: the newest change of the scoring judge, as text. `failed`: the
    error if the other judge failed. `alarms`: sentences for the operator. Times are unix seconds.
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
    """Return the agreement for each alias and judge recipe with two judges.

    A judge that is no longer configured keeps its last figures and scores nothing.
    """
    newest = {(one.alias, one.recipe): one for one in await switches.project_switches(conn, project_id)}
    found = await cross_checks.newest_of_each(conn, project_id)
    return [_agreement(one, newest.get((one.alias, one.recipe))) for one in found]


def _agreement(of: CrossCheck, switch: JudgeSwitch | None) -> JudgeAgreement:
    scores = switches.scoring_judge(switch, of.pair)
    return JudgeAgreement(
        alias=of.alias,
        recipe=of.recipe,
        scores=scores,
        groups=of.groups,
        mean=of.mean,
        low=of.low,
        high=of.high,
        at=of.created_at,
        since=switch.at if switch is not None else None,
        switch=str(switch) if switch is not None else None,
        failed=of.failed,
        alarms=tuple(_alarms(of, switch if scores == STRONG else None)),
    )


def _alarms(of: CrossCheck, drifted: JudgeSwitch | None) -> Iterator[str]:
    if drifted is not None:
        now = "" if of.mean is None else f"; now by {of.mean:.2f}"
        yield f"{DRIFT}: {drifted}{now} (docs/judging.md)"
    if of.failed is not None:
        subject = f"{of.alias or 'no alias'}, recipe {of.recipe}"
        yield f"{subject}: the second judge failed on the newest group: {of.failed}"
