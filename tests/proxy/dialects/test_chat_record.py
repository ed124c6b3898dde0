"""What an engine says it counted: what is no count is left out, and nothing else is touched."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.dialects.chat_record import clean_usage
from proxy.dialects.messages.blocks import render_usage
from proxy.dialects.responses.fields import response_usage

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
DETAILS = VALUES | st.fixed_dictionaries({}, optional={"cached_tokens": VALUES, "reasoning_tokens": VALUES})
USAGES = VALUES | st.fixed_dictionaries(
    {},
    optional={
        "prompt_tokens": VALUES,
        "completion_tokens": VALUES,
        "total_tokens": VALUES,
        "prompt_tokens_details": DETAILS,
        "completion_tokens_details": DETAILS,
        "cost": VALUES,
    },
)


@given(USAGES)
def test_whatever_an_engine_counted_can_be_told(usage: Any) -> None:
    kept = clean_usage(usage)
    assert (kept is None) == (not isinstance(usage, dict))
    if kept is not None:
        assert all(type(kept.get(name, 0)) is int for name in ("prompt_tokens", "completion_tokens", "total_tokens"))
        assert min(render_usage(kept).values()) >= 0
        assert response_usage(kept)["output_tokens"] >= 0
        assert clean_usage(kept) == kept


@pytest.mark.parametrize(
    "usage",
    [
        {"prompt_tokens": 7, "completion_tokens": 0, "total_tokens": 7, "prompt_tokens_details": None},
        {"prompt_tokens": 7, "prompt_tokens_details": {"cached_tokens": 3, "audio_tokens": None}, "cost": 0.5},
        {"prompt_tokens": 7, "prompt_tokens_details": {"cached_tokens": None, "created_cache_tokens": None}},
        {"completion_tokens_details": {"reasoning_tokens": 2}, "of_others": [1, "x", None]},
        {},
    ],
)
def test_a_sound_usage_stays_as_it_is(usage: dict[str, Any]) -> None:
    assert clean_usage(usage) == usage
