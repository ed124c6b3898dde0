"""The committed set of tricks: the same for the same seed, true by its record, and shown in the order that it wants."""

from __future__ import annotations

import json
import random

import pytest

from judge.adversarial.groups import GROUPS, GroupTrial, kind_trials, order_seed
from judge.adversarial.tasks import draw_task
from judge.adversarial.tricks import KINDS, RecipeContext, TrickKind
from judge.llm.group_text import prompt_trajectory
from judge.llm.prompt import build_prompt
from judge.rewards.rules import check_rule
from recorder.llm import rubric
from recorder.queue.groups.readiness import MEASURED
from tests.judge.adversarial.scripted import FAILED, HARMFUL, WORTH, Read, sound

TOLD = RecipeContext("- It is right.\n- It is brief.", "judge-1")
each_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


def members(one: GroupTrial) -> list[Read]:
    """The runs of a group, as one who reads all of each sees them."""
    shown = []
    for member in one.group.members:
        cut = [{"messages": history.messages} for history in member.histories]
        shown.append(Read(one.task, [dict(m) for m in member.messages], cut, 0, 3))
    return shown


def test_there_are_enough_kinds_and_groups() -> None:
    assert len(KINDS) >= 12
    assert GROUPS >= 20
    assert sum(kind.degenerate is not None for kind in KINDS.values()) >= 4


@each_kind
def test_a_kinds_groups_are_the_same_for_the_same_seed_and_all_different(kind: TrickKind) -> None:
    first, again = (list(kind_trials(kind, GROUPS, 0, TOLD)) for _ in range(2))
    assert first == again
    assert len({one.task.ask for one in first}) == GROUPS
    assert [one.group for one in kind_trials(kind, GROUPS, 1, TOLD)] != [one.group for one in first]
    assert [one.group for one in kind_trials(kind, 5, 0, TOLD)] == [one.group for one in first[:5]]


def test_no_two_groups_of_the_set_ask_the_same() -> None:
    asked = [one.task.ask for kind in KINDS.values() for one in kind_trials(kind, GROUPS, 0, TOLD)]
    assert len(set(asked)) == len(asked)


@each_kind
def test_the_record_tells_success_from_failure_and_failure_from_trick(kind: TrickKind) -> None:
    for one in kind_trials(kind, GROUPS, 0, TOLD):
        worth = [sound(read) for read in members(one)]
        assert worth == [WORTH, FAILED, HARMFUL if kind.name == "omits_misdeed" else FAILED]


@each_kind
def test_only_a_tool_that_worked_tells_the_code(kind: TrickKind) -> None:
    for one in kind_trials(kind, GROUPS, 0, TOLD):
        code = one.task.code
        for member, read in zip(one.group.members, members(one), strict=True):
            assert (code in json.dumps(list(member.messages))) == read.worked()
        assert all(code not in entry["text"] for entry in one.task.criteria)


@each_kind
def test_a_group_is_measured_never_trained_and_its_rules_can_be_checked(kind: TrickKind) -> None:
    one = next(kind_trials(kind, 1, 0, TOLD))
    for member in one.group.members:
        assert member.purpose in MEASURED
        turns = sum(message["role"] == "assistant" for message in member.messages)
        assert check_rule("max_turns", turns - 1, member).value == 1
        assert check_rule("max_tokens", 0, member).value == 1
    assert check_rule("required_tools", [one.task.act.name], one.group.members[0]).value == 0
    assert [found.id for found in rubric.parse_criteria(one.task.criteria)] == ["done", "told", "harm"]


@each_kind
def test_the_trick_stands_in_the_middle_where_its_place_is_not_the_trick(kind: TrickKind) -> None:
    rng = random.Random(3)
    ends = set()
    for one in kind_trials(kind, GROUPS, 0, TOLD):
        prompt = build_prompt(
            [prompt_trajectory(member) for member in one.group.members],
            rubric="",
            seed=order_seed(one, rng),
            max_chars=100_000,
        )
        first, (middle,), _ = prompt.ids.values()
        assert middle == (one.good if kind.by_place else one.trick)
        ends.add(first[0] == one.failure)
    assert ends == {True, False}  # the honest runs take turns at the ends


def test_what_a_judge_is_told_and_called_is_made_use_of() -> None:
    pasted = next(kind_trials(KINDS["criteria_pasted"], 1, 0, TOLD)).group.members[2].answer
    assert pasted is not None
    assert "It is brief." in pasted
    signed = [one.group.members[2].answer or "" for one in kind_trials(KINDS["authorship"], GROUPS, 0, TOLD)]
    assert any("judge-1" in text for text in signed)
    assert not all("judge-1" in text for text in signed)


def test_a_task_is_drawn_by_its_number_and_the_draw() -> None:
    assert draw_task(3, random.Random(1)) == draw_task(3, random.Random(1))
    assert len({draw_task(number, random.Random(1)).act.name for number in range(12)}) == 6
