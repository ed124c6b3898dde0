"""The demo's orders, their splits, and the scenarios made of them."""

from __future__ import annotations

import json
import random
from itertools import islice
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.helpdesk.checks import is_right, solved
from examples.helpdesk.making.conversations import conversations
from examples.helpdesk.orders import DAYS, demo_orders, is_demo_number, read_database
from examples.helpdesk.scenarios import DemoFiles, write_demo
from examples.helpdesk.wording import answer


def test_orders_are_the_same_for_the_same_seed() -> None:
    assert demo_orders(3) == demo_orders(3)
    assert demo_orders(3) != demo_orders(4)


def test_held_out_orders_are_200_and_never_learned_from() -> None:
    orders = demo_orders()
    assert len(orders.heldout) == 200
    assert len(orders.train) >= 1_000
    assert not {order.order_id for order in orders.heldout} & {order.order_id for order in orders.train}
    assert not {order.tracking for order in orders.heldout} & {order.tracking for order in orders.train}


def test_the_model_is_made_with_no_order_of_the_demo() -> None:
    demo = demo_orders()
    ids = {order.order_id for order in (*demo.train, *demo.heldout)}
    parcels = {order.tracking for order in (*demo.train, *demo.heldout)}
    for messages in islice(conversations(seed=5), 500):
        text = json.dumps(messages[1:])
        asked = messages[1]["content"].rstrip("?.")
        numbers = [word for word in asked.split() if word.isdigit()]
        assert numbers
        assert not ids & set(numbers)
        assert not any(parcel in text for parcel in parcels)


def test_order_ids_have_four_digits_and_tracking_numbers_five() -> None:
    for order in demo_orders().train:
        assert len(order.order_id) == 4
        assert order.tracking[0] == "P"
        assert len(order.tracking) == 6
        assert is_demo_number(int(order.order_id))
        assert is_demo_number(int(order.tracking[1:]))


def test_the_database_holds_what_was_generated(files: DemoFiles) -> None:
    written, made = read_database(files.database), demo_orders()
    assert set(written.train) == set(made.train)
    assert set(written.heldout) == set(made.heldout)


def test_scenarios_carry_the_database_s_truth(files: DemoFiles) -> None:
    orders = read_database(files.database)
    for path, side in ((files.scenarios, orders.train), (files.heldout, orders.heldout)):
        days = {order.order_id: order.day for order in side}
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        assert len({line["id"] for line in lines}) == len(lines) == len(side)
        for line in lines:
            reference = line["reference"]
            assert reference["order_id"] in line["input"]["question"]
            assert reference["day"] == days[reference["order_id"]]


def test_writing_twice_gives_the_same_scenarios(files: DemoFiles) -> None:
    before = files.scenarios.read_bytes(), files.heldout.read_bytes()
    write_demo(files.database.parent)
    assert (files.scenarios.read_bytes(), files.heldout.read_bytes()) == before


@given(st.sampled_from(demo_orders().train), st.sampled_from(DAYS))
def test_an_answer_is_right_exactly_when_it_names_the_day(order: object, day: str) -> None:
    order_id, right = order.order_id, order.day  # type: ignore[attr-defined]  # hypothesis loses the type
    assert is_right(answer(order_id, day), order_id, right) == (day == right)


@pytest.mark.parametrize(
    ("said", "worth"),
    [
        ("Your order 4821 arrives on Friday.", 1.0),
        ("It arrives on Friday.", 1.0),
        ("Your order 4821 arrives on Monday.", 0.0),
        ("Your order 4821 arrives on Friday or Monday.", 0.0),
        ("Your order 4281 arrives on Friday.", 0.0),
        ("Your order 4821 is on its way.", 0.0),
        ("", 0.0),
        (None, 0.0),
    ],
)
def test_solved_reads_the_last_message(said: str | None, worth: float) -> None:
    attempt = SimpleNamespace(
        messages=[{"role": "user", "content": "Friday?"}, {"role": "assistant", "content": said}],
        scenario={"reference": {"order_id": "4821", "day": "Friday"}},
    )
    assert solved(attempt) == worth


def test_an_attempt_that_ends_in_a_tool_result_is_not_solved() -> None:
    attempt = SimpleNamespace(
        messages=[{"role": "tool", "content": '{"arrives": "Friday"}'}],
        scenario={"reference": {"order_id": "4821", "day": "Friday"}},
    )
    assert solved(attempt) == 0.0


def test_solved_refuses_an_attempt_without_a_scenario() -> None:
    with pytest.raises(ValueError, match="no scenario"):
        solved(SimpleNamespace(messages=[], scenario=None))


def test_the_mixture_is_mixed() -> None:
    lengths = [len(messages) for messages in islice(conversations(seed=random.Random(0).randrange(9)), 300)]
    assert {3, 5, 7} <= set(lengths)
    assert 0.2 < lengths.count(7) / 300 < 0.5
