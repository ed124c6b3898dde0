"""Which turns a step leaves out because the engine's logprobs of them are not the trainer's."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.batch.row_builder import Row, RowBuilder, TrainedTurn
from trainer.batch.turn_mask import TurnMask, fresh_ratios, mask_turns, row_without, weighted_without
from trainer.batch.weights import WeightedRow

LIMIT = 1.2


def made_row(gaps: list[list[float]], ages: list[int] | None = None, name: str = "t") -> WeightedRow:
    """A row with a turn for each list of parent − engine (nats), and weights that tell its tokens apart."""
    builder, context = RowBuilder(), np.arange(3, dtype=np.int32)
    for number, gap in enumerate(gaps):
        prompt = np.concatenate([builder.ids, context])
        answer = np.arange(len(gap), dtype=np.int32) + 10
        behaviour = np.full(len(gap), -2.0, np.float32)
        age = ages[number] if ages else 0
        builder.add(TrainedTurn((f"call_{number}", 0), prompt, answer, behaviour, 1.0, age))
    row = builder.finish(name)
    size = row.trained_tokens
    parent = (np.concatenate([np.array(gap) for gap in gaps]) - 2.0).astype(np.float32)
    return WeightedRow(row, 0.5, np.arange(size) + 1.0, ce_weight=np.arange(size) * 2.0, parent=parent)


GAPS = st.lists(st.lists(st.floats(-1, 1, width=32), min_size=1, max_size=5), min_size=1, max_size=4)


@given(GAPS)
def test_a_turn_is_masked_by_the_geometric_mean_of_its_own_tokens(gaps: list[list[float]]) -> None:
    one = made_row(gaps)
    means = [math.exp(math.fsum(gap) / len(gap)) for gap in gaps]
    assert [math.exp(ratio) for ratio in fresh_ratios(one).values()] == pytest.approx(means, rel=1e-5)
    kept, mask = mask_turns([one], LIMIT)
    sure = [not (abs(abs(math.log(mean)) - math.log(LIMIT)) < 1e-5) for mean in means]
    masked = {turn.call[0] for turn in mask.masked}
    for number, mean in enumerate(means):
        if sure[number]:
            assert (f"call_{number}" in masked) == (not 1 / LIMIT <= mean <= LIMIT)
    assert (mask.compared, len(kept)) == (len(gaps), int(len(masked) < len(gaps)))
    assert mask.share == len(masked) / len(gaps)


@given(GAPS, st.data())
def test_what_is_left_keeps_its_tokens_its_weights_and_its_calls(gaps: list[list[float]], data: st.DataObject) -> None:
    one = made_row(gaps)
    dropped = {(f"call_{n}", 0) for n in data.draw(st.sets(st.integers(0, len(gaps) - 1)))}
    left = weighted_without(one, dropped)
    of = np.concatenate([np.full(len(gap), (f"call_{n}", 0) not in dropped) for n, gap in enumerate(gaps)])
    if left is None:
        assert not of.any()
        return
    at = np.flatnonzero(one.row.trained)[of]
    assert np.flatnonzero(left.row.trained).tolist() == at.tolist()
    assert np.array_equal(left.row.token_ids, one.row.token_ids)
    for name in ("behaviour", "temperature", "age"):
        before, after = getattr(one.row, name), getattr(left.row, name)
        assert np.array_equal(after[left.row.trained], before[left.row.trained])
        none = np.isnan(after) if name != "age" else after == -1
        assert none[~left.row.trained].all()
    for name in ("rl_weight", "ce_weight", "parent"):
        assert np.array_equal(getattr(left, name), getattr(one, name)[of])
    assert (left.advantage, left.kl_weight, left.teacher) == (0.5, 0.0, None)
    assert left.row.calls == tuple(call for call in one.row.calls if call not in dropped)
    assert sum(left.row.turn_sizes) == left.row.trained_tokens
    assert fresh_ratios(left) == {call: ratio for call, ratio in fresh_ratios(one).items() if call not in dropped}


def test_only_turns_of_the_parent_are_compared() -> None:
    far = [[0.5, 0.5], [0.5, 0.5]]
    kept, mask = mask_turns([made_row(far, [0, 2])], LIMIT)
    assert [turn.call for turn in mask.masked] == [("call_0", 0)]
    assert (mask.compared, kept[0].row.calls) == (1, (("call_1", 0),))
    imitated = replace(made_row(far), objective="imitate")
    unknown = replace(made_row(far), parent=None)
    assert mask_turns([imitated, unknown], LIMIT) == ([imitated, unknown], TurnMask())


def test_the_ratio_of_a_masked_turn_is_told() -> None:
    _, mask = mask_turns([made_row([[0.0, 0.0], [-0.4, -0.6]])], LIMIT)
    (turn,) = mask.masked
    assert (turn.trajectory_id, turn.call) == ("t", ("call_1", 0))
    assert turn.ratio == pytest.approx(math.exp(-0.5))
    assert TurnMask().share == 0


def test_two_answers_with_nothing_between_them_are_two_turns() -> None:
    builder = RowBuilder()
    for number, start in enumerate((3, 5)):
        answer, prompt = np.array([start, start], np.int32), builder.ids if number else np.zeros(2, np.int32)
        builder.add(TrainedTurn((f"call_{number}", 0), prompt, answer, np.zeros(2, np.float32)))
    row = builder.finish("t")
    left = row_without(row, {("call_0", 0)})
    assert isinstance(left, Row)
    assert np.flatnonzero(left.trained).tolist() == [4, 5]
