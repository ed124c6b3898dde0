"""Sub-scores: all of them required, read from tolerable forms, on one scale, and the mean that they make."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judge.errors import ReplyRefused
from judge.llm.group_text import PromptTrajectory
from judge.llm.prompt import build_prompt
from judge.llm.reply_reader import read_reply
from judge.llm.subscores import mean_score, reply_form, reply_format
from judge.panel_settings import SubscoreSettings

RIGHT = SubscoreSettings(name="correctness", weight=3)
KIND = SubscoreSettings(name="Kind", weight=1, about="whether it is kind")
BOTH = [RIGHT, KIND]


def sub(score: Any, reason: Any = "because") -> dict[str, Any]:
    return {"reason": reason, "score": score}


def reply(*subscores: Any) -> str:
    return json.dumps({"trajectories": [{"id": f"t-{n}", "subscores": one} for n, one in enumerate(subscores)]})


def test_the_score_is_the_weighted_mean_and_each_reason_is_kept() -> None:
    said = reply(
        {"correctness": sub(1, "all right"), "Kind": sub(0.2, "curt")}, {"correctness": sub(0), "Kind": sub(1)}
    )
    found = read_reply(said, ["t-0", "t-1"], BOTH)
    assert [one.score for one in found.values()] == pytest.approx([0.8, 0.25])
    assert {name: (one.score, one.reason) for name, one in found["t-0"].subs.items()} == {
        "correctness": (1.0, "all right"),
        "Kind": (0.2, "curt"),
    }
    assert found["t-0"].explanation == "correctness: all right; Kind: curt"


@pytest.mark.parametrize(
    "written",
    [
        {"CORRECTNESS": sub(10), "kind": sub(2)},
        [{"name": "kind", **sub("2/10")}, {"name": "Correctness", **sub("10/10")}],
        {"correctness": sub("100 %"), "Kind": sub("20 %"), "overall": sub("3 %")},
        {"correctness": {"explanation": "so", "score": 1}, "Kind": sub(0.2)},
    ],
)
def test_other_spellings_and_scales_mean_the_same(written: Any) -> None:
    found = read_reply(reply(written), ["t-0"], BOTH)
    assert found["t-0"].score == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ({"correctness": sub(1)}, "t-0 has no sub-score Kind"),
        ({"correctness": sub(1), "Kind": sub(1), "kind": sub(0)}, "'kind' of t-0 is there twice"),
        ({"correctness": sub(1), "Kind": sub(1, "")}, "Kind of t-0 has no reason"),
        ({"correctness": sub(1), "Kind": {"reason": "x"}}, "the entry of Kind of t-0 has no score"),
        ({"correctness": sub(1), "Kind": 0.4}, "Kind of t-0 is not an object"),
        ({"correctness": sub(0.5), "Kind": sub(7)}, "different scales"),
        ({"correctness": sub(-1), "Kind": sub(1)}, "outside 0..1"),
        (0.7, 'the entry of t-0 has no "subscores"'),
    ],
)
def test_a_reply_without_all_of_them_is_refused_and_says_what_lacks(written: Any, why: str) -> None:
    with pytest.raises(ReplyRefused, match=why):
        read_reply(reply(written), ["t-0"], BOTH)


def test_the_schema_requires_every_one_with_its_reason() -> None:
    schema = reply_format(BOTH)["json_schema"]["schema"]
    each = schema["properties"]["trajectories"]["items"]["properties"]["subscores"]
    assert each["required"] == ["correctness", "Kind"]
    assert each["additionalProperties"] is False
    assert each["properties"]["Kind"]["required"] == ["reason", "score"]


def test_the_prompt_says_what_each_is_and_its_hash_follows() -> None:
    runs = [
        PromptTrajectory(id_, [{"role": "user", "content": "hi"}, {"role": "assistant", "content": id_}], [])
        for id_ in "ab"
    ]
    asked = {"rubric": "Be right.", "seed": 1, "max_chars": 50_000}
    plain, told = build_prompt(runs, **asked), build_prompt(runs, **asked, subscores=BOTH)  # type: ignore[arg-type]
    system = told.messages[0]["content"]
    assert '- "Kind": whether it is kind' in system
    assert reply_form(BOTH) in system
    assert plain.hash != told.hash
    assert reply_form([]) in plain.messages[0]["content"]


@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1)), min_size=1, max_size=8))
def test_the_mean_lies_among_those_that_count(given_: list[tuple[float, float]]) -> None:
    subs = [SubscoreSettings(name=f"s{n}", weight=weight, about="x") for n, (weight, _) in enumerate(given_)]
    if not any(weight > 0 for weight, _ in given_):
        return
    found = mean_score(subs, {f"s{n}": value for n, (_, value) in enumerate(given_)})
    assert 0 <= found <= 1
    counted = [value for weight, value in given_ if weight > 0]
    assert min(counted) <= found <= max(counted) or found in counted
