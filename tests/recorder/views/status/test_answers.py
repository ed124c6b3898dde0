"""Is it learning, is it healthy, what needs me: three answers from one status."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.stats.means import Interval, share_interval
from recorder.views.campaigns.measures import Kind, Measure, Source
from recorder.views.status.answers import Outlook, answer_questions, compare_versions
from recorder.views.status.project import (
    AliasStatus,
    EngineStatus,
    GateStatus,
    NeverTrainedClient,
    ProxyStatus,
    UnscoredGroups,
)
from recorder.views.status.stages import Stage, StageState, StageStatus
from recorder.views.versions.progress import AliasProgress, VersionProgress
from recorder.views.versions.rewards import VersionReward
from tests.recorder.views.notices.test_conditions import DOWN, a_status

PROXY = ProxyStatus("http://p:1", "p", True, 0, 1.0)
UP = EngineStatus("http://e:1", "up", None, [], None, 1.0)


def reward(number: int, mean: float, half: float | None = 0.05, *, relative: bool = False) -> VersionReward:
    interval = None if half is None else Interval(mean - half, mean + half)
    return VersionReward("helpdesk", f"helpdesk@{number}", 40, 10, mean, interval, relative)


def alias(name: str = "helpdesk", live: str | None = "helpdesk@2") -> AliasStatus:
    return AliasStatus(name, live, 5.0, None, None, 0.0, 0.0, None, 1)


def stage(which: Stage, state: StageState, code: str, of: str | None = None) -> StageStatus:
    return StageStatus(which, of, state, code, None, f"{which} says {code}.")


def version(
    number: int,
    *,
    held_out: float | None = None,
    of: VersionReward | None = None,
    gate: float | None = None,
    in_line: bool = True,
    kind: Kind = "success",
) -> VersionProgress:
    def measure(value: float | None, kind: Kind, source: Source) -> Measure | None:
        return None if value is None else Measure(kind, value, 50, share_interval(value, 50), source)

    measured = measure(held_out, kind, "validation"), of, measure(gate, "win rate", "gate")
    return VersionProgress(f"helpdesk@{number}", "live", in_line, *measured)


def with_rewards(*rewards: VersionReward) -> AliasProgress:
    return AliasProgress("helpdesk", [version(number, of=one) for number, one in enumerate(rewards, 1)])


@pytest.mark.parametrize(
    ("rewards", "outlook", "words"),
    [
        ([], Outlook.OPEN, "No version has a reward yet."),
        ([reward(1, 0.5)], Outlook.OPEN, "no other version has one"),
        (
            [reward(1, 0.5), reward(2, 0.7)],
            Outlook.GOOD,
            "In traffic: helpdesk@2 has the reward 0.7 (0.65 to 0.75), helpdesk@1 0.5",
        ),
        ([reward(1, 0.7), reward(2, 0.5)], Outlook.BAD, "lower"),
        ([reward(1, 0.5), reward(2, 0.52)], Outlook.OPEN, "no difference is shown"),
        ([reward(1, 0.5), reward(2, 0.9, None)], Outlook.OPEN, "too few groups"),
        ([reward(1, 0.5), reward(2, 0.9, relative=True)], Outlook.OPEN, "only rank attempts of one group"),
        ([reward(1, 0.5, relative=True), reward(2, 0.9)], Outlook.OPEN, "no other version has one"),
        (
            [reward(1, 0.3), reward(2, 0.7), reward(3, 0.72)],
            Outlook.GOOD,
            "no difference is shown. helpdesk@1 had 0.3 (0.25 to 0.35): higher.",
        ),
        ([reward(1, 0.3), reward(2, 0.9), reward(3, 0.7)], Outlook.BAD, "lower. helpdesk@1 had"),
    ],
)
def test_the_live_version_is_compared_with_the_one_before_and_the_first(
    rewards: list[VersionReward], outlook: Outlook, words: str
) -> None:
    [(found, text)] = compare_versions(with_rewards(*rewards))
    assert found is outlook
    assert words in text


def test_held_out_scenarios_and_traffic_are_told_apart() -> None:
    versions = [version(0, held_out=0.34, of=reward(0, 0.3)), version(1, held_out=0.96, of=reward(1, 0.31))]
    held_out, traffic = compare_versions(AliasProgress("helpdesk", versions))
    assert held_out[0] is Outlook.GOOD
    assert held_out[1].startswith("Held-out: helpdesk@1 has the success rate 96 % (87 % to 99 %), helpdesk@0 34 %")
    assert traffic == (Outlook.OPEN, traffic[1])
    assert traffic[1].startswith("In traffic: helpdesk@1 has the reward 0.31")


@pytest.mark.parametrize(
    ("won", "outlook", "words"),
    [(0.8, Outlook.GOOD, "better"), (0.2, Outlook.BAD, "worse"), (0.5, Outlook.OPEN, "no difference is shown")],
)
def test_the_gate_speaks_where_no_measure_compares_versions(won: float, outlook: Outlook, words: str) -> None:
    versions = [version(1, of=reward(1, 0.5, relative=True)), version(2, gate=won)]
    [(found, text)] = compare_versions(AliasProgress("helpdesk", versions))
    assert (found, f"helpdesk@2 won {won * 100:.0f} %" in text, "of 50 pairs" in text) == (outlook, True, True)
    assert words in text


def test_what_left_the_line_does_not_count_and_kinds_are_not_mixed() -> None:
    left = version(3, held_out=0.1, in_line=False)
    other_kind = version(0, held_out=0.2, kind="win rate")
    found = compare_versions(AliasProgress("helpdesk", [other_kind, version(1, held_out=0.9), left]))
    assert [text for _, text in found] == [
        "Held-out: helpdesk@1 has the success rate 90 % (79 % to 96 %); no other version has one."
    ]


@given(means=st.tuples(*[st.floats(-10, 10)] * 2), halves=st.tuples(*[st.floats(0, 5)] * 2))
def test_to_swap_two_versions_swaps_good_and_bad(means: tuple[float, float], halves: tuple[float, float]) -> None:
    one, two = (reward(number + 1, mean, half) for number, (mean, half) in enumerate(zip(means, halves, strict=True)))
    [(there, _)], [(back, _)] = compare_versions(with_rewards(one, two)), compare_versions(with_rewards(two, one))
    opposite = {Outlook.GOOD: Outlook.BAD, Outlook.BAD: Outlook.GOOD, Outlook.OPEN: Outlook.OPEN}
    assert back is opposite[there]
    if there is Outlook.OPEN:
        assert abs(means[0] - means[1]) <= math.fsum(halves) + 1e-9


@pytest.mark.parametrize(
    ("values", "outlook", "words"),
    [
        ({}, Outlook.BAD, "No proxy runs"),
        ({"proxies": [PROXY]}, Outlook.OPEN, "No engine has reported yet"),
        (
            {"proxies": [PROXY], "engines": [UP], "aliases": [alias()]},
            Outlook.GOOD,
            "1 of 1 engine up, live: helpdesk@2",
        ),
        ({"proxies": [PROXY], "engines": [UP, DOWN]}, Outlook.BAD, "1 of 2 engines up, live: no version"),
    ],
)
def test_serving(values: dict[str, Any], outlook: Outlook, words: str) -> None:
    serving = answer_questions(a_status(**values)).healthy[0]
    assert (serving.about, serving.outlook) == ("serving", outlook)
    assert words in serving.text


def test_each_stage_is_a_line_and_a_stuck_one_is_bad() -> None:
    stages = [
        stage(Stage.RECORDING, StageState.RUNNING, "recording"),
        stage(Stage.JUDGING, StageState.WAITING, "no_judge"),
        stage(Stage.LEARNING, StageState.PAUSED, "steps_per_hour", "helpdesk"),
        stage(Stage.LEARNING, StageState.WAITING, "reward_fall", "other"),
    ]
    answers = answer_questions(a_status(aliases=[alias(), alias("other")], stages=stages))
    assert [(one.about, one.outlook) for one in answers.healthy[1:]] == [
        ("recording", Outlook.GOOD),
        ("judging", Outlook.BAD),
        ("learning helpdesk", Outlook.OPEN),
        ("learning other", Outlook.BAD),
    ]
    assert [(one.about, one.text) for one in answers.needs] == [("other", "learning says reward_fall.")]


def test_a_stage_in_trouble_says_why() -> None:
    client = NeverTrainedClient("curl", "helpdesk", 9, (), (), (), (), 1.0, "no_tokens", "set engine.tokens")
    stages = [
        stage(Stage.RECORDING, StageState.RUNNING, "recording"),
        stage(Stage.JUDGING, StageState.RUNNING, "judging"),
    ]
    failed = UnscoredGroups("judge_unreachable", 2, None, "503", None)
    answers = answer_questions(a_status(stages=stages, never_trained=[client], unscored=[failed]))
    assert [(one.outlook, one.text) for one in answers.healthy[1:]] == [
        (
            Outlook.BAD,
            "recording says recording. No call of curl to helpdesk can be trained on (no_tokens): set engine.tokens.",
        ),
        (Outlook.BAD, "judging says judging. 2 groups could not be judged (judge_unreachable)."),
    ]


def test_what_needs_a_person() -> None:
    gate = [GateStatus("helpdesk@3", "gated", 0.0, for_s=65.0), GateStatus("helpdesk@4", "written", 0.0)]
    disputed = UnscoredGroups("judges_disagree", 2, None, "they disagree", None)
    answers = answer_questions(a_status(aliases=[alias()], engines=[DOWN], gate=gate, unscored=[disputed]))
    assert [(one.about, one.link) for one in answers.needs] == [
        ("engine_down", "/hone/#engines"),
        ("review", "/hone/review"),
        ("helpdesk@3", "/hone/versions/helpdesk@3"),
    ]
    assert answers.needs[1].text == "2 groups wait for a person: `hone review`."
    assert "gated since 01:05" in answers.needs[2].text
    assert answer_questions(a_status(aliases=[alias()])).needs == ()


def test_an_empty_project_says_what_to_do_first() -> None:
    assert [one.about for one in answer_questions(a_status()).needs] == ["first alias"]
    nothing = [stage(Stage.RECORDING, StageState.WAITING, "nothing_recorded")]
    [first] = answer_questions(a_status(aliases=[alias()], stages=nothing)).needs
    assert (first.about, first.outlook) == ("first call", Outlook.OPEN)
    assert first.text == "Nothing is recorded yet: point an agent at this proxy, with the model helpdesk."


def test_an_alias_without_a_reward_is_a_line() -> None:
    progress = [with_rewards(reward(2, 0.5)), AliasProgress("other", [])]
    answers = answer_questions(a_status(aliases=[alias(), alias("other", None)], progress=progress))
    assert [one.about for one in answers.learning] == ["helpdesk", "other"]
    assert "No version has a reward yet." in answers.learning[1].text
