"""When two tables hold the same: whatever their order, spelling of JSON and database; and when they do not."""

from __future__ import annotations

import json
import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from recorder.maintenance.transfer.tables import Digest, digest_of, storable_row
from recorder.store.schema import aliases

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def row(name: str = "a", recipe: str = "{}", share: float = 0.5, live: str | None = None) -> tuple[Any, ...]:
    values = {"name": name, "recipe": recipe, "canary_share": share, "live_version_id": live}
    return tuple(values.get(column.name) for column in aliases.c)


def digest(*rows: tuple[Any, ...]) -> Digest:
    return digest_of(aliases, list(rows))


@given(st.lists(st.text(max_size=5), unique=True, max_size=12), st.randoms(use_true_random=False))
def test_order_does_not_count_and_pages_add_up(names: list[str], draw: random.Random) -> None:
    rows = [row(name) for name in names]
    shuffled = draw.sample(rows, len(rows))
    at = draw.randint(0, len(rows))
    assert digest(*shuffled) == digest(*rows)
    assert digest_of(aliases, rows[at:], digest(*rows[:at])) == digest(*rows)


@given(VALUES)
def test_json_counts_by_its_value(value: Any) -> None:
    spaced = json.dumps(value, indent=1, ensure_ascii=False).encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    sorted_text = json.dumps(json.loads(spaced), sort_keys=True)
    assert digest(row(recipe=spaced)) == digest(row(recipe=sorted_text))


@given(VALUES, VALUES)
def test_other_json_is_another_row(one: Any, other: Any) -> None:
    texts = [json.dumps(value, sort_keys=True) for value in (one, other)]
    assert (digest(row(recipe=texts[0])) == digest(row(recipe=texts[1]))) == (_typed(one) == _typed(other))


def _typed(value: Any) -> Any:
    """A value that is equal only where JSON's is: Python has True == 1."""
    if isinstance(value, dict):
        return {key: _typed(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_typed(inner) for inner in value]
    return (isinstance(value, bool), value)


def test_a_value_a_column_or_a_row_that_differs_is_seen() -> None:
    assert len({digest(row()), digest(row("b")), digest(row(share=0.25)), digest(row(live="a")), digest(),
                digest(row(), row())}) == 6  # fmt: skip
    assert digest(row(recipe='{"a":1}')) != digest(row(recipe='{"a":true}'))
    assert digest(row(recipe='{"a":1}')) != digest(row(recipe='{"a":"1"}'))
    assert digest(row(recipe='{"a":1}')) == digest(row(recipe='{"a": 1.0}'))


def test_text_counts_as_both_databases_can_keep_it() -> None:
    kept = storable_row(row("a\x00b"))
    assert "a\\u0000b" in kept
    assert digest(kept) == digest(row("a\x00b"))
    assert storable_row(row("a\\b")) == row("a\\b")
