"""Changes laid over settings: what was changed holds, the rest stays, a bad value says what it says in hone.toml."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.errors import ConfigError
from proxy.settings.hone import HoneSettings
from proxy.settings.loader import load_settings
from proxy.settings.toml_writer import toml_lines
from recorder.errors import NotFound, SettingInvalid
from recorder.setting_changes.changeable_settings import allowed_values, list_changeable, setting_path
from recorder.setting_changes.overlay import change_value, lay_over, value_at

ALIASES = ("helpdesk", "org/coder.v2")
STARTED = HoneSettings.model_validate(
    {
        "learn": {"steps_per_hour": 3, "hours": "22:00-06:00"},
        "aliases": {ALIASES[0]: {"promote": "manual", "notes": {"a": [1]}}, ALIASES[1]: {"base_model": "base"}},
    }
)
_SHARES = st.floats(0.01, 0.99)
_COUNTS = st.none() | st.integers(1, 10**6)
_LEARN: dict[str, st.SearchStrategy[Any]] = {
    "learn.paused": st.booleans(),
    "learn.steps_per_hour": _COUNTS,
    "learn.judge_tokens_per_day": _COUNTS,
    "learn.judge_usd_per_day": st.none() | st.floats(0.01, 1e6),
    "learn.hours": st.sampled_from([None, "08:00-20:00", "23:30-01:00"]),
    "learn.max_age_s": st.none() | st.floats(1, 1e7),
}
_ALIAS: dict[str, st.SearchStrategy[Any]] = {
    "promote": st.sampled_from(["auto", "gate", "canary", "manual"]),
    "canary_share": _SHARES,
    "holdback_share": st.just(0.0) | _SHARES,
    "sampling.override.temperature": st.none() | st.floats(0.1, 2),
    **{
        f"sampling.override.{name}": st.sampled_from([None, neutral])
        for name, neutral in {
            "top_p": 1.0, "top_k": 0, "min_p": 0.0, "presence_penalty": 0.0, "frequency_penalty": 0.0,
            "repetition_penalty": 1.0,
        }.items()
    },
}  # fmt: skip
VALUES = _LEARN | {f"aliases.{name}.{leaf}": values for name in ALIASES for leaf, values in _ALIAS.items()}
changes = st.fixed_dictionaries({}, optional=VALUES)


def test_the_settings_that_change_are_these() -> None:
    assert set(list_changeable(STARTED)) == VALUES.keys()


@given(changes)
def test_what_was_changed_holds_and_everything_else_stays(values: dict[str, Any]) -> None:
    before = STARTED.model_dump()
    laid = lay_over(STARTED, values)
    assert laid.refused == {}
    assert {key: value_at(laid.settings, key) for key in VALUES} == {
        key: values.get(key, value_at(STARTED, key)) for key in VALUES
    }
    assert STARTED.model_dump() == before
    other = laid.settings.model_dump()
    for key in values:
        *parents, leaf = setting_path(key)
        for at in (before, other):
            for name in parents:
                at = at[name]
            at.pop(leaf, None)
    assert other == before


@given(changes)
def test_settings_under_changes_are_what_hone_toml_with_those_values_is(values: dict[str, Any]) -> None:
    raw = STARTED.model_dump(include={"learn", "aliases"})
    for key, value in values.items():
        *parents, leaf = setting_path(key)
        at = raw
        for name in parents:
            at = at[name]
        at[leaf] = value
    assert lay_over(STARTED, values).settings.model_dump() == HoneSettings.model_validate(raw).model_dump()


@given(changes, changes)
def test_a_change_after_a_change_is_the_last_one(first: dict[str, Any], then: dict[str, Any]) -> None:
    twice = lay_over(lay_over(STARTED, first).settings, then).settings
    assert twice.model_dump() == lay_over(STARTED, first | then).settings.model_dump()


BAD = {
    "learn.steps_per_hour": (0, "0"),
    "learn.paused": ("maybe", '"maybe"'),
    "learn.hours": ("late", '"late"'),
    "learn.judge_usd_per_day": (-1.5, "-1.5"),
    "aliases.helpdesk.promote": ("soon", '"soon"'),
    "aliases.helpdesk.canary_share": (1.0, "1.0"),
    "aliases.helpdesk.sampling.override.temperature": (0.05, "0.05"),
    "aliases.helpdesk.sampling.override.top_p": (0.9, "0.9"),
}


@pytest.mark.parametrize("key", BAD)
def test_a_bad_value_has_the_message_that_it_has_in_hone_toml(key: str, tmp_path: Path) -> None:
    value, written = BAD[key]
    file = tmp_path / "hone.toml"
    *parents, leaf = setting_path(key)
    file.write_text(f"[{'.'.join(parents)}]\n{leaf} = {written}\n")
    with pytest.raises(ConfigError) as by_file:
        load_settings(file, {})
    with pytest.raises(SettingInvalid) as changed:
        change_value(STARTED, key, value)
    assert f"{file}: {changed.value}" == str(by_file.value)


@pytest.mark.parametrize(
    "key",
    [
        "proxy.port",
        "learn.health",
        "learn",
        "learn.",
        "aliases.promote",
        "aliases..promote",
        "aliases.helpdesk.gate",
        "",
    ],
)
def test_other_settings_do_not_change_at_run_time(key: str) -> None:
    with pytest.raises(NotFound, match=r"hone\.toml"):
        change_value(STARTED, key, 1)


def test_what_no_longer_fits_is_left_out_and_the_others_hold() -> None:
    stored = {"learn.steps_per_hour": -4, "aliases.gone.promote": "auto", "learn.max_age_s": 60.0}
    laid = lay_over(STARTED, stored)
    assert laid.settings.learn.max_age_s == 60.0
    assert laid.settings.learn.steps_per_hour == 3
    assert "learn.steps_per_hour: Input should be greater" in laid.refused["learn.steps_per_hour"]
    assert "no alias 'gone'" in laid.refused["aliases.gone.promote"]


def test_the_alias_that_no_file_declares_changes_too() -> None:
    started = HoneSettings.model_validate({"engine": {"name": "base-model"}})
    changed = lay_over(started, {"aliases.base-model.promote": "manual"}).settings
    assert changed.declared_aliases()["base-model"].promote == "manual"
    assert started.aliases == {}


def test_a_choice_names_its_values() -> None:
    assert allowed_values("aliases.helpdesk.promote") == ("auto", "gate", "canary", "manual")
    assert allowed_values("learn.paused") == ("true", "false")
    assert allowed_values("learn.hours") == allowed_values("aliases.a.sampling.override.temperature") == ()


@given(
    st.sampled_from([key for key in VALUES if "hours" not in key]).flatmap(
        lambda key: st.tuples(st.just(key), VALUES[key])
    )
)
def test_the_lines_to_paste_are_read_back_as_the_change(change: tuple[str, Any]) -> None:
    import tomllib

    key, value = change
    if value is not None:
        found: Any = tomllib.loads(toml_lines(setting_path(key), value))
        for name in setting_path(key):
            found = found[name]
        assert found == value
