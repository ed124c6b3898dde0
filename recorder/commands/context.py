"""The options that all commands share, and the settings that they lead to: what every command finds in `ctx.obj`.

Owns: which flags decide settings, and that settings are read once. Refuses: reading them (`proxy.commands.context`
hands that in), and importing more than the standard library: `hone --help` is instant.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from proxy.settings.hone import HoneSettings, LoadedSettings


class Context:
    """The shared options of one run of `hone`.

    `load_settings` reads the settings of a file (None: the default one) under the flags, by their dotted keys.
    """

    def __init__(self, load_settings: Callable[[Path | None, Mapping[str, object]], LoadedSettings]) -> None:
        self.config: Path | None = None
        self.json = False
        self.debug = bool(os.environ.get("HONE_DEBUG"))
        self.overrides: dict[str, object] = {}
        self._load_settings = load_settings
        self._loaded: LoadedSettings | None = None

    def override(self, key: str, value: object) -> None:
        """Let a flag decide a setting, by its dotted key (`proxy.port`). None: the flag was not given."""
        if value is not None:
            self.overrides[key] = value
            self._loaded = None

    def loaded(self) -> LoadedSettings:
        """The settings with the source of each. Read once. Raises `ConfigError`."""
        if self._loaded is None:
            self._loaded = self._load_settings(self.config, self.overrides)
        return self._loaded

    def settings(self) -> HoneSettings:
        """The settings in force. Raises `ConfigError`."""
        return self.loaded().settings
