"""Two judges: which one scores a group, and the cross-check by the other that measures their agreement.

Owns: the assignment, which groups both judges see, the prompt of the other judge, and comparing its scores. Refuses:
the rule of switching (`recorder.queue.judging.switches`), the rows (`recorder.queue.judging.cross_checks`), and scoring
(`judge.scoring.group_score`). A cross-check changes no reward, and its failure never delays a score.

Which groups both judges see follows from the groups' ids, so every worker draws the same ones at any time.
"""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from judge.errors import JudgeError, JudgeFailed, JudgeUsage
from judge.rewards.judge_context import JudgeContext, KindResult
from judge.rewards.kinds import BY_MODEL, REWARDS
from judge.scoring.group_score import GroupScore
from judge.scoring.reward_parts import recipe_hash
from judge.settings import ONE_BY_ONE, JudgeSettings, RewardSettings
from recorder.base.rate_limited_log import RateLimitedLog
from recorder.errors import StoreError
from recorder.queue.judging import cross_checks, switches
from recorder.queue.judging.cross_checks import NewCrossCheck, PartVerdict, SwitchRule
from recorder.queue.judging.switches import CHEAP, STRONG, Judge, group_tau
from recorder.store.database import Project, Store
from recorder.views.trajectories.shapes import GroupView

log = logging.getLogger(__name__)

MOST_WHY_CHARS: Final = 500
Values = Mapping[str, Mapping[str, float | None]]  # part → trajectory id → value


@dataclass(frozen=True, slots=True)
class JudgeAssignment:
    """Which judge scores a group (`scores`), and which one cross-checks it (`beside`; None: there is no second judge).

    Both are the contexts that `open_judge_context` made, not yet those of the group's recipe. `pair`: a hash of both
    settings.
    """

    judge: Judge
    scores: JudgeContext
    beside: JudgeContext | None = None
    recipe: str = ""
    pair: str = ""

    @property
    def other(self) -> Judge:
        """Which of the two cross-checks."""
        return STRONG if self.judge == CHEAP else CHEAP


def is_drawn(group_id: str, every: int) -> bool:
    """Whether both judges see a group: one in `every` is drawn, by a hash of its id."""
    return int.from_bytes(blake2b(f"second judge\0{group_id}".encode(), digest_size=8).digest()) % every == 0


def pair_hash(cheap: JudgeSettings, strong: JudgeSettings) -> str:
    """A hash of both judges' settings under one recipe: agreement under other settings does not carry over.

    Code is not included: it decides none of the compared parts.
    """
    both = json.dumps([recipe_hash(cheap), recipe_hash(strong)])
    return blake2b(both.encode(), digest_size=16).hexdigest()


async def assign_judge(store: Store, group: GroupView, context: JudgeContext) -> JudgeAssignment:
    """Who judges a group. Raises StoreError, and RecipeUnknown for an unknown recipe."""
    strong = context.strong
    if strong is None or not _asked((of := context.of(group)).settings):
        return JudgeAssignment(CHEAP, context)
    pair = pair_hash(context.settings.by_recipe(of.recipe), strong.settings.by_recipe(of.recipe))
    newest = await switches.current_switch(Project(store, group.project_id), group.alias or "", of.recipe)
    if switches.scoring_judge(newest, pair) == STRONG:
        return JudgeAssignment(STRONG, strong, context, of.recipe, pair)
    return JudgeAssignment(CHEAP, context, strong, of.recipe, pair)


async def settle_switch(project: Project, settings: JudgeSettings) -> None:
    """Return scoring to the cheap judge if the judges that disagreed are no longer configured. Raises StoreError."""
    strong = settings.by_strong()
    names = settings.known_recipes() if strong is not None else []
    pairs = {name: pair_hash(settings.by_recipe(name), strong.by_recipe(name)) for name in names if strong is not None}
    for taken in await switches.end_outdated_switches(project, pairs, settings.ranked_by or settings.model):
        log.warning("%s", taken)


class CrossChecker:
    """Asks the judge that did not score, for one worker."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._failing = RateLimitedLog(log)

    async def look(self, group: GroupView, seat: JudgeAssignment, scored: GroupScore) -> None:
        """Cross-check a scored group, if it is drawn, and store the result.

        Never raises: a failure costs no group its score.
        """
        try:
            await self._look(group, seat, scored)
        except StoreError as e:
            self._failing(logging.WARNING, "group %s: its cross-check was dropped: %s", group.id, e)
        # A boundary: a bug in the cross-check, which changes no reward, must not stop scoring.
        except Exception as e:  # noqa: BLE001
            self._failing(logging.ERROR, "group %s: its cross-check failed", group.id, error=e)

    async def _look(self, group: GroupView, seat: JudgeAssignment, scored: GroupScore) -> None:
        """Only if a judge was just asked for the score: not for a stored reply or a human choice."""
        strong = (seat.scores if seat.judge == CHEAP else seat.beside or seat.scores).settings.strong
        if seat.beside is None or strong is None or not is_drawn(group.id, strong.every) or not _judged_now(scored):
            return
        if await cross_checks.is_cross_checked(self._store, group.id, seat.pair):
            return
        own, beside = seat.scores.of(group).settings, seat.beside.of(group)
        result = await _ask(group, beside, scored)
        if result.failed is not None:
            self._failing(logging.WARNING, "group %s: its cross-check has no result: %s", group.id, result.failed)
        names = {seat.judge: _name(own), seat.other: _name(beside.settings)}
        rule = SwitchRule(strong.min_agreement, strong.window, names[CHEAP], names[STRONG])
        new = _new(group, seat, names[seat.other], scored, result)
        if (
            taken := await cross_checks.record_cross_check(Project(self._store, group.project_id), group.id, new, rule)
        ) is not None:
            log.warning("%s", taken)


@dataclass(frozen=True, slots=True)
class _CrossCheckResult:
    """The second judge's result. `failed`: why there is none."""

    found: Mapping[str, KindResult]
    spent: JudgeUsage
    failed: str | None = None

    @property
    def version(self) -> str | None:
        """The version that its provider reported."""
        return next((one.ruling.version for one in self.found.values() if one.ruling), None)


async def _ask(group: GroupView, context: JudgeContext, scored: GroupScore) -> _CrossCheckResult:
    """Ask about the trajectories and parts that the scoring judge was asked about."""
    scores = _values(scored)
    found: dict[str, KindResult] = {}
    spent = JudgeUsage()
    try:
        for reward in _asked(context.settings):
            members = [one for one in group.members if one.id in scores.get(reward.name, {})]
            if members:
                judged = found[reward.name] = await REWARDS[reward.kind](reward, group, members, context)
                spent += judged.ruling.spent if judged.ruling is not None else JudgeUsage()
    except JudgeFailed as e:
        return _CrossCheckResult({}, spent + e.spent, f"{e.code}: {e}"[:MOST_WHY_CHARS])
    except JudgeError as e:
        return _CrossCheckResult({}, spent, str(e)[:MOST_WHY_CHARS])
    return _CrossCheckResult(found, spent)


def _new(
    group: GroupView, seat: JudgeAssignment, model: str, scored: GroupScore, result: _CrossCheckResult
) -> NewCrossCheck:
    versions = {seat.judge: scored.new.judge_version, seat.other: result.version}
    return NewCrossCheck(
        alias=group.alias or "",
        recipe=seat.recipe,
        pair=seat.pair,
        judge=seat.other,
        judge_model=model,
        cheap_version=versions[CHEAP],
        strong_version=versions[STRONG],
        failed=result.failed,
        parts=[
            PartVerdict(id_, name, part.value, part.explanation)
            for name, judged in result.found.items()
            for id_, part in judged.parts.items()
        ],
        tau=_tau(seat, result, _values(scored)),
        tokens_in=result.spent.tokens_in,
        tokens_cached=result.spent.tokens_cached,
        tokens_out=result.spent.tokens_out,
        cost_usd=result.spent.cost_usd,
        latency_s=result.spent.latency_s,
    )


def _tau(seat: JudgeAssignment, result: _CrossCheckResult, scores: Values) -> float | None:
    """The agreement of both over the parts that both judged; None after a human choice."""
    if result.failed is not None or any(judged.chosen for judged in result.found.values()):
        return None
    own = [{id_: part.value for id_, part in judged.parts.items()} for judged in result.found.values()]
    other = [scores[name] for name in result.found]
    return group_tau(other, own) if seat.judge == CHEAP else group_tau(own, other)


def _judged_now(scored: GroupScore) -> bool:
    """Whether a judge was just asked for this score, and the score is its own."""
    ruling, new = scored.ruling, scored.new
    return ruling is not None and ruling.asked > 0 and new.disputed is None and not scored.chosen


def _values(scored: GroupScore) -> Values:
    """The values of a score's parts for each trajectory."""
    found: dict[str, dict[str, float | None]] = defaultdict(dict)
    for part in scored.new.parts:
        found[part.part][part.trajectory_id] = part.value
    return found


def _asked(settings: JudgeSettings) -> Sequence[RewardSettings]:
    """The parts of a recipe that a judge model decides and that affect its reward."""
    return [one for one in settings.in_force() if one.kind in BY_MODEL and one.weight > 0]


def _name(settings: JudgeSettings) -> str:
    """The name of the judge, for people."""
    kinds = {one.kind for one in _asked(settings)}
    asked = [settings.ranked_by if "ruler" in kinds else "", settings.model if kinds & ONE_BY_ONE else ""]
    return " + ".join(dict.fromkeys(one for one in asked if one))
