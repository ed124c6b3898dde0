"""Choose pairs of trajectories for human review, from each source in turn.

The sources are groups about which judges disagree, trajectories that people put there, alarms, drift between two
judges, a random share of the judged groups, the scenarios where the live version gained most, and two versions at the
same task.

Owns: the groups of each source, and which two trajectories of a group are shown. Refuses: the order of the sources and
who has answered (`recorder.views.review.queue`), when judges have drifted
(`recorder.queue.judging.switches`), comparing rewards (`recorder.views.versions.before_after`), and counting answers
(`recorder.views.review.human_labels`).

When judges have drifted, the pair is one that they order in opposite ways by a wide margin, so either answer shows
which judge is wrong about it. Rewards of two groups are compared only if they are absolute.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import combinations, islice
from typing import Any, Final

from sqlalchemy import Select, and_, func, select

from recorder.curation.review_requests import requested_reviews
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

RANKED: Final = 8  # trajectories of a group that are ranked; a person answers about 17 pairs to rank them
SHARE: Final = 0.05  # the share of judged groups in the random sample
DRAWN: Final = 10  # how many groups of the sample are used at most, newest first
_NEWEST_JUDGED_GROUPS: Final = 500  # the random share is drawn from these
_ALARMS: Final = 20  # the newest alarms that are read
_NAMED_TRAJECTORIES: Final = 8  # at most, of one alarm
_ALARM: Final = "alarm"  # the ledger's code of a campaign's alarm


def next_ranking_pair(
    why: ReviewReason,
    about: str,
    group: str,
    trajectory_ids: Sequence[str],
    choices: Iterable[PairChoice],
    skipped: Collection[frozenset[str]],
    draw: StableDraw,
) -> Candidate | None:
    """Return the next pair of a group to show, or None once the choices rank all trajectories.

    Of a large group, `RANKED` trajectories are drawn and only these are ranked.
    """
    ranked = draw.order(group, trajectory_ids)[:RANKED]
    pair = next_pair(ranked, choices, lambda a, b: draw.number("next", a, b), skipped)
    return Candidate(why, about, group, pair) if pair is not None else None


def describe_disagreement(one: DisputedGroup) -> str:
    """Return the sentence that explains why a disputed group waits for a person."""
    return f"The judges agree by {one.agreement:.2f} about the group: a person's choice scores it"


async def alarm_candidates(project: Project, draw: StableDraw) -> list[Candidate]:
    """Return the trajectories that alarms of campaigns name, newest alarm first, each with another one of its group."""
    query = select(ledger.c.detail).where(
        ledger.c.project_id == project.id, ledger.c.object_kind == "campaign", ledger.c.code == _ALARM
    )
    async with project.store.read() as conn:
        rows = await conn.execute(query.order_by(ledger.c.id.desc()).limit(_ALARMS))
        details = [row.detail for row in rows if isinstance(row.detail, Mapping)]
    named = {trajectory_id: detail for detail in reversed(details) for trajectory_id in _evidence(detail)}
    t = trajectories.c
    query = select(t.id, t.group_id).where(
        sql.without_index(t.project_id) == project.id, t.id.in_(sorted(named)), t.group_id.is_not(None)
    )
    async with project.store.read() as conn:
        groups_of = {row.id: row.group_id for row in await conn.execute(query)}
    members = await showable_members(project, set(groups_of.values()))
    return [
        Candidate(ReviewReason.ALARM, _alarm_text(named[id_]), groups_of[id_], (id_, other))
        for id_ in reversed(named)
        if id_ in groups_of
        for other in _other_member(id_, members.get(groups_of[id_], ()), draw)
    ]


def _evidence(detail: Mapping[str, Any]) -> list[str]:
    evidence = detail.get("evidence")
    named = (
        [one.get("trajectory") for one in evidence if isinstance(one, Mapping)] if isinstance(evidence, list) else []
    )
    return [trajectory_id for trajectory_id in named if isinstance(trajectory_id, str)][:_NAMED_TRAJECTORIES]


def _alarm_text(detail: Mapping[str, Any]) -> str:
    return f"The alarm {detail.get('rule')} after step {detail.get('step')} names one of the two"


def _other_member(trajectory_id: str, members: Sequence[str], draw: StableDraw) -> list[str]:
    """Return one other member of the group, or an empty list if the trajectory itself cannot be shown."""
    if trajectory_id not in members:
        return []
    return draw.order(trajectory_id, [one for one in members if one != trajectory_id])[:1]


async def requested_candidates(project: Project, draw: StableDraw) -> list[Candidate]:
    """Return the trajectories that people put into the queue, newest request first, each with another of its group."""
    requested = await requested_reviews(project)
    members = await showable_members(project, {group for _, group in requested})
    about = "A person asked for a review of one of the two"
    return [
        Candidate(ReviewReason.REQUESTED, about, group, (id_, other))
        for id_, group in requested
        for other in _other_member(id_, members.get(group, ()), draw)
    ]


async def random_candidates(project: Project, draw: StableDraw) -> list[Candidate]:
    """Return two trajectories of each group in a random share of the judged groups, newest first."""
    g = groups.c
    query = select(g.id).where(g.project_id == project.id, g.current_score_id.is_not(None))
    async with project.store.read() as conn:
        newest = (await conn.execute(query.order_by(g.id.desc()).limit(_NEWEST_JUDGED_GROUPS))).scalars()
        taken = [group for group in newest if draw.number("share", group) < SHARE][:DRAWN]
    members = await showable_members(project, taken)
    pairs = [(group, draw.order(group, members.get(group, ()))[:2]) for group in taken]
    about = f"Drawn at random, as {SHARE:.0%} of the judged groups are"
    return [Candidate(ReviewReason.RANDOM, about, group, (pair[0], pair[1])) for group, pair in pairs if len(pair) == 2]


GROUPS: Final = 5  # at most, of an alias and judge recipe

Values = Mapping[str, Mapping[str, float | None]]  # part → trajectory id → value


async def drift_candidates(project: Project, draw: StableDraw) -> list[Candidate]:
    """Return two trajectories of each group about which the judges agree least, where `judge_drift` is on."""
    async with project.store.read() as conn:
        drifted_switches = [one for one in await switches.project_switches(conn, project.id) if one.drifted]
        least = [await cross_checks.least_agreed_groups(conn, one) for one in drifted_switches]
    ids = {one.group_id for of in least for one in of}
    members = await showable_members(project, ids)
    scored = await _scored(project.store, ids)

    def first(of: Sequence[CrossCheck]) -> Iterator[Candidate]:
        made = (_candidate(one, members.get(one.group_id, ()), scored.get(one.group_id, {}), draw) for one in of)
        return islice((one for one in made if one is not None), GROUPS)

    return await asyncio.to_thread(lambda: [one for of in least for one in first(of)])  # must not block the event loop


async def _scored(store: Store, group_ids: Collection[str]) -> Mapping[str, Values]:
    """Return the values of each group's current score: group → part → trajectory id → value."""
    p = score_parts.c
    query = select(groups.c.id, p.trajectory_id, p.part, p.value)
    query = query.join(score_parts, p.score_id == groups.c.current_score_id).where(groups.c.id.in_(sorted(group_ids)))
    found: dict[str, defaultdict[str, dict[str, float | None]]] = {}
    async with store.read() as conn:
        for row in await conn.execute(query):
            found.setdefault(row.id, defaultdict(dict))[row.part][row.trajectory_id] = row.value
    return found


def _candidate(of: CrossCheck, trajectory_ids: Sequence[str], scored: Values, draw: StableDraw) -> Candidate | None:
    """Return the pair of a group to show, or None if fewer than two of its trajectories can be shown."""
    among = draw.order(of.group_id, trajectory_ids)
    if len(among) < 2:
        return None
    other: defaultdict[str, dict[str, float | None]] = defaultdict(dict)
    for one in of.parts:
        other[one.part][one.trajectory_id] = one.value
    contrary_pair = most_contrary_pair(among, scored, other)
    how = ", and order these two in reverse" if contrary_pair is not None else ""
    about = f"{DRIFT}: the judge and the strong judge agree by {of.tau:.2f} about the group{how}"
    return Candidate(ReviewReason.ALARM, about, of.group_id, contrary_pair or (among[0], among[1]))


def most_contrary_pair(trajectory_ids: Sequence[str], one: Values, other: Values) -> tuple[str, str] | None:
    """Return the pair that the two judges order in opposite ways by the widest margins, or None."""
    pairs = [(_weighted_agreement(one, other, pair), pair) for pair in combinations(trajectory_ids, 2)]
    least, pair = min(pairs, key=lambda found: found[0], default=(0.0, None))
    return pair if least < 0 else None


def _weighted_agreement(one: Values, other: Values, pair: tuple[str, str]) -> float:
    """Return the agreement about a pair, summed over the parts that both judged; below 0 for opposite orders."""
    gaps = ((_gap(one[part], pair), _gap(other[part], pair)) for part in one.keys() & other.keys())
    return sum(ours * theirs for ours, theirs in gaps)


def _gap(values: Mapping[str, float | None], pair: tuple[str, str]) -> float:
    """Return by how much the first trajectory's value is higher, or 0 if one of the two has no value."""
    first, second = (values.get(trajectory_id) for trajectory_id in pair)
    return 0.0 if first is None or second is None else first - second


GAINS: Final = 10  # the maximum number of tasks of an alias
PAIRS: Final = 200  # at most, when two versions are compared
_NEWEST_ATTEMPTS: Final = 10_000  # the newest trajectories of an alias that are read


async def list_attempts(
    store: Store, alias: AliasView, before: VersionView, after: VersionView
) -> tuple[list[TrajectoryAttempt], list[TrajectoryAttempt]]:
    """Return an alias's newest trajectories by two of its versions, newest first.

    A trajectory belongs to the version that answered its last call; trajectories of mixed versions are omitted.
    """
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
    latest_first = select(*columns).where(*mine, is_showable()).order_by(t.id.desc())
    newest_trajectories = latest_first.limit(_NEWEST_ATTEMPTS).subquery()
    newest = newest_trajectories.c
    version = func.coalesce(calls.c.version_id, newest.version_id)
    score = groups.c.current_score_id
    reward_part = (
        score_parts.c.score_id == score,
        score_parts.c.trajectory_id == newest.id,
        score_parts.c.part == REWARD,
    )
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
        .select_from(newest_trajectories)
        .join(groups, groups.c.id == newest.group_id)
        .outerjoin(calls, calls.c.id == newest.leaf_call_id)
        .outerjoin(scenarios, scenarios.c.id == groups.c.scenario_id)
        .outerjoin(scores, scores.c.id == score)
        .outerjoin(score_parts, and_(*reward_part))
        .where(version.in_(version_ids))
        .order_by(newest.id.desc())
    )


def gain_candidates(before: Sequence[TrajectoryAttempt], after: Sequence[TrajectoryAttempt]) -> list[Candidate]:
    """Return a typical pair for each task attempted by both versions, largest rise of the mean reward first.

    At most `GAINS` tasks; tasks where the mean reward fell are omitted.
    """
    tasks = most_improved_scenarios(before, after, len(before) + len(after))
    rose = [one for one in tasks if one.rise is None or one.rise > 0]
    return [_version_candidate(ReviewReason.GAIN, _gain_text(one), one.after, one.before) for one in rose[:GAINS]]


def _gain_text(one: Improvement) -> str:
    if one.rise is None:
        return "The live version and the one before it attempted this task; no rewards tell which did better"
    return f"The mean reward at this task rose by {one.rise:.2g} since the version before"


def version_pairs(
    live: Sequence[TrajectoryAttempt], other: Sequence[TrajectoryAttempt], draw: StableDraw
) -> list[Candidate]:
    """Return drawn pairs of trajectories at the same task: first one pair of each task, then a second of each, etc."""
    ours, theirs = _by_task(live, draw), _by_task(other, draw)
    pairs = [
        (number, draw.number("task", *task), one, another)
        for task in ours.keys() & theirs.keys()
        for number, (one, another) in enumerate(zip(ours[task], theirs[task], strict=False))
    ]
    about = "Two versions attempted this task"
    return [
        _version_candidate(ReviewReason.AGAINST, about, one, another)
        for _, _, one, another in sorted(pairs, key=_drawn_order)[:PAIRS]
    ]


def _drawn_order(pair: tuple[int, float, TrajectoryAttempt, TrajectoryAttempt]) -> tuple[int, float]:
    return pair[:2]


def _by_task(
    attempts: Sequence[TrajectoryAttempt], draw: StableDraw
) -> Mapping[tuple[str, str], list[TrajectoryAttempt]]:
    by_task: defaultdict[tuple[str, str], list[TrajectoryAttempt]] = defaultdict(list)
    for one in sorted(attempts, key=lambda one: draw.number("run", one.trajectory)):
        by_task[one.split, one.scenario].append(one)
    return by_task


def _version_candidate(why: ReviewReason, about: str, one: TrajectoryAttempt, other: TrajectoryAttempt) -> Candidate:
    return Candidate(why, about, one.group, (one.trajectory, other.trajectory))
