"""The page of a group: attempts side by side, what judges said, preferring one, scoring anew."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import httpx
import pytest

from recorder.queue import claims, feedback
from recorder.queue.groups.disputes import PairChoice
from recorder.queue.judging import cross_checks, scores
from recorder.queue.judging.cross_checks import NewCrossCheck, PartVerdict, SwitchRule
from recorder.queue.judging.records import JudgePrompt, NewReply, ReplyVerdict
from recorder.queue.judging.scores import NewPart
from recorder.registry import keys
from recorder.registry.keys import Scope
from recorder.store import ledger
from recorder.store.database import Project, Store
from recorder.store.schema import groups
from tests.proxy.dashboard.reading import Page, opened, sent
from tests.proxy.fake_engine import FakeEngine
from tests.proxy.running import PROJECT, Proxy, serving
from tests.recorder.attempts import Step, group_of, scored
from tests.recorder.rows import Rows
from tests.recorder.score_rows import new_score

pytestmark = pytest.mark.slow

HOSTILE = "<script>alert(1)</script>\u202e"
FIND = ("find_order", {"order": "4821", "near": "Leipzig"}, "on its way")


async def three(store: Store) -> tuple[str, list[str]]:
    other = ("find_order", {"order": "17"}, "on its way")
    group, ids = await group_of(store, [[FIND, "Monday"], [other, "Monday"], [FIND, HOSTILE]])
    await scored(store, group, dict(zip(ids, (0.9, 0.2, None), strict=True)), reply="the first was best")
    return group, ids


async def test_attempts_are_columns_in_order_of_reward_with_what_was_said_of_them(proxy: Proxy) -> None:
    group, ids = await three(proxy.store)
    page = await opened(proxy.http, f"/hone/groups/{group}")
    assert "Shared first turns (2): Where is order 4821" in page.text
    assert "reward 0.9 advantage +0.35" in page.text
    assert "reward 0.2 advantage -0.35" in page.text
    assert "no advantage: reward_missing" in page.text
    assert "because of 0.9" in page.text
    assert "reward 0.2 to 0.9" in page.text
    at = [page.text.index(words) for words in ("reward 0.9 advantage", "reward 0.2 advantage", "reward –")]
    assert at == sorted(at)
    for id_ in ids:
        assert f"/hone/trajectories/{id_}" in page.links
    assert any(link.startswith(f"/hone/groups/{group}/judging?prompt=") for link in page.links)
    tokens = next(link for link in page.links if f"{ids[1]}?tokens=" in link)
    assert "Tokens sampled" in (await opened(proxy.http, tokens)).text


async def test_where_attempts_part_is_said_in_words_argument_by_argument(proxy: Proxy) -> None:
    group, _ = await three(proxy.store)
    text = (await opened(proxy.http, f"/hone/groups/{group}")).text
    assert "≠ from 1: arguments of find_order" in text
    assert "≠ order 17 − near absent here" in text
    assert "= as 1" in text


async def test_what_models_wrote_is_text(proxy: Proxy) -> None:
    group, _ = await three(proxy.store)
    page = await opened(proxy.http, f"/hone/groups/{group}")
    assert "<script>alert(1)</script>\\u202e" in page.text
    assert page.tags.count("script") == 1  # ours


async def test_two_that_were_chosen_stand_alone(proxy: Proxy) -> None:
    group, ids = await three(proxy.store)
    page = await opened(proxy.http, f"/hone/groups/{group}?left={ids[0]}&right={ids[1]}")
    assert "≡ assistant identical Monday" in page.text
    assert HOSTILE[:8] not in page.text
    assert f"/hone/trajectories/{ids[2]}" not in page.links
    await opened(proxy.http, f"/hone/groups/{group}?left=nobody", 404)


async def test_the_comparison_is_json_too(proxy: Proxy) -> None:
    group, ids = await three(proxy.store)
    found = (await proxy.http.get("/hone/v1/groups/orders/comparison")).json()
    assert [one["trajectory"]["id"] for one in found["attempts"]] == ids
    assert found["columns"] == [1, 2, 3]
    judged = (await proxy.http.get(f"/hone/v1/groups/{group}/judging")).json()
    assert [one["reply"] for one in judged] == ["the first was best"]


async def test_the_judges_reply_is_one_click_away(proxy: Proxy) -> None:
    group, _ = await three(proxy.store)
    text = (await opened(proxy.http, f"/hone/groups/{group}/judging")).text
    for said in ("the first was best", "current", "because of 0.9", "hash (hash)"):
        assert said in text
    assert "which is best?" not in text


async def test_the_judges_prompt_is_one_click_away(proxy: Proxy) -> None:
    group, _ = await three(proxy.store)
    page = await opened(proxy.http, f"/hone/groups/{group}")
    [way] = [link for link in page.links if "/judging?" in link]
    assert "which is best?" in (await opened(proxy.http, way)).text
    [score] = (await proxy.http.get(f"/hone/v1/groups/{group}/judging")).json()
    [score] = (await proxy.http.get(f"/hone/v1/groups/{group}/judging?prompt={score['id']}")).json()
    assert score["prompt"] == [{"role": "user", "content": "which is best?"}]


async def test_what_the_judge_was_asked_of_each_run_is_there_too(proxy: Proxy) -> None:
    rows = Rows(proxy.store)
    group = await rows.ready_group(2)
    runs = await rows.members(group)
    claim = await claims.claim_one_for_judging(proxy.store, group, "judge", 60)
    assert claim is not None
    asked = {id_: [{"role": "user", "content": f"<b>does {id_} greet?</b>"}] for id_ in runs}
    score = replace(await rows.judgement(claim), prompt_hash=None, prompt=None, run_prompts=asked)
    score_id = await scores.record_score(proxy.store, claim, score)
    page = await opened(proxy.http, f"/hone/groups/{group}/judging")
    assert "greet" not in page.text
    [way] = [link for link in page.links if link.endswith(f"/judging?prompt={score_id}#{score_id}")]
    shown = await opened(proxy.http, way)
    for run in runs:
        assert f"<b>does {run} greet?</b>" in shown.text
    assert "b" not in shown.tags
    [told] = (await proxy.http.get(f"/hone/v1/groups/{group}/judging?prompt={score_id}")).json()
    assert told["prompt"] is None
    assert {one["trajectory_id"]: one["messages"] for one in told["trajectory_prompts"]} == asked


async def test_a_group_nobody_judged_says_what_to_do(proxy: Proxy) -> None:
    group, _ = await group_of(proxy.store, [["a"], ["b"]], ended=False)
    assert "there are no rewards yet" in (await opened(proxy.http, f"/hone/groups/{group}")).text
    assert "hone judge" in (await opened(proxy.http, f"/hone/groups/{group}/judging")).text
    empty = await Rows(proxy.store).group(external_id="later")
    assert f"{proxy.url}/g/later/t/TRAJECTORY/v1" in (await opened(proxy.http, f"/hone/groups/{empty}")).text


async def test_the_better_of_two_is_picked(proxy: Proxy) -> None:
    group, ids = await three(proxy.store)
    path = f"/hone/groups/{group}/preference"
    page = await opened(proxy.http, f"/hone/groups/{group}")
    assert page.form(path).fields.keys() >= {"csrf", "better", "worse", "comment"}
    answer = await sent(proxy.http, page.form(path), better=ids[1], worse=ids[0], comment="kinder")
    assert answer.headers["location"] == f"/hone/groups/{group}#preferences"
    [written] = await feedback.list_feedback(proxy.store, ids[1])
    assert (written.name, written.comment) == ("preference", "kinder")
    assert written.tags == {"loser": ids[0], "group": group, "by": "somebody on this machine"}
    assert (
        "attempt 2 is better than attempt 1 somebody on this machine kinder"
        in (await opened(proxy.http, f"/hone/groups/{group}")).text
    )


async def test_a_tie_that_somebody_said_is_shown_as_one(proxy: Proxy) -> None:
    group, ids = await three(proxy.store)
    tie = PairChoice(ids[1], ids[0], tie=True)
    await feedback.write_choice(Project(proxy.store, PROJECT), tie, by="<b>her</b>", shown="first")
    page = await opened(proxy.http, f"/hone/groups/{group}")
    assert "attempts 2 and 1 are equally good <b>her</b>" in page.text
    assert "None recorded yet" not in page.text
    [told] = (await proxy.http.get(f"/hone/v1/groups/{group}/comparison")).json()["preferences"]
    assert (told["winner"], told["loser"], told["tie"], told["by"]) == (2, 1, True, "<b>her</b>")


async def test_a_ranking_makes_the_pairs_of_its_neighbours(proxy: Proxy) -> None:
    group, ids = await three(proxy.store)
    path = f"/hone/groups/{group}/preference"
    page = await opened(proxy.http, f"/hone/groups/{group}")
    places = {f"place:{id_}": str(place) for place, id_ in enumerate(ids, 1)}
    await proxy.http.post(path, data={"csrf": page.form(path).fields["csrf"], **places})
    losers = [[one.tags["loser"] for one in await feedback.list_feedback(proxy.store, id_)] for id_ in ids]
    assert losers == [[ids[1]], [ids[2]], []]


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"better": "0", "worse": "0"}, "not better than itself"),
        ({"better": "0", "worse": "nobody"}, "has no attempt nobody"),
        ({"better": "", "worse": ""}, "the form has no preference"),
        ({"better": "", "place:0": "first"}, "is not a number"),
    ],
)
async def test_what_is_no_preference_is_refused_and_nothing_written(
    proxy: Proxy, fields: dict[str, str], told: str
) -> None:
    group, ids = await three(proxy.store)
    page = await opened(proxy.http, f"/hone/groups/{group}")
    filled = {name: ids[0] if value == "0" else value for name, value in fields.items()}
    path = f"/hone/groups/{group}/preference"
    answer = await proxy.http.post(path, data={"csrf": page.form(path).fields["csrf"], **filled})
    assert answer.status_code in (400, 404)
    assert told in Page(answer.text).text
    assert await feedback.list_feedback(proxy.store, ids[0]) == []


async def test_a_group_is_scored_anew_and_the_ledger_says_who_and_why(proxy: Proxy) -> None:
    group, _ = await three(proxy.store)
    page = await opened(proxy.http, f"/hone/groups/{group}")
    await sent(proxy.http, page.form(f"/hone/groups/{group}/rescore"), why="the rubric was wrong")
    [entry] = await ledger.object_entries(proxy.store, "group", group)
    assert entry.detail == {"by": "somebody on this machine", "why": "the rubric was wrong"}
    assert (await Rows(proxy.store).get(groups, group))["try_after"] is not None
    assert "The judge retries" in (await opened(proxy.http, f"/hone/groups/{group}")).text


async def test_what_a_step_trained_on_is_not_scored_anew(proxy: Proxy) -> None:
    group, _ = await three(proxy.store)
    page = await opened(proxy.http, f"/hone/groups/{group}")
    await Rows(proxy.store).set(groups, group, state="trained")
    answer = await sent(proxy.http, page.form(f"/hone/groups/{group}/rescore"), 409, why="")
    assert "keeps the score that it was trained on" in Page(answer.text).text
    assert "keeps the score that it was trained on" in (await opened(proxy.http, f"/hone/groups/{group}")).text


async def test_a_group_that_is_not_there_is_a_page_that_says_so(proxy: Proxy) -> None:
    await opened(proxy.http, "/hone/groups/nothing", 404)


@pytest.mark.parametrize(
    ("scope", "preferring", "anew"), [("read", 403, 403), ("feedback-all", 303, 403), ("admin", 303, 303)]
)
async def test_a_key_sees_and_sends_the_forms_that_its_scopes_allow(
    store: Store, scope: str, preferring: int, anew: int
) -> None:
    group, ids = await three(store)
    _, secret = await keys.create_key(Project(store, PROJECT), "me", {Scope.READ, Scope(scope)})
    async with FakeEngine() as engine, serving(store, engine) as proxy:
        proxy.http.headers["authorization"] = f"Bearer {secret}"
        answer = await proxy.http.get(f"/hone/groups/{group}")
        there = {form.action.rpartition("/")[2] for form in Page(answer.text).forms if form.method == "post"}
        assert there & {"preference", "rescore"} == {
            name for name, status in (("preference", preferring), ("rescore", anew)) if status == 303
        }
        token = next((form.fields["csrf"] for form in Page(answer.text).forms if "csrf" in form.fields), "")
        told = {"csrf": token, "better": ids[0], "worse": ids[1], "why": "because"}
        for name, status in (("preference", preferring), ("rescore", anew)):
            assert (await proxy.http.post(f"/hone/groups/{group}/{name}", data=told)).status_code == status


def plain(attempt: int, turn: int) -> Step:
    return f"tool_{turn % 5}", {"query": f"order {turn}", "page": attempt}, f"found {turn} of {attempt} " * 20


def crowded(attempt: int, turn: int) -> Step:
    arguments = {f"argument {at}": f"{attempt}{turn}" + "<&'>" * 100 for at in range(12)}
    return f"tool_{(turn * attempt) % 7}", arguments, f"{attempt}\u202e<b>\U0001f600" * 500


@pytest.mark.parametrize("step", [plain, crowded])
async def test_eight_attempts_of_thirty_turns_stay_below_300_kb(proxy: Proxy, step: Callable[[int, int], Step]) -> None:
    group, ids = await group_of(proxy.store, [[step(one, at) for at in range(30)] for one in range(8)])
    await scored(proxy.store, group, {id_: at / 8 for at, id_ in enumerate(ids)})
    answer: httpx.Response = await proxy.http.get(f"/hone/groups/{group}")
    page = Page(answer.text)
    assert len(answer.content) <= 300_000
    assert ("more rows" in page.text) == (step is crowded)
    assert (page.text.count("of 7") >= 30) == (step is plain)


async def test_judges_that_disagree_are_shown_word_by_word_and_a_choice_is_asked_for(proxy: Proxy) -> None:
    group, ids = await group_of(proxy.store, [[FIND, "Monday"], [FIND, "Tuesday"]])
    claim = await claims.claim_one_for_judging(proxy.store, group, "judge", 60)
    assert claim is not None
    said = [
        [ReplyVerdict(ids[0], 0.9, HOSTILE, {"tone": 0.4}), ReplyVerdict(ids[1], 0.1, "too late")],
        [ReplyVerdict(ids[1], 1.0, "fine")],
    ]
    replies = [NewReply(n, f"openai/{n}", f"v{n}", 1.0, "{}", None, words) for n, words in enumerate(said)]
    replies.append(NewReply(2, "openai/2", None, 1.0, None, f"judge_unreadable: {HOSTILE}"))
    parts = [NewPart(id_, "reward", 0.5) for id_ in ids]
    asked = [JudgePrompt(None, [{"role": "user", "content": f"<i>which?</i> as {n}"}], n) for n in range(3)]
    new = new_score("r", parts=parts, agreement=-0.25, disputed="they disagree", replies=replies, prompts=asked)
    score_id = await scores.record_score(proxy.store, claim, new)
    page = await opened(proxy.http, f"/hone/groups/{group}")
    assert "Too low to score the group" in page.text
    assert f"/hone/groups/{group}/judging" in page.links
    judging = await opened(proxy.http, f"/hone/groups/{group}/judging")
    assert "2 of 3, agreement -0.25" in judging.text
    for words in ("v0 reply 1 of 3", "tone 0.4: <script>alert(1)</script>", "too late", "No reply: judge_unreadable"):
        assert words in judging.text
    [told] = (await proxy.http.get(f"/hone/v1/groups/{group}/judging")).json()
    assert (told["id"], told["agreement"], told["current"]) == (score_id, -0.25, False)
    assert [len(one["verdicts"]) for one in told["replies"]] == [2, 1, 0]
    assert "which?" not in judging.text
    ways = [link for link in judging.links if "&reply=" in link]
    assert len(ways) == 3
    shown = await opened(proxy.http, ways[1])
    assert "Prompt of reply 2 of 3" in shown.text
    assert "<i>which?</i> as 1" in shown.text
    assert "The reply of v1 {}" in shown.text
    address = f"/hone/v1/groups/{group}/judging?prompt={score_id}&reply=2"
    [told] = (await proxy.http.get(address)).json()
    assert told["prompt"] == [{"role": "user", "content": "<i>which?</i> as 2"}]
    found = (await proxy.http.get("/hone/v1/judge")).json()
    assert (found["of_replies"], found["disputed"]) == ({"scores": 1, "tau": -0.25}, 1)
    await opened(proxy.http, "/hone/judge")


async def test_what_a_second_judge_said_stands_beside_the_score_and_its_drift_on_the_judges_page(proxy: Proxy) -> None:
    group, ids = await group_of(proxy.store, [[FIND, "Monday"], [FIND, "Tuesday"]])
    await scored(proxy.store, group, dict(zip(ids, (0.2, 0.9), strict=True)))
    parts = [PartVerdict(ids[0], "ruler", 0.75, HOSTILE), PartVerdict(ids[1], "ruler", 0.25, "too late")]
    new = NewCrossCheck("helpdesk", "default", "pair", "strong", "openai/strong", parts=parts, tau=-1.0)
    rule = SwitchRule(0.5, 10, "openai/a", "openai/strong")
    assert (
        await cross_checks.record_cross_check(Project(proxy.store, PROJECT), group, new, rule) is None
    )  # one group proves nothing
    [told] = (await proxy.http.get(f"/hone/v1/groups/{group}/judging")).json()
    assert [(one["judge"], one["tau"], len(one["parts"])) for one in told["cross_checks"]] == [("strong", -1.0, 2)]
    for _ in range(9):
        await cross_checks.record_cross_check(Project(proxy.store, PROJECT), group, new, rule)
    judging = await opened(proxy.http, f"/hone/groups/{group}/judging")
    assert "Cross-check by the strong judge: openai/strong, agreement -1" in judging.text
    assert "ruler 0.75: <script>alert(1)</script>" in judging.text
    page = await opened(proxy.http, "/hone/judge")
    assert "judge_drift: helpdesk, recipe default: the judge and the strong judge agree too little" in page.text
    assert "judge_drift" in (await opened(proxy.http, "/hone/")).text
    [judge_view] = (await proxy.http.get("/hone/v1/status")).json()["judges"]
    assert (judge_view["scores"], judge_view["mean"]) == ("strong", -1.0)
