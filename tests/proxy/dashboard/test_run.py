"""The page of a run: what was said, what tools did, tokens, what became of it, and what a person may do to it."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from sqlalchemy import select

from proxy.dashboard.page_budget import PAGE_BYTES
from recorder.messages.calls import Address
from recorder.queue import claims, feedback
from recorder.queue.judging import scores
from recorder.queue.judging.scores import NewPart
from recorder.queue.training import steps
from recorder.queue.training.uses import ObjectiveUse
from recorder.registry import aliases, keys, versions
from recorder.registry.keys import Scope
from recorder.states import CallKind
from recorder.store.database import Project, Store
from recorder.store.schema import ledger, trajectories
from tests.proxy.dashboard.reading import Page, read
from tests.proxy.fake_engine import FakeEngine, Script, ids_of, tool_call, words
from tests.proxy.running import ALIAS, PROJECT, Proxy, serving
from tests.recorder.attempts import group_of, scored
from tests.recorder.rows import Rows
from tests.recorder.talk import Talk, tool_result, tool_turn, user

pytestmark = pytest.mark.slow

HOSTILE = "<script>alert(1)</script> \u202e and \x1b[2J"


async def send_call(proxy: Proxy, path: str, messages: list[dict[str, Any]], **more: Any) -> httpx.Response:
    return await proxy.http.post(f"{path}/v1/chat/completions", json={"model": ALIAS, "messages": messages} | more)


async def talked(proxy: Proxy, engine: FakeEngine, path: str = "/t/one", first: str = "Where is 4821?") -> str:
    """A run that asks a tool once and then answers; its id."""
    engine.next = [Script([tool_call("find", {"id": 4821}, "t1")]), Script([words("It arrives on Monday")])]
    said: list[dict[str, Any]] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": first}]
    answer = (await send_call(proxy, path, said)).json()["choices"][0]["message"]
    said += [answer, {"role": "tool", "tool_call_id": "t1", "content": '{"state": "shipped"}'}]
    told = await send_call(proxy, path, said)
    return str(told.headers["x-hone-trajectory"])


async def opened(proxy: Proxy, path: str) -> Page:
    return read(await proxy.http.get(path))


async def send(proxy: Proxy, run: str, what: str, **fields: str) -> httpx.Response:
    """What a browser posts: the page is opened first, for its token and the cookie."""
    forms = (await opened(proxy, f"/hone/trajectories/{run}")).forms
    token = next((form.fields["csrf"] for form in forms if "csrf" in form.fields), "")
    return await proxy.http.post(f"/hone/trajectories/{run}/{what}", data={"csrf": token, **fields})


async def test_it_tells_the_conversation_with_the_tools_result_beside_its_call(
    proxy: Proxy, engine: FakeEngine
) -> None:
    page = await opened(proxy, f"/hone/trajectories/{await talked(proxy, engine)}")
    assert "Where is 4821?" in page.text
    assert 'calls find {"id": 4821} answered {"state": "shipped"}' in page.text
    assert "It arrives on Monday" in page.text
    assert "tool calls 1 duration" in page.text  # the agent ran its tool itself, and no gateway saw it
    assert [id_ for id_ in page.ids if id_.startswith("turn-")] == ["turn-1", "turn-2", "turn-3", "turn-5"]
    assert f"/hone/versions/{ALIAS}%400" in page.links
    assert page.classes("bar") == 2


@pytest.mark.parametrize("cut", [-8, -12])
async def test_a_short_id_and_the_callers_own_lead_to_the_whole_one(proxy: Proxy, engine: FakeEngine, cut: int) -> None:
    run = await talked(proxy, engine)
    for name in (run[cut:], "one"):
        answer = await proxy.http.get(f"/hone/trajectories/{name}")
        assert (answer.status_code, answer.headers["location"]) == (302, f"/hone/trajectories/{run}")
    call = (await proxy.calls())[0]["call_id"]
    answer = await proxy.http.get(f"/hone/trajectories/{call[cut:]}")
    assert answer.headers["location"] == f"/hone/trajectories/{run}/calls/{call}"


async def test_what_nobody_knows_is_a_page_that_says_so(proxy: Proxy) -> None:
    answer = await proxy.http.get("/hone/trajectories/nothing")
    assert answer.status_code == 404


async def test_hostile_text_is_shown_and_never_markup(proxy: Proxy, engine: FakeEngine) -> None:
    run = await talked(proxy, engine, first=HOSTILE)
    await feedback.add_feedback(Project(proxy.store, PROJECT), run, "solved", True, comment=HOSTILE)
    page = await opened(proxy, f"/hone/trajectories/{run}")
    shown = page.text.count("<script>alert(1)</script> \\u202e and ␛[2J")
    assert shown == 4  # the title, the message, the comment, and the comment as what came next
    assert [told for tag, told in page.elements if tag == "script"] == [{"src": "/hone/static/hone.js", "defer": None}]


@pytest.mark.parametrize("arguments", ["[" * 100_000, "[" * 200 + "]" * 200, '"\\ud800"', "\x00"])
async def test_odd_arguments_are_shown_all_the_same(proxy: Proxy, arguments: str) -> None:
    called = {"id": "a", "type": "function", "function": {"name": "find", "arguments": arguments}}
    talk = Talk(proxy.recorder)
    turn = await talk.call([user("hi")], {"role": "assistant", "content": None, "tool_calls": [called]})
    run = turn.attribution.trajectory.id
    for path in (f"/hone/trajectories/{run}", f"/hone/trajectories/{run}/calls/{turn.call_id}"):
        answer = await proxy.http.get(path)
        assert "find" in read(answer).text
        assert len(answer.content) < 300_000


async def test_an_attempt_that_failed_and_was_made_again_is_a_branch(proxy: Proxy, engine: FakeEngine) -> None:
    engine.next = [Script(status=500, error="broken")]
    said = [{"role": "user", "content": "Where is 4821?"}]
    assert (await send_call(proxy, "/t/one", said)).status_code >= 500
    run = (await send_call(proxy, "/t/one", said)).headers["x-hone-trajectory"]
    page = await opened(proxy, f"/hone/trajectories/{run}")
    assert page.classes("branch") == 1


async def test_its_reward_has_its_parts_and_the_judges_words(store: Store, proxy: Proxy) -> None:
    rows = Rows(store)
    group = await rows.ready_group(2)
    claim = await claims.claim_one_for_judging(store, group, "judge", 60)
    assert claim is not None
    run, other = await rows.members(group)
    parts = [NewPart(run, "reward", 0.75), NewPart(run, "ruler", 0.75, 1.0, HOSTILE), NewPart(other, "reward", 0.125)]
    await scores.record_score(store, claim, await rows.judgement(claim, judge_model="a-judge", parts=parts))
    page = await opened(proxy, f"/hone/trajectories/{run}")
    cells = page.of("td")[5:]  # behind the timeline's
    assert cells[:6] == ["reward", "0.75", "", "ruler", "0.75", "1"]
    assert cells[6] == "<script>alert(1)</script> \\u202e and ␛[2J"
    assert "by a-judge" in page.text
    assert "0.125" not in page.text
    assert f"/hone/groups/{group}" in page.links


async def test_a_turn_with_a_value_of_its_own_has_it_on_its_calls_page_and_its_trajectorys(
    store: Store, proxy: Proxy
) -> None:
    group, (run, other) = await group_of(store, [["Monday"], ["Friday"]])
    parts = [NewPart(id_, "polite", 0.5, 1.0) for id_ in (run, other)]
    parts += [NewPart(run, "polite.turn.1", 0.75), NewPart(other, "polite.turn.1", 0.25)]
    rewards = [NewPart(run, "reward", 1.0), NewPart(other, "reward", 0.0)]
    await scored(store, group, {}, parts=[*rewards, *parts])
    told = (await proxy.http.get(f"/hone/v1/trajectories/{run}")).json()
    assert told["outcome"]["rank"]["attempt"]["turns"] == [{"number": 1, "value": 0.75, "difference": 0.25}]
    call = told["main_path"][0][0]
    for path in (f"/hone/trajectories/{run}", f"/hone/trajectories/{run}/calls/{call}", f"/hone/groups/{group}"):
        assert "turn 1 0.75 (+0.25 from the mean of its group)" in (await opened(proxy, path)).text


async def test_an_objective_that_used_it_is_named_on_the_page_and_in_the_json(store: Store, proxy: Proxy) -> None:
    rows = Rows(store)
    run = await rows.trajectory()
    alias = await aliases.get_alias(Project(store, PROJECT), ALIAS)
    assert alias.live_version_id is not None
    step = await steps.begin_step(store, alias.id, alias.live_version_id)
    version = await versions.allocate_version(store, alias.id, alias.live_version_id, step_id=step.id)
    await steps.finish_step(
        store, step.id, version_id=version.id, path="/x", engine_name="x", manifest_sha256="x", metrics={},
        checkpoint_path=None, groups=(), used=[ObjectiveUse("imitate", "trajectory", run, 2)],
    )  # fmt: skip
    page = await opened(proxy, f"/hone/trajectories/{run}")
    assert f"{ALIAS}@1 written used it for the objective imitate in step 1, 2 times" in page.text
    assert "Not trained on." not in page.text
    told = (await proxy.http.get(f"/hone/v1/trajectories/{run}")).json()["outcome"]["objective_uses"]
    assert [(one["objective"], one["times"], one["version"]) for one in told] == [("imitate", 2, f"{ALIAS}@1")]


async def test_what_came_next_is_on_the_page_and_in_the_json_whoever_recorded_it(
    store: Store, proxy: Proxy, engine: FakeEngine
) -> None:
    run = await talked(proxy, engine)
    call = (await proxy.http.get(f"/hone/v1/trajectories/{run}")).json()["main_path"][-1][0]
    await proxy.http.post(
        f"/hone/v1/trajectories/{run}/feedback", json={"name": "solved", "value": False, "comment": HOSTILE}
    )
    page = await opened(proxy, f"/hone/trajectories/{run}")
    assert "What came next feedback solved false after an answer" in page.text
    [told] = (await proxy.http.get(f"/hone/v1/trajectories/{run}")).json()["follow_ups"]
    assert (told["kind"], told["call_id"], told["text"], told["value"]) == ("feedback", call, HOSTILE, False)


async def test_the_ledgers_lines_are_sentences(store: Store, proxy: Proxy) -> None:
    rows = Rows(store)
    run = await rows.trajectory(state="completed")
    line = {"project_id": PROJECT, "object_kind": "trajectory", "object_id": run, "code": "reward_missing", "at": 1.0}
    await rows.insert(ledger, line)
    page = await opened(proxy, f"/hone/trajectories/{run}")
    assert "reward_missing. The judge gave this trajectory no reward." in page.text


async def test_a_long_run_shows_its_ends_and_the_middle_a_part_at_a_time(proxy: Proxy, engine: FakeEngine) -> None:
    said: list[dict[str, Any]] = []
    for turn in range(60):
        said += [{"role": "user", "content": f"question-{turn} " + "word " * 900}]
        said += [{"role": "assistant", "content": f"answer-{turn} " + "word " * 900}]
    said += [{"role": "user", "content": "the-end"}]
    run = (await send_call(proxy, "/t/long", said)).headers["x-hone-trajectory"]
    whole = await proxy.http.get(f"/hone/trajectories/{run}")
    assert len(whole.content) < 300_000
    page = read(whole)
    assert "question-0 " in page.text
    assert "the-end" in page.text
    assert "question-30 " not in page.text
    seen, path = set(), f"/hone/trajectories/{run}?from=1"
    for _ in range(20):
        part = await opened(proxy, path)
        seen |= {id_ for id_ in part.ids if id_.startswith("turn-")}
        onward = [told["href"] for tag, told in part.elements if tag == "a" and told.get("rel") == "next"]
        if not onward:
            break
        path = str(onward[0])
    assert seen == {f"turn-{number}" for number in range(1, 123)}


async def test_a_turn_with_a_crowd_of_branches_and_tools_stays_a_page(proxy: Proxy) -> None:
    talk, address = Talk(proxy.recorder), Address(trajectory="crowd")
    called = [f"call-{n}" for n in range(60)]
    first = await talk.call([user("hi")], tool_turn(*called), address)
    for n in range(60):
        task = [{"role": "system", "content": f"{HOSTILE} {n}"}, *(user(HOSTILE) for _ in range(30))]
        await talk.call(task, HOSTILE * 20, Address(trajectory="crowd", call_kind=CallKind.SUB))
    said = [user("hi"), tool_turn(*called), *(tool_result(id_, "<&>" * 200) for id_ in called)]
    await talk.call(said, "done", address)
    answer = await proxy.http.get(f"/hone/trajectories/{first.attribution.trajectory.id}?from=2")
    assert len(answer.content) < 300_000
    text = read(answer).text
    assert "more branches" in text
    assert "20 more tool calls" in text


async def test_one_very_long_text_is_cut_and_the_rest_is_named(proxy: Proxy, engine: FakeEngine) -> None:
    run = await talked(proxy, engine, first="<&>" * PAGE_BYTES)
    answer = await proxy.http.get(f"/hone/trajectories/{run}")
    assert len(answer.content) < 300_000
    assert "more characters" in read(answer).text


async def test_tokens_are_shown_on_demand_with_their_probabilities(proxy: Proxy, engine: FakeEngine) -> None:
    run = await talked(proxy, engine)
    call = (await proxy.calls())[1]["call_id"]
    assert "Tokens sampled" not in (await opened(proxy, f"/hone/trajectories/{run}")).text
    page = await opened(proxy, f"/hone/trajectories/{run}?tokens={call}")
    ids = [*ids_of("It arrives on Monday"), 2]
    shown = [
        told.get("title") for tag, told in page.elements if tag == "span" and "trainable" in (told.get("class") or "")
    ]
    assert shown == [f"{-0.01 * (at + 1):.4g} · {id_}" for at, id_ in enumerate(ids)]
    prompt = await opened(proxy, f"/hone/trajectories/{run}?tokens={call}&prompt=true")
    assert "Prompt tokens" in prompt.text
    assert prompt.classes("trainable") == 0


async def test_tokens_have_their_text_where_the_engine_says_it(proxy: Proxy, engine: FakeEngine) -> None:
    answer = await send_call(proxy, "/t/one", [{"role": "user", "content": "?"}])
    run, call = answer.headers["x-hone-trajectory"], answer.headers["x-hone-call"]
    ids, spelled = [*ids_of("It arrives on Monday"), 2], ["It", "Ġarrives", "Ġon", "ĠMonday", "<|im_end|>"]
    engine.next = [
        Script(body=json.dumps({"prompt": "It arrives on Monday<|im_end|>"}).encode()),
        Script(body=json.dumps({"tokens": ids, "token_strs": spelled}).encode()),
    ]
    page = await opened(proxy, f"/hone/trajectories/{run}?tokens={call}")
    assert "It arrives on Monday<|im_end|>" in page.text
    assert "Ids only" not in page.text


async def test_tokens_of_an_answer_that_is_not_trained_on_say_why(proxy: Proxy, engine: FakeEngine) -> None:
    answer = await send_call(proxy, "/t/one", [{"role": "user", "content": "?"}], top_p=0.5)
    run, call = answer.headers["x-hone-trajectory"], answer.headers["x-hone-call"]
    page = await opened(proxy, f"/hone/trajectories/{run}?tokens={call}")
    assert page.classes("trainable") == 0
    assert "Not trained on: Sampled with top_p below 1" in page.text


async def test_a_call_has_its_request_its_answer_and_a_command(proxy: Proxy, engine: FakeEngine) -> None:
    run = await talked(proxy, engine, first="It's $HOME")
    call = (await proxy.calls())[0]["call_id"]
    page = await opened(proxy, f"/hone/trajectories/{run}/calls/{call}")
    assert '"content": "It\'s $HOME"' in page.text
    assert """It'"'"'s $HOME""" in page.text
    assert f"/hone/v1/calls/{call}" in page.links
    assert (await proxy.http.get(f"/hone/v1/calls/{call}")).json()["id"] == call
    assert (await proxy.http.get(f"/hone/trajectories/{run}/calls/nothing")).status_code == 404


async def test_an_answer_is_corrected_on_its_calls_page_which_shows_the_difference(
    proxy: Proxy, engine: FakeEngine
) -> None:
    run = await talked(proxy, engine)
    call = (await proxy.calls())[-1]["call_id"]
    path = f"/hone/trajectories/{run}/calls/{call}"
    page = await opened(proxy, path)
    assert "What it should have said" in page.text
    assert "<ins>" not in (await proxy.http.get(path)).text
    answer = await send(proxy, run, "feedback", call=call, from_call="yes", answer=f"It {HOSTILE} arrives on Friday")
    assert (answer.status_code, answer.headers["location"]) == (303, f"{path}#correction")
    (written,) = await feedback.list_feedback(proxy.store, run)
    assert (written.name, written.call_id) == ("demonstration", call)
    text = (await proxy.http.get(path)).text
    assert "<ins>" in text
    assert HOSTILE not in text


async def test_media_are_named_and_not_sent(proxy: Proxy, engine: FakeEngine) -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "QUJD" * 3000}}
    said = [{"role": "user", "content": [{"type": "text", "text": "Look"}, picture]}]
    answer = await send_call(proxy, "/t/one", said)
    run, call = answer.headers["x-hone-trajectory"], answer.headers["x-hone-call"]
    for path in (f"/hone/trajectories/{run}", f"/hone/trajectories/{run}/calls/{call}"):
        assert "QUJDQUJD" not in (await proxy.http.get(path)).text
    assert "image_url, 12," in (await opened(proxy, f"/hone/trajectories/{run}")).text


async def test_the_same_is_there_as_json(proxy: Proxy, engine: FakeEngine) -> None:
    run = await talked(proxy, engine)
    told = (await proxy.http.get(f"/hone/v1/trajectories/{run}")).json()
    assert [turn["role"] for turn in told["conversation"]["messages"]] == ["system", "user", "assistant", "assistant"]
    assert told["conversation"]["messages"][2]["tool_calls"][0]["result"]["texts"] == ['{"state": "shipped"}']
    assert told["outcome"]["version"] == f"{ALIAS}@0"
    assert len(told["timeline"]["bars"]) == 2
    assert len(told["messages"]) == 5


# --- what a person does


async def test_feedback_is_written_with_who_gave_it(proxy: Proxy, engine: FakeEngine) -> None:
    run = await talked(proxy, engine)
    call = (await proxy.calls())[1]["call_id"]
    given = {"name": "solved", "verdict": "bad", "comment": "too late", "answer": "On Tuesday", "call": call}
    answer = await send(proxy, run, "feedback", **given)
    assert (answer.status_code, answer.headers["location"]) == (303, f"/hone/trajectories/{run}#feedback")
    one, other = await feedback.list_feedback(proxy.store, run)
    assert (one.name, one.value, one.comment, one.call_id) == ("solved", False, "too late", call)
    assert (other.name, other.value, other.tags) == ("demonstration", "On Tuesday", {"by": "somebody on this machine"})
    assert "On Tuesday" in (await opened(proxy, f"/hone/trajectories/{run}")).text


@pytest.mark.parametrize(
    ("given", "written"),
    [
        ({"name": "stars", "score": "4.5"}, ("stars", 4.5)),
        ({"name": "solved", "verdict": "good"}, ("solved", True)),
        ({"name": "solved", "comment": "odd"}, ("comment", "odd")),
    ],
)
async def test_feedback_may_be_a_score_a_verdict_or_a_comment_alone(
    proxy: Proxy, engine: FakeEngine, given: dict[str, str], written: tuple[str, object]
) -> None:
    run = await talked(proxy, engine)
    assert (await send(proxy, run, "feedback", **given)).status_code == 303
    [one] = await feedback.list_feedback(proxy.store, run)
    assert (one.name, one.value) == written


@pytest.mark.parametrize(
    "given", [{"name": "solved"}, {"name": "solved", "score": "nan"}, {"score": "1", "name": "a b"}]
)
async def test_feedback_that_says_nothing_or_nonsense_is_refused(
    proxy: Proxy, engine: FakeEngine, given: dict[str, str]
) -> None:
    run = await talked(proxy, engine)
    assert (await send(proxy, run, "feedback", **given)).status_code == 400
    assert await feedback.list_feedback(proxy.store, run) == []


async def test_a_tag_is_set_shown_and_taken_away(proxy: Proxy, engine: FakeEngine) -> None:
    run = await talked(proxy, engine)
    assert (await send(proxy, run, "tags", tag="team", value="blue <b>")).status_code == 303
    assert "team=blue <b>" in (await opened(proxy, f"/hone/trajectories/{run}")).text
    await send(proxy, run, "tags", tag="team", remove="yes")
    async with proxy.store.read() as conn:
        assert (await conn.execute(select(trajectories.c.tags).where(trajectories.c.id == run))).scalar_one() == {}


async def test_a_run_is_deleted_after_being_asked_twice(proxy: Proxy, engine: FakeEngine) -> None:
    run = await talked(proxy, engine)
    assert (await send(proxy, run, "delete")).status_code == 400
    assert (await send(proxy, run, "delete", sure="yes")).status_code == 409  # it is open
    await proxy.http.post(f"/hone/v1/trajectories/{run}/done", json={})
    await opened(proxy, f"/hone/trajectories/{run}/delete")
    gone = await send(proxy, run, "delete", sure="yes", why="asked by its user")
    assert "2 calls" in read(gone).text
    assert (await proxy.http.get(f"/hone/trajectories/{run}")).status_code == 404
    async with proxy.store.read() as conn:
        detail = (await conn.execute(select(ledger.c.detail).where(ledger.c.code == "deleted"))).scalar_one()
    assert detail["why"] == "asked by its user, by somebody on this machine"


async def test_a_change_without_the_forms_token_is_refused(proxy: Proxy, engine: FakeEngine) -> None:
    run = await talked(proxy, engine)
    answer = await proxy.http.post(f"/hone/trajectories/{run}/tags", data={"tag": "team", "value": "blue"})
    assert answer.status_code == 403


async def test_who_may_only_read_is_shown_no_forms(store: Store, engine: FakeEngine) -> None:
    _, admin = await keys.create_key(Project(store, PROJECT), "owner", {Scope.ADMIN})
    _, reader = await keys.create_key(Project(store, PROJECT), "reader", {Scope.READ})
    posts = []
    async with serving(store, engine) as proxy:
        proxy.http.headers["authorization"] = f"Bearer {admin}"
        run = await talked(proxy, engine)
        for key in (admin, reader):
            proxy.http.headers["authorization"] = f"Bearer {key}"
            page = await opened(proxy, f"/hone/trajectories/{run}")
            forms = [told for tag, told in page.elements if tag == "form" and told.get("method") == "post"]
            posts.append([told["action"] for told in forms if told["action"] != "/hone/sign-out"])
            assert (f"/hone/trajectories/{run}/delete" in page.links) is (key == admin)
    assert posts == [[f"/hone/trajectories/{run}/feedback", f"/hone/trajectories/{run}/tags"], []]
