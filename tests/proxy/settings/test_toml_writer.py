"""A hone.toml as text: what is written is what is read, and every key is a setting with its model's own words."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.errors import ConfigError
from proxy.settings.display import list_leaves
from proxy.settings.hone import HoneSettings
from proxy.settings.loader import load_settings
from proxy.settings.sections import EngineSettings
from proxy.settings.toml_writer import SettingLine, as_toml, describe_setting

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
VALUES = st.one_of(TEXT, st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), st.lists(TEXT))


@given(value=VALUES, name=TEXT, found=TEXT)
def test_what_is_written_is_what_is_read(value: str | int | float | list[str], name: str, found: str) -> None:
    """Whatever was found: no text of anybody's ends a comment or a string early."""
    line = SettingLine(("aliases", name, "base_model"), value, found)
    assert tomllib.loads(as_toml(found, [line])) == {"aliases": {name: {"base_model": value}}}


@given(found=TEXT)
def test_what_is_off_is_a_comment(found: str) -> None:
    assert tomllib.loads(as_toml("head", [SettingLine(("engine", "base"), found, found, off=True)])) == {"engine": {}}


@pytest.mark.parametrize("key", [key for key, _ in list_leaves(HoneSettings())])
def test_every_setting_is_described(key: str) -> None:
    assert describe_setting(key.split("."))


@pytest.mark.parametrize("key", ["engine.bsae", "engine.base.more", "aliases.a.b.c", "prxy.port", "aliases.a.nothing"])
def test_what_is_no_setting_is_refused(key: str) -> None:
    with pytest.raises(ConfigError, match="is not a setting"):
        describe_setting(key.split("."))


def test_a_variable_of_the_engines_needs_no_description(tmp_path: Path) -> None:
    file = tmp_path / "hone.toml"
    file.write_text(as_toml("head", [SettingLine(("engine", "env", "CUDA_VISIBLE_DEVICES"), "1")]))
    assert load_settings(file, {}).settings.engine == EngineSettings(env={"CUDA_VISIBLE_DEVICES": "1"})


def test_a_comment_is_the_models_own() -> None:
    text = as_toml("Head.", [SettingLine(("engine", "port"), 8701, "nothing listens there.")])
    assert text == (
        "# Head.\n\n[engine]\n# Port that the started engine listens on.\n"
        "# Found: nothing listens there.\nport = 8701\n"
    )
