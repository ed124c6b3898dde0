"""What each stage waits for, from facts alone: the rule of a step, what holds a stage back, and the sentences."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.base.terminal import clock_time
from recorder.queue.claims import TrainableGroups
from recorder.queue.training.budgets import DAY_S, HOUR_S, JudgeUsage
from recorder.queue.training.gpu_pauses import PauseBudget
from recorder.registry.live_findings import LiveFinding
from recorder.setting_changes.change_rows import SettingChange
from recorder.settings import LearnSettings
from recorder.states import GroupState
from recorder.views.status.stages import (
    AliasFacts,
    LoopFacts,
    LoopSettings,
    StageState,
    StageStatus,
    judging_stage,
    learning_stage,
    loop_stages,
    recording_stage,
    seconds_until_due,
)
from trainer.settings import TrainerSettings

NOON = datetime(2026, 11, 22, 12)
AT = NOON.timestamp()
FACTS = LoopFacts(at=AT, local=NOON, has_judge=True)
DEFAULT = LoopSettings()
CLOSED = LoopSettings(learn=LearnSettings(hours="22:00-06:00"))
TRAINER = TrainerSettings(min_groups=4, max_wait_s=1800)
trainable_of = st.builds(TrainableGroups, st.integers(0, 20), st.floats(0, 10_000))


def scored(number: int, first_s: float = 0.0, **more: object) -> AliasFacts:
    groups = {GroupState.SCORED: number} if number else {}
    there = AliasFacts("demo", groups, TrainableGroups(number, first_s), has_learner=True)
    return replace(there, **more)  # type: ignore[arg-type]


def told(alias: AliasFacts, settings: LoopSettings = DEFAULT, facts: LoopFacts = FACTS) -> tuple[str, str, str]:
    stage = learning_stage(alias, facts, settings)
    return stage.state, stage.code, stage.text


# --- when groups are enough


def test_enough_groups_are_taken_at_once() -> None:
    assert seconds_until_due(TrainableGroups(4, 0.0), TRAINER) == 0
    assert seconds_until_due(TrainableGroups(9, 0.0), TRAINER) == 0


def test_two_are_taken_when_the_first_has_waited_long_and_one_never() -> None:
    assert seconds_until_due(TrainableGroups(2, 0.0), TRAINER) == 1800
    assert seconds_until_due(TrainableGroups(3, 1700.0), TRAINER) == 100
    assert seconds_until_due(TrainableGroups(2, 1800.0), TRAINER) == 0
    assert seconds_until_due(TrainableGroups(1, 1e9), TRAINER) is None
    assert seconds_until_due(TrainableGroups(0, 0.0), TRAINER) is None


def test_one_is_enough_where_that_is_set() -> None:
    assert seconds_until_due(TrainableGroups(1, 0.0), TrainerSettings(min_groups=1)) == 0


@given(trainable_of, st.integers(1, 8), st.integers(0, 5), st.floats(0, 1000))
def test_what_is_due_stays_due_when_more_comes_or_time_passes(
    waiting: TrainableGroups, least: int, more: int, later_s: float
) -> None:
    settings = TrainerSettings(min_groups=least)
    if seconds_until_due(waiting, settings) == 0:
        assert seconds_until_due(TrainableGroups(waiting.groups + more, waiting.first_s + later_s), settings) == 0


@given(trainable_of)
def test_a_step_is_due_when_its_time_is_up(waiting: TrainableGroups) -> None:
    due_s = seconds_until_due(waiting, TRAINER)
    if due_s is not None:
        assert 0 <= due_s <= TRAINER.max_wait_s
        assert seconds_until_due(TrainableGroups(waiting.groups, waiting.first_s + due_s + 1), TRAINER) == 0


# --- when a step is due


def test_no_step_begins_after_the_end_of_a_schedule_however_many_groups_wait() -> None:
    settings = LoopSettings(trainer=TrainerSettings(warmup_steps=0, schedule="linear", schedule_steps=3, lr_min=0))
    assert told(scored(9, schedule_steps=2), settings)[1] == "step_due"
    assert told(scored(9, schedule_steps=3), settings) == (
        StageState.WAITING,
        "schedule_ended",
        'Learning waits for new settings: trainer.schedule = "linear" has ended: after 3 steps the learning rate is 0. '
        "Set trainer.lr_min above 0, or raise trainer.schedule_steps.",
    )
    assert told(scored(0, schedule_steps=3), settings)[1] == "schedule_ended"
    assert told(scored(9, schedule_steps=3, undecided=("demo@3", "gated")), settings)[1] == "undecided_version"
    assert told(scored(9, schedule_steps=9999))[1] == "step_due"  # a constant rate does not end
    lasting = LoopSettings(trainer=TrainerSettings(schedule="linear", schedule_steps=3))
    assert told(scored(9, schedule_steps=9999), lasting)[1] == "step_due"  # nor does one above 0


def test_a_paused_learner_says_who_paused_it_and_how_it_goes_on() -> None:
    paused = LearnSettings(paused=True, steps_per_hour=1)
    change = SettingChange("learn.paused", 3, False, True, False, "key_1", "ops", AT)
    assert told(scored(9, steps_at=[AT - 10]), LoopSettings(learn=paused, pause=change)) == (
        StageState.PAUSED,
        "paused",
        f"Learning is paused by ops since {change.since}. Resume it on the page Training, or by `hone config "
        "learn.paused --set false`.",
    )
    assert told(scored(9), LoopSettings(learn=paused))[2] == (
        "Learning is paused: learn.paused is true in hone.toml, a variable or a flag. Set it to false to continue."
    )
    assert told(scored(9, campaign="orders"), LoopSettings(learn=paused))[1] == "campaign"  # which a pause lets run


def may_begin(alias: AliasFacts, facts: LoopFacts, settings: LoopSettings) -> bool:
    """The rule of a step, written once more and for the test alone."""
    learn, trainer = settings.learn, settings.trainer
    recent = sum(at > facts.at - HOUR_S for at in alias.steps_at)
    enough = alias.trainable.groups >= trainer.min_groups
    patient = alias.trainable.groups >= 2 and alias.trainable.first_s >= trainer.max_wait_s
    return (
        alias.campaign is None
        and alias.undecided is None
        and not alias.step_running
        and not learn.paused
        and (learn.hours is None or facts.local.hour >= 22 or facts.local.hour < 6)
        and (learn.steps_per_hour is None or recent < learn.steps_per_hour)
        and (enough or patient)
        and (trainer.schedule == "constant" or trainer.lr_min != 0 or alias.schedule_steps < trainer.schedule_steps)
    )


aliases_of = st.builds(
    AliasFacts,
    alias=st.just("demo"),
    groups=st.dictionaries(st.sampled_from(GroupState), st.integers(0, 9)),
    trainable=trainable_of,
    closes_at=st.none() | st.floats(AT - 100, AT + 1000),
    undecided=st.none() | st.just(("demo@3", "gated")),
    campaign=st.none() | st.just("orders"),
    steps_at=st.lists(st.floats(AT - 2 * HOUR_S, AT), max_size=4),
    step_running=st.booleans(),
    lacking=st.dictionaries(st.just("recipe"), st.integers(0, 64)),
    has_learner=st.booleans(),
    schedule_steps=st.integers(0, 4),
)
settings_of = st.builds(
    LoopSettings,
    learn=st.builds(
        LearnSettings,
        paused=st.booleans(),
        hours=st.none() | st.just("22:00-06:00"),
        steps_per_hour=st.none() | st.integers(1, 3),
        judge_tokens_per_day=st.none() | st.integers(1, 100),
    ),
    trainer=st.builds(
        TrainerSettings,
        min_groups=st.integers(1, 6),
        max_wait_s=st.floats(1, 5000),
        schedule=st.sampled_from(["constant", "linear", "cosine"]),
        warmup_steps=st.just(0),
        schedule_steps=st.integers(1, 4),
        lr_min=st.sampled_from([0.0, None]),
    ),
)
facts_of = st.builds(
    lambda hour, has_judge, judged: LoopFacts(
        at=AT,
        local=NOON.replace(hour=hour),
        has_judge=has_judge,
        judged=[JudgeUsage(AT - 60, each, 0.0) for each in judged],
    ),
    st.integers(0, 23),
    st.booleans(),
    st.lists(st.integers(0, 60), max_size=3),
)


@given(aliases_of, facts_of, settings_of)
def test_a_step_is_said_to_be_due_whenever_it_is_and_never_else(
    alias: AliasFacts, facts: LoopFacts, settings: LoopSettings
) -> None:
    stage = learning_stage(alias, facts, settings)
    assert stage.is_step_due == may_begin(alias, facts, settings)
    assert (stage.state is StageState.READY) == (stage.is_step_due and alias.has_learner)
    assert stage.text.startswith("Learning ")
    assert stage.text.endswith(".")


@given(aliases_of, facts_of, settings_of)
def test_a_pause_of_learning_ends_when_it_says(alias: AliasFacts, facts: LoopFacts, settings: LoopSettings) -> None:
    stage = learning_stage(alias, facts, settings)
    if stage.code == "paused":
        assert stage.until is None  # a person ends it
    elif stage.state is StageState.PAUSED:
        assert stage.until is not None
        assert 0 < stage.until - facts.at <= 2 * DAY_S


# --- the sentences


def test_closed_hours_are_told_with_one_scored_group() -> None:
    text = "Learning is paused: [learn] hours allow it from 22:00 to 06:00. It resumes at 22:00."
    stage = learning_stage(scored(1), FACTS, CLOSED)
    assert (stage.state, stage.code, stage.text) == ("paused", "hours", text)
    assert stage.until == AT + 10 * HOUR_S
    assert judging_stage(FACTS, CLOSED).text == text.replace("Learning", "Judging")


def test_a_judges_spent_budget_pauses_the_learning_that_needs_it() -> None:
    settings = LoopSettings(learn=LearnSettings(judge_tokens_per_day=200_000))
    resumes = AT + 140 * 60
    facts = replace(FACTS, judged=[JudgeUsage(resumes - DAY_S, 150_000, 0.0), JudgeUsage(AT - 60, 60_000, 0.0)])
    text = (
        "Learning is paused: the judge used its 200,000 tokens of the last 24 hours. It resumes at about 14:20. "
        "Raise learn.judge_tokens_per_day to continue now."
    )
    ready = AliasFacts("demo", {GroupState.READY: 1}, has_learner=True)
    assert told(ready, settings, facts) == ("paused", "judge_tokens_per_day", text)
    assert learning_stage(ready, facts, settings).until == resumes
    assert judging_stage(facts, settings).text == text.replace("Learning", "Judging")
    assert told(scored(4), settings, facts)[:2] == ("ready", "step_due")


def test_a_step_limit_is_told_with_the_moment_that_frees_it() -> None:
    settings = LoopSettings(learn=LearnSettings(steps_per_hour=2))
    assert told(scored(4, steps_at=(AT - 1800, AT - 600)), settings) == (
        "paused",
        "steps_per_hour",
        "Learning is paused: the alias took its 2 steps of the last hour. It resumes at about 12:30. "
        "Raise learn.steps_per_hour to continue now.",
    )


def test_follow_ups_that_wait_for_others_are_told() -> None:
    counts = {GroupState.SCORED: 9}
    alias = AliasFacts("demo", counts, TrainableGroups(1, 0.0, held=8, follow_ups=7), closes_at=AT + 60)
    stage = learning_stage(alias, FACTS, LoopSettings(trainer=TrainerSettings(follow_up_share=0.2)))
    text = (
        "Learning waits for 4 scored groups: 1 is scored, 8 are scored and held back. 7 groups are held back: "
        "follow-ups of one key are at most 20.0 % of a step, or an equal part if few keys have some. Other traffic "
        "makes room for them, and so does a higher trainer.follow_up_share."
    )
    assert (stage.code, stage.until, stage.text) == ("follow_up_share", AT + 60, text)


def test_too_few_groups_are_told_with_all_that_are_on_their_way() -> None:
    counts = {GroupState.SCORED: 1, GroupState.JUDGING: 2, GroupState.OPEN: 3}
    alias = AliasFacts("demo", counts, TrainableGroups(1, 0.0), closes_at=AT + 60)
    stage = learning_stage(alias, FACTS, DEFAULT)
    text = "Learning waits for 4 scored groups: 1 is scored, 2 are being judged, 3 are open."
    assert (stage.code, stage.until, stage.text) == ("too_few_groups", AT + 60, text)
    one = LoopSettings(trainer=TrainerSettings(min_groups=1))
    assert told(scored(0), one)[2] == "Learning waits for 1 scored group: no group is on its way."


@given(st.dictionaries(st.sampled_from(GroupState), st.integers(0, 99)), st.integers(3, 9))
def test_what_is_waited_for_names_every_group_on_its_way(counts: dict[GroupState, int], min_groups: int) -> None:
    settings = LoopSettings(trainer=TrainerSettings(min_groups=min_groups))
    text = told(AliasFacts("demo", counts), settings)[2]
    assert text.startswith(f"Learning waits for {min_groups} scored groups: ")
    ended = {GroupState.TRAINING, GroupState.TRAINED, GroupState.LEFT_OUT, GroupState.MEASURED}
    for state in set(GroupState) - ended:
        if counts.get(state):
            assert f"{counts[state]} {'is' if counts[state] == 1 else 'are'} " in text


def test_the_first_groups_wait_is_told_with_its_end() -> None:
    stage = learning_stage(scored(2, 600.0), FACTS, DEFAULT)
    assert (stage.code, stage.until) == ("first_wait", AT + 1200)
    assert stage.text == (
        "Learning waits for 4 scored groups: 2 are scored. A step begins with those that are scored at about 12:20."
    )


def test_no_step_is_promised_while_a_version_is_not_decided() -> None:
    assert told(scored(9, undecided=("demo@3", "gated"))) == (
        "waiting",
        "undecided_version",
        "Learning waits for a decision on demo@3: it is gated, and no step begins before it is live or rejected.",
    )


def test_no_step_is_promised_while_nobody_has_decided_about_a_fall() -> None:
    assert told(scored(9, finding=("demo@3", LiveFinding("reward_fall", "the mean reward fell")))) == (
        "waiting",
        "reward_fall",
        "Learning waits for a decision on demo@3: the mean reward fell. `hone rollback` takes it back, `hone promote "
        "demo@3` keeps it.",
    )
    assert told(scored(9, finding=("demo@3", LiveFinding("kl_base_max", "it is far"))))[:2] == (
        "waiting",
        "kl_base_max",
    )


def test_a_campaign_a_running_step_and_a_missing_baseline_are_told() -> None:
    text = "Learning waits for campaign 'orders' to end: it trains 'demo' now."
    assert told(scored(9, campaign="orders")) == ("waiting", "campaign", text)
    assert told(scored(9, step_running=True))[:2] == ("running", "training")
    code, text = told(scored(0, lacking={"recipe": 12}))[1:]
    assert code == "baseline"
    assert text.endswith("A running baseline needs more than 64 rewards by one recipe, and there are 12.")


def test_whoever_is_missing_is_told() -> None:
    no_judge = replace(FACTS, has_judge=False, groups={"ready": 2})
    ready = AliasFacts("demo", {GroupState.READY: 2}, has_learner=True)
    assert told(ready, facts=no_judge)[1:] == (
        "no_judge",
        "Learning waits for 4 scored groups: 2 are ready for the judge. No judge runs: start one with `hone judge`.",
    )
    assert judging_stage(no_judge, DEFAULT).code == "no_judge"
    assert told(scored(4, has_learner=False))[1:] == (
        "no_learner",
        "Learning waits for a learner: 4 groups are enough for a step and none runs. Start one with `hone learn`.",
    )


@pytest.mark.parametrize(
    ("groups", "state", "code"),
    [
        ({"judging": 1, "ready": 1}, "running", "judging"),
        ({"ready": 1}, "ready", "group_ready"),
        ({"unscored": 1}, "waiting", "retry"),
        ({"open": 1}, "waiting", "no_group_ready"),
    ],
)
def test_how_judging_stands(groups: dict[str, int], state: str, code: str) -> None:
    facts = replace(FACTS, groups=groups, retries_at=AT + 90, closes_at=AT + 30)
    stage = judging_stage(facts, DEFAULT)
    assert (stage.state, stage.code) == (state, code)
    assert stage.until == {"retry": AT + 90, "no_group_ready": AT + 30}.get(code)


def test_nothing_recorded_is_told_until_something_is() -> None:
    def of(**facts: object) -> StageStatus:
        return recording_stage(replace(FACTS, **facts))  # type: ignore[arg-type]

    assert of().code == "nothing_recorded"
    assert of(groups={"trained": 3}).text == "Recording waits for the next call: nothing is open."
    running = of(groups={"open": 2}, open_trajectories=1, closes_at=AT + 5)
    assert (running.state, running.until) == ("running", AT + 5)
    assert running.text == "Recording is running: 1 open trajectory, 2 open groups."


def test_every_stage_is_there_and_learning_once_for_each_alias() -> None:
    facts = replace(FACTS, aliases=[AliasFacts("a"), AliasFacts("b")])
    found = [(one.stage, one.alias) for one in loop_stages(facts, DEFAULT)]
    assert found == [("recording", None), ("judging", None), ("learning", "a"), ("learning", "b")]


def test_a_moment_to_come_is_never_told_too_early() -> None:
    assert clock_time(AT + 1, AT) == "12:01"
    assert clock_time(AT + 2 * DAY_S, AT) == "2026-11-24 12:00"


def test_learning_waits_until_the_hour_has_room_for_another_pause_of_the_engine() -> None:
    pauses = PauseBudget(3, 180.0, 9.0, 60.0, 0.05, 0.05, 1200.0)
    state, code, text = told(replace(scored(9), pauses=pauses))
    assert (state, code) == ("paused", "max_pause_share")
    assert text == (
        "Learning is paused: the engine paused for 60 s at the last step, and engine.max_pause_share allows 5.0 % of "
        f"an hour. It resumes at about {clock_time(AT + 1200, AT)}. Raise engine.max_pause_share to continue now."
    )
    assert told(replace(scored(9), pauses=replace(pauses, free_in_s=0.0)))[1] == "step_due"
