"""Groups scored again under the recipe in force, side by side, and how the new scores compare with the old ones.

Owns: what becomes of each group (its new score is current, or history; it is passed over; it failed), and the tally.
Refuses: which groups those are (`recorder.work.again`), how one is scored (`judge.scoring.score`), telling
(`judge.score_view`). A group that fails keeps its state and its score.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final, Literal

from judge.errors import CannotJudge, JudgeFailed, JudgeMisconfigured, RecipeUnknown, Spent
from judge.rewards.kind import Bench
from judge.scoring.bench import recipe_in_force
from judge.scoring.by_hand import make_current
from judge.scoring.score import GroupScore, foresee, score_group
from judge.scoring.second import seat
from judge.scoring.worker import RENEWALS_A_LEASE
from recorder.agreement import Pairs, compare
from recorder.errors import Conflict, NotFound, StoreError
from recorder.holding.holders import holder_name
from recorder.judged.disputed import CODE as DISPUTED
from recorder.reading.transcripts import load_group
from recorder.reading.views import GroupView
from recorder.registry.aliases import get_alias
from recorder.rubric import functions
from recorder.states import GroupState
from recorder.store.database import Store
from recorder.store.project import Project
from recorder.work import claims, scores
from recorder.work.again import KEEPING, Scorable, scorable
from recorder.work.campaigns import list_campaigns, rubrics
from recorder.work.claims import GroupClaim

log = logging.getLogger(__name__)

IN_HAND = "a judge has it in hand"
CHANGED = "somebody took it, or it was left out, while it was judged"
DELETED = "it was deleted meanwhile"
_WAITING: Final = (GroupState.READY, GroupState.UNSCORED)  # any running judge may take these


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one group. `current`: the score is its current one; `history`: it keeps the one it had."""

    group_id: str
    done: Literal["current", "history", "passed", "failed"]
    code: str = ""  # of a failure
    why: str = ""  # of a failure, or why it was passed over
    spent: Spent = field(default_factory=Spent)
    pairs: Pairs | None = None  # None: it had no score to compare with, or got none


Tell = Callable[[Outcome], None]


@dataclass(slots=True)
class Tally:
    """What became of all of `groups`; `stopped`: not all were come to."""

    groups: int = 0
    stopped: bool = False
    done: dict[str, list[Outcome]] = field(default_factory=lambda: defaultdict(list))
    spent: Spent = field(default_factory=Spent)

    def add(self, outcome: Outcome) -> None:
        """Count one group."""
        self.done[outcome.done].append(outcome)
        self.spent += outcome.spent

    @contextmanager
    def until_stopped(self) -> Iterator[None]:
        """Take being cut off (Ctrl-C) for the end: what was saved is saved, and is told."""
        try:
            yield
        except asyncio.CancelledError:
            self.stopped = True

    @property
    def over(self) -> int:
        """How many groups are done with."""
        return sum(map(len, self.done.values()))

    @property
    def scored(self) -> list[Outcome]:
        """The groups that got a score."""
        return [*self.done["current"], *self.done["history"]]

    @property
    def pairs(self) -> Pairs:
        """Old against new, over all groups that had a score."""
        return sum((one.pairs for one in self.scored if one.pairs), Pairs())

    def failed(self) -> dict[str, list[Outcome]]:
        """The groups that failed, by reason, the commonest first."""
        by_code: dict[str, list[Outcome]] = defaultdict(list)
        for one in self.done["failed"]:
            by_code[one.code].append(one)
        return dict(sorted(by_code.items(), key=lambda item: (-len(item[1]), item[0])))


async def choose(
    project: Project,
    bench: Bench,
    *,
    campaign: str | None = None,
    alias: str | None = None,
    only_stale: bool = False,
    anew: bool = False,
) -> list[Scorable]:
    """The groups that are meant: all, or a campaign's (by its name or id), or an alias's.

    `only_stale`: those that were scored, and not by the recipe in force for them. `anew`: also those that were left out
    for their version. Raises NotFound, FunctionsDown.
    """
    alias_id = (await get_alias(project, alias)).id if alias is not None else None
    campaign_id = await _campaign(project, campaign) if campaign is not None else None
    found = await scorable(project, anew=anew, alias_id=alias_id, campaign_id=campaign_id)
    if not only_stale:
        return found
    scored = [one for one in found if one.recipe_hash is not None]
    in_force = _InForce(bench, await _checks(project.store, scored) if bench.rubrics else {})
    return [one for one in scored if await in_force.differs(one)]


async def _checks(store: Store, groups: Sequence[Scorable]) -> dict[str, frozenset[str]]:
    """The functions that decide criteria, by scenario."""
    ids = {one.scenario_id for one in groups if one.scenario_id is not None}
    return {id_: functions([rubric]) for id_, rubric in (await rubrics(store, ids)).items()}


class _InForce:
    """The recipes in force for groups; each is looked at once. `checks`: functions in rubrics, by scenario."""

    def __init__(self, bench: Bench, checks: Mapping[str, frozenset[str]]) -> None:
        self._bench = bench
        self._checks = checks
        self._hashes: dict[tuple[str, str | None, frozenset[str]], set[str]] = {}

    async def differs(self, one: Scorable) -> bool:
        """Whether a group was scored by another recipe than it would be now, by either judge. Raises FunctionsDown."""
        try:
            bench = self._bench.of(one)
        except RecipeUnknown:  # it is told when it is to be scored
            return True
        checks = self._checks.get(one.scenario_id or "", frozenset[str]())
        key = bench.recipe, one.alias, checks
        if key not in self._hashes:
            strong = self._bench.strong
            by = [bench, *([strong.of(one)] if strong is not None else [])]
            self._hashes[key] = {await recipe_in_force(each, checks) for each in by}
        return one.recipe_hash not in self._hashes[key]


async def _campaign(project: Project, name: str) -> str:
    there = await list_campaigns(project)
    for campaign in there:
        if name in (campaign.id, campaign.name):
            return campaign.id
    names = ", ".join(campaign.name for campaign in there) or "none yet"
    raise NotFound(f"no campaign {name!r} in project {project.id!r}; there is: {names}")


async def score_again(
    store: Store,
    groups: Sequence[Scorable],
    bench: Bench,
    tell: Tell,
    *,
    at_once: int,
    lease_s: float,
    anew: bool = False,
) -> None:
    """Score groups and save, `at_once` side by side. `anew`: also those left out for their version.

    One that waits for any judge is taken before it is judged, so that nobody pays for it twice; what has a score is
    taken when there is another, so that a judge that fails costs it nothing.

    Cut off in the middle, it leaves what was saved and told; a score that is being written is written to its end.
    Raises StoreError, JudgeMisconfigured.
    """

    async def one(group: GroupView, of: Scorable) -> None:
        if group.state not in _WAITING:
            scored = await score_group(group, (await seat(store, group, bench)).scores)
            await _to_its_end(_save(store, group, scored, tell, lease_s, anew))
            return
        async with _taken(store, group, lease_s) as claim:
            if claim is None:
                tell(Outcome(group.id, "passed", why=IN_HAND))
                return
            scored = await score_group(group, (await seat(store, group, bench)).scores)
            await _to_its_end(_hand_in(store, claim, scored, tell))

    await _side_by_side(store, groups, one, tell, at_once)


async def count(store: Store, groups: Sequence[Scorable], bench: Bench, tell: Tell, *, at_once: int) -> None:
    """What `score_again` would do, as far as can be told without the judge, who counts in `bench`."""

    async def one(group: GroupView, of: Scorable) -> None:
        await foresee(group, bench)
        tell(Outcome(group.id, "history" if group.state in KEEPING else "current"))

    await _side_by_side(store, groups, one, tell, at_once)


async def _side_by_side(
    store: Store,
    groups: Sequence[Scorable],
    do: Callable[[GroupView, Scorable], Awaitable[None]],
    tell: Tell,
    at_once: int,
) -> None:
    waiting = iter(groups)

    async def work() -> None:
        for of in waiting:  # shared: each takes the next
            if (outcome := await _guarded(store, of, do)) is not None:
                tell(outcome)

    try:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(at_once):
                tasks.create_task(work())
    except* (StoreError, JudgeMisconfigured) as errors:
        raise errors.exceptions[0] from None


async def _guarded(store: Store, of: Scorable, do: Callable[[GroupView, Scorable], Awaitable[None]]) -> Outcome | None:
    """Do it with one group; what kept it from being done, if anything did."""
    try:
        group = await load_group(store, of.id)
        if group.state is GroupState.JUDGING:
            return Outcome(of.id, "passed", why=IN_HAND)
        await do(group, of)
    except NotFound:
        return Outcome(of.id, "passed", why=DELETED)
    except CannotJudge as e:
        if of.state is GroupState.LEFT_OUT:  # and stays so
            return Outcome(of.id, "passed", why=str(e))
        return Outcome(of.id, "failed", e.code, str(e))
    except JudgeFailed as e:
        return Outcome(of.id, "failed", e.code, str(e), e.spent)
    except (StoreError, JudgeMisconfigured):
        raise
    except Conflict as e:
        return Outcome(of.id, "failed", "score_not_written", str(e))
    # A boundary: a group that trips a bug of ours must not take the others with it.
    except Exception as e:
        log.exception("group %s cannot be scored: this is a fault of Hone", of.id)
        return Outcome(of.id, "failed", "judge_fault", f"{type(e).__name__}: {e}")
    return None


@asynccontextmanager
async def _taken(store: Store, group: GroupView, lease_s: float) -> AsyncIterator[GroupClaim | None]:
    """A group that waits, held until the end of the block and put back as it was if it has no score then.

    None: it is not free, or is no more what it was.
    """
    due_at = await claims.due_at(store, group.id)
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
        with suppress(Conflict):  # it is scored, or somebody else's by now
            await _to_its_end(_put_back(store, claim, group.state, due_at))


async def _put_back(store: Store, claim: GroupClaim, was: GroupState, due_at: float | None) -> None:
    if was is GroupState.UNSCORED:
        await claims.give_back_unscored(store, claim, due_at)
    else:
        await claims.give_back(store, claim)


async def _kept(store: Store, claim: GroupClaim, lease_s: float) -> None:
    while True:
        await asyncio.sleep(lease_s / RENEWALS_A_LEASE)
        with suppress(StoreError):  # the next time, or it is told when the score is written
            await claims.renew(store, claim, lease_s)


async def _hand_in(store: Store, claim: GroupClaim, scored: GroupScore, tell: Tell) -> None:
    before = await scores.rewards(store, claim.score_id) if claim.score_id else {}
    await scores.record_score(store, claim, scored.new)
    tell(_became(claim.group_id, scored, _pairs(before, scored)))


def _became(group_id: str, scored: GroupScore, pairs: Pairs | None) -> Outcome:
    """What becomes of a group that was free: it has the score, or waits for a person."""
    if scored.new.disputed is not None:
        return Outcome(group_id, "failed", DISPUTED, scored.new.disputed, _spent(scored))
    return Outcome(group_id, "current", spent=_spent(scored), pairs=pairs)


def _spent(scored: GroupScore) -> Spent:
    new = scored.new
    return Spent(new.tokens_in, new.tokens_cached, new.tokens_out, new.cost_usd, new.latency_s or 0.0)


def _pairs(before: Mapping[str, float | None], scored: GroupScore) -> Pairs | None:
    return compare(before, {id_: part.value for id_, part in scored.rewards.items()}) if before else None


async def _save(store: Store, group: GroupView, scored: GroupScore, tell: Tell, lease_s: float, anew: bool) -> None:
    new, spent = scored.new, _spent(scored)
    before = await scores.rewards(store, group.current_score_id) if group.current_score_id else {}
    pairs = _pairs(before, scored)
    if await make_current(store, group.id, new, lease_s, again=anew):
        tell(_became(group.id, scored, pairs))
    elif await scores.record_history(store, group.id, new, KEEPING):
        tell(Outcome(group.id, "history", spent=spent, pairs=pairs))
    else:
        tell(Outcome(group.id, "passed", why=CHANGED, spent=spent))


async def _to_its_end(writing: Awaitable[None]) -> None:
    """Await it, and where that is cut off, its end nevertheless: half of it would leave a group in our hand."""
    task = asyncio.ensure_future(writing)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise
