"""Three questions about a project, answered from its status: is it learning, is it healthy, what needs me. Pure.

Owns: which figures answer each question, when one is good or bad, and the sentences. `hone top` shows them, and a page
can. Refuses: reading the store (`recorder.views.status.project`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from typing import Final

from recorder.base.terminal import format_duration, format_number
from recorder.states import VersionState
from recorder.views.status.project import Status, find_alarms
from recorder.views.status.stages import Stage, StageCode, StageState, StageStatus
from recorder.views.versions.rewards import VersionReward

# A stage that waits for one of these goes on only if somebody acts.
_STUCK: Final = frozenset({StageCode.NO_JUDGE, StageCode.NO_LEARNER, StageCode.LOGPROB_GAP, StageCode.SCHEDULE_ENDED})
_DECISIONS: Final = frozenset({StageCode.REWARD_FALL, StageCode.KL_BASE_MAX, StageCode.HEALTH_RULE})
_AT_THE_GATE: Final = frozenset({VersionState.GATED.value, VersionState.CANARY.value})


class Outlook(StrEnum):
    """How one answer is to be taken. `open`: neither good nor bad yet."""

    GOOD = "good"
    OPEN = "open"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class Answer:
    """One line of an answer. `about`: an alias, a stage or a code; `link`: the path of the page that has more."""

    about: str
    outlook: Outlook
    text: str
    link: str


@dataclass(frozen=True, slots=True)
class StatusAnswers:
    """The answers: is it `learning` (by alias), is it `healthy` (serving and each stage), and what `needs` a person."""

    learning: Sequence[Answer]
    healthy: Sequence[Answer]
    needs: Sequence[Answer]


def answer_questions(status: Status, groups_for_people: int = 0) -> StatusAnswers:
    """Return the three answers. `groups_for_people`: how many groups wait for a person's review."""
    return StatusAnswers(tuple(_learning(status)), tuple(_healthy(status)), tuple(_needs(status, groups_for_people)))


# --- is it learning


def _learning(status: Status) -> Iterator[Answer]:
    rewards = {alias: list(found) for alias, found in groupby(status.rewards, key=lambda one: one.alias)}
    for alias in status.aliases:
        outlook, text = compare_newest(rewards.get(alias.name, ()))
        steps = next((sum(one.counts.values()) for one in status.steps if one.alias == alias.name), 0)
        made = f" {steps} step{'' if steps == 1 else 's'} so far." if steps else ""
        yield Answer(alias.name, outlook, f"{text}{made}", "/hone/versions")


def compare_newest(rewards: Sequence[VersionReward]) -> tuple[Outlook, str]:
    """Return how the newest version's reward compares with the one before, as an outlook and a sentence.

    `rewards`: of one alias, oldest version first. Rewards that compare attempts of one group only say nothing.
    """
    if not rewards:
        return Outlook.OPEN, "No version has a reward yet."
    compared = [one for one in rewards if not one.relative]
    if rewards[-1].relative or not compared:
        return Outlook.OPEN, (
            f"The rewards of {rewards[-1].version} only rank attempts of one group: the gate compares versions "
            "(`hone versions --moves`)."
        )
    newest = compared[-1]
    text = f"{newest.version} has the reward {_reward(newest)}"
    if len(compared) == 1:
        return Outlook.OPEN, f"{text}; no other version has one."
    before = compared[-2]
    text += f", {before.version} {_reward(before)}"
    if newest.interval is None or before.interval is None:
        return Outlook.OPEN, f"{text}: too few groups to tell."
    if newest.interval.low > before.interval.high:
        return Outlook.GOOD, f"{text}: higher."
    if newest.interval.high < before.interval.low:
        return Outlook.BAD, f"{text}: lower."
    return Outlook.OPEN, f"{text}: no difference is shown."


def _reward(one: VersionReward) -> str:
    interval = f" ({format_number(one.interval.low)} to {format_number(one.interval.high)})" if one.interval else ""
    return f"{format_number(one.mean)}{interval}"


# --- is it healthy


def _healthy(status: Status) -> Iterator[Answer]:
    yield _serving(status)
    for stage in status.stages:
        about = str(stage.stage) if stage.alias is None else f"{stage.stage} {stage.alias}"
        yield Answer(about, _outlook(stage), stage.text, _PAGES[stage.stage])


_PAGES: Final = {Stage.RECORDING: "/hone/trajectories", Stage.JUDGING: "/hone/judge", Stage.LEARNING: "/hone/training"}


def _serving(status: Status) -> Answer:
    up = sum(one.state in ("up", "asleep") for one in status.engines)
    live = ", ".join(one.live for one in status.aliases if one.live is not None)
    proxies = sum(one.alive for one in status.proxies)
    if not proxies:
        return Answer("serving", Outlook.BAD, "No proxy runs. Start one with `hone up` or `hone serve`.", "/hone/")
    if not status.engines:
        return Answer("serving", Outlook.OPEN, "No engine has reported yet.", "/hone/")
    text = f"{up} of {len(status.engines)} engine{'' if len(status.engines) == 1 else 's'} up"
    outlook = Outlook.GOOD if up == len(status.engines) else Outlook.BAD
    return Answer("serving", outlook, f"{text}, live: {live or 'no version'}.", "/hone/versions")


def _outlook(stage: StageStatus) -> Outlook:
    if stage.code in _STUCK or stage.code in _DECISIONS:
        return Outlook.BAD
    return Outlook.GOOD if stage.state in (StageState.RUNNING, StageState.READY) else Outlook.OPEN


# --- what needs me


def _needs(status: Status, groups_for_people: int) -> Iterator[Answer]:
    for alarm in find_alarms(status):
        yield Answer(alarm.code, Outlook.BAD, alarm.text, "/hone/")
    for stage in status.stages:
        if stage.code in _DECISIONS:
            yield Answer(str(stage.alias), Outlook.BAD, stage.text, "/hone/training")
    if groups_for_people:
        many = f"{groups_for_people} group{' waits' if groups_for_people == 1 else 's wait'}"
        yield Answer("review", Outlook.OPEN, f"{many} for a person: `hone review`.", "/hone/review")
    for one in status.gate:
        if one.state in _AT_THE_GATE:
            since = format_duration(one.for_s)
            text = f"{one.version} is {one.state} since {since}: `hone promote` or `hone rollback` decides now."
            yield Answer(one.version, Outlook.OPEN, text, f"/hone/versions/{one.version}")
