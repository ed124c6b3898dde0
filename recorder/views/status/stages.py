"""What each stage of the loop waits for: recording, judging, and learning of each alias. Pure functions over facts.

Owns: when a step of live learning is due, what a stage waits for and until when, and the sentence shown by
`hone status`, `/hone/v1/status`, the pages, `hone up` and the learner's log. The learner decides by the same functions.
Refuses: reading the store and predicting when a group closes (`recorder.views.status.stage_facts`), and the rules of
`[learn]` (`recorder.queue.training.budgets`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final

from proxy.settings.sections import pause_limit
from recorder.base.terminal import clock_time, percent
from recorder.queue.claims import TrainableGroups
from recorder.queue.training import baselines, budgets
from recorder.queue.training.budgets import BudgetHold, JudgeUsage
from recorder.queue.training.gpu_pauses import PauseBudget
from recorder.queue.training.refusals import HOW_TO_MEND, RefusedGroup, describe_gap
from recorder.registry.live_findings import LiveFinding
from recorder.setting_changes.change_rows import SettingChange
from recorder.setting_changes.changeable_settings import PAUSED
from recorder.setting_changes.follower import SettingsFollower
from recorder.settings import LearnSettings, RecorderSettings
from recorder.states import GroupState
from trainer.settings import TrainerSettings

FEWEST: Final = 2  # groups of a step; a step of one group would follow a single task
_NONE_TRAINABLE: Final = TrainableGroups(0, 0.0)

_ON_THE_WAY: Final = (
    (GroupState.TRIED, "in a version that is not decided"),
    (GroupState.SCORED, "scored"),
    (GroupState.UNSCORED, "not judged yet, after a failure"),
    (GroupState.JUDGING, "being judged"),
    (GroupState.READY, "ready for the judge"),
    (GroupState.OPEN, "open"),
)
_FOR_THE_JUDGE: Final = (GroupState.READY, GroupState.UNSCORED)


class Stage(StrEnum):
    """A stage of the loop."""

    RECORDING = "recording"
    JUDGING = "judging"
    LEARNING = "learning"


class StageState(StrEnum):
    """`waiting`: for something other than `[learn]`; `paused`: by `[learn]`; `ready`: it begins now."""

    WAITING = "waiting"
    PAUSED = "paused"
    READY = "ready"
    RUNNING = "running"


class StageCode(StrEnum):
    """Why a stage is in its state. One that a budget or the hours pause has a code of `budgets.Limit` instead."""

    NOTHING_RECORDED = "nothing_recorded"
    RECORDING = "recording"
    NO_GROUP_READY = "no_group_ready"
    NO_JUDGE = "no_judge"
    RETRY = "retry"
    GROUP_READY = "group_ready"
    JUDGING = "judging"
    CAMPAIGN = "campaign"
    UNDECIDED_VERSION = "undecided_version"
    SCHEDULE_ENDED = "schedule_ended"
    REWARD_FALL = "reward_fall"
    KL_BASE_MAX = "kl_base_max"
    HEALTH_RULE = "health_rule"
    PAUSED = "paused"
    PAUSE_SHARE = "max_pause_share"
    LOGPROB_GAP = "logprob_gap"
    TOO_FEW_GROUPS = "too_few_groups"
    BASELINE = "baseline"
    FOLLOW_UP_SHARE = "follow_up_share"
    FIRST_WAIT = "first_wait"
    NO_LEARNER = "no_learner"
    STEP_DUE = "step_due"
    TRAINING = "training"


@dataclass(frozen=True, slots=True)
class LoopSettings:
    """The settings that decide when each stage begins."""

    recorder: RecorderSettings = field(default_factory=RecorderSettings)
    learn: LearnSettings = field(default_factory=LearnSettings)
    trainer: TrainerSettings = field(default_factory=TrainerSettings)
    max_pause_share: float | None = None  # of an hour; None: the engine is not paused for training
    pause: SettingChange | None = None  # the change that pauses learning, if `learn.paused` was changed at run time

    @classmethod
    def current(
        cls,
        follower: SettingsFollower,
        *,
        recorder: RecorderSettings | None = None,
        trainer: TrainerSettings | None = None,
    ) -> LoopSettings:
        """Return the settings as they are now. `recorder`, `trainer`: in place of the follower's, if resolved."""
        settings = follower.settings
        return cls(
            recorder or settings.recorder,
            settings.learn,
            trainer or settings.trainer,
            pause_limit(settings.engine),
            follower.pause,
        )


@dataclass(frozen=True, slots=True)
class AliasFacts:
    """What learning of one alias depends on. Groups are those for training, of no campaign; times are unix seconds.

    `trainable`: the scored groups that a step could take, of those in `groups`. `undecided`: the version that waits for
    its decision, and its state. `finding`: the live version, and what a learner found about it, if nobody has decided
    since. `refused`: scored groups that no step takes because of the engine's logprobs. `campaign`: the campaign that
    trains the alias now. `steps_at`: when the steps of the last hour began. `lacking`: judge recipes without enough
    rewards for a running baseline, with the number of rewards. `schedule_steps`: the steps that the schedule of the
    next one counts. `pauses`: what pauses of the engine for training cost; None: it is not paused.
    """

    alias: str
    groups: Mapping[GroupState, int] = field(default_factory=dict)
    trainable: TrainableGroups = _NONE_TRAINABLE
    closes_at: float | None = None
    undecided: tuple[str, str] | None = None
    finding: tuple[str, LiveFinding] | None = None
    refused: Sequence[RefusedGroup] = ()
    campaign: str | None = None
    steps_at: Sequence[float] = ()
    step_running: bool = False
    lacking: Mapping[str, int] = field(default_factory=dict)
    has_learner: bool = False
    schedule_steps: int = 0
    pauses: PauseBudget | None = None


@dataclass(frozen=True, slots=True)
class LoopFacts:
    """What the stages depend on, at `at` (the store's clock, unix seconds) and `local` (this machine's).

    `groups`: by state, those of any use that are not finished. `has_groups`: there are groups, finished ones included.
    `judged`: what judging cost within the last 24 hours.
    """

    at: float
    local: datetime
    groups: Mapping[str, int] = field(default_factory=dict)
    has_groups: bool = False
    open_trajectories: int = 0
    closes_at: float | None = None
    retries_at: float | None = None
    has_judge: bool = False
    judged: Sequence[JudgeUsage] = ()
    aliases: Sequence[AliasFacts] = ()


@dataclass(frozen=True, slots=True)
class StageStatus:
    """The status of one stage; only learning has an `alias`.

    `until`: when the passing of time alone may change it (unix seconds), if that is known. `text` does not change
    unless something other than the time changes.
    """

    stage: Stage
    alias: str | None
    state: StageState
    code: str
    until: float | None
    text: str

    @property
    def is_step_due(self) -> bool:
        """Whether there are enough groups to begin a step now."""
        return self.code in (StageCode.STEP_DUE, StageCode.NO_LEARNER)


def loop_stages(facts: LoopFacts, settings: LoopSettings) -> tuple[StageStatus, ...]:
    """Return the status of recording, of judging, and of learning for each alias."""
    learning = (learning_stage(alias, facts, settings) for alias in facts.aliases)
    return (recording_stage(facts), judging_stage(facts, settings), *learning)


def recording_stage(facts: LoopFacts) -> StageStatus:
    """Return whether anything is being recorded, and when the next group closes."""
    opened = facts.groups.get(GroupState.OPEN, 0)
    state, code, text = StageState.WAITING, StageCode.RECORDING, "Recording waits for the next call: nothing is open."
    if facts.open_trajectories or opened:
        state = StageState.RUNNING
        text = f"Recording is running: {_count(facts.open_trajectories, 'open trajectory', 'open trajectories')}"
        text += f", {_count(opened, 'open group', 'open groups')}."
    elif not facts.groups and not facts.has_groups:
        code, text = StageCode.NOTHING_RECORDED, "Recording waits for the first call: nothing is recorded yet."
    return StageStatus(Stage.RECORDING, None, state, code, facts.closes_at, text)


def judging_stage(facts: LoopFacts, settings: LoopSettings) -> StageStatus:
    """Return what the judge does, or what it waits for."""
    ready, judging, failed = (
        facts.groups.get(state, 0) for state in (GroupState.READY, GroupState.JUDGING, GroupState.UNSCORED)
    )
    state, until = StageState.WAITING, None
    if (held := _judge_held(facts, settings)) is not None:
        state, code, until, text = StageState.PAUSED, str(held.code), held.until, held.sentence("Judging")
    elif (ready or failed) and not facts.has_judge:
        code = StageCode.NO_JUDGE
        text = (
            f"Judging waits for a judge: {_are(ready + failed)} ready and no judge runs. Start one with `hone judge`."
        )
    elif judging:
        state, code, text = StageState.RUNNING, StageCode.JUDGING, f"Judging is running: {_are(judging)} being judged."
    elif ready:
        state, code, text = StageState.READY, StageCode.GROUP_READY, f"Judging begins: {_are(ready)} ready."
    elif failed and facts.retries_at is not None:
        code, until = StageCode.RETRY, facts.retries_at
        again = clock_time(until, facts.at)
        text = f"Judging waits after a failure: {_are(failed)} not judged yet. It tries again at about {again}."
    else:
        code, until, text = StageCode.NO_GROUP_READY, facts.closes_at, "Judging waits for a group that is ready."
    return StageStatus(Stage.JUDGING, None, state, code, until, text)


def learning_stage(alias: AliasFacts, facts: LoopFacts, settings: LoopSettings) -> StageStatus:
    """Return whether a step of live learning is due for an alias, or else what learning waits for."""
    if alias.campaign is not None:
        text = waits_for_campaign(alias.campaign, alias.alias)
        return StageStatus(Stage.LEARNING, alias.alias, StageState.WAITING, StageCode.CAMPAIGN, None, text)
    if alias.step_running:
        text = "Learning is running: a step is being trained."
        return StageStatus(Stage.LEARNING, alias.alias, StageState.RUNNING, StageCode.TRAINING, None, text)
    if alias.undecided is not None:
        version, state = alias.undecided
        text = f"a decision on {version}: it is {state}, and no step begins before it is live or rejected."
        return _learning_waits(alias, StageCode.UNDECIDED_VERSION, text)
    if alias.finding is not None:
        version, found = alias.finding
        text = (
            f"a decision on {version}: {found.how}. `hone rollback` takes it back, `hone promote {version}` keeps it."
        )
        return _learning_waits(alias, StageCode(found.code), text)
    if (ended := settings.trainer.explain_ended_schedule(alias.schedule_steps)) is not None:
        return _learning_waits(alias, StageCode.SCHEDULE_ENDED, f"new settings: {ended}")
    if settings.learn.paused:
        return _paused_by_person(alias, settings.pause)
    if (held := budgets.training_holds(settings.learn, alias.steps_at, facts.at, facts.local)) is not None:
        return _learning_paused(alias, held)
    if alias.pauses is not None and alias.pauses.free_in_s > 0:
        return _waits_for_pauses(alias, alias.pauses, facts.at)
    due_s = seconds_until_due(alias.trainable, settings.trainer)
    if due_s != 0 and alias.refused:
        return _learning_waits(alias, StageCode.LOGPROB_GAP, _waits_for_engine(alias.refused))
    if due_s != 0:
        return _without_enough_groups(alias, facts, settings, due_s)
    there = _are(alias.trainable.groups)
    if not alias.has_learner:
        text = f"a learner: {there} enough for a step and none runs. Start one with `hone learn`."
        return _learning_waits(alias, StageCode.NO_LEARNER, text)
    text = f"Learning begins a step: {there} scored{_of_shadows(alias.trainable)}."
    return StageStatus(Stage.LEARNING, alias.alias, StageState.READY, StageCode.STEP_DUE, None, text)


def _paused_by_person(alias: AliasFacts, pause: SettingChange | None) -> StageStatus:
    if pause is None:
        text = f"Learning is paused: {PAUSED} is true in hone.toml, a variable or a flag. Set it to false to continue."
    else:
        text = (
            f"Learning is paused by {pause.by} since {pause.since}. Resume it on the page Training, or by "
            f"`hone config {PAUSED} --set false`."
        )
    return StageStatus(Stage.LEARNING, alias.alias, StageState.PAUSED, StageCode.PAUSED, None, text)


def _waits_for_pauses(alias: AliasFacts, pauses: PauseBudget, at: float) -> StageStatus:
    until = at + pauses.free_in_s
    text = (
        f"Learning is paused: the engine paused for {pauses.last_s:.0f} s at the last step, and engine.max_pause_share "
        f"allows {percent(pauses.limit)} of an hour. It resumes at about {clock_time(until, at)}. Raise "
        "engine.max_pause_share to continue now."
    )
    return StageStatus(Stage.LEARNING, alias.alias, StageState.PAUSED, StageCode.PAUSE_SHARE, until, text)


def _waits_for_engine(refused: Sequence[RefusedGroup]) -> str:
    newest, tokens = refused[-1], sum(one.tokens for one in refused)
    gap = sum(one.gap * one.tokens for one in refused) / max(1, tokens)
    how_far = describe_gap(gap, newest.bound, tokens)
    return f"an engine that agrees with the trainer: {_are(len(refused))} not trained on, as {how_far}. {HOW_TO_MEND}."


def waits_for_campaign(campaign: str, alias: str) -> str:
    """Return the sentence shown while a campaign trains an alias."""
    return f"Learning waits for campaign {campaign!r} to end: it trains {alias!r} now."


def seconds_until_due(trainable: TrainableGroups, settings: TrainerSettings) -> float | None:
    """Return in how many seconds these groups suffice for a step: 0 if they do now, None if more must be scored."""
    if trainable.groups >= settings.min_groups:
        return 0.0
    if trainable.groups < FEWEST:
        return None
    return max(0.0, settings.max_wait_s - trainable.first_s)


def _without_enough_groups(
    alias: AliasFacts, facts: LoopFacts, settings: LoopSettings, due_s: float | None
) -> StageStatus:
    wanted = settings.trainer.min_groups
    there = ", ".join(_on_the_way(alias))
    text = f"{wanted} scored group{'' if wanted == 1 else 's'}: {there or 'no group is on its way'}."
    if due_s is not None:
        text += f" A step begins with those that are scored at about {clock_time(facts.at + due_s, facts.at)}."
        return _learning_waits(alias, StageCode.FIRST_WAIT, text, facts.at + due_s)
    if alias.trainable.follow_ups:
        share = percent(settings.trainer.follow_up_share)
        text += (
            f" {_are(alias.trainable.follow_ups)} held back: follow-ups of one key are at most {share} of a step, or "
            "an equal part if few keys have some. Other traffic makes room for them, and so does a higher "
            "trainer.follow_up_share."
        )
        return _learning_waits(alias, StageCode.FOLLOW_UP_SHARE, text, alias.closes_at)
    if any(alias.groups.get(state) for state in _FOR_THE_JUDGE):
        if (held := _judge_held(facts, settings)) is not None:
            return _learning_paused(alias, held)
        if not facts.has_judge and not alias.trainable.groups:
            return _learning_waits(alias, StageCode.NO_JUDGE, f"{text} No judge runs: start one with `hone judge`.")
    if alias.lacking:
        text += f" A running baseline needs more than {baselines.FEWEST} rewards by one recipe, and there are "
        return _learning_waits(alias, StageCode.BASELINE, f"{text}{max(alias.lacking.values())}.")
    return _learning_waits(alias, StageCode.TOO_FEW_GROUPS, text, alias.closes_at)


def _on_the_way(alias: AliasFacts) -> Iterator[str]:
    """Yield the groups on the way to a step, by state; a scored one that no step takes yet is held back."""
    for state, what in _ON_THE_WAY:
        number = alias.groups.get(state, 0)
        if state is GroupState.SCORED:
            scored = alias.trainable.groups
            if scored:
                yield f"{_number(scored)} {what}{_of_shadows(alias.trainable)}"
            number, what = number - scored, "scored and held back"
        if number > 0:
            yield f"{_number(number)} {what}"


def _of_shadows(trainable: TrainableGroups) -> str:
    return f" ({trainable.shadow} of shadow answers)" if trainable.shadow else ""


def _judge_held(facts: LoopFacts, settings: LoopSettings) -> BudgetHold | None:
    return budgets.judging_holds(settings.learn, facts.judged, facts.at, facts.local)


def _learning_waits(alias: AliasFacts, code: StageCode, text: str, until: float | None = None) -> StageStatus:
    return StageStatus(Stage.LEARNING, alias.alias, StageState.WAITING, code, until, f"Learning waits for {text}")


def _learning_paused(alias: AliasFacts, held: BudgetHold) -> StageStatus:
    text = held.sentence("Learning")
    return StageStatus(Stage.LEARNING, alias.alias, StageState.PAUSED, held.code, held.until, text)


def _count(number: int, one: str, several: str) -> str:
    return f"{number} {one if number == 1 else several}"


def _number(number: int) -> str:
    return f"{number} is" if number == 1 else f"{number} are"


def _are(number: int) -> str:
    """`1 group is`, `2 groups are`."""
    return _count(number, "group is", "groups are")
