"""Groups that are worth a person's minutes: judges disagree about them, an alarm names a run, or they were drawn.

Owns: which those are, and which two runs of each. Refuses: runs of two versions (`recorder.views.review.candidates`),
who is asked (`recorder.views.review.queue`).

Groups that are worth a person's minutes while two judges have drifted apart: those that they order least alike.

Owns: which groups of the window these are, and which two runs of each. Refuses: when judges have drifted
(`recorder.queue.judging.switches`), other alarms (`recorder.views.review.candidates`).

The two runs are those that one judge finds better by as much as the other finds them worse: whichever a person
prefers, it says which of the two judges is wrong there.

Runs of two versions at one task: where the live one gained most, and pairs by which the two are held together.

Owns: which runs are a version's, which two are shown. Refuses: comparing rewards
(`recorder.views.versions.before_after`), and counting answers (`recorder.views.review.human_labels`).

Rewards of two groups are compared only where they say something outside their group.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import combinations, islice
from typing import Any, Final

from sqlalchemy import Select, and_, func, select

from recorder.queue.groups.disputes import DisputedGroup, PairChoice, next_pair
from recorder.queue.judging import cross_checks, switches
from recorder.queue.judging.cross_checks import CrossCheck
from recorder.queue.judging.scores import REWARD
from recorder.queue.judging.switches import DRIFT
from recorder.registry.aliases import AliasView
from recorder.registry.versions import VersionView
from recorder.store import sql
from recorder.store.database import Project, Store
from recorder.store.schema import calls, groups, ledger, scenarios, score_parts, scores, trajectories
from recorder.views.review.shapes import Candidate, ReviewReason
from recorder.views.review.trajectories import StableDraw, is_showable, showable_members
from recorder.views.versions.before_after import Improvement, TrajectoryAttempt, most_improved_scenarios

RANKED: Final = 8  # runs of a group that are put in order: a person answers about 17 pairs for them
SHARE: Final = 0.05  # of judged groups that are drawn
DRAWN: Final = 10  # of these, the newest
_LOOKED_AT: Final = 500  # of the newest judged groups
_ALARMS: Final = 20  # the newest
_NAMED: Final = 8  # runs that one alarm names
_ALARM: Final = "alarm"  # the code of a campaign's alarm in the ledger


def next_ranking_pair(
    why: ReviewReason,
    about: str,
    group: str,
    runs: Sequence[str],
    said: Iterable[PairChoice],
    passed: Collection[frozenset[str]],
    draw: StableDraw,
) -> Candidate | None:
    """The next two runs of a group to ask about, until what people said orders all; of many runs, of a few drawn."""
    asked = draw.order(group, runs)[:RANKED]
    pair = next_pair(asked, said, lambda a, b: draw.number("next", a, b), passed)
    return Candidate(why, about, group, pair) if pair is not None else None


def describe_disagreement(one: DisputedGroup) -> str:
    """Why such a group waits."""
    return f"The judges agree by {one.agreement:.2f} about the group: a person's choice scores it"


async def alarm_candidates(project: Project, draw: StableDraw) -> list[Candidate]:
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
        sql.without_index(t.project_id) == project.id, t.id.in_(sorted(named)), t.group_id.is_not(None)
    )
    async with project.store.read() as conn:
        groups_of = {row.id: row.group_id for row in await conn.execute(query)}
    members = await showable_members(project, set(groups_of.values()))
    return [
        Candidate(ReviewReason.ALARM, _alarm(named[run]), groups_of[run], (run, other))
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


def _beside(run: str, members: Sequence[str], draw: StableDraw) -> list[str]:
    """Another run of its group, if it can be shown itself."""
    return draw.order(run, [one for one in members if one != run])[:1] if run in members else []


async def random_candidates(project: Project, draw: StableDraw) -> list[Candidate]:
    """A random share of the judged groups, newest first, two runs of each."""
    g = groups.c
    query = select(g.id).where(g.project_id == project.id, g.current_score_id.is_not(None))
    async with project.store.read() as conn:
        newest = (await conn.execute(query.order_by(g.id.desc()).limit(_LOOKED_AT))).scalars()
        taken = [group for group in newest if draw.number("share", group) < SHARE][:DRAWN]
    members = await showable_members(project, taken)
    pairs = [(group, draw.order(group, members.get(group, ()))[:2]) for group in taken]
    about = f"Drawn at random, as {SHARE:.0%} of the judged groups are"
    return [Candidate(ReviewReason.RANDOM, about, group, (pair[0], pair[1])) for group, pair in pairs if len(pair) == 2]


GROUPS: Final = 5  # of an alias and recipe

Values = Mapping[str, Mapping[str, float | None]]  # part → trajectory id → value


async def drift_candidates(project: Project, draw: StableDraw) -> list[Candidate]:
    """Two runs of each group about which judges agree least, wherever `judge_drift` is on."""
    async with project.store.read() as conn:
        apart = [one for one in await switches.project_switches(conn, project.id) if one.drifted]
        least = [await cross_checks.least_agreed_groups(conn, one) for one in apart]
    ids = {one.group_id for of in least for one in of}
    members = await showable_members(project, ids)
    scored = await _scored(project.store, ids)

    def first(of: Sequence[CrossCheck]) -> Iterator[Candidate]:
        made = (_candidate(one, members.get(one.group_id, ()), scored.get(one.group_id, {}), draw) for one in of)
        return islice((one for one in made if one is not None), GROUPS)

    return await asyncio.to_thread(lambda: [one for of in least for one in first(of)])  # calls go on beside it


async def _scored(store: Store, group_ids: Collection[str]) -> Mapping[str, Values]:
    """By group, what its score says of its runs by each part."""
    p = score_parts.c
    query = select(groups.c.id, p.trajectory_id, p.part, p.value)
    query = query.join(score_parts, p.score_id == groups.c.current_score_id).where(groups.c.id.in_(sorted(group_ids)))
    found: dict[str, defaultdict[str, dict[str, float | None]]] = {}
    async with store.read() as conn:
        for row in await conn.execute(query):
            found.setdefault(row.id, defaultdict(dict))[row.part][row.trajectory_id] = row.value
    return found


def _candidate(of: CrossCheck, runs: Sequence[str], scored: Values, draw: StableDraw) -> Candidate | None:
    """A group's two runs; None: it has no two that can be shown."""
    among = draw.order(of.group_id, runs)
    if len(among) < 2:
        return None
    other: defaultdict[str, dict[str, float | None]] = defaultdict(dict)
    for one in of.parts:
        other[one.part][one.trajectory_id] = one.value
    turned = most_contrary_pair(among, scored, other)
    how = ", and turn these two around" if turned is not None else ""
    about = f"{DRIFT}: the judge and the strong one agree by {of.tau:.2f} about the group{how}"
    return Candidate(ReviewReason.ALARM, about, of.group_id, turned or (among[0], among[1]))


def most_contrary_pair(runs: Sequence[str], one: Values, other: Values) -> tuple[str, str] | None:
    """The two runs that two judges order contrariwise by the widest margins; None: they turn none around."""
    pairs = [(_alike(one, other, pair), pair) for pair in combinations(runs, 2)]
    least, pair = min(pairs, key=lambda found: found[0], default=(0.0, None))
    return pair if least < 0 else None


def _alike(one: Values, other: Values, pair: tuple[str, str]) -> float:
    """Below 0 where two judges order two runs contrariwise, over the parts that both judged."""
    gaps = ((_gap(one[part], pair), _gap(other[part], pair)) for part in one.keys() & other.keys())
    return sum(ours * theirs for ours, theirs in gaps)


def _gap(values: Mapping[str, float | None], pair: tuple[str, str]) -> float:
    """By how much the first run is better; 0 where one of the two has no value."""
    first, second = (values.get(run) for run in pair)
    return 0.0 if first is None or second is None else first - second


GAINS: Final = 10  # tasks of an alias
PAIRS: Final = 200  # of two versions
_ATTEMPTS_LOOKED_AT: Final = 10_000  # runs of an alias, the newest


async def list_attempts(
    store: Store, alias: AliasView, before: VersionView, after: VersionView
) -> tuple[list[TrajectoryAttempt], list[TrajectoryAttempt]]:
    """The newest runs of an alias by two of its versions, newest first. A run is of the version that answered last."""
    found: dict[str, list[TrajectoryAttempt]] = {before.id: [], after.id: []}
    async with store.read() as conn:
        for row in await conn.execute(_query(alias, (before.id, after.id))):
            task = row.scenario or row.implicit_key or row.group_id
            one = TrajectoryAttempt(
                task, row.split or "", row.version, row.group_id, row.id, row.value, bool(row.absolute)
            )
            found[row.version].append(one)
    return found[before.id], found[after.id]


def _query(alias: AliasView, version_ids: Sequence[str]) -> Select[Any]:
    t = trajectories.c
    mine = (t.project_id == alias.project_id, t.alias_id == alias.id, ~t.mixed, t.group_id.is_not(None))
    columns = (t.id, t.group_id, t.leaf_call_id, t.version_id)
    looked_at = select(*columns).where(*mine, is_showable()).order_by(t.id.desc()).limit(_ATTEMPTS_LOOKED_AT).subquery()
    newest = looked_at.c
    version = func.coalesce(calls.c.version_id, newest.version_id)
    score = groups.c.current_score_id
    of_run = (score_parts.c.score_id == score, score_parts.c.trajectory_id == newest.id, score_parts.c.part == REWARD)
    return (
        select(
            newest.id,
            newest.group_id,
            version.label("version"),
            scenarios.c.external_id.label("scenario"),
            scenarios.c.split,
            groups.c.implicit_key,
            score_parts.c.value,
            scores.c.absolute,
        )
        .select_from(looked_at)
        .join(groups, groups.c.id == newest.group_id)
        .outerjoin(calls, calls.c.id == newest.leaf_call_id)
        .outerjoin(scenarios, scenarios.c.id == groups.c.scenario_id)
        .outerjoin(scores, scores.c.id == score)
        .outerjoin(score_parts, and_(*of_run))
        .where(version.in_(version_ids))
        .order_by(newest.id.desc())
    )


def gain_candidates(before: Sequence[TrajectoryAttempt], after: Sequence[TrajectoryAttempt]) -> list[Candidate]:
    """Of the tasks that both attempted, those where the mean reward rose most, by a run that is typical of each."""
    tasks = most_improved_scenarios(before, after, len(before) + len(after))
    rose = [one for one in tasks if one.rise is None or one.rise > 0]
    return [_version_candidate(ReviewReason.GAIN, _gain(one), one.after, one.before) for one in rose[:GAINS]]


def _gain(one: Improvement) -> str:
    if one.rise is None:
        return "The live version and the one before it attempted this task; no rewards tell which did better"
    return f"The mean reward at this task rose by {one.rise:.2g} since the version before"


def version_pairs(
    live: Sequence[TrajectoryAttempt], other: Sequence[TrajectoryAttempt], draw: StableDraw
) -> list[Candidate]:
    """Pairs of runs at one task, drawn: first one of each task, then a second of each, and so on."""
    ours, theirs = _by_task(live, draw), _by_task(other, draw)
    pairs = [
        (number, draw.number("task", *task), one, another)
        for task in ours.keys() & theirs.keys()
        for number, (one, another) in enumerate(zip(ours[task], theirs[task], strict=False))
    ]
    about = "Two versions attempted this task"
    return [
        _version_candidate(ReviewReason.AGAINST, about, one, another)
        for _, _, one, another in sorted(pairs, key=_place)[:PAIRS]
    ]


def _place(pair: tuple[int, float, TrajectoryAttempt, TrajectoryAttempt]) -> tuple[int, float]:
    return pair[:2]


def _by_task(runs: Sequence[TrajectoryAttempt], draw: StableDraw) -> Mapping[tuple[str, str], list[TrajectoryAttempt]]:
    found: defaultdict[tuple[str, str], list[TrajectoryAttempt]] = defaultdict(list)
    for one in sorted(runs, key=lambda one: draw.number("run", one.trajectory)):
        found[one.split, one.scenario].append(one)
    return found


def _version_candidate(why: ReviewReason, about: str, one: TrajectoryAttempt, other: TrajectoryAttempt) -> Candidate:
    return Candidate(why, about, one.group, (one.trajectory, other.trajectory))
