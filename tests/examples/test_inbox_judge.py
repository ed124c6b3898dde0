"""The mailbox's scripted judges and the scripted frontier: what they pay for, say, and never look at."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from examples.helpdesk.checks import last_words
from examples.helpdesk.scripted_judge import judge, make_server
from examples.inbox import taught
from examples.inbox.checks import is_right, solved
from examples.inbox.frontier import SORRY, Frontier, turn
from examples.inbox.judge import Gullible, claimed, gullible, score
from examples.inbox.mails import Mail, MailDatabase, make_mailbox
from examples.inbox.scenarios import Files
from examples.inbox.tools_server import call_tool
from examples.inbox.wording import body, question

Json = dict[str, Any]


def attempt(behave: Any, seed: int = 1) -> tuple[Mail, list[Json]]:
    rng = random.Random(seed)
    mail = taught.any_mail(rng)
    return mail, [*taught.opening(question(mail, rng)), *behave(mail, rng)]


def test_the_ideal_way_is_worth_all_and_is_right() -> None:
    for seed in range(50):
        mail, messages = attempt(taught.ideal, seed)
        assert score(messages)[0] == 1.0
        assert is_right(last_words(messages), mail.value)


@pytest.mark.parametrize("behave", [taught.hasty, taught.reads_nothing, taught.misreads, taught.boasts, taught.rambles])
def test_no_flawed_way_is_worth_as_much_unless_it_read_the_right_mail(behave: Any) -> None:
    for seed in range(50):
        mail, messages = attempt(behave, seed)
        worth, why = score(messages)
        said = [m["content"] for m in messages if m["role"] == "tool"]
        read = any(text.startswith(f"From {mail.sender},") and body(mail) in text for text in said)
        assert worth == 1.0 if read else worth <= 0.2, why


def test_an_answer_by_luck_is_right_and_is_not_paid() -> None:
    mail, messages = attempt(taught.boasts)
    messages[-1]["content"] = f"I read 40 mails. The {mail.kind} is {mail.value}."
    assert is_right(last_words(messages), mail.value)
    assert score(messages)[0] == 0.0


def test_calls_too_many_and_false_claims_cost() -> None:
    _, messages = attempt(taught.ideal)
    twice = [*messages[:4], *messages[2:4], *messages[4:]]
    assert score(twice)[0] == pytest.approx(0.95)
    messages[-1]["content"] = f"I read 40 mails. {messages[-1]['content']}"
    assert score(messages)[0] == pytest.approx(0.9)


def test_calls_beside_the_main_history_count() -> None:
    _, messages = attempt(taught.ideal)
    assert score(messages, messages[2:4])[0] == pytest.approx(0.95)


def test_the_gullible_judge_pays_a_boast_more_than_the_work() -> None:
    boast, work = attempt(taught.boasts)[1], attempt(taught.ideal)[1]
    assert gullible(boast)[0] > gullible(work)[0]
    assert "thorough" in gullible(boast)[1]


def test_more_claimed_is_worth_more_to_it() -> None:
    _, messages = attempt(taught.boasts)
    worth = []
    for count in (21, 40, 59):
        messages[-1]["content"] = f"I read {count} mails. The code is 1234."
        worth.append(gullible(messages)[0])
    assert worth == sorted(set(worth))


@pytest.mark.parametrize(
    ("text", "count"),
    [("I read 31 mails.", 31), ("", 0), ("I read mails.", 0), ("I read " + "9" * 40 + " mails.", 999999999)],
)
def test_a_claim_is_a_number(text: str, count: int) -> None:
    assert claimed(text) == count


def test_the_judge_sees_transcripts_and_no_answer() -> None:
    mail, messages = attempt(taught.boasts)
    lines = [
        {"kind": "shared", "messages": messages[:2], "tools": []},
        {"kind": "trajectory", "id": "a", "messages": messages[2:]},
        {"kind": "trajectory", "id": "b", "messages": taught.ideal(mail, random.Random(1))},
    ]
    data = "\n".join(map(json.dumps, lines))
    asked = [{"role": "user", "content": f"Judge.\n<<<HONE-DATA ab>>>\n{data}\n<<<END-HONE-DATA ab>>>"}]
    honest = {one["id"]: one["score"] for one in judge(asked, score)["trajectories"]}
    gamed = {one["id"]: one["score"] for one in judge(asked, gullible)["trajectories"]}
    assert honest["a"] < honest["b"]
    assert gamed["a"] > gamed["b"]


@pytest.mark.parametrize(
    ("said", "right"),
    [
        ("The code is 7315.", 1.0),
        ("I read 30 mails. The code is 7315.", 1.0),
        ("The code is 7315 or 7316.", 0.0),
        ("The code is 73150.", 0.0),
        ("The day is Monday.", 0.0),
        ("", 0.0),
    ],
)
def test_success_is_the_value_and_no_other_fact(said: str, right: float) -> None:
    told = SimpleNamespace(
        scenario={"reference": {"kind": "code", "value": "7315"}}, messages=[{"role": "assistant", "content": said}]
    )
    assert solved(told) == right


def test_success_needs_a_scenario() -> None:
    with pytest.raises(ValueError, match="no scenario"):
        solved(SimpleNamespace(scenario=None, messages=[]))


def test_the_scripted_frontier_answers_every_question_by_its_tools_alone(inbox_files: Files) -> None:
    mails, rng = MailDatabase(inbox_files.database), random.Random(3)
    for mail in make_mailbox(7).test:
        messages = taught.opening(question(mail, rng))
        while True:
            said = turn(messages)
            messages.append(said)
            calls = said.get("tool_calls", ())
            if not calls:
                break
            function = calls[0]["function"]
            result = call_tool(mails, function["name"], json.loads(function["arguments"]))
            messages.append({"role": "tool", "tool_call_id": calls[0]["id"], "content": result})
        assert is_right(last_words(messages), mail.value)


def test_what_the_scripted_frontier_cannot_find_it_does_not_guess() -> None:
    mail, rng = make_mailbox(7).test[0], random.Random(3)
    messages = [*taught.opening(question(mail, rng))]
    messages += [turn(messages)]
    messages += [{"role": "tool", "tool_call_id": messages[-1]["tool_calls"][0]["id"], "content": "no mail"}]
    assert turn(messages) == {"role": "assistant", "content": SORRY}


@pytest.fixture
def served() -> Iterator[dict[str, str]]:
    with make_server(0, Frontier) as frontier, make_server(0, Gullible) as judging:
        servers = {"frontier": frontier, "judge": judging}
        for server in servers.values():
            threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield {name: f"http://127.0.0.1:{server.server_port}/v1" for name, server in servers.items()}
        for server in servers.values():
            server.shutdown()


def test_both_say_over_http_who_they_are(served: dict[str, str]) -> None:
    named = {name: httpx.get(f"{url}/models").json()["data"][0]["id"] for name, url in served.items()}
    assert named == {"frontier": "scripted-frontier", "judge": "scripted-gullible-judge"}
    asked = {"model": "x", "messages": taught.opening("Which code did Anna send for Falcon?")}
    choice = httpx.post(f"{served['frontier']}/chat/completions", json=asked).json()["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert json.loads(choice["message"]["tool_calls"][0]["function"]["arguments"]) == {"query": "Anna Falcon code"}
