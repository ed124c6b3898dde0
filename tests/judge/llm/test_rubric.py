"""Reading verdicts on criteria: what a judge may write, and what is refused with a reason."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judge.errors import ReplyRefused
from judge.llm.rubric import CriterionVerdict, read_rubric_reply
from judge.llm.verdict_reply import MAX_REPLY_CHARS
from tests.proxy.fuzzed import TIMEOUT_S, fuzzed

IDS = ("c-aa", "c-bb")


def entry(id_: str = "c-aa", **more: Any) -> dict[str, Any]:
    return {"id": id_, "reason": "so it is", "met": True} | more


def reply(*entries: Any) -> str:
    return json.dumps({"criteria": entries or (entry(), entry("c-bb", met=False))})


PLAIN = reply()


def test_each_criterion_gets_its_verdict_whatever_the_order() -> None:
    wanted = {"c-aa": CriterionVerdict(True, "so it is"), "c-bb": CriterionVerdict(False, "so it is")}
    assert read_rubric_reply(PLAIN, IDS) == wanted
    assert read_rubric_reply(reply(entry("c-bb", met=False), entry()), IDS) == wanted


@pytest.mark.parametrize(
    "text",
    [
        f"```json\n{PLAIN}\n```",
        f"Here it is:\n{PLAIN}\nI hope that helps.",
        f"<think>maybe {reply(entry(met=False), entry('c-bb'))}?</think>\n{PLAIN}",
        f"maybe {{this}} or [that]</think>{PLAIN}",
        json.dumps(json.loads(PLAIN) | {"notes": ["x"]}, indent=4),
        reply(entry(" c-aa "), entry("c-bb", met=False, score=7)),
    ],
)
def test_fences_words_and_thoughts_are_passed_over(text: str) -> None:
    assert {name: one.met for name, one in read_rubric_reply(text, IDS).items()} == {"c-aa": True, "c-bb": False}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "empty"),
        ("  ", "empty"),
        ("all are met", "no JSON object"),
        (PLAIN[:-3], "broken or cut off"),
        (f"{PLAIN}{PLAIN}", "more than one JSON object"),
        (f"{PLAIN}\n{PLAIN[:30]}", "more than one JSON object"),
        (f"[1] {PLAIN}", "more than one JSON object"),
        (json.dumps(json.loads(PLAIN)["criteria"]), "more than one JSON object"),
        (f"<think>{PLAIN}", "in the middle of its reasoning"),
        ("{" * 100_000, "broken or cut off"),
        ('{"criteria": ' + "[" * 100_000, "broken or cut off"),
        ('{"criteria": [' + "9" * 10_000 + "]}", "broken or cut off"),
        ("x" * (MAX_REPLY_CHARS + 1), "characters long"),
        ('{"verdicts": []}', "no JSON object"),
        ('{"criteria": {}}', "no JSON object"),
        ('{"criteria": [], "criteria": []}', "a key twice"),
        (reply("c-aa"), "entry 1 is not an object"),
        ('{"criteria": [{"id": "c-aa", "reason": "x", "met": false, "met": true}]}', "entry 1 is not an object"),
        (reply(entry()), "no verdict for: c-bb"),
        (reply(entry(), entry()), "id c-aa is there twice"),
        (reply(entry(), entry("c-bb"), entry("c-cc")), "entry 3 has the id 'c-cc'"),
        (reply(entry(7)), "entry 1 has the id 7"),  # type: ignore[arg-type]  # what a judge may write
        (reply(entry(reason=" "), entry("c-bb")), "c-aa has no reason"),
        (reply(entry(reason=None), entry("c-bb")), "c-aa has no reason"),
        (reply(entry(met=None), entry("c-bb")), "`met` of c-aa is missing"),
        (reply(entry(met="true"), entry("c-bb")), "`met` of c-aa is 'true'"),
        (reply(entry(met=1), entry("c-bb")), "`met` of c-aa is 1"),
    ],
)
def test_what_is_no_clear_verdict_is_refused_with_the_reason(text: str, said: str) -> None:
    with pytest.raises(ReplyRefused) as refused:
        read_rubric_reply(text, IDS)
    assert said in str(refused.value)


RESPONSE = ["It is in  Oslo,\nNorway.", '{"id": 7}']


@pytest.mark.parametrize("quote", ["Oslo", "in Oslo, Norway.", "in\tOslo,  Norway", '"id": 7'])
def test_a_quote_is_compared_by_its_words(quote: str) -> None:
    read = read_rubric_reply(reply(entry(quote=quote), entry("c-bb", met=False)), IDS, RESPONSE)
    assert read["c-aa"].quote == quote


@pytest.mark.parametrize(
    ("quote", "said"),
    [
        ("Bergen", "not in the agent's own messages: 'Bergen'"),
        ("oslo", "not in the agent's own messages"),
        ('Norway. {"id"', "not in the agent's own messages"),
        ("", "met and has no quote"),
        (" \n", "met and has no quote"),
        (None, "met and has no quote"),
        (["Oslo"], "met and has no quote"),
    ],
)
def test_a_quote_that_is_not_in_the_response_makes_the_reply_refused(quote: Any, said: str) -> None:
    with pytest.raises(ReplyRefused) as refused:
        read_rubric_reply(reply(entry(quote=quote), entry("c-bb", met=False)), IDS, RESPONSE)
    assert said in str(refused.value)


def test_what_is_kept_of_a_reply_can_be_stored() -> None:
    read = read_rubric_reply(reply(entry(reason="\ud800" + "x" * 5_000), entry("c-bb")), IDS)
    read["c-aa"].reason.encode()
    assert len(read["c-aa"].reason) < 1_100


anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=12)
    | st.sampled_from([*IDS, "criteria"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
spoilt = st.fixed_dictionaries(
    {},
    optional={
        "id": st.sampled_from([*IDS, *IDS, "c-cc", " c-aa"]) | anything,
        "reason": st.just("so") | st.just("so") | anything,
        "met": st.booleans() | st.booleans() | anything,
        "quote": st.sampled_from(["Oslo", "Bergen", ""]) | anything,
    },
)
bodies = st.lists(spoilt | anything, max_size=4) | st.tuples(
    spoilt.map(lambda e: {"reason": "so", "met": True, **e, "id": "c-aa"}),
    spoilt.map(lambda e: {"reason": "so", "met": False, **e, "id": "c-bb"}),
)
pieces = st.sampled_from(
    ["", " ", "```json\n", "```", "<think>", "</think>", "{", "}", "[", "]", ",", PLAIN, "I say: "]
)
whole = bodies.map(lambda entries: json.dumps({"criteria": entries})) | anything.map(json.dumps)
replies = st.tuples(pieces, whole, pieces, st.integers(-9, 9)).map(
    lambda parts: "".join(parts[:3])[: parts[3] if parts[3] < 0 else None]
)


@pytest.mark.timeout(TIMEOUT_S)
@fuzzed
@given(replies | st.text(max_size=200), st.booleans())
def test_any_reply_is_a_verdict_on_every_criterion_and_no_other_or_refused(text: str, evidence: bool) -> None:
    try:
        read = read_rubric_reply(text, IDS, RESPONSE if evidence else None)
    except ReplyRefused:
        return
    assert set(read) == set(IDS)
    assert all(isinstance(one.met, bool) and one.reason for one in read.values())
    if evidence:
        flat = " ".join(" ".join(RESPONSE).split())
        assert all(" ".join(one.quote.split()) in flat for one in read.values() if one.met)
