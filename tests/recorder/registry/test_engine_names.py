"""An alias's part of folders' and engines' names is one harmless path segment, and no trial has a version's name."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from recorder.registry.engine_names import alias_slug, trial_prefix
from recorder.registry.versions import parse_name


@given(st.text(max_size=30))
def test_a_slug_is_one_harmless_path_segment(name: str) -> None:
    made = alias_slug(name)
    assert made
    assert made not in {".", ".."}
    assert not made.startswith(".")
    assert set(made) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


@given(st.text(max_size=30), st.from_regex(r"[0-9a-z]{0,8}", fullmatch=True))
def test_a_trial_is_named_as_no_version(name: str, rest: str) -> None:
    assert parse_name(trial_prefix(name) + rest)[1] is None
