"""Several replies about one group: a panel, repeats, a quorum, disagreement, and a person's choice."""

import json
import re
import zlib
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import fields
from typing import Any

import pytest
from aiohttp import web
from sqlalchemy import select

from judge.errors import QuorumMissed
from judge.scoring.group_score import GroupScore, score_group
from judge.scoring.worker import score_summary
from recorder.queue import claims, feedback
from recorder.queue.groups.disputes import list_disputed_groups
from recorder.queue.judging import scores
from recorder.queue.training import budgets
from recorder.states import GroupState
from recorder.store.database import Project, Store
from recorder.store.schema import prompts
from recorder.views.comparison.judge_records import load_judgings
from recorder.views.comparison.loader import load_comparison
from recorder.views.review.human_labels import ReviewAnswer, record_choice
from recorder.views.review.queue import QueueRequest, load_queue
from recorder.views.trajectories.transcripts import load_group
from recorder.views.trajectory_detail.loader import load_detail
from tests.judge.judge_server import Json, JudgeServer, by_worth, completion, documents, last_text, verdicts
from tests.judge.recorded import PROJECT, Recorded
from tests.judge.scoring.judging import judged, rewards

pytestmark = pytest.mark.slow

Behaviour = Callable[[Json], Awaitable[web.StreamResponse]]
UP, DOWN = by_worth, lambda document: 1 - by_worth(document)
THREE = ["worth 0.2", "worth 0.9", "worth 0.5"]


def by_model(**said: Behaviour | Callable[[Json], Any]) -> Behaviour:
    """Each model of a panel scores in its own way."""

    async def behave(body: Json) -> web.StreamResponse:
        how = said[body["model"]]
        return await (how(body) if how in WHOLE else verdicts(how)(body))

    return behave


async def unreadable(body: Json) -> web.StreamResponse:
    return completion("no idea")


WHOLE: list[Any] = [unreadable]


def panel(server: JudgeServer, *names: str, **more: Any) -> dict[str, Any]:
    members = [{"model": f"openai/{name}", "api_base": server.url, "api_key": f"key-{name}"} for name in names]
    return {"model": "", "api_base": None, "panel": members} | more


async def save(store: Store, group_id: str, scored: GroupScore) -> str:
    claim = await claims.claim_one_for_judging(store, group_id, "test", 60)
    assert claim is not None
    return await scores.record_score(store, claim, scored.new)


def shown_in(body: Json) -> list[str]:
    """The runs of a request by what they said last, in its order."""
    return [last_text(document) for document in documents(body)[1:]]


async def test_members_times_repeats_requests_are_one_score(
    store: Store, recorded: Recorded, judging: Any, server: JudgeServer
) -> None:
    server.behave(by_model(a=lambda d: by_worth(d) / 2, b=UP))
    group_id, _ = await recorded.group("g", THREE)
    scored = await judged(store, judging, group_id, **panel(server, "a", "b", repeats=3))
    assert rewards(scored) == pytest.approx([0.15, 0.675, 0.375])
    assert Counter(one["model"] for one in server.requests) == {"a": 3, "b": 3}
    assert {h["Authorization"] for h in server.headers} == {"Bearer key-a", "Bearer key-b"}
    new = scored.new
    assert (new.judge_model, new.judge_version) == ("openai/a + openai/b", "judge-2026-11-01 fp_7")
    assert (new.tokens_in, new.tokens_out, new.agreement, new.reply) == (600, 120, 1.0, None)
    assert [(one.number, one.judge_model) for one in new.replies] == [
        (number, f"openai/{'ab'[number % 2]}") for number in range(6)
    ]
    ids = [id_ for one in server.requests for id_ in re.findall(r"\bt-[0-9a-f]{8}\b", str(one["messages"][1]))]
    assert len(set(ids)) == 6 * 3  # every request has its own
    for name in "ab":  # three runs, three repeats: each stands in each place once
        orders = [shown_in(one) for one in server.requests if one["model"] == name]
        assert all(set(place) == set(THREE) for place in zip(*orders, strict=True))


async def test_each_request_is_kept_to_the_character_beside_its_reply(
    store: Store, recorded: Recorded, judging: Any, server: JudgeServer
) -> None:
    server.behave(by_model(a=UP, b=DOWN))
    group_id, _ = await recorded.group("g", [*THREE, "and so on " * 20_000 + "worth 0.7"])
    short = {"max_context_chars": 20_000, "repeats": 2}  # so that marks with the nonce stand in what is shown
    id_ = await save(store, group_id, await judged(store, judging, group_id, **panel(server, "a", "b", **short)))
    shown = [(await load_judgings(store, group_id, prompt=id_, reply=number))[0] for number in range(4)]
    sent = {one["messages"][1]["content"]: one["model"] for one in server.requests}
    assert all("characters left out" in text for text in sent)
    assert len(sent) == 4
    for number, one in enumerate(shown):
        assert one.prompt is not None
        system, user = one.prompt
        assert system.content == server.requests[0]["messages"][0]["content"]
        assert f"openai/{sent.pop(user.content)}" == one.replies[number].judge_model
        its = one.replies[number]
        assert its.reply is not None
        assert {entry["id"] for entry in json.loads(its.reply)["trajectories"]} <= set(
            re.findall(r"t-\w+", user.content)
        )
    assert sent == {}
    async with store.read() as conn:
        packed = (await conn.execute(select(prompts.c.packed))).scalar_one()
    for later in json.loads(zlib.decompress(packed))[1:]:  # only the line that lists the ids is written anew
        assert sum(isinstance(line, str) for message in later["retold"] for line in message["lines"]) == 1
    assert (await load_judgings(store, group_id, prompt=id_, reply=4))[0].prompt is None


async def test_weights_and_the_median_decide(
    store: Store, recorded: Recorded, judging: Any, server: JudgeServer
) -> None:
    server.behave(by_model(a=UP, b=UP, c=DOWN))
    group_id, _ = await recorded.group("g", ["worth 0.2", "worth 0.9"])
    asked = panel(server, "a", "b", "c", combine="median")
    assert rewards(await judged(store, judging, group_id, **asked)) == [0.2, 0.9]
    asked["panel"][2]["weight"] = 5
    assert rewards(await judged(store, judging, group_id, **asked)) == pytest.approx([0.8, 0.1])


async def test_sub_scores_are_kept_as_parts_with_their_reasons(
    store: Store, recorded: Recorded, judging: Any, server: JudgeServer
) -> None:
    async def scores_each(body: Json) -> web.StreamResponse:
        entries = [
            {
                "id": d["id"],
                "subscores": {
                    "correctness": {"reason": f"right: {by_worth(d)}", "score": by_worth(d)},
                    "safety": {"reason": "no harm", "score": 1},
                },
            }
            for d in documents(body)[1:]
        ]
        return completion(json.dumps({"trajectories": entries}))

    server.behave(scores_each)
    group_id, members = await recorded.group("g", ["worth 0.2", "worth 0.9"])
    subscores = [{"name": "correctness", "weight": 3}, {"name": "safety"}]
    scored = await judged(store, judging, group_id, subscores=subscores, repeats=2)
    assert rewards(scored) == pytest.approx([0.75 * 0.2 + 0.25, 0.75 * 0.9 + 0.25])
    kept = {(p.trajectory_id, p.part): (p.value, p.explanation) for p in scored.new.parts}
    assert kept[members[0], "ruler.correctness"] == (0.2, "right: 0.2")
    assert kept[members[1], "ruler.safety"] == (1.0, "no harm")
    sent = server.requests[0]["response_format"]["json_schema"]["schema"]
    assert "subscores" in sent["properties"]["trajectories"]["items"]["required"]
    plain = await judged(store, judging, group_id, subscores=[subscores[0]], repeats=2)
    assert plain.new.recipe_hash != scored.new.recipe_hash
    assert plain.new.prompt_hash != scored.new.prompt_hash


async def test_one_judge_that_fails_costs_its_own_reply(
    store: Store, recorded: Recorded, judging: Any, server: JudgeServer
) -> None:
    server.behave(by_model(a=UP, b=unreadable, c=UP))
    group_id, _ = await recorded.group("g", ["worth 0.2", "worth 0.9"])
    scored = await judged(store, judging, group_id, **panel(server, "a", "b", "c"))
    assert rewards(scored) == [0.2, 0.9]
    assert [bool(one.failed) for one in scored.new.replies] == [False, True, False]
    assert str(scored.new.replies[1].failed).startswith("judge_unreadable: ")
    assert scored.new.tokens_in == 400  # two for the judge that was asked to mend its reply
    assert "agreement 1.00 of 2 replies" in score_summary(scored)


async def test_below_the_quorum_the_group_waits_and_only_the_missing_are_asked_again(
    store: Store, recorded: Recorded, judging: Any, server: JudgeServer
) -> None:
    server.behave(by_model(a=UP, b=unreadable, c=unreadable))
    group_id, _ = await recorded.group("g", ["worth 0.2", "worth 0.9"])
    group = await load_group(store, group_id)
    async with judging(**panel(server, "a", "b", "c")) as context:
        with pytest.raises(QuorumMissed) as e:
            await score_group(group, context)
        assert (e.value.code, e.value.spent.tokens_in) == ("judge_quorum", 500)
        assert "1 of 3 replies could be read, and 2 are needed (judge.quorum)" in str(e.value)
        server.behave(by_model(a=DOWN, b=UP, c=UP))
        server.requests.clear()
        scored = await score_group(group, context)
    assert sorted(one["model"] for one in server.requests) == ["b", "c"]
    assert rewards(scored) == [0.2, 0.9]
    assert scored.new.tokens_in == 200


async def test_stored_replies_of_a_panel_are_read_again(
    store: Store, recorded: Recorded, judging: Any, server: JudgeServer
) -> None:
    server.behave(by_model(a=lambda d: by_worth(d) / 2, b=UP))
    group_id, _ = await recorded.group("g", THREE)
    asked = panel(server, "a", "b", repeats=2)
    first = await judged(store, judging, group_id, **asked)
    await save(store, group_id, first)
    again = await judged(store, judging, group_id, **asked)
    assert len(server.requests) == 4
    assert rewards(again) == rewards(first)
    assert (again.new.tokens_in, again.new.agreement) == (0, 1.0)
    assert {p.explanation for p in again.new.parts} == {p.explanation for p in first.new.parts}


async def test_who_failed_when_a_group_was_scored_is_not_asked_for_the_same_again(
    store: Store, recorded: Recorded, judging: Any, server: JudgeServer
) -> None:
    server.behave(by_model(a=unreadable, b=UP))
    group_id, _ = await recorded.group("g", THREE)
    asked = panel(server, "a", "b", quorum=1)
    await save(store, group_id, await judged(store, judging, group_id, **asked))
    before = len(server.requests)
    for _ in range(2):
        again = await judged(store, judging, group_id, **asked)
        assert (rewards(again), len(again.new.replies)) == ([0.2, 0.9, 0.5], 1)
        await save(store, group_id, again)
    assert len(server.requests) == before


async def test_nobody_of_a_panel_is_asked_about_runs_that_are_one_and_the_same(
    store: Store, recorded: Recorded, judging: Any, server: JudgeServer
) -> None:
    group_id, _ = await recorded.group("g", ["worth 0.7"] * 3)
    scored = await judged(store, judging, group_id, **panel(server, "a", "b", min_agreement=0.5))
    assert (rewards(scored), scored.new.disputed, server.requests) == ([0.5] * 3, None, [])


async def test_judges_that_disagree_leave_the_group_to_a_person_who_scores_it(
    store: Store, recorded: Recorded, judging: Any, server: JudgeServer
) -> None:
    server.behave(by_model(a=UP, b=DOWN))
    group_id, members = await recorded.group("g", THREE)
    asked = panel(server, "a", "b", min_agreement=0.5)
    scored = await judged(store, judging, group_id, **asked)
    assert scored.new.disputed is not None
    assert "-1.00" in scored.new.disputed
    score_id = await save(store, group_id, scored)
    group = await load_group(store, group_id)
    assert (group.state, group.reason, group.current_score_id) == (GroupState.UNSCORED, "judges_disagree", None)
    assert await claims.judging_due_at(store, group_id) is None
    assert await claims.next_try_in(Project(store, PROJECT)) is None
    assert await claims.claim_for_judging(Project(store, PROJECT), "judge", 60) is None
    assert await claims.claim_for_training(store, recorded.alias_id, "trainer", 60, limit=9) == []
    [waits] = await list_disputed_groups(Project(store, PROJECT))
    assert (waits.group_id, waits.score_id, waits.agreement, waits.alias) == (group_id, score_id, -1.0, "helpdesk")
    assert sum(one.tokens for one in await budgets.judging_cost_since(Project(store, PROJECT), 0.0)) == 240
    # a word about something else moves nothing, a choice does
    await feedback.add_feedback(Project(store, PROJECT), members[0], "liked", True)
    assert await claims.judging_due_at(store, group_id) is None
    pairs = feedback.ranking_pairs({members[2]: 1, members[0]: 2})
    await feedback.write_preferences(Project(store, PROJECT), group_id, pairs, by="me")
    assert await claims.judging_due_at(store, group_id) is not None
    chosen = await judged(store, judging, group_id, **asked)
    assert rewards(chosen) == [0.0, None, 1.0]
    assert (chosen.new.disputed, chosen.new.agreement, chosen.new.tokens_in) == (None, -1.0, 0)
    by_person = {part.trajectory_id: part for part in chosen.new.parts if part.part == "ruler.person"}
    assert {id_: part.value for id_, part in by_person.items()} == {members[2]: 1.0, members[0]: 0.0}
    assert str(by_person[members[2]].explanation).startswith("people (me) chose: better than 1")
    await save(store, group_id, chosen)
    assert (await load_group(store, group_id)).state is GroupState.SCORED
    assert len(await claims.claim_for_training(store, recorded.alias_id, "trainer", 60, limit=9)) == 1
    assert await list_disputed_groups(Project(store, PROJECT)) == []
    assert len(server.requests) == 2


async def test_what_is_chosen_in_review_puts_the_whole_group_in_order_and_training_takes_it(
    store: Store, recorded: Recorded, judging: Any, server: JudgeServer
) -> None:
    server.behave(by_model(a=UP, b=DOWN))
    group_id, members = await recorded.group("g", THREE)
    asked = panel(server, "a", "b", min_agreement=0.5)
    await save(store, group_id, await judged(store, judging, group_id, **asked))
    worth = dict(zip(members, [0.2, 0.9, 0.5], strict=True))
    person = QueueRequest("anna")
    first = True
    while entries := (await load_queue(Project(store, PROJECT), person)).entries:
        one, other = entries[0].first, entries[0].second
        said = ReviewAnswer.A if worth[one] > worth[other] else ReviewAnswer.B
        await record_choice(Project(store, PROJECT), one, other, said, by=person.person)
        if first:  # the judge need not wait for the rest: what comes later has the group scored again
            await save(store, group_id, await judged(store, judging, group_id, **asked))
            assert (await load_group(store, group_id)).state is GroupState.SCORED
            person, first = QueueRequest("anna", group=group_id), False
    assert await claims.judging_due_at(store, group_id) is not None
    assert await claims.claim_for_training(store, recorded.alias_id, "trainer", 60, limit=9) == []
    await save(store, group_id, await judged(store, judging, group_id, **asked))
    [taken] = await claims.claim_for_training(store, recorded.alias_id, "trainer", 60, limit=9)
    score = await scores.get_score(store, str(taken.score_id))
    parts = [part for part in score.parts if part.part == "reward"]
    assert {part.trajectory_id: part.value for part in parts} == {members[0]: 0.0, members[1]: 1.0, members[2]: 0.5}
    assert all("anna" in str(part.explanation) for part in score.parts if part.part == "ruler.person")
    assert len(server.requests) == 2


async def test_scores_by_a_person_settle_it_too(
    store: Store, recorded: Recorded, judging: Any, server: JudgeServer
) -> None:
    server.behave(by_model(a=UP, b=DOWN))
    group_id, members = await recorded.group("g", THREE)
    asked = panel(server, "a", "b", min_agreement=0.5)
    await save(store, group_id, await judged(store, judging, group_id, **asked))
    for member, value in zip(members, [0.1, 0.6, 0.9], strict=True):
        await feedback.add_feedback(Project(store, PROJECT), member, "score", value)
    assert rewards(await judged(store, judging, group_id, **asked)) == [0.1, 0.6, 0.9]


async def test_a_ranking_that_only_is_measured_leaves_nobody_waiting(
    store: Store, recorded: Recorded, judging: Any, server: JudgeServer
) -> None:
    server.behave(by_model(a=UP, b=DOWN))
    group_id, _ = await recorded.group("g", THREE)
    both = [{"kind": "ruler", "weight": 0}, {"kind": "function", "function": "checks:honest"}]
    asked = panel(server, "a", "b", min_agreement=0.5, rewards=both)
    scored = await judged(store, judging, group_id, **asked)
    assert (rewards(scored), scored.new.disputed, scored.new.agreement) == ([0.2, 0.9, 0.5], None, -1.0)


async def test_each_judges_words_and_the_agreement_are_read_back(
    store: Store, recorded: Recorded, judging: Any, server: JudgeServer
) -> None:
    server.behave(by_model(a=UP, b=DOWN, c=unreadable))
    group_id, members = await recorded.group("g", THREE)
    await save(store, group_id, await judged(store, judging, group_id, **panel(server, "a", "b", "c")))
    [one] = await load_judgings(store, group_id)
    assert one.agreement == -1.0
    said = {reply.judge_model: {words.trajectory_id: words.score for words in reply.verdicts} for reply in one.replies}
    assert said["openai/a"] == dict(zip(members, [0.2, 0.9, 0.5], strict=True))
    assert said["openai/b"] == pytest.approx(dict(zip(members, [0.8, 0.1, 0.5], strict=True)))
    assert said["openai/c"] == {}
    own = (await load_detail(store, members[0])).outcome.score
    assert own is not None
    assert {part.trajectory_id for part in own.parts} == {members[0]}
    assert "score" not in {one.name for one in fields(own)}  # it has what is said of the others, too
    assert [(one.judge, one.score) for one in own.explanation_by_judge] == [
        ("judge-2026-11-01 fp_7", 0.2),
        ("judge-2026-11-01 fp_7", 0.8),
    ]
    head = (await load_comparison(store, group_id)).group
    assert head.agreement == -1.0
