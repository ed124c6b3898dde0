"""What prompts ask for: they can be read back, their criteria are sentences that code knows, and flaws are seen."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.rlvr.checks import share_met
from examples.rlvr.forms import FORMS, Form, Note, Record, Things, draw, read
from examples.rlvr.kinds import read as criterion
from examples.rlvr.making.answers import FLAWS, answer

SEEDS = st.integers(0, 2**32)
# By chance these leave an answer as it was asked for: random amounts may rise, a field may not be there to be wrong.
MAY_DO_NOTHING = {(Things, "trend"), (Record, "text"), (Record, "number"), (Record, "truth"), (Record, "list")}
SURE = [(form, flaw) for form in FORMS for flaw in FLAWS[form] if (form, flaw) not in MAY_DO_NOTHING]


@given(seed=SEEDS)
def test_a_prompt_can_be_read_back(seed: int) -> None:
    form = draw(random.Random(seed))
    assert read(form.prompt()) == form


@given(seed=SEEDS)
def test_a_prompt_has_10_to_30_criteria_all_different_and_all_known_to_code(seed: int) -> None:
    criteria = draw(random.Random(seed)).criteria()
    assert 10 <= len(criteria) <= 30
    assert len(set(criteria)) == len(criteria)
    assert all(criterion(sentence) for sentence in criteria)


@given(seed=SEEDS)
def test_a_right_answer_is_what_was_asked_and_meets_every_criterion(seed: int) -> None:
    rng = random.Random(seed)
    form = draw(rng)
    written = answer(form, frozenset(), rng)
    assert form.fulfilled_by(written)
    assert share_met(form.criteria(), written) == 1


@pytest.mark.parametrize(("form", "flaw"), SURE)
@given(seed=SEEDS)
def test_a_flaw_leaves_an_answer_that_is_not_what_was_asked_and_lacks_a_criterion(
    form: type[Form], flaw: str, seed: int
) -> None:
    rng = random.Random(seed)
    asked = form.draw(rng)
    written = answer(asked, frozenset({flaw}), rng)
    assert not asked.fulfilled_by(written)
    assert share_met(asked.criteria(), written) < 1


@given(seed=SEEDS)
def test_a_refusal_meets_little(seed: int) -> None:
    rng = random.Random(seed)
    form = draw(rng)
    written = answer(form, frozenset({"refusal"}), rng)
    assert not form.fulfilled_by(written)
    assert share_met(form.criteria(), written) < 0.6


@given(
    seed=SEEDS,
    number=st.sampled_from(["9" * 5_000, "1e999", "NaN", "-3", "٣", "3.0", "[" * 2_000, '"\\ud800"', "null"]),
)
def test_whatever_stands_where_a_number_is_asked_for_an_answer_is_right_or_not(seed: int, number: str) -> None:
    rng = random.Random(seed)
    form = draw(rng)
    right = answer(form, frozenset(), rng)
    written = re.sub(r"(?<= )\d+", lambda _: number, right)
    assert form.fulfilled_by(written) == (written == right)
    assert 0 <= share_met(form.criteria(), written) <= 1


@given(seed=SEEDS, written=st.text(max_size=80))
def test_of_any_text_there_is_an_answer(seed: int, written: str) -> None:
    form = draw(random.Random(seed))
    assert not form.fulfilled_by(written) or share_met(form.criteria(), written) == 1


NOTE = Note(2, 3, "lamp", "tea", ("moon", "milk"), ("salt", "road"), "!")
THINGS = Things(("lamp", "tea", "moon"), rising=False)
RECORD = read('Write JSON, keys in this order. size: number from 2 to 4. tags: list of 2 with "tea".')


@pytest.mark.parametrize(
    ("form", "written", "right"),
    [
        (NOTE, "lamp moon milk!\nbird fish tea!", True),
        (NOTE, "\nlamp moon milk!\nbird fish tea!\n", True),
        (NOTE, "lamp moon milk!\n\nbird fish tea!", False),
        (NOTE, "lamp moon  milk!\nbird fish tea!", False),
        (NOTE, "lamp moon milk!\nbird road tea!", False),
        (NOTE, "lamp moon bird!\nbird fish tea!", False),
        (THINGS, "1. lamp 9\n2. tea 4\n3. moon 1", True),
        (THINGS, "1. lamp 9\n2. tea 9\n3. moon 1", False),
        (THINGS, "1. lamp 9\n3. tea 4\n2. moon 1", False),
        (RECORD, '{"size": 3, "tags": ["tea", "salt"]}', True),
        (RECORD, '{"size":3,"tags":["tea","salt"]}', True),
        (RECORD, '{"tags": ["tea", "salt"], "size": 3}', False),
        (RECORD, '{"size": 3, "tags": ["tea", "salt"], "size": 3}', False),
        (RECORD, '{"size": true, "tags": ["tea", "salt"]}', False),
        (RECORD, '[["size", 3], ["tags", ["tea", "salt"]]]', False),
        (RECORD, "", False),
    ],
)
def test_an_answer_is_checked_as_a_whole(form: Form, written: str, right: bool) -> None:
    assert form.fulfilled_by(written) is right


@pytest.mark.parametrize(
    "prompt",
    [
        "Write a poem.",
        "Write JSON, keys in this order. size: number from 2 to 4. mood: happy.",
        "Write JSON, keys in this order. ",
    ],
)
def test_a_prompt_of_others_is_refused_also_where_a_part_is_like_ours(prompt: str) -> None:
    with pytest.raises(ValueError, match="no prompt of examples/rlvr"):
        read(prompt)
