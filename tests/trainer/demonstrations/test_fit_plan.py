"""Tasks are held out together, and batches take every demonstration once an epoch."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.trainer.building import trained_row
from trainer.demonstrations.fit_plan import FEWEST_TASKS, make_batches, plan_fit
from trainer.objectives.imitate_rows import Demonstration


def demonstration(number: int, task: str, tokens: int = 10) -> Demonstration:
    row = trained_row(list(range(tokens)), [tokens - 1], name=f"d{number}")
    return Demonstration(f"d{number}", "file", f"file:{number}", task, [row])


tasks_of = st.lists(st.integers(0, 40), min_size=1, max_size=80)


@given(tasks_of, st.sampled_from([0.0, 0.05, 0.3]), st.integers(0, 3))
def test_no_task_is_trained_on_and_held_out(tasks: list[int], share: float, seed: int) -> None:
    given_ones = [demonstration(number, f"task {task}") for number, task in enumerate(tasks)]
    plan = plan_fit(given_ones, share, seed)
    trained, out = {one.task for one in plan.trained}, {one.task for one in plan.held_out}
    assert not trained & out
    assert len(plan.trained) + len(plan.held_out) == len(tasks)
    assert plan.trained
    number = len(set(tasks))
    expected = max(1, round(share * number)) if share and number >= FEWEST_TASKS else 0
    assert len(out) == expected
    assert plan_fit(list(reversed(given_ones)), share, seed).held_out == list(reversed(plan.held_out))


@given(st.lists(st.integers(1, 30), min_size=1, max_size=40), st.integers(1, 60))
def test_every_demonstration_is_in_one_batch_of_an_epoch_and_no_batch_has_too_many_tokens(
    sizes: list[int], most: int
) -> None:
    given_ones = [demonstration(number, "t", size) for number, size in enumerate(sizes)]
    batches = make_batches(given_ones, most, 1, 7)
    assert sorted(one.source_id for batch in batches for one in batch) == sorted(one.source_id for one in given_ones)
    assert all(len(batch) == 1 or sum(one.tokens for one in batch) <= most for batch in batches)
    assert make_batches(list(reversed(given_ones)), most, 1, 7) == batches


def test_each_epoch_has_an_order_of_its_own() -> None:
    given_ones = [demonstration(number, "t") for number in range(30)]
    orders = [
        [one.source_id for batch in make_batches(given_ones, 20, epoch, 7) for one in batch] for epoch in (1, 2, 3)
    ]
    assert len({tuple(order) for order in orders}) == 3
