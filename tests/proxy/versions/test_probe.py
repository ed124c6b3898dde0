"""The probe accepts only an engine that answers as the new version, wherever the two can be told apart."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.errors import AdapterError
from proxy.versions.probe import Probe, ProbeContext, is_distinguishable, judge_probe, logprob_distance, read_probe
from tests.proxy import adapters


def one(new: list[float], parent: list[float]) -> Probe:
    ids = list(range(len(new)))
    return Probe(contexts=[ProbeContext(prompt_token_ids=[1], token_ids=ids, new=new, parent=parent)])


def test_the_new_versions_own_answer_is_accepted_and_the_parents_is_not() -> None:
    probe = one([-1.0, -2.0], [-1.5, -2.5])
    assert judge_probe(probe, [[-1.0, -2.0]]).accepted
    assert not judge_probe(probe, [[-1.5, -2.5]]).accepted


def test_an_answer_between_the_two_is_not_accepted() -> None:
    assert not judge_probe(one([0.0], [-1.0]), [[-0.5]]).accepted
    assert judge_probe(one([0.0], [-1.0]), [[-0.2]]).accepted


@pytest.mark.parametrize("missing", [float("-inf"), float("nan")])
def test_an_answer_that_is_not_finite_is_not_accepted(missing: float) -> None:
    assert not judge_probe(one([-1.0, -1.0], [-9.0, -9.0]), [[-1.0, missing]]).accepted


@given(st.lists(st.tuples(st.floats(-9, 0), st.floats(-2, 2)), min_size=1, max_size=8), st.floats(0, 1))
def test_an_answer_within_the_noise_is_accepted_wherever_versions_are_told_apart(
    rows: list[tuple[float, float]], share: float
) -> None:
    probe = one([new for new, _ in rows], [new + gap for new, gap in rows])
    if is_distinguishable(probe, "bfloat16"):
        answer = [new + share * 1.5e-3 for new, _ in rows]
        assert judge_probe(probe, [answer]).accepted


def test_whether_versions_are_told_apart_depends_on_the_precision() -> None:
    small_step = one([-1.0], [-1.0003])  # what one step at lr 1e-5 moves
    assert is_distinguishable(small_step, "float32")
    assert not is_distinguishable(small_step, "bfloat16")
    assert not is_distinguishable(small_step, "a precision of the future")
    assert not is_distinguishable(one([-1.0], [-1.0]), "float32")


def test_distance_is_the_mean_over_all_named_tokens() -> None:
    assert logprob_distance([[0.0, 1.0], [4.0]], [[0.0, 0.0], [2.0]]) == pytest.approx(1.0)


def test_a_folder_without_a_probe_has_none(tmp_path: Path) -> None:
    assert read_probe(tmp_path) is None
    (tmp_path / "probe.json").write_text('{"contexts": [], "separation": 0}')
    assert read_probe(tmp_path) is None


def test_a_probe_is_read(tmp_path: Path) -> None:
    (tmp_path / "probe.json").write_text(json.dumps(adapters.probe(0.25)))
    probe = read_probe(tmp_path)
    assert probe is not None
    assert probe.separation == pytest.approx(0.25)
    assert probe.contexts[0].token_ids == [7, 9]


@pytest.mark.parametrize(
    "text",
    [
        "no json",
        '{"contexts": 3}',
        '{"contexts": [{"prompt_token_ids": [1], "token_ids": [1, 2], "new": [0], "parent": [0]}]}',
        '{"contexts": [{"prompt_token_ids": [], "token_ids": [1], "new": [0], "parent": [0]}]}',
        '{"contexts": [{"prompt_token_ids": [1], "token_ids": [1], "new": [NaN], "parent": [0]}]}',
    ],
)
def test_a_probe_that_cannot_be_read_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "probe.json").write_text(text)
    with pytest.raises(AdapterError) as caught:
        read_probe(tmp_path)
    assert caught.value.code == "probe_unreadable"
