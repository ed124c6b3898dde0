"""Shares of what a judge may be shown, and what a document loses first."""

import json
import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from judge.llm.truncation import TOOL_FLOOR, FittedDocument, cut_middle, fit_documents
from recorder.llm.untrusted_text import fence_json

NONCE = "0123456789abcdef"
Json = dict[str, Any]


def document(*messages: tuple[str, str], **more: Any) -> Json:
    return {**more, "messages": [{"role": role, "content": content} for role, content in messages]}


def lengths(found: list[FittedDocument | None]) -> list[int]:
    return [len(fence_json(one.document)) + 1 if one else 0 for one in found]


def fitted(documents: list[Json], budget: int) -> list[Json]:
    found = fit_documents(documents, budget, NONCE)
    assert sum(lengths(found)) <= budget
    return [one.document for one in found if one is not None]


def test_what_fits_is_left_alone() -> None:
    documents = [document(("user", "x" * 500)), document(("assistant", "y"))]
    assert fit_documents(documents, 1000, NONCE) == [FittedDocument(one, shortened=False) for one in documents]


def test_what_one_leaves_goes_to_the_others() -> None:
    documents = [document(), document(("assistant", "short")), document(("assistant", "x" * 90_000))]
    _, short, long = fitted(documents, 20_000)
    assert short == documents[1]
    assert len(long["messages"][0]["content"]) > 19_000


def test_two_that_are_too_long_get_the_same() -> None:
    documents = [
        document(),
        *(document(("assistant", letter * size)) for letter, size in (("x", 50_000), ("y", 90_000))),
    ]
    _, one, other = fitted(documents, 20_000)
    assert abs(len(one["messages"][0]["content"]) - len(other["messages"][0]["content"])) < 100


def test_a_long_run_costs_a_short_one_nothing() -> None:
    short = document(("tool", "t" * 5000), ("assistant", "a" * 3000))
    long = document(*[("tool", "t" * 9000)] * 200)
    assert fitted([document(), short, long], 30_000)[1] == short


def test_tool_outputs_go_before_texts_and_texts_before_turns() -> None:
    both = document(("tool", "t" * 9000), ("assistant", "a" * 9000))
    tool, text = fitted([both], 12_000)[0]["messages"]
    assert text["content"] == "a" * 9000
    assert TOOL_FLOOR < len(tool["content"]) < 9000
    tool, text = fitted([both], 2000)[0]["messages"]
    assert len(tool["content"]) == TOOL_FLOOR
    assert len(text["content"]) > TOOL_FLOOR


def test_whole_turns_go_from_the_middle_of_the_story_with_a_mark() -> None:
    told = [{"turns": "cut", "messages": [{"role": "assistant", "content": f"old {n}"} for n in range(100)]}]
    run = document(*[("assistant", f"new {n}") for n in range(100)], histories=told)
    (short,) = fitted([run], 3000)
    kept = [m["content"] for m in [*short["histories"][0]["messages"], *short["messages"]]]
    (mark,) = (text for text in kept if "left out" in text)
    assert re.fullmatch(rf"\[… {200 - len(kept) + 1} messages left out, {NONCE} …\]", mark)
    assert (kept[0], kept[-1]) == ("old 0", "new 99")
    assert {"role": "left_out", "content": mark} in [*short["histories"][0]["messages"], *short["messages"]]


def test_a_history_of_which_nothing_is_kept_is_not_shown() -> None:
    told = [{"turns": "cut", "messages": [{"role": "user", "content": "x" * 50}] * 50} for _ in range(3)]
    (short,) = fitted([document(("assistant", "end"), histories=told)], 700)
    assert 1 <= len(short["histories"]) < 3
    assert all(history["messages"] for history in short["histories"])
    assert short["messages"] == [{"role": "assistant", "content": "end"}]


def test_those_that_need_most_go_first_where_there_is_no_room_and_the_first_never() -> None:
    documents = [document(("user", "u" * 300)), *(document(("assistant", "a" * n)) for n in (300, 10, 200, 20))]
    found = fit_documents(documents, 450, NONCE)
    assert [one is not None for one in found] == [True, False, True, False, True]


def test_nothing_fits_where_the_first_does_not() -> None:
    assert fit_documents([document(("user", "u" * 300)), document(("user", "x"))], 60, NONCE) == [None, None]


TEXTS = st.text(max_size=30) | st.integers(0, 9000).map("x".__mul__) | st.integers(0, 900).map("\u202e".__mul__)
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant", "tool"]), "content": TEXTS},
        optional={"tool_calls": st.lists(TEXTS), "name": TEXTS},
    ),
    min_size=1,
    max_size=6,
)
DOCUMENTS = st.fixed_dictionaries(
    {"messages": MESSAGES},
    optional={
        "histories": st.lists(st.fixed_dictionaries({"turns": st.just("cut"), "messages": MESSAGES}), max_size=3),
        "tools": st.lists(TEXTS, max_size=3),
    },
)


@given(st.lists(DOCUMENTS, min_size=1, max_size=5), st.integers(0, 20_000))
def test_no_budget_is_overrun_and_whoever_is_shown_ends_as_it_did(documents: list[Json], budget: int) -> None:
    found = fit_documents(documents, budget, NONCE)
    assert sum(lengths(found)) <= budget
    for one, shown in zip(documents, found, strict=True):
        if shown is not None:
            assert shown.shortened == (json.dumps(one) != json.dumps(shown.document))
            assert shown.document["messages"][-1]["role"] == one["messages"][-1]["role"]
            assert bool(shown.document["messages"][-1]["content"]) >= bool(one["messages"][-1]["content"])


def test_the_mark_says_how_much_was_left_out() -> None:
    cut = cut_middle("x" * 1000 + "z" * 1000, 200, "00ff")
    assert len(cut) <= 200
    (left_out,) = map(int, re.findall(r"(\d+) characters", cut))
    assert cut.count("x") + cut.count("z") + left_out == 2000


@given(st.text(), st.integers(0, 300))
def test_cutting_keeps_the_ends_and_the_bound(text: str, cap: int) -> None:
    cut = cut_middle(text, max(cap, 60), "00ff")
    assert len(cut) <= max(cap, 60)
    assert cut == text or (cut[:1] == text[:1] and cut[-1:] == text[-1:])
