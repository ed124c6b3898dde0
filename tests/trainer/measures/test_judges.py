"""Who judged a step, and when that is somebody new: told once, and never of the first."""

from __future__ import annotations

from recorder.views.campaigns.events import JUDGE_CHANGED, SettingChanged, StepJudges, encode_event
from trainer.measures.judges import JudgeIdentity, JudgeSwitch, judge_change

OLD, NEW, OTHER = (
    JudgeIdentity("openai/a", "a-1", "r" * 32),
    JudgeIdentity("openai/a", "a-2", "r" * 32),
    JudgeIdentity("openai/a", "a-1", "s" * 32),
)


def course(*steps: set[JudgeIdentity]) -> list[SettingChanged]:
    """What is told when steps, from 0 on, were judged so."""
    rows: list[StepJudges] = []
    told: list[SettingChanged] = []
    for step, judges in enumerate(steps):
        found = judge_change(rows, step, frozenset(judges))
        if found is not None:
            rows.append(found[0])
            told += [found[1]] if found[1] is not None else []
    return told


def test_a_new_version_is_told_once_with_both() -> None:
    [told] = course({OLD}, {OLD}, {NEW}, {NEW}, {NEW})
    assert (told.step, told.what) == (1, JUDGE_CHANGED)
    assert (told.was, told.now) == ("a-1 by recipe rrrrrrrrrrrr", "a-2 by recipe rrrrrrrrrrrr")


def test_a_step_that_both_judged_is_the_last_of_the_old_ones() -> None:
    [told] = course({OLD}, {OLD, NEW}, {NEW})
    assert told.step == 1


def test_a_recipe_counts_as_a_version_does() -> None:
    assert [one.step for one in course({OLD}, {OTHER})] == [0]


def test_versions_that_come_back_are_nothing_new() -> None:
    assert [one.step for one in course({OLD}, {NEW}, {OLD}, {NEW}, {OLD, NEW})] == [0]


def test_of_the_first_judge_and_of_steps_without_a_score_nothing_is_told() -> None:
    assert course(set(), {OLD}, set(), {OLD}) == []


def test_a_row_is_what_is_read_back() -> None:
    found = judge_change([], 3, frozenset({NEW, OLD}))
    assert found is not None
    judges = [["openai/a", "a-1", "r" * 32], ["openai/a", "a-2", "r" * 32]]
    assert encode_event(found[0]) == {"step": 3, "judges": judges, "turn": 0}


STRONG = JudgeIdentity("openai/strong", "s-1", "t" * 32)


def turned(*steps: tuple[set[JudgeIdentity], JudgeSwitch | None]) -> list[SettingChanged]:
    """The same, with which of two judges scores by then."""
    rows: list[StepJudges] = []
    told: list[SettingChanged] = []
    for step, (judges, turn) in enumerate(steps):
        found = judge_change(rows, step, frozenset(judges), turn)
        if found is not None:
            rows.append(found[0])
            told += [found[1]] if found[1] is not None else []
    return told


def test_of_two_judges_each_turn_is_told_once_and_when_it_shows() -> None:
    strong, cheap = JudgeSwitch(1, "openai/strong"), JudgeSwitch(2, "openai/a")
    told = turned(
        ({OLD}, None),
        ({OLD}, strong),  # its turn came after the step's groups were scored
        ({STRONG}, strong),
        ({STRONG}, strong),
        ({STRONG}, cheap),
        ({OLD}, cheap),  # one that judged before judges again
        ({OLD, NEW}, cheap),
        ({OLD}, cheap),
    )
    assert [(one.step, one.now.partition(" ")[0]) for one in told] == [(1, "s-1"), (4, "a-1"), (6, "a-2")]


def test_a_step_that_both_of_two_judges_judged_is_the_last_of_the_one_before() -> None:
    strong, cheap = JudgeSwitch(1, "openai/strong"), JudgeSwitch(2, "openai/a")
    told = turned(({OLD}, None), ({OLD, STRONG}, strong), ({STRONG}, strong), ({STRONG, OLD}, cheap), ({OLD}, cheap))
    assert [one.step for one in told] == [1, 3]
