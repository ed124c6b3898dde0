"""Rescore groups under the current recipe, concurrently, and compare the new scores with the old ones.

Owns: the outcome of each group (the new score is current or history; the group is skipped; it failed) and the tally.
Refuses: which groups those are (`recorder.queue.judging.rescoring`), scoring (`judge.scoring.group_score`), and the
output (`judge.commands.score_view`). A group that fails keeps its state and its score.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final, Literal

from judge.errors import JudgeFailed, JudgeMisconfigured, JudgeUnavailable, JudgeUsage, RecipeUnknown
from judge.rewards.judge_context import JudgeContext
from judge.scoring.cross_check import assign_judge
from judge.scoring.group_score import GroupScore, foresee_score, score_group
from judge.scoring.manual_score import make_current
from judge.scoring.setup import current_recipe
from judge.scoring.worker import RENEWALS_A_LEASE
from recorder.errors import Conflict, NotFound, StoreError
from recorder.llm.rubric import check_functions
from recorder.queue import claims
from recorder.queue.campaigns import list_campaigns, load_rubrics
from recorder.queue.claims import GroupClaim
from recorder.queue.groups.disputes import CODE as DISPUTED
from recorder.queue.judging import scores
from recorder.queue.judging.rescoring import KEEPING, RescoreCandidate, list_rescorable
from recorder.queue.leases import holder_name
from recorder.registry.aliases import get_alias
from recorder.states import GroupState
from recorder.stats.agreement import PairAgreement, compare_rewards
from recorder.store.database import Project, Store
from recorder.views.trajectories.shapes import GroupView
from recorder.views.trajectories.transcripts import load_group

log = logging.getLogger(__name__)

IN_HAND = "a judge is scoring it"
CHANGED = "it was claimed or excluded while it was judged"
DELETED = "it was deleted meanwhile"
_WAITING: Final = (GroupState.READY, GroupState.UNSCORED)  # any running judge may take these


@dataclass(frozen=True, slots=True)
class RescoreOutcome:
    """The outcome of one group. `current`: the new score is its current one; `history`: it keeps its old one."""

    group_id: str
    done: Literal["current", "history", "passed", "failed"]
    code: str = ""  # the reason code of a failure
    why: str = ""  # why it failed or was skipped
    spent: JudgeUsage = field(default_factory=JudgeUsage)
    pairs: PairAgreement | None = None  # None: it had no score to compare with, or got none


Tell = Callable[[RescoreOutcome], None]


@dataclass(slots=True)
class RescoreTally:
    """The outcomes of `groups`; `stopped`: not all were processed."""

    groups: int = 0
    stopped: bool = False
    done: dict[str, list[RescoreOutcome]] = field(default_factory=lambda: defaultdict(list))
    spent: JudgeUsage = field(default_factory=JudgeUsage)

    def add(self, outcome: RescoreOutcome) -> None:
        """Count one group."""
        self.done[outcome.done].append(outcome)
        self.spent += outcome.spent

    @contextmanager
    def until_stopped(self) -> Iterator[None]:
        """Treat an interruption (Ctrl-C) as the end: what was saved stays saved and is reported."""
        try:
            yield
        except asyncio.CancelledError:
            self.stopped = True

    @property
    def over(self) -> int:
        """The number of processed groups."""
        return sum(map(len, self.done.values()))

    @property
    def scored(self) -> list[RescoreOutcome]:
        """The groups that got a score."""
        return [*self.done["current"], *self.done["history"]]

    @property
    def pairs(self) -> PairAgreement:
        """The agreement of old and new scores, over all groups that had a score."""
        return sum((one.pairs for one in self.scored if one.pairs), PairAgreement())

    def failed(self) -> dict[str, list[RescoreOutcome]]:
        """The failed groups by reason, the most frequent first."""
        by_code: dict[str, list[RescoreOutcome]] = defaultdict(list)
        for one in self.done["failed"]:
            by_code[one.code].append(one)
        return dict(sorted(by_code.items(), key=lambda item: (-len(item[1]), item[0])))


async def choose_groups(
    project: Project,
    context: JudgeContext,
    *,
    campaign: str | None = None,
    alias: str | None = None,
    only_stale: bool = False,
    anew: bool = False,
) -> list[RescoreCandidate]:
    """The groups to rescore: all, or those of a campaign (by name or id) or an alias.

    `only_stale`: only those scored by another recipe than the current one. `anew`: also those excluded because their
    version was rejected. Raises NotFound, FunctionsDown.
    """
    alias_id = (await get_alias(project, alias)).id if alias is not None else None
    campaign_id = await _campaign(project, campaign) if campaign is not None else None
    found = await list_rescorable(project, anew=anew, alias_id=alias_id, campaign_id=campaign_id)
    if not only_stale:
        return found
    scored = [one for one in found if one.recipe_hash is not None]
    current = _CurrentRecipe(context, await _checks(project.store, scored) if context.rubrics else {})
    return [one for one in scored if await current.differs(one)]


async def _checks(store: Store, groups: Sequence[RescoreCandidate]) -> dict[str, frozenset[str]]:
    """The functions that decide criteria, by scenario."""
    ids = {one.scenario_id for one in groups if one.scenario_id is not None}
    return {id_: check_functions([rubric]) for id_, rubric in (await load_rubrics(store, ids)).items()}


class _CurrentRecipe:
    """The current recipes of groups, each computed once. `checks`: functions in rubrics, by scenario."""

    def __init__(self, context: JudgeContext, checks: Mapping[str, frozenset[str]]) -> None:
        self._context = context
        self._checks = checks
        self._hashes: dict[tuple[str, str | None, frozenset[str]], set[str]] = {}

    async def differs(self, one: RescoreCandidate) -> bool:
        """Whether a group was scored by another recipe than the current one, by either judge. Raises FunctionsDown."""
        try:
            context = self._context.of(one)
        except RecipeUnknown:  # reported when it is scored
            return True
        checks = self._checks.get(one.scenario_id or "", frozenset[str]())
        key = context.recipe, one.alias, checks
        if key not in self._hashes:
            strong = self._context.strong
            by = [context, *([strong.of(one)] if strong is not None else [])]
            self._hashes[key] = {await current_recipe(each, checks) for each in by}
        return one.recipe_hash not in self._hashes[key]


async def _campaign(project: Project, name: str) -> str:
    there = await list_campaigns(project)
    for campaign in there:
        if name in (campaign.id, campaign.name):
            return campaign.id
    names = ", ".join(campaign.name for campaign in there) or "none yet"
    raise NotFound(f"no campaign {name!r} in project {project.id!r}; there is: {names}")


async def rescore_groups(
    store: Store,
    groups: Sequence[RescoreCandidate],
    context: JudgeContext,
    tell: Tell,
    *,
    at_once: int,
    lease_s: float,
    anew: bool = False,
) -> None:
    """Score groups and save, `at_once` concurrently. `anew`: also those excluded because of their version.

    A group that waits for a judge is claimed before it is judged, so that it is judged once. A group with a score is
    claimed once a new score exists, so that a failing judge does not cost it the old one.

    After an interruption, saved scores stay; a score that is being written is completed. Raises StoreError,
    JudgeMisconfigured.
    """

    async def one(group: GroupView, of: RescoreCandidate) -> None:
        if group.state not in _WAITING:
            scored = await score_group(group, (await assign_judge(store, group, context)).scores)
            await _to_its_end(_save(store, group, scored, tell, lease_s, anew))
            return
        async with _taken(store, group, lease_s) as claim:
            if claim is None:
                tell(RescoreOutcome(group.id, "passed", why=IN_HAND))
                return
            scored = await score_group(group, (await assign_judge(store, group, context)).scores)
            await _to_its_end(_hand_in(store, claim, scored, tell))

    await _side_by_side(store, groups, one, tell, at_once)


async def count_requests(
    store: Store, groups: Sequence[RescoreCandidate], context: JudgeContext, tell: Tell, *, at_once: int
) -> None:
    """Count what `rescore_groups` would request, as far as foreseeable; the judges in `context` count."""

    async def one(group: GroupView, of: RescoreCandidate) -> None:
        await foresee_score(group, context)
        tell(RescoreOutcome(group.id, "history" if group.state in KEEPING else "current"))

    await _side_by_side(store, groups, one, tell, at_once)


async def _side_by_side(
    store: Store,
    groups: Sequence[RescoreCandidate],
    do: Callable[[GroupView, RescoreCandidate], Awaitable[None]],
    tell: Tell,
    at_once: int,
) -> None:
    waiting = iter(groups)

    async def work() -> None:
        for of in waiting:  # shared: each worker takes the next group
            if (outcome := await _guarded(store, of, do)) is not None:
                tell(outcome)

    try:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(at_once):
                tasks.create_task(work())
    except* (StoreError, JudgeMisconfigured) as errors:
        raise errors.exceptions[0] from None


async def _guarded(
    store: Store, of: RescoreCandidate, do: Callable[[GroupView, RescoreCandidate], Awaitable[None]]
) -> RescoreOutcome | None:
    """Process one group; return what prevented it, if anything did."""
    try:
        group = await load_group(store, of.id)
        if group.state is GroupState.JUDGING:
            return RescoreOutcome(of.id, "passed", why=IN_HAND)
        await do(group, of)
    except NotFound:
        return RescoreOutcome(of.id, "passed", why=DELETED)
    except JudgeUnavailable as e:
        if of.state is GroupState.LEFT_OUT or (of.state is GroupState.MEASURED and of.reason):  # and stays so
            return RescoreOutcome(of.id, "passed", why=str(e))
        return RescoreOutcome(of.id, "failed", e.code, str(e))
    except JudgeFailed as e:
        return RescoreOutcome(of.id, "failed", e.code, str(e), e.spent)
    except (StoreError, JudgeMisconfigured):
        raise
    except Conflict as e:
        return RescoreOutcome(of.id, "failed", "score_not_written", str(e))
    # A boundary: a bug that one group triggers must not stop the others.
    except Exception as e:
        log.exception("group %s cannot be scored: this is a fault of Hone", of.id)
        return RescoreOutcome(of.id, "failed", "judge_fault", f"{type(e).__name__}: {e}")
    return None


@asynccontextmanager
async def _taken(store: Store, group: GroupView, lease_s: float) -> AsyncIterator[GroupClaim | None]:
    """A waiting group, claimed until the end of the block and put back unchanged if it has no score then.

    None: it is not free, or has changed.
    """
    due_at = await claims.judging_due_at(store, group.id)
    claim = await claims.claim_one_for_judging(store, group.id, holder_name(), lease_s, free=(group.state,))
    if claim is None:
        yield None
        return
    keeping = asyncio.create_task(_kept(store, claim, lease_s))
    try:
        yield claim
    finally:
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
        with suppress(Conflict):  # it is scored, or claimed by another process
            await _to_its_end(_put_back(store, claim, group.state, due_at))


async def _put_back(store: Store, claim: GroupClaim, was: GroupState, due_at: float | None) -> None:
    if was is GroupState.UNSCORED:
        await claims.return_unscored(store, claim, due_at)
    else:
        await claims.return_claim(store, claim)


async def _kept(store: Store, claim: GroupClaim, lease_s: float) -> None:
    while True:
        await asyncio.sleep(lease_s / RENEWALS_A_LEASE)
        with suppress(StoreError):  # retried, or reported when the score is written
            await claims.renew_claim(store, claim, lease_s)


async def _hand_in(store: Store, claim: GroupClaim, scored: GroupScore, tell: Tell) -> None:
    before = await scores.score_rewards(store, claim.score_id) if claim.score_id else {}
    await scores.record_score(store, claim, scored.new)
    tell(_became(claim.group_id, scored, _pairs(before, scored)))


def _became(group_id: str, scored: GroupScore, pairs: PairAgreement | None) -> RescoreOutcome:
    """The outcome for a free group: it has the score, or waits for a person."""
    if scored.new.disputed is not None:
        return RescoreOutcome(group_id, "failed", DISPUTED, scored.new.disputed, _spent(scored))
    return RescoreOutcome(group_id, "current", spent=_spent(scored), pairs=pairs)


def _spent(scored: GroupScore) -> JudgeUsage:
    new = scored.new
    return JudgeUsage(new.tokens_in, new.tokens_cached, new.tokens_out, new.cost_usd, new.latency_s or 0.0)


def _pairs(before: Mapping[str, float | None], scored: GroupScore) -> PairAgreement | None:
    return compare_rewards(before, {id_: part.value for id_, part in scored.rewards.items()}) if before else None


async def _save(store: Store, group: GroupView, scored: GroupScore, tell: Tell, lease_s: float, anew: bool) -> None:
    new, spent = scored.new, _spent(scored)
    before = await scores.score_rewards(store, group.current_score_id) if group.current_score_id else {}
    pairs = _pairs(before, scored)
    if await make_current(store, group.id, new, lease_s, again=anew):
        tell(_became(group.id, scored, pairs))
    elif await scores.record_history(store, group.id, new, KEEPING):
        tell(RescoreOutcome(group.id, "history", spent=spent, pairs=pairs))
    else:
        tell(RescoreOutcome(group.id, "passed", why=CHANGED, spent=spent))


async def _to_its_end(writing: Awaitable[None]) -> None:
    """Await it to its end even when cancelled: half a write would leave a group claimed."""
    task = asyncio.ensure_future(writing)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise
