"""Three questions about a project, answered from its status: is it learning, is it healthy, what needs me.

Owns: which figures answer each question, when one is good or bad, and the sentences. Home, `GET /hone/v1/status`,
`hone status --json` and `hone top` show the same. Pure but for `load_answered_status`. Refuses: reading the store
(`recorder.views.status.project`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Final
from urllib.parse import quote

from recorder.base.terminal import format_duration, format_number
from recorder.queue.groups import disputes
from recorder.queue.leases import JUDGE
from recorder.states import VersionState
from recorder.stats.means import Interval
from recorder.store.database import Project
from recorder.views.campaigns.measures import Measure
from recorder.views.status.project import EngineStatus, Status, StatusAlarm, find_alarms, load_status
from recorder.views.status.stages import LoopSettings, Stage, StageCode, StageState, StageStatus
from recorder.views.versions.progress import AliasProgress, VersionProgress

# A stage that waits for one of these goes on only if somebody acts.
_STUCK: Final = frozenset({StageCode.NO_JUDGE, StageCode.NO_LEARNER, StageCode.LOGPROB_GAP, StageCode.SCHEDULE_ENDED})
_DECISIONS: Final = frozenset({StageCode.REWARD_FALL, StageCode.KL_BASE_MAX, StageCode.HEALTH_RULE})
_AT_THE_GATE: Final = frozenset({VersionState.GATED.value, VersionState.CANARY.value})
_EVEN: Final = 0.5  # of a gate's pairs: neither version is better
_MOST_DETAIL: Final = 200  # characters of an engine's error


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


@dataclass(frozen=True, slots=True)
class AnsweredStatus(Status):
    """A status with its answers."""

    answers: StatusAnswers = field(kw_only=True)


async def load_answered_status(project: Project, settings: LoopSettings) -> AnsweredStatus:
    """Read the status from the store, and answer the questions."""
    status = await load_status(project, settings)
    known = {one.name: getattr(status, one.name) for one in fields(status)}
    return AnsweredStatus(**known, answers=answer_questions(status))


def answer_questions(status: Status) -> StatusAnswers:
    """Return the three answers."""
    return StatusAnswers(tuple(_learning(status)), tuple(_healthy(status)), tuple(_needs(status)))


# --- is it learning


def _learning(status: Status) -> Iterator[Answer]:
    progress = {one.alias: one for one in status.progress}
    for alias in status.aliases:
        steps = next((sum(one.counts.values()) for one in status.steps if one.alias == alias.name), 0)
        made = f" {steps} step{'' if steps == 1 else 's'} so far." if steps else ""
        for outlook, text in compare_versions(progress.get(alias.name, AliasProgress(alias.name, ()))):
            yield Answer(alias.name, outlook, f"{text}{made}", f"/hone/versions?alias={quote(alias.name)}")
            made = ""


@dataclass(frozen=True, slots=True)
class ComparedVersion:
    """A version's value of one measure, with its 95 % interval."""

    version: str
    value: float
    interval: Interval | None


def compare_versions(progress: AliasProgress) -> Iterator[tuple[Outlook, str]]:
    """Yield how the live version compares with its ancestors: at held-out scenarios, and in traffic.

    Without either, by its gate's pairs. Each is an outlook and a sentence; there is at least one.
    """
    line = versions_in_line(progress)
    held_out, in_traffic = comparable_held_out(line), comparable_rewards(line)
    if held_out:
        kind = next(one.held_out.kind for one in reversed(line) if one.held_out is not None)
        noun, shown = (kind, format_number) if kind == "reward" else (_NOUNS.get(kind, kind), _percent)
        yield _compare(held_out, "Held-out: ", noun, shown)
    if in_traffic:
        yield _compare(in_traffic, "In traffic: ", "reward", format_number)
    if not held_out and not in_traffic:
        yield _compare_by_gate(line)


_NOUNS: Final = {"success": "success rate"}


def versions_in_line(progress: AliasProgress) -> list[VersionProgress]:
    """Return the live version and its ancestors, oldest first; every version where none is live."""
    return [one for one in progress.versions if one.in_line] or list(progress.versions)


def comparable_held_out(line: Sequence[VersionProgress]) -> list[ComparedVersion]:
    """Return the held-out measures of the same kind as the newest one."""
    measured: list[tuple[str, Measure]] = [(one.version, one.held_out) for one in line if one.held_out is not None]
    return [ComparedVersion(name, m.value, m.interval) for name, m in measured if m.kind == measured[-1][1].kind]


def comparable_rewards(line: Sequence[VersionProgress]) -> list[ComparedVersion]:
    """Return the rewards in traffic; none if the newest version's only rank attempts of one group."""
    rewards = [one.reward for one in line if one.reward is not None]
    if rewards and rewards[-1].relative:
        return []
    return [ComparedVersion(one.version, one.mean, one.interval) for one in rewards if not one.relative]


def _compare(
    points: Sequence[ComparedVersion], where: str, noun: str, shown: Callable[[float], str]
) -> tuple[Outlook, str]:
    """Compare the newest version with the one before, and with the first one."""

    def value(one: ComparedVersion) -> str:
        interval = f" ({shown(one.interval.low)} to {shown(one.interval.high)})" if one.interval else ""
        return f"{shown(one.value)}{interval}"

    newest = points[-1]
    text = f"{where}{newest.version} has the {noun} {value(newest)}"
    if len(points) == 1:
        return Outlook.OPEN, f"{text}; no other version has one."
    before, first = points[-2], points[0]
    outlook, verdict = _judge(newest, before)
    text += f", {before.version} {value(before)}: {verdict}."
    if first is before:
        return outlook, text
    since, verdict = _judge(newest, first)
    found = {outlook, since}
    text += f" {first.version} had {value(first)}: {verdict}."
    return next((one for one in (Outlook.BAD, Outlook.GOOD) if one in found), Outlook.OPEN), text


def _judge(newest: ComparedVersion, before: ComparedVersion) -> tuple[Outlook, str]:
    """Say whether a version is better than another: their intervals do not overlap."""
    if newest.interval is None or before.interval is None:
        return Outlook.OPEN, "too few groups to tell"
    if newest.interval.low > before.interval.high:
        return Outlook.GOOD, "higher"
    if newest.interval.high < before.interval.low:
        return Outlook.BAD, "lower"
    return Outlook.OPEN, "no difference is shown"


def _compare_by_gate(line: Sequence[VersionProgress]) -> tuple[Outlook, str]:
    """Say what the gate found about the newest version that has pairs, where no measure compares versions."""
    ranked = any(one.reward is not None for one in line)
    why = "Rewards only rank attempts of one group. " if ranked else ""
    newest = next((one for one in reversed(line) if one.gate is not None), None)
    if newest is None or newest.gate is None:
        return Outlook.OPEN, f"{why}No gate has compared versions yet." if ranked else "No version has a reward yet."
    gate = newest.gate
    ends = f" ({_percent(gate.interval.low)} to {_percent(gate.interval.high)})" if gate.interval is not None else ""
    text = f"{why}At its gate {newest.version} won {_percent(gate.value)}{ends} of {gate.of} pairs against the live one"
    if gate.interval is not None and gate.interval.low > _EVEN:
        return Outlook.GOOD, f"{text}: better."
    if gate.interval is not None and gate.interval.high < _EVEN:
        return Outlook.BAD, f"{text}: worse."
    return Outlook.OPEN, f"{text}: no difference is shown."


def _percent(share: float) -> str:
    return f"{share:.0%}".replace("%", " %")


# --- is it healthy


def _healthy(status: Status) -> Iterator[Answer]:
    alarms = list(find_alarms(status))
    yield _serving(status)
    for stage in status.stages:
        about = str(stage.stage) if stage.alias is None else f"{stage.stage} {stage.alias}"
        trouble = _trouble(stage, status, alarms)
        outlook = _outlook(stage) if trouble is None else Outlook.BAD
        text = stage.text if trouble is None or trouble in stage.text else f"{stage.text} {_sentence(trouble)}"
        yield Answer(about, outlook, text, _PAGES[stage.stage])


_PAGES: Final = {Stage.RECORDING: "/hone/trajectories", Stage.JUDGING: "/hone/judge", Stage.LEARNING: "/hone/training"}
_STAGE_OF_ALARM: Final = {
    "ids_disagree": Stage.RECORDING,
    "unscored": Stage.JUDGING,
    "missing_part": Stage.JUDGING,
    "judges": Stage.JUDGING,
    "no_judge": Stage.JUDGING,
    "hung_trainer": Stage.LEARNING,
    "health_rule": Stage.LEARNING,
    "step_abandoned": Stage.LEARNING,
}


def _trouble(stage: StageStatus, status: Status, alarms: Sequence[StatusAlarm]) -> str | None:
    """Return why a stage is not healthy, if something says so."""
    for one in alarms:
        if _STAGE_OF_ALARM.get(one.code) is stage.stage and not _is_dispute(one) and _is_about(one, stage.alias):
            return one.brief
        if one.code == "dead_process" and stage.stage is Stage.JUDGING and one.about.startswith(JUDGE):
            return one.brief
    if stage.stage is Stage.RECORDING and status.never_trained:
        client = status.never_trained[0]
        return f"no call of {client.client} to {client.alias} can be trained on ({client.why}): {client.advice}"
    if stage.stage is Stage.RECORDING and status.attribution_missing:
        calls = status.attribution_missing[0]
        return f"{calls.calls} calls of {calls.client} are each a trajectory of their own: {calls.advice}"
    return None


def _is_about(alarm: StatusAlarm, alias: str | None) -> bool:
    named = alarm.code in ("health_rule", "step_abandoned")
    return not named or alias is None or alarm.about == alias or alarm.about.startswith(f"{alias} ")


def _is_dispute(alarm: StatusAlarm) -> bool:
    """Whether an alarm is of groups that wait for a person: the review says so, and nothing failed."""
    return (alarm.code, alarm.about) == ("unscored", disputes.CODE)


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


def _serving(status: Status) -> Answer:
    down = [one for one in status.engines if one.state not in ("up", "asleep")]
    live = ", ".join(one.live for one in status.aliases if one.live is not None)
    if not any(one.alive for one in status.proxies):
        return Answer("serving", Outlook.BAD, "No proxy runs. Start one with `hone up` or `hone serve`.", "/hone/")
    if not status.engines:
        text = "No engine has reported yet. `hone doctor` shows what is missing."
        return Answer("serving", Outlook.OPEN, text, "/hone/")
    number = len(status.engines)
    text = f"{number - len(down)} of {number} engine{'' if number == 1 else 's'} up, live: {live or 'no version'}."
    if down:
        text += f" {_down(down[0])}. `hone doctor` shows what is missing."
    return Answer("serving", Outlook.BAD if down else Outlook.GOOD, text, "/hone/versions")


def _down(engine: EngineStatus) -> str:
    if engine.state == "unknown":
        return f"{engine.url} has not reported for {format_duration(engine.last_seen_s)}"
    detail = f" ({engine.detail[:_MOST_DETAIL]})" if engine.detail else ""
    return f"{engine.url} is {engine.state}{detail}"


def _outlook(stage: StageStatus) -> Outlook:
    if stage.code in _STUCK or stage.code in _DECISIONS:
        return Outlook.BAD
    return Outlook.GOOD if stage.state in (StageState.RUNNING, StageState.READY) else Outlook.OPEN


# --- what needs me


def _needs(status: Status) -> Iterator[Answer]:
    for alarm in find_alarms(status):
        if not _is_dispute(alarm):
            page = _page_of(alarm.about) if alarm.code == "rolled_back" else _PAGE_OF_ALARM.get(alarm.code)
            yield Answer(alarm.code, Outlook.BAD, alarm.text, page or "/hone/#programs")
    for stage in status.stages:
        if stage.code in _DECISIONS:
            yield Answer(str(stage.alias), Outlook.BAD, stage.text, "/hone/training")
    if disputed := sum(one.groups for one in status.unscored if one.code == disputes.CODE):
        many = f"{disputed} group{' waits' if disputed == 1 else 's wait'}"
        yield Answer("review", Outlook.OPEN, f"{many} for a person: `hone review`.", "/hone/review")
    for one in status.gate:
        if one.state in _AT_THE_GATE:
            since = format_duration(one.for_s)
            text = f"{one.version} is {one.state} since {since}: `hone promote` or `hone rollback` decides now."
            yield Answer(one.version, Outlook.OPEN, text, _page_of(one.version))
    if not status.aliases:
        text = "There is no alias: declare one in hone.toml, or start `hone serve --engine URL --model NAME`."
        yield Answer("first alias", Outlook.OPEN, text, "/hone/versions")
    elif any(stage.code == StageCode.NOTHING_RECORDED for stage in status.stages):
        text = f"Nothing is recorded yet: point an agent at this proxy, with the model {status.aliases[0].name}."
        yield Answer("first call", Outlook.OPEN, text, "/hone/#live-none")


def _page_of(version: str) -> str:
    return f"/hone/versions/{quote(version, safe='@')}"


_PAGE_OF_ALARM: Final = {
    "engine_down": "/hone/#engines",
    "version_lacking": "/hone/#engines",
    "ids_disagree": "/hone/#engines",
    "unscored": "/hone/judge",
    "missing_part": "/hone/judge",
    "judges": "/hone/judge",
    "no_judge": "/hone/judge",
    "health_rule": "/hone/training",
    "logprob_gap": "/hone/training",
    "step_abandoned": "/hone/training",
}
