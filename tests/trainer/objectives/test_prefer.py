"""The gradient of a preferred pair is DPO's, as TRL computes it."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trainer.building import random_ids, trained_row
from tests.trainer.objectives import toy_batch
from tests.trainer.objectives.trl_reference import DPO_BETA, FILE
from trainer.objectives.imitate_rows import Demonstration
from trainer.objectives.prefer import (
    PairLogprobs,
    PreferencePair,
    preference_figures,
    preference_weights,
    weigh_by_margins,
    weigh_joined_pairs,
    weigh_pairs,
)
from trainer.settings import ObjectiveSettings, TrainerSettings

DPO = json.loads(FILE.read_text("utf-8"))["dpo"]


def pairs() -> list[PairLogprobs]:
    """The first half of the toy trajectories is chosen over the second; the engine's logprobs are the reference."""
    sums, reference = (
        [float(np.sum(values)) for values in each] for each in (toy_batch.policy_logprobs(), toy_batch.behaviour())
    )
    return [PairLogprobs(sums[at], sums[at + 2], reference[at], reference[at + 2]) for at in range(2)]


def test_the_gradient_of_every_token_is_what_trl_computes_away_from_a_margin_of_0() -> None:
    assert min(abs(one.margin(DPO_BETA)) for one in pairs()) > 0.05
    weights = preference_weights(pairs(), DPO_BETA)
    ours = [weights[0].chosen, weights[1].chosen, weights[0].rejected, weights[1].rejected]
    for weight, gradient in zip(ours, DPO["gradient"], strict=True):
        np.testing.assert_allclose([-weight] * len(gradient), gradient, atol=1e-6)
    loss = sum(math.log1p(math.exp(-one.margin(DPO_BETA))) for one in pairs()) / 2
    assert loss == pytest.approx(DPO["loss"], abs=1e-6)


margins = st.floats(-2000, 2000)


@given(st.lists(st.tuples(margins, margins), min_size=1, max_size=9), st.floats(0.01, 2))
def test_a_pair_weighs_less_the_clearer_it_is_preferred_and_both_sides_the_same(
    sums: list[tuple[float, float]], beta: float
) -> None:
    given_pairs = [PairLogprobs(chosen, rejected, 0.0, 0.0) for chosen, rejected in sums]
    weights = preference_weights(given_pairs, beta)
    for pair, weight in zip(given_pairs, weights, strict=True):
        assert weight.chosen == -weight.rejected
        assert 0 <= weight.chosen <= beta / len(sums)
        if abs(pair.margin(beta)) > 1e-9:
            assert (weight.chosen < beta / 2 / len(sums)) == (pair.margin(beta) > 0)


def side(name: str, rows: int, seed: int) -> Demonstration:
    made = [trained_row(random_ids(8, seed + number), [5, 6, 7], name=name) for number in range(rows)]
    return Demonstration(name, "trajectory", name, "t", made)


def test_each_row_of_a_side_has_its_weight_and_the_sums_of_a_side_are_over_its_rows() -> None:
    pair = PreferencePair("p", "ranking", "c over r", side("c", 2, 1), side("r", 1, 5))
    logprobs = PairLogprobs.of(pair, [-1.0, -2.0, -4.0], [-3.0, -3.0, -3.0])
    assert logprobs == PairLogprobs(-3.0, -4.0, -6.0, -3.0)
    rows = weigh_pairs([pair], [logprobs], 0.5)
    assert [one.row.trajectory_id for one in rows] == ["c", "c", "r"]
    weight = 0.5 / (1 + math.exp(0.5 * (1.0 + 3.0)))
    assert [one.ce_weight for one in rows] == pytest.approx([weight, weight, -weight])
    assert {(one.rl_weight, one.kl_weight, one.objective) for one in rows} == {(0.0, 0.0, "prefer")}


@given(st.lists(margins, min_size=1, max_size=9), st.floats(0.01, 2))
def test_the_figures_are_those_of_the_margins(sums: list[float], beta: float) -> None:
    figures = preference_figures([PairLogprobs(one, 0.0, 0.0, 0.0) for one in sums], beta)
    assert figures["accuracy"] == sum(one > 0 for one in sums) / len(sums)
    assert figures["margin"] == pytest.approx(beta * sum(sums) / len(sums), abs=1e-6)
    assert figures["loss"] == pytest.approx(sum(np.logaddexp(0, -beta * one) for one in sums) / len(sums), abs=1e-6)


PREFER = ObjectiveSettings(name="prefer", weight=0.25)


def joined(count: int) -> list[PreferencePair]:
    """Pairs whose sides have one or two rows."""
    return [
        PreferencePair(f"p{n}", "ranking", "x", side(f"c{n}", 1 + n % 2, 10 * n), side(f"r{n}", 1, 10 * n + 5))
        for n in range(count)
    ]


@given(st.integers(1, 9), st.integers(1, 4), st.data())
def test_pairs_in_a_step_on_groups_weigh_as_in_a_fit_times_the_weight_of_the_objective(
    count: int, substeps: int, data: st.DataObject
) -> None:
    settings = TrainerSettings(substeps=substeps, dpo={"beta": 0.3})
    given_pairs = {one.source_id: one for one in joined(count)}
    rows = weigh_joined_pairs(list(given_pairs.values()), PREFER, settings)
    assert len(rows) == sum(len(one.rows) for one in given_pairs.values())
    of_substep: dict[int, set[str]] = {}
    for one in rows:
        assert one.pair is not None
        of_substep.setdefault(one.substep, set()).add(one.pair)
    assert sum(map(len, of_substep.values())) == count  # both sides of a pair are in one optimizer step
    assert len(of_substep) == min(count, substeps)
    sums, reference = (
        {id_: [data.draw(st.floats(-40, 0)) for _ in one.rows] for id_, one in given_pairs.items()} for _ in range(2)
    )
    for substep, ids in of_substep.items():
        own = [one for one in rows if one.substep == substep]
        found, figures = weigh_by_margins(own, sums, reference, 0.3)
        together = [given_pairs[id_] for id_ in sorted(ids)]
        logprobs = [PairLogprobs.of(one, sums[one.source_id], reference[one.source_id]) for one in together]
        wanted = weigh_pairs(together, logprobs, 0.3)
        assert [one.row.trajectory_id for one in found] == [one.row.trajectory_id for one in wanted]
        expected = [0.25 * float(one.ce_weight) for one in wanted]
        assert [float(one.ce_weight) for one in found] == pytest.approx(expected, rel=1e-9, abs=1e-12)
        of_fit = preference_figures(logprobs, 0.3)
        assert figures == pytest.approx({**of_fit, "loss": 0.25 * of_fit["loss"]}, rel=1e-9, abs=1e-12)


def test_rows_without_a_pair_stay_as_they_are() -> None:
    rows = weigh_pairs(joined(2), [PairLogprobs(0.0, 0.0, 0.0, 0.0)] * 2, 0.3)
    assert weigh_by_margins(rows, {}, {}, 0.3) == (rows, {})
