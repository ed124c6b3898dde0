"""Reading replies: what a judge may write, and what is refused with a reason."""

import json
import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from judge.errors import ReplyRefused
from judge.llm.reply_reader import read_reply

IDS = ("t-aa", "t-bb")


def reply(**scores: object) -> str:
    return json.dumps(
        {"trajectories": [{"id": f"t-{n}", "explanation": f"on {n}", "score": s} for n, s in scores.items()]}
    )


def scores(text: str, ids: tuple[str, ...] = IDS) -> list[float]:
    read = read_reply(text, ids)
    return [round(read[name].score, 6) for name in ids]


PLAIN = reply(aa=0.9, bb=0.2)


def test_reads_scores_and_explanations_by_id() -> None:
    read = read_reply(PLAIN, IDS)
    assert {name: (v.score, v.explanation) for name, v in read.items()} == {
        "t-aa": (0.9, "on aa"),
        "t-bb": (0.2, "on bb"),
    }


def test_order_does_not_matter() -> None:
    assert scores(reply(bb=0.2, aa=0.9)) == [0.9, 0.2]


@pytest.mark.parametrize(
    "text",
    [
        f"```json\n{PLAIN}\n```",
        f"```\n{PLAIN}```",
        f"Here is my verdict:\n\n{PLAIN}\n\nI hope {{this}} helps [1].",
        f"<think>maybe {reply(aa=0.1, bb=0.8)}?</think>\n{PLAIN}",
        f"<think>first</think>\n<think>{reply(aa=0.1, bb=0.8)}</think>{PLAIN}",
        f"I looked at {{'t-aa'}} and [t-bb].\n{PLAIN}",
        json.dumps(json.loads(PLAIN)["trajectories"]),
        f"{PLAIN}\nAgain: {PLAIN}",
        json.dumps(json.loads(PLAIN) | {"notes": ["x"]}, indent=4),
        f"Perhaps {reply(aa=0.1, bb=0.8)}? Or {{oops. No.</think>\n{PLAIN}",
        f"one</think> two {reply(aa=0.1, bb=0.8)}</think>{PLAIN}",
        f"Let me see. <think>maybe {reply(aa=0.1, bb=0.8)}</think>{PLAIN}",
        "[" * 3000 + f"</think>{PLAIN}",
    ],
)
def test_fences_prose_thoughts_and_bare_lists_are_passed_over(text: str) -> None:
    assert scores(text) == [0.9, 0.2]


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ((1, 0), [1.0, 0.0]),
        ((1.0, 0.35), [1.0, 0.35]),
        (("0.9", ".2"), [0.9, 0.2]),
        ((9, 2), [0.9, 0.2]),
        ((10, 0), [1.0, 0.0]),
        ((8.5, 1), [0.85, 0.1]),
        (("8/10", "2 / 10"), [0.8, 0.2]),
        (("4/5", "1/5"), [0.8, 0.2]),
        (("80%", "20 %"), [0.8, 0.2]),
        (("100 %", "0%"), [1.0, 0.0]),
        (("40 percent", "0 Percent"), [0.4, 0.0]),
        ((90, 20), [0.9, 0.2]),
    ],
)
def test_the_scale_of_the_whole_reply_is_recognised(written: tuple[object, object], read: list[float]) -> None:
    assert scores(reply(aa=written[0], bb=written[1])) == read


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ((7, 0.3), "different scales"),
        ((85, 0.7), "different scales"),
        ((85, 1), "different scales"),
        ((1.2, 0.9), "outside 0..1"),
        ((7, -3), "outside 0..10"),
        ((-0.1, 0.5), "outside 0..1"),
        ((101, 5), "outside 0..100"),
        (("8/10", 0.5), "different ways"),
        (("8/10", "4/5"), "different ways"),
        (("80%", 0.2), "different ways"),
        (("11/10", "1/10"), "outside 0..10"),
        (("120%", "50%"), "outside 0..100"),
        (("0.4 %", "0.9 %"), "unclear"),
        (("1/0", "0/0"), "unclear"),
        ((True, False), "not a number"),
        ((None, 0.5), "not a number"),
        (([0.5], 0.5), "not a number"),
        ((float("nan"), 0.5), "not finite"),
        ((float("inf"), 0.5), "not finite"),
        (("nan", "0.5"), "not a number"),
        (("good", 0.5), "not a number"),
        (("", 0.5), "not a number"),
        (("0,8", "0,2"), "not a number"),
        ((10**400, 0.5), "not finite"),
        (("9" * 400, "1"), "not finite"),
    ],
)
def test_what_is_no_clear_score_is_refused(written: tuple[object, object], why: str) -> None:
    with pytest.raises(ReplyRefused, match=why):
        read_reply(reply(aa=written[0], bb=written[1]), IDS)


@pytest.mark.parametrize(
    "written",
    [
        (1, 2),
        (2, 1),
        (1, 2, 3),
        (3, 1, 2),
        (1, 2, 2),
        (1, 1, 2, 3),
        ("1", "2"),
        (1.0, 2.0, "3"),
        tuple(range(1, 11)),
        tuple(range(1, 13)),
    ],
)
def test_ranks_are_not_read_as_scores(written: tuple[object, ...]) -> None:
    names = [chr(ord("a") + n) * 2 for n in range(len(written))]
    with pytest.raises(ReplyRefused, match="ranks, not scores"):
        read_reply(reply(**dict(zip(names, written, strict=True))), [f"t-{name}" for name in names])


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ((1, 1), [1.0, 1.0]),
        ((0, 1), [0.0, 1.0]),
        ((2, 3), [0.2, 0.3]),
        ((1, 3), [0.1, 0.3]),
        ((1.5, 2), [0.15, 0.2]),
        (("1/10", "2/10"), [0.1, 0.2]),
        (("1 %", "2 %"), [0.01, 0.02]),
        (("1/2", "2/2"), [0.5, 1.0]),
    ],
)
def test_scores_that_cannot_be_ranks_and_stated_scales_are_read(written: tuple[object, ...], read: list[float]) -> None:
    assert scores(reply(aa=written[0], bb=written[1])) == read


@pytest.mark.parametrize("entry", [{"rank": 1}, {"rank": 0.9}, {"rank": "1st", "explanation": "best"}])
def test_an_entry_with_a_rank_and_no_score_is_refused(entry: dict[str, object]) -> None:
    text = json.dumps([{"id": "t-aa", **entry}, {"id": "t-bb", "score": 0.4}])
    with pytest.raises(ReplyRefused, match="t-aa has a rank and no score"):
        read_reply(text, IDS)


def test_a_rank_beside_a_score_is_ignored() -> None:
    text = json.dumps([{"id": "t-aa", "rank": 1, "score": 0.9}, {"id": "t-bb", "rank": 2, "score": 0.4}])
    assert scores(text) == [0.9, 0.4]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "empty"),
        ("  \n", "empty"),
        ("I cannot judge this.", "no JSON object"),
        ("{" * 5000, "no JSON|not JSON"),
        ("[" * 100_000, "no JSON|not JSON"),
        (PLAIN[:-8], "no JSON object"),
        ("x" * 500_000, "characters long"),
        ('{"scores": [1, 2]}', "no JSON object"),
        (f"<think>maybe {PLAIN}, but then", "middle of its thinking"),
        (f"<think>done</think><think>or rather {PLAIN}", "middle of its thinking"),
        ('{"trajectories": {"t-aa": 1}}', "no JSON object"),
        (reply(aa=0.9), "no score for: t-bb"),
        (reply(aa=0.9, bb=0.2, cc=0.1), "unknown ids: 't-cc'"),
        (f"{PLAIN} or rather {reply(aa=0.1, bb=0.8)}", "2 different verdicts"),
        ('{"trajectories": [{"id": "t-aa", "score": 1}, {"id": "t-aa", "score": 0}]}', "t-aa is there twice"),
        ('{"trajectories": [{"id": "t-aa", "score": 1, "score": 0}, {"id": "t-bb", "score": 0}]}', "a key twice"),
        ('{"trajectories": [], "trajectories": []}', "a key twice"),
        ('{"trajectories": [{"id": 1, "score": 1}]}', "no id"),
        ('{"trajectories": [{"score": 1}]}', "no id"),
        ('{"trajectories": [0.9, 0.2]}', "not an object"),
        ('{"trajectories": [{"id": "t-aa"}, {"id": "t-bb", "score": 1}]}', "has no score"),
    ],
)
def test_what_is_no_verdict_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(ReplyRefused, match=why):
        read_reply(text, IDS)


@pytest.mark.parametrize(
    "rest",
    [
        '{"trajectories": [{"id": "t-aa", "score": 0.1},]}',
        '{"trajectories": [{"id": "t-aa", "explanation": "cut',
        "```json\n{",
        '{"final": {"trajectories": [{"id": "t-aa", "score": 0.1}]}}',
        '[{"id": "t-aa", "score": 0.1},]',
        '{"id": "t-aa", "score": 0.1}',
        "{'trajectories': [{'id': 't-aa', 'score': 0.1}]}",
        '{trajectories: [{id: "t-aa", score: 0.1}]}',
    ],
)
def test_a_complete_draft_beside_a_broken_or_cut_verdict_is_refused(rest: str) -> None:
    for text in (f"{PLAIN}\nWait. {rest}", f"{rest}\n{PLAIN}"):
        with pytest.raises(ReplyRefused, match=r"broken or cut|no JSON object"):
            read_reply(text, IDS)


@given(st.integers(1, len(PLAIN) - 1))
def test_a_draft_is_never_read_wherever_the_verdict_after_it_is_cut(at: int) -> None:
    with pytest.raises(ReplyRefused):
        read_reply(f"{PLAIN}\nOn reflection: {reply(aa=0.1, bb=0.8)[:at]}", IDS)


def test_what_is_thought_of_behind_the_verdict_makes_it_none() -> None:
    with pytest.raises(ReplyRefused, match="middle of its thinking"):
        read_reply(f"{PLAIN}<think>or rather", IDS)
    with pytest.raises(ReplyRefused, match="no JSON object"):
        read_reply(f"{PLAIN}</think>", IDS)


def test_an_explanation_may_quote_the_end_of_thoughts() -> None:
    text = json.dumps([{"id": "t-aa", "explanation": "wrote </think> {", "score": 1}, {"id": "t-bb", "score": 0}])
    assert scores(text) == [1.0, 0.0]


def test_what_is_nested_without_end_is_refused() -> None:
    deep = "[" * 900 + "]" * 900
    with pytest.raises(ReplyRefused):
        read_reply(f'{{"trajectories": [{{"id": "t-aa", "score": {deep}}}, {{"id": "t-bb", "score": 0}}]}}', IDS)


def test_an_explanation_is_not_required_and_is_bounded() -> None:
    text = json.dumps(
        {"trajectories": [{"id": "t-aa", "score": 1}, {"id": "t-bb", "score": 0, "explanation": "x" * 9999}]}
    )
    read = read_reply(text, IDS)
    assert read["t-aa"].explanation == ""
    assert len(read["t-bb"].explanation) == 4000


UNIT = st.floats(0, 1)
NAMES = st.lists(
    st.text("0123456789abcdef", min_size=4, max_size=8).map("t-{}".format), min_size=1, max_size=8, unique=True
)


@given(NAMES, st.data())
def test_any_reply_on_the_scale_asked_for_is_read_exactly(ids: list[str], data: st.DataObject) -> None:
    given_ = {name: data.draw(UNIT) for name in ids}
    order = data.draw(st.permutations(ids))
    text = json.dumps(
        {"trajectories": [{"id": n, "explanation": data.draw(st.text(max_size=20)), "score": given_[n]} for n in order]}
    )
    around = data.draw(st.sampled_from(["{}", "```json\n{}\n```", "Sure! {} Done."]))
    assert {n: v.score for n, v in read_reply(around.replace("{}", text), ids).items()} == given_


@given(st.text(max_size=200) | st.binary(max_size=100).map(lambda b: b.decode("latin-1")))
def test_noise_is_refused_or_read_but_never_breaks_the_reader(text: str) -> None:
    with pytest.raises(ReplyRefused):
        read_reply(text, IDS)


JSONISH = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.sampled_from(["t-aa", "t-bb", "8/10", "40 %"]),
    lambda x: (
        st.lists(x, max_size=4)
        | st.dictionaries(st.sampled_from(["trajectories", "id", "score", "explanation"]), x, max_size=4)
    ),
)


@given(JSONISH)
def test_any_json_gives_every_id_a_score_in_range_or_is_refused(value: object) -> None:
    try:
        read = read_reply(json.dumps(value), IDS)
    except ReplyRefused:
        return
    assert set(read) == set(IDS)
    assert all(math.isfinite(v.score) and 0 <= v.score <= 1 for v in read.values())


WRITERS: dict[str, tuple[st.SearchStrategy[int], Callable[[int], Any], int]] = {
    "0-10": (st.integers(0, 10), lambda n: n, 10),
    "of 10": (st.integers(0, 10), lambda n: f"{n}/10", 10),
    "percent": (st.integers(0, 100), lambda n: f"{n} %", 100),
}


@given(st.sampled_from(sorted(WRITERS)), st.data())
def test_a_scale_is_applied_to_all_or_none(scale: str, data: st.DataObject) -> None:
    numbers, write, top = WRITERS[scale]
    given_ = [data.draw(numbers) for _ in IDS]
    if scale == "0-10" and max(given_) < 2:
        top = 1  # 0 and 1 are scores on the scale that was asked for
    assume(scale != "0-10" or set(given_) != {1, 2})  # those are ranks
    text = json.dumps({"trajectories": [{"id": n, "score": write(v)} for n, v in zip(IDS, given_, strict=True)]})
    assert scores(text) == [round(v / top, 6) for v in given_]
