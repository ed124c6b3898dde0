"""`hone compare`: attempts in columns, the same comparison as JSON, and nothing that a terminal obeys."""

from __future__ import annotations

from recorder.queue import claims, feedback
from recorder.queue.groups.disputes import PairChoice
from recorder.queue.judging import scores
from recorder.queue.judging.records import JudgePrompt, NewReply
from recorder.queue.judging.scores import NewPart
from recorder.store.database import Project, Store
from tests.recorder.attempts import Step, group_of, scored
from tests.recorder.commands.hone import Hone
from tests.recorder.rows import PROJECT, Rows
from tests.recorder.score_rows import new_score


async def two(store: Store) -> tuple[str, list[str]]:
    steps: list[list[Step]] = [
        [("find", {"q": "4821"}, "Leipzig"), "Monday"],
        [("find", {"q": "9\x1b[2J"}, "none"), "Monday"],
    ]
    group, ids = await group_of(store, steps)
    await scored(store, group, {ids[0]: 0.9, ids[1]: 0.2})
    return group, ids


def test_attempts_stand_in_columns_with_their_rewards_and_where_they_part(hone: Hone) -> None:
    group, _ = hone.do(two)
    shown = hone("compare", group).stdout
    assert "all begin with the same 2 messages; the last is user" in shown
    assert "+0.35" in shown
    assert "≠ from 1: arguments of find, result of find" in shown
    assert "≠ q=9␛[2J" in shown
    assert "because of 0.9" in shown
    assert "\x1b" not in shown


def test_the_same_is_told_as_json_and_of_two_that_are_chosen(hone: Hone) -> None:
    _, ids = hone.do(two)
    found = hone.json("compare", "orders", "--left", "run-1", "--right", ids[0])
    assert [one["trajectory"]["id"] for one in found["attempts"]] == ids
    assert found["rows"][0][1]["differences"] == ["arguments of find", "result of find"]


def test_what_the_judge_was_asked_and_replied_is_shown_where_it_is_kept(hone: Hone) -> None:
    group, _ = hone.do(two)
    shown = hone("compare", "orders", "--judge").stdout
    assert "which is best?" in shown
    assert "judge-model" in shown
    assert hone.json("compare", group, "--judge")["prompt"] == [{"role": "user", "content": "which is best?"}]
    unjudged, _ = hone.do(lambda store: group_of(store, [["a"], ["b"]], name="later"))
    assert "has no score" in hone("compare", unjudged, "--judge", fails=True).stderr


def test_of_several_replies_the_prompt_of_one_is_shown(hone: Hone) -> None:
    asked = [JudgePrompt(None, [{"role": "user", "content": f"which? as {n}"}], n) for n in range(2)]
    replies = [NewReply(n, f"openai/{n}", None, 1.0, "{}", None) for n in range(2)]

    async def judged(store: Store) -> str:
        group = await Rows(store).ready_group(members=2)
        claim = await claims.claim_one_for_judging(store, group, "judge", 60)
        assert claim is not None
        parts = [NewPart(id_, "reward", 0.5) for id_ in await Rows(store).members(group)]
        await scores.record_score(store, claim, new_score("r", parts=parts, replies=replies, prompts=asked))
        return group

    group = hone.do(judged)
    first, second = (hone("compare", group, "--judge", "--reply", str(n)).stdout for n in range(2))
    assert ("which? as 0" in first, "which? as 1" in first) == (True, False)
    assert ("which? as 0" in second, "which? as 1" in second) == (False, True)
    assert "reply 1 of openai/1" in second
    shown = hone.json("compare", group, "--judge", "--reply", "1")
    assert shown["prompt"] == [{"role": "user", "content": "which? as 1"}]


def test_what_people_prefer_is_told_and_a_tie_as_one(hone: Hone) -> None:
    group, (one, other) = hone.do(two)
    assert "prefer" not in hone("compare", group).stdout
    tie = PairChoice(one, other, tie=True)
    hone.do(
        lambda store: feedback.write_choice(
            Project(store, PROJECT), tie, by="me", shown="first", comment="\x1b[2Jalike"
        )
    )
    hone.do(lambda store: feedback.write_preferences(Project(store, PROJECT), group, [(other, one)], by="her"))
    shown = hone("compare", group).stdout
    assert "attempt 2 is better than attempt 1 (her)" in shown
    assert "attempts 1 and 2 are equally good (me): ␛[2Jalike" in shown
    assert [one["tie"] for one in hone.json("compare", group)["preferences"]] == [False, True]


def test_a_group_that_is_not_there_is_told_in_a_line(hone: Hone) -> None:
    hone.do(two)
    hone("compare", "nothing", fails=True)
    hone("compare", "orders", "--left", "nobody", fails=True)
