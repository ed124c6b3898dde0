"""The settings of each arm, as Hone gets them, and what differs between the arms."""

from __future__ import annotations

import pytest

from examples.live.follow_ups.arms import ARMS, OF_TRAFFIC, ArmName
from examples.live.follow_ups.user_script import LATEST_S, NO_ANSWER_S, SOONEST_S
from proxy.settings.loader import load_settings

SETTINGS = {name: load_settings(arm.config, {}).settings for name, arm in ARMS.items()}
LEARN_FROM_FOLLOW_UPS: list[ArmName] = ["follow-ups", "truth", "corrections"]


@pytest.mark.parametrize("name", LEARN_FROM_FOLLOW_UPS)
def test_only_what_comes_next_is_a_reward_and_one_trajectory_is_enough(name: ArmName) -> None:
    settings = SETTINGS[name]
    assert [reward.kind for reward in settings.judge.in_force()] == ["follow_up"]
    assert settings.trainer.baseline == "running"
    assert settings.aliases["helpdesk"].shadow.share == 0


@pytest.mark.parametrize("name", LEARN_FROM_FOLLOW_UPS)
def test_users_write_after_their_trajectory_ended_and_before_hone_gives_up(name: ArmName) -> None:
    recorder, judge = SETTINGS[name].recorder, SETTINGS[name].judge
    assert recorder.answered_idle_s < SOONEST_S
    assert recorder.idle_timeout_s < NO_ANSWER_S + SOONEST_S
    assert recorder.answered_idle_s + judge.follow_up_wait_s > LATEST_S


def test_the_arms_differ_in_what_they_learn_from_alone() -> None:
    assert ARMS["truth"].config == ARMS["follow-ups"].config
    assert (ARMS["truth"].shares.lies, ARMS["truth"].error_rate) == (0.0, 0.0)
    assert (ARMS["follow-ups"].shares.lies, ARMS["follow-ups"].error_rate) == (0.15, 0.1)
    assert ARMS["corrections"].shares.states == 0.2
    trainers = {
        name: settings.trainer.model_copy(update={"objectives": [], "baseline": None})
        for name, settings in SETTINGS.items()
    }
    assert all(trainer == trainers["follow-ups"] for trainer in trainers.values())
    assert len({settings.aliases["helpdesk"].promote for settings in SETTINGS.values()}) == 1
    assert SETTINGS["shadow"].aliases["helpdesk"].shadow.share == 1


def test_corrections_are_imitated_beside_the_rewards() -> None:
    assert [one.name for one in SETTINGS["corrections"].trainer.objectives] == ["group", "imitate"]
    assert SETTINGS["corrections"].trainer.objectives[1].conditions == ("demonstration = yes",)
    assert {arm for arms in OF_TRAFFIC.values() for arm in arms} == set(ARMS)
