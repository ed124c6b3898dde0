"""Is it learning, is it healthy, what needs me: three answers from one status."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.stats.means import Interval
from recorder.views.status.answers import Outlook, answer_questions, compare_newest
from recorder.views.status.project import AliasStatus, EngineStatus, GateStatus, ProxyStatus
from recorder.views.status.stages import Stage, StageState, StageStatus
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


@pytest.mark.parametrize(
    ("rewards", "outlook", "words"),
    [
        ([], Outlook.OPEN, "No version has a reward yet."),
        ([reward(1, 0.5)], Outlook.OPEN, "no other version has one"),
        (
            [reward(1, 0.5), reward(2, 0.7)],
            Outlook.GOOD,
            "helpdesk@2 has the reward 0.7 (0.65 to 0.75), helpdesk@1 0.5",
        ),
        ([reward(1, 0.7), reward(2, 0.5)], Outlook.BAD, "lower"),
        ([reward(1, 0.5), reward(2, 0.52)], Outlook.OPEN, "no difference is shown"),
        ([reward(1, 0.5), reward(2, 0.9, None)], Outlook.OPEN, "too few groups"),
        ([reward(1, 0.5), reward(2, 0.9, relative=True)], Outlook.OPEN, "the gate compares versions"),
        ([reward(1, 0.5, relative=True), reward(2, 0.9)], Outlook.OPEN, "no other version has one"),
    ],
)
def test_the_newest_version_is_compared_with_the_one_before(
    rewards: list[VersionReward], outlook: Outlook, words: str
) -> None:
    found, text = compare_newest(rewards)
    assert found is outlook
    assert words in text


@given(means=st.tuples(*[st.floats(-10, 10)] * 2), halves=st.tuples(*[st.floats(0, 5)] * 2))
def test_to_swap_two_versions_swaps_good_and_bad(means: tuple[float, float], halves: tuple[float, float]) -> None:
    one, two = (reward(number + 1, mean, half) for number, (mean, half) in enumerate(zip(means, halves, strict=True)))
    there, back = compare_newest([one, two])[0], compare_newest([two, one])[0]
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
    answers = answer_questions(a_status(stages=stages))
    assert [(one.about, one.outlook) for one in answers.healthy[1:]] == [
        ("recording", Outlook.GOOD),
        ("judging", Outlook.BAD),
        ("learning helpdesk", Outlook.OPEN),
        ("learning other", Outlook.BAD),
    ]
    assert [(one.about, one.text) for one in answers.needs] == [("other", "learning says reward_fall.")]


def test_what_needs_a_person() -> None:
    gate = [GateStatus("helpdesk@3", "gated", 0.0, for_s=65.0), GateStatus("helpdesk@4", "written", 0.0)]
    answers = answer_questions(a_status(engines=[DOWN], gate=gate), groups_for_people=2)
    assert [(one.about, one.link) for one in answers.needs] == [
        ("engine_down", "/hone/"),
        ("review", "/hone/review"),
        ("helpdesk@3", "/hone/versions/helpdesk@3"),
    ]
    assert answers.needs[1].text == "2 groups wait for a person: `hone review`."
    assert "gated since 01:05" in answers.needs[2].text
    assert answer_questions(a_status(), groups_for_people=1).needs[0].text.startswith("1 group waits")
    assert answer_questions(a_status()).needs == ()


def test_an_alias_without_a_reward_is_a_line() -> None:
    answers = answer_questions(a_status(aliases=[alias(), alias("other", None)], rewards=[reward(2, 0.5)]))
    assert [one.about for one in answers.learning] == ["helpdesk", "other"]
    assert "No version has a reward yet." in answers.learning[1].text
