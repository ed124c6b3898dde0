"""Rubrics as rewards: what verdicts earn, who is asked, what is kept, and who gets no reward."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import func, select

from judge.errors import JudgeDown, JudgeFailed, PartsMissing
from judge.llm.rubric import CriterionVerdict
from judge.rewards.code_checks import IDLE_SETS, CodeJudges
from judge.rewards.judge_context import JudgeContext
from judge.rewards.rubrics import rubric_part, rubric_reward
from judge.scoring.group_score import GroupScore, score_group
from judge.scoring.setup import open_judge_context
from judge.settings import JudgeSettings
from recorder.llm import rubric
from recorder.llm.rubric import Criterion
from recorder.maintenance.deletion import delete_trajectory
from recorder.queue import claims
from recorder.queue.judging import scores
from recorder.states import Purpose
from recorder.store.database import Project, Store
from recorder.store.schema import verdicts
from recorder.views.trajectories.shapes import GroupView, ScenarioView
from recorder.views.trajectories.transcripts import load_group
from tests.judge.judge_server import JudgeServer, documents, fails, says
from tests.judge.judge_server import verdicts as verdicts_by_worth
from tests.judge.recorded import PROJECT, Recorded
from tests.judge.rubric_replies import checked, criteria

pytestmark = pytest.mark.slow

Make = Callable[..., JudgeSettings]

RUBRIC = ["has apple", {"id": "pear", "text": "has pear", "weight": 2}, {"id": "bad", "text": "has worm", "weight": -3}]
CHECKS = """
def short(t):
    return len(t.answer) < 12

async def half(t):
    return 0.5

def over(t):
    return 7

def fails(t):
    raise ValueError("no idea")
"""
weights = st.floats(allow_nan=False, allow_infinity=False).filter(bool)


@given(st.lists(st.tuples(weights, st.booleans()), min_size=1).filter(lambda some: any(w > 0 for w, _ in some)))
def test_a_reward_lies_in_its_range_whatever_the_weights(some: list[tuple[float, bool]]) -> None:
    listed = [Criterion(str(n), "x", weight) for n, (weight, _) in enumerate(some)]
    reward = rubric_reward(listed, [met for _, met in some])
    assert 0 <= reward <= 1
    everything = rubric_reward(listed, [one.weight > 0 for one in listed])
    assert everything == 1
    assert rubric_reward(listed, [one.weight < 0 for one in listed]) == 0


@given(st.lists(st.tuples(st.integers(1, 9), st.booleans()), min_size=1))
def test_a_reward_is_the_share_of_the_weights_that_were_earned(some: list[tuple[int, bool]]) -> None:
    listed = [Criterion(str(n), "x", weight) for n, (weight, _) in enumerate(some)]
    earned = sum(weight for weight, met in some if met) / sum(weight for weight, _ in some)
    assert math.isclose(rubric_reward(listed, [met for _, met in some]), earned)


def test_a_part_says_what_was_met_and_why() -> None:
    found = {
        "1": CriterionVerdict(True, "it is", "an apple"),
        "pear": CriterionVerdict(False, "none"),
        "bad": CriterionVerdict(True, "a worm"),
    }
    part = rubric_part(rubric.parse_criteria(RUBRIC), found)
    assert part.value == 0
    assert part.explanation == "1 of 2 criteria met; not pear; pitfalls: bad"
    assert part.extra == {"1": 1.0, "pear": 0.0, "bad": 1.0}
    assert part.reasons == {"1": "it is (“an apple”)", "pear": "none", "bad": "a worm"}


@pytest.fixture
def judging(store: Store, settings: Make, tmp_path: Path) -> Callable[..., Any]:
    """Open a judge context whose reward is a rubric."""
    (tmp_path / "checks.py").write_text(CHECKS)

    @asynccontextmanager
    async def opened(
        *, keep: bool = True, reward: dict[str, Any] | None = None, **more: Any
    ) -> AsyncIterator[JudgeContext]:
        rewards = more.pop("rewards", [{"kind": "rubric"} | (reward or {})])
        made = settings(folder=tmp_path, retries=0, rewards=rewards, **more)
        async with open_judge_context(made, Project(store, PROJECT), keep=keep) as context:
            yield context

    return opened


async def under(store: Store, group_id: str, given: Any = RUBRIC) -> GroupView:
    """The group as a campaign's is that has such a rubric."""
    group = await load_group(store, group_id)
    scenario = ScenarioView("task", "train", "Where?", None, given)
    members = [replace(member, scenario=scenario) for member in group.members]
    return replace(group, scenario=scenario, members=members)


def rewards(scored: GroupScore) -> list[float | None]:
    return [part.value for part in scored.rewards.values()]


async def test_one_request_judges_one_run_by_all_criteria(
    store: Store, recorded: Recorded, judging: Any, server: JudgeServer
) -> None:
    server.behave(checked())
    group_id, _ = await recorded.group("g", ["an apple", "apple pear", "pear worm", "none"])
    async with judging() as context:
        scored = await score_group(await under(store, group_id), context)
    assert rewards(scored) == [1 / 3, 1.0, 0.0, 0.0]
    assert len(server.requests) == 4
    assert all(set(criteria(body).values()) == {"has apple", "has pear", "has worm"} for body in server.requests)
    new = scored.new
    assert (new.absolute, new.prompt_hash, new.judge_model) == (True, None, "openai/judge")
    assert (new.tokens_in, new.tokens_out, new.judge_version) == (400, 80, "judge-2026-11-01 fp_7")
    first = [p for p in new.parts if p.trajectory_id == next(iter(scored.rewards)) and p.part != "reward"]
    assert [(p.part, p.value, p.weight) for p in first] == [
        ("rubric", 1 / 3, 1.0), ("rubric.1", 1.0, None), ("rubric.pear", 0.0, None), ("rubric.bad", 0.0, None),
    ]  # fmt: skip
    assert [p.explanation for p in first[1:]] == ["on has apple", "on has pear", "on has worm"]
    asked = server.requests[0]["response_format"]["json_schema"]["schema"]["properties"]["criteria"]["items"]
    assert asked["required"] == ["id", "reason", "met"]


async def test_a_group_of_one_is_scored_for_a_reward_by_criteria_is_absolute(
    store: Store, recorded: Recorded, judging: Any, server: JudgeServer
) -> None:
    server.behave(checked())
    group_id, _ = await recorded.group("g", ["an apple"], purpose=Purpose.VAL)
    live_id, _ = await recorded.group("live", ["a pear"])
    async with judging() as context:
        measured = await score_group(await under(store, group_id), context)
        compared = replace(await under(store, live_id), baseline="running")
        live = await score_group(compared, context)
    assert (rewards(measured), rewards(live)) == ([1 / 3], [2 / 3])
    assert measured.new.absolute
    assert live.new.absolute


async def test_verdicts_are_kept_by_response_and_criteria(
    store: Store, recorded: Recorded, judging: Any, server: JudgeServer
) -> None:
    server.behave(checked())
    group_id, _ = await recorded.group("g", ["an apple", "an apple", "a pear"])
    async with judging() as context:
        scored = await score_group(await under(store, group_id), context)
        assert rewards(scored) == [1 / 3, 1 / 3, 2 / 3]
        assert len(server.requests) == 2  # the first two are one response
        heavier = [{"text": "has apple", "weight": 9}, *RUBRIC[1:]]  # weights are no part of the question
        again = await score_group(await under(store, group_id, heavier), context)
        assert rewards(again) == [9 / 11, 9 / 11, 2 / 11]
        assert (len(server.requests), again.new.tokens_in) == (2, 0)
        await score_group(await under(store, group_id, ["has apple"]), context)
        assert len(server.requests) == 4
    async with judging(model="openai/other") as context:  # another judge may say otherwise
        await score_group(await under(store, group_id), context)
    assert len(server.requests) == 6


async def test_looking_without_saving_writes_nothing(
    store: Store, recorded: Recorded, judging: Any, server: JudgeServer
) -> None:
    server.behave(checked())
    group_id, _ = await recorded.group("g", ["an apple", "a pear"])
    async with judging(keep=False) as context:
        await score_group(await under(store, group_id), context)
    async with store.read() as conn:
        assert (await conn.execute(select(func.count()).select_from(verdicts))).scalar_one() == 0


async def test_a_deleted_run_takes_its_verdicts_with_it(
    store: Store, recorded: Recorded, judging: Any, server: JudgeServer
) -> None:
    server.behave(checked())
    group_id, members = await recorded.group("g", ["an apple", "a pear"])
    async with judging() as context:
        await score_group(await under(store, group_id), context)
    await delete_trajectory(Project(store, PROJECT), members[0])
    async with store.read() as conn:
        assert list((await conn.execute(select(verdicts.c.trajectory_id))).scalars()) == [members[1]]


async def test_a_score_by_a_rubric_is_written_with_its_reasons(
    store: Store, recorded: Recorded, judging: Any, server: JudgeServer
) -> None:
    server.behave(checked())
    group_id, _ = await recorded.group("g", ["an apple", "a pear"])
    async with judging() as context:
        scored = await score_group(await under(store, group_id), context)
    claim = await claims.claim_for_judging(Project(store, PROJECT), "me", 60)
    assert claim is not None
    stored = await scores.get_score(store, await scores.record_score(store, claim, scored.new))
    assert {p.part: p.explanation for p in stored.parts if p.part.startswith("rubric.")} == {
        "rubric.1": "on has apple", "rubric.pear": "on has pear", "rubric.bad": "on has worm",
    }  # fmt: skip


async def test_a_reply_that_cannot_be_read_is_repaired_once(
    store: Store, recorded: Recorded, judging: Any, server: JudgeServer
) -> None:
    server.behave(checked(change=lambda entries: entries[1:]), checked())
    group_id, _ = await recorded.group("g", ["an apple"], purpose=Purpose.VAL)
    async with judging() as context:
        scored = await score_group(await under(store, group_id), context)
    assert rewards(scored) == [1 / 3]  # a group of one: the reward says something by itself
    first, second = server.requests
    assert "no verdict for: c-" in second["messages"][-1]["content"]
    assert second["messages"][:2] == first["messages"]


async def test_a_run_whose_reply_stays_unreadable_has_no_reward_and_the_others_count(
    store: Store, recorded: Recorded, judging: Any, server: JudgeServer
) -> None:
    async def stubborn(body: Any) -> Any:
        return await (says("hm") if "odd" in str(documents(body)[1]) else checked())(body)

    server.behave(stubborn)
    group_id, _ = await recorded.group("g", ["an apple", "odd", "a pear"])
    async with judging() as context:
        scored = await score_group(await under(store, group_id), context)
    assert rewards(scored) == [1 / 3, None, 2 / 3]
    (why,) = (part.explanation for part in scored.rewards.values() if part.value is None)
    assert "could not be read" in str(why)
    assert len(server.requests) == 4
    assert scored.new.tokens_in == 400


async def test_of_a_run_that_is_too_long_the_judge_sees_the_ends(
    store: Store, recorded: Recorded, judging: Any, server: JudgeServer
) -> None:
    server.behave(checked())
    said = [{"role": "assistant", "content": "x"}, {"role": "user", "content": "go on"}] * 200
    group_id, _ = await recorded.group("g", ["an apple", [*said, {"role": "assistant", "content": "x"}], "a pear"])
    async with judging(max_context_chars=8_000) as context:
        scored = await score_group(await under(store, group_id), context)
    assert rewards(scored) == [1 / 3, 0.0, 2 / 3]
    assert sum("messages left out" in str(request["messages"]) for request in server.requests) == 1


async def test_runs_that_criteria_leave_no_room_for_have_no_reward(
    store: Store, recorded: Recorded, judging: Any, server: JudgeServer
) -> None:
    group_id, _ = await recorded.group("g", ["an apple", "a pear"])
    with pytest.raises(PartsMissing, match="do not fit into 4000 characters"):
        async with judging(max_context_chars=4_000) as context:
            await score_group(await under(store, group_id, ["names a fruit " * 200]), context)
    assert server.requests == []


async def test_a_judge_that_is_down_leaves_the_group_unscored_and_what_it_said_is_kept(
    store: Store, recorded: Recorded, judging: Any, server: JudgeServer
) -> None:
    async def away(body: Any) -> Any:
        return await (fails(503) if "odd" in str(documents(body)[1]) else checked())(body)

    server.behave(away)
    group_id, _ = await recorded.group("g", ["an apple", "odd", "a pear"])
    async with judging() as context:
        with pytest.raises(JudgeDown) as down:
            await score_group(await under(store, group_id), context)
        assert down.value.spent.tokens_in == 200
        server.behave(checked())
        asked = len(server.requests)
        assert rewards(await score_group(await under(store, group_id), context)) == [1 / 3, 0.0, 2 / 3]
        assert len(server.requests) == asked + 1


async def test_what_is_met_is_quoted_where_evidence_is_asked_for(
    store: Store, recorded: Recorded, judging: Any, server: JudgeServer
) -> None:
    server.behave(checked(lambda text, wanted: True, quote=True))  # its quotes are words that "an apple" has not
    group_id, _ = await recorded.group("g", ["an apple", "apple pear worm", "pear worm apple"])
    async with judging(reward={"evidence": True}) as context:
        scored = await score_group(await under(store, group_id), context)
    assert [part.value for part in scored.rewards.values()] == [None, 0.0, 0.0]
    assert any("is not in the agent's own messages" in str(part.explanation) for part in scored.rewards.values())
    asked = server.requests[0]["response_format"]["json_schema"]["schema"]["properties"]["criteria"]["items"]
    assert asked["required"] == ["id", "reason", "met", "quote"]


async def test_code_decides_what_it_is_named_for_and_the_judge_the_rest(
    store: Store, recorded: Recorded, judging: Any, server: JudgeServer
) -> None:
    server.behave(checked())
    given = ["has apple", {"id": "s", "text": "is short", "check": "checks:short"}]
    given.append({"id": "h", "text": "is half", "check": "checks:half", "weight": 2})
    group_id, _ = await recorded.group("g", ["an apple", "a very long answer without any"])
    async with judging() as context:
        scored = await score_group(await under(store, group_id, given), context)
        assert rewards(scored) == [1.0, 0.5]
        assert {frozenset(criteria(body).values()) for body in server.requests} == {frozenset({"has apple"})}
        by_code = await score_group(await under(store, group_id, given[1:]), context)
    assert rewards(by_code) == [1.0, 2 / 3]
    assert (by_code.new.judge_model, len(server.requests)) == (None, 2)


@pytest.mark.parametrize(
    ("check", "said"),
    [
        ("checks:fails", "criterion x: checks:fails: ValueError: no idea"),
        ("checks:over", "criterion x: checks:over gave 7, outside 0 to 1"),
        ("checks:absent", "has no attribute 'absent'"),
        ("nowhere:at_all", "No module named 'nowhere'"),
    ],
)
async def test_a_check_that_fails_never_pays_and_nobody_is_asked(
    store: Store, recorded: Recorded, judging: Any, server: JudgeServer, check: str, said: str
) -> None:
    server.behave(checked())
    given = ["has apple", {"id": "x", "text": "is x", "check": check}]
    group_id, _ = await recorded.group("g", ["an apple", "a pear"])
    async with judging() as context:
        with pytest.raises(PartsMissing, match=f"(?s){said}"):
            await score_group(await under(store, group_id, given), context)
    assert server.requests == []


async def test_rules_decide_as_they_do_elsewhere_and_the_judge_the_rest(
    store: Store, recorded: Recorded, judging: Any, server: JudgeServer
) -> None:
    server.behave(checked())
    said = {"id": "digit", "text": "says how many", "check": {"rule": "regex", "value": r"\d"}, "weight": 2}
    talks = {"id": "talks", "text": "talks on", "check": {"rule": "max_turns", "value": 0}, "weight": -1}
    group_id, _ = await recorded.group("g", ["3 apples, an apple", "no apple", "7"])
    async with judging() as context:
        scored = await score_group(await under(store, group_id, ["has apple", said, talks]), context)
        assert rewards(scored) == [1.0, 1 / 3, 2 / 3]
        assert {frozenset(criteria(body).values()) for body in server.requests} == {frozenset({"has apple"})}
        asked = len(server.requests)
        by_code = await score_group(await under(store, group_id, [said, talks]), context)
    assert rewards(by_code) == [1.0, 0.0, 1.0]
    assert (by_code.new.judge_model, by_code.ruling, len(server.requests)) == (None, None, asked)
    told = {p.part: p.explanation for p in by_code.new.parts if p.value == 0 and p.part.startswith("rubric.")}
    assert told == {
        "rubric.digit": r"the answer does not match '\\d'", "rubric.talks": "1 answers of the model, at most 0",
    }  # fmt: skip


@pytest.mark.parametrize("weight", [1, -1])
async def test_a_rule_that_cannot_be_checked_costs_its_run_the_reward_and_no_other(
    store: Store, recorded: Recorded, judging: Any, server: JudgeServer, weight: int
) -> None:
    server.behave(checked())
    known = {"id": "short", "text": "is short", "check": {"rule": "forbidden_tools", "value": ["x"]}, "weight": weight}
    nameless = {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "type": "function", "function": {}}]}
    group_id, _ = await recorded.group("g", ["an apple", [nameless], "apple"])
    async with judging() as context:
        scored = await score_group(await under(store, group_id, ["has apple", known]), context)
    met = 1.0 if weight > 0 else 0.0
    assert rewards(scored) == [met, None, met]
    (why,) = (part.explanation for part in scored.rewards.values() if part.value is None)
    assert "criterion short: the rule forbidden_tools: it could not be checked: a tool call has no name" in str(why)
    assert len(server.requests) == 2  # nobody is paid for a run that gets no reward


@pytest.mark.parametrize(
    ("given", "said"),
    [(None, "its scenario has no criteria"), ("be nice", "has no criteria"), ([{"weight": 1}], "cannot be used")],
)
async def test_runs_without_criteria_have_no_reward_and_nobody_is_asked(
    store: Store, recorded: Recorded, judging: Any, server: JudgeServer, given: Any, said: str
) -> None:
    group_id, _ = await recorded.group("g", ["an apple", "a pear"])
    async with judging() as context:
        with pytest.raises(PartsMissing, match=said):
            await score_group(await under(store, group_id, given), context)
    assert server.requests == []


async def test_ruler_is_shown_the_texts_of_criteria(
    store: Store, recorded: Recorded, judging: Any, server: JudgeServer
) -> None:
    group_id, _ = await recorded.group("g", ["worth 0.2", "worth 0.9"])
    async with judging(rewards=[{"kind": "ruler"}]) as context:
        await score_group(await under(store, group_id), context)
    (asked,) = server.requests
    assert json.dumps(["has apple", "has pear", "has worm"], separators=(",", ":")) in asked["messages"][1]["content"]


async def test_a_rubric_stands_beside_other_rewards(
    store: Store, recorded: Recorded, judging: Any, server: JudgeServer
) -> None:
    server.behave(checked())
    group_id, _ = await recorded.group("g", ["an apple", "a long pear indeed"])
    both = [{"kind": "rubric", "weight": 3}, {"kind": "function", "function": "checks:short"}]
    async with judging(rewards=both) as context:
        scored = await score_group(await under(store, group_id), context)
    assert rewards(scored) == [0.5, 0.5]
    assert scored.new.absolute


async def test_a_rubric_that_code_decides_needs_no_judge_model(store: Store, recorded: Recorded, judging: Any) -> None:
    decided: list[dict[str, Any]] = [{"id": "s", "text": "is short", "check": "checks:short"}]
    decided.append({"id": "a", "text": "has an apple", "check": {"rule": "regex", "value": "apple"}})
    group_id, _ = await recorded.group("g", ["an apple", "a very long answer without any"])
    async with judging(model="") as context:
        scored = await score_group(await under(store, group_id, decided), context)
        assert rewards(scored) == [1.0, 0.0]
        with pytest.raises(JudgeFailed, match=r"set judge\.model, or give each criterion a `check`") as failed:
            await score_group(await under(store, group_id, [*decided, "is polite"]), context)
    assert failed.value.code == "no_judge_model"


async def test_a_check_that_was_edited_is_loaded_anew_and_is_another_recipe(
    store: Store, recorded: Recorded, judging: Any, tmp_path: Path
) -> None:
    decided = [{"id": "s", "text": "is short", "check": "checks:short"}]
    other = [{"id": "h", "text": "helps", "check": "apart:helps"}]
    (tmp_path / "helping.py").write_text("SAID = 'apple'\n")
    (tmp_path / "apart.py").write_text("import helping\ndef helps(t):\n    return helping.SAID in t.answer\n")
    group_id, _ = await recorded.group("g", ["an apple", "a pear"])
    async with judging(model="") as context:

        async def scored(by: Any) -> tuple[list[float | None], str]:
            found = await score_group(await under(store, group_id, by), context)
            return rewards(found), found.new.recipe_hash

        first, apart = await scored(decided), await scored(other)
        assert (first[0], apart[0]) == ([1.0, 1.0], [1.0, 0.0])
        (tmp_path / "checks.py").write_text("def short(t):\n    return len(t.answer) < 7\n")
        edited = await scored(decided)
        assert edited[0] == [0.0, 1.0]
        assert edited[1] != first[1]
        assert await scored(other) == apart  # whose code is the same
        (tmp_path / "helping.py").write_text("SAID = 'pear'\n")
        helped = await scored(other)
        assert helped[0] == [0.0, 1.0]
        assert helped[1] != apart[1]


async def test_a_check_that_could_not_be_imported_is_looked_at_again(
    store: Store, recorded: Recorded, judging: Any, tmp_path: Path
) -> None:
    decided = [{"id": "l", "text": "came late", "check": "late:late"}]
    group_id, _ = await recorded.group("g", ["an apple", "a pear"])
    async with judging(model="") as context:
        with pytest.raises(PartsMissing, match="No module named 'late'"):
            await score_group(await under(store, group_id, decided), context)
        (tmp_path / "late.py").write_text("def late(t):\n    return 1\n")
        assert rewards(await score_group(await under(store, group_id, decided), context)) == [1.0, 1.0]


async def test_a_ranking_beside_checks_is_asked_for_once(
    store: Store, recorded: Recorded, judging: Any, server: JudgeServer
) -> None:
    server.behave(verdicts_by_worth())
    decided = [{"id": "s", "text": "is short", "check": "checks:short"}]
    group_id, _ = await recorded.group("g", ["worth 0.2", "worth 0.9"])
    both = [{"kind": "ruler"}, {"kind": "rubric"}]
    async with judging(rewards=both) as context:
        first = await score_group(await under(store, group_id, decided), context)
        claim = await claims.claim_one_for_judging(store, group_id, "judge", 60)
        assert claim is not None
        await scores.record_score(store, claim, first.new)
    async with judging(rewards=both) as context:
        again = await score_group(await under(store, group_id, decided), context)
    assert rewards(again) == rewards(first)
    assert len(server.requests) == 1


async def test_processes_of_checks_that_no_group_needs_end(tmp_path: Path) -> None:
    (tmp_path / "checks.py").write_text("".join(f"def f{n}(t):\n    return 1\n" for n in range(IDLE_SETS + 2)))
    judges = CodeJudges(JudgeSettings.model_validate({"folder": tmp_path}))
    try:
        for n in range(IDLE_SETS + 2):
            assert await judges.code(frozenset({f"checks:f{n}"}))
        assert len(judges._held) == IDLE_SETS
    finally:
        await judges.close()


def test_only_a_rubric_takes_evidence() -> None:
    with pytest.raises(ValueError, match="takes no `evidence`"):
        JudgeSettings.model_validate({"model": "m", "rewards": [{"kind": "ruler", "evidence": True}]})
