"""The judges behind a campaign's figures, and when they changed: figures of two judges are not comparable.

Owns: a judge's identity (its model, the version that its provider reports, and the recipe's hash, which covers the
prompt's version), who judged a step, and since which step one judge made all figures. Refuses: which figures are
compared after a change (`trainer.campaign.stop_evaluation`), and recording events (`trainer.campaign.record`).

A provider may alternate between several versions, and one judge of a panel may fail. So a change is reported once for
each judge that is new to the campaign, not each time that one returns. When one of two judges takes over scoring from
the other, each switch is reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from typing import Final

from sqlalchemy import ColumnElement, and_, or_, select

from recorder.queue.campaigns import CampaignView
from recorder.queue.judging import cross_checks, switches
from recorder.queue.judging.switches import STRONG
from recorder.queue.step_membership import is_of_step
from recorder.store.database import Store
from recorder.store.schema import attempts, groups, scores
from recorder.views.campaigns.events import JUDGE_CHANGED, SettingChanged, StepJudges

AND: Final = " + "  # between the versions of a panel's judges, in a score
_HASH_CHARS: Final = 12


@dataclass(frozen=True, slots=True, order=True)
class JudgeIdentity:
    """The source of a score. `model` empty: no model, but functions, rules or people."""

    model: str
    version: str
    recipe: str

    def __str__(self) -> str:
        return f"{self.version or self.model or 'no model'} by recipe {self.recipe[:_HASH_CHARS]}"


async def step_judges(store: Store, campaign: CampaignView, step: int) -> frozenset[JudgeIdentity]:
    """The judges of the current scores of a step's attempts, including its validation's."""
    mine = and_(
        is_of_step(campaign.id, step),
        attempts.c.group_external_id == groups.c.external_id,
    )
    query = (
        select(scores.c.judge_model, scores.c.judge_version, scores.c.recipe_hash)
        .select_from(scores.join(groups, groups.c.current_score_id == scores.c.id))
        .where(groups.c.project_id == campaign.project_id, groups.c.campaign_id == campaign.id)
        .where(select(attempts.c.id).where(mine).exists(), or_(scores.c.judge_model.is_(None), _was_judged()))
        .distinct()
    )
    async with store.read() as conn:
        return frozenset(
            JudgeIdentity(row.judge_model or "", version, row.recipe_hash)
            for row in await conn.execute(query)
            for version in (row.judge_version or "").split(AND)
        )


def _was_judged() -> ColumnElement[bool]:
    """False for scores assigned without a judge, because the trajectories were identical."""
    return or_(scores.c.judge_version.is_not(None), scores.c.tokens_in > 0)


@dataclass(frozen=True, slots=True)
class JudgeSwitch:
    """The newest switch between two judges of a campaign's groups: its number, and the model that scores now."""

    number: int
    model: str


async def current_switch(store: Store, campaign_id: str) -> JudgeSwitch | None:
    """The newest switch, if there are two judges and one ever happened."""
    found = await cross_checks.newest_of_campaign(store, campaign_id)
    if found is None or found[1] is None:
        return None
    return JudgeSwitch(found[1].number, found[1].judge_model)


async def judge_agreement(store: Store, campaign_id: str) -> dict[str, float]:
    """How far the judge and the strong judge agree on a campaign's groups, and whether the strong one scores.

    As figures of a step: health.strong_agreement (mean tau-b), health.strong_scores (0 or 1); empty with one judge.
    """
    found = await cross_checks.newest_of_campaign(store, campaign_id)
    if found is None or found[0].mean is None:
        return {}
    newest, turn = found
    scores_now = float(switches.scoring_judge(turn, newest.pair) == STRONG)
    return {"health.strong_agreement": found[0].mean, "health.strong_scores": scores_now}


def judge_change(
    rows: Sequence[StepJudges], step: int, judges: frozenset[JudgeIdentity], turn: JudgeSwitch | None = None
) -> tuple[StepJudges, SettingChanged | None] | None:
    """What to store and report of a step judged by `judges`; None: nothing is new.

    `rows`: what was stored of earlier steps. A reported change applies after the last step that other judges scored, or
    this step if they scored it too. The first judge is not reported. `turn`: which of two judges scores now. A judge
    that takes over again is a change as soon as it has judged.
    """
    known = {judge for row in rows for judge in _judges(row)}
    taken = turn is not None and turn.number > _turn(rows) and _is_taken(judges, turn, rows)
    if judges <= known and not taken:
        return None
    number = turn.number if taken and turn is not None else _turn(rows)
    row = StepJudges(step, [list(astuple(judge)) for judge in sorted(judges)], number)
    if not known:
        return row, None
    new = judges - known or _by(judges, turn)
    after = step if judges - new else step - 1
    return row, SettingChanged(after, JUDGE_CHANGED, _names(_judges(rows[-1])), _names(new))


def _turn(rows: Sequence[StepJudges]) -> int:
    return rows[-1].turn if rows else 0


def _is_taken(judges: frozenset[JudgeIdentity], turn: JudgeSwitch, rows: Sequence[StepJudges]) -> bool:
    """Whether the judge that is to score has judged, and another one had before."""
    before = frozenset(_judges(rows[-1])) if rows else frozenset[JudgeIdentity]()
    return bool(_by(judges, turn) and before - _by(before, turn))


def _by(judges: frozenset[JudgeIdentity], turn: JudgeSwitch | None) -> frozenset[JudgeIdentity]:
    """Those of the judges that are to score now."""
    names = set(turn.model.split(AND)) if turn is not None else set()
    return frozenset(judge for judge in judges if not names.isdisjoint(judge.model.split(AND)))


def _judges(row: StepJudges) -> list[JudgeIdentity]:
    return [JudgeIdentity(*one) for one in row.judges]


def _names(judges: Iterable[JudgeIdentity]) -> str:
    return ", ".join(map(str, sorted(judges)))
