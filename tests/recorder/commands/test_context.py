"""What a command finds in click's context: settings are read once, and again after a flag decides one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from proxy.settings.hone import HoneSettings, LoadedSettings
from recorder.commands.context import Context


def test_settings_are_read_once_and_again_when_a_flag_decides_one() -> None:
    read: list[tuple[Path | None, dict[str, object]]] = []

    def load(config: Path | None, overrides: Mapping[str, object]) -> LoadedSettings:
        read.append((config, dict(overrides)))
        return LoadedSettings(HoneSettings(), {}, config)

    context = Context(load)
    context.config = Path("hone.toml")
    assert context.settings() is context.loaded().settings
    assert read == [(Path("hone.toml"), {})]
    context.override("proxy.port", None)  # not given
    context.settings()
    context.override("proxy.port", 1)
    context.settings()
    assert read[1:] == [(Path("hone.toml"), {"proxy.port": 1})]
