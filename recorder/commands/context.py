"""What all commands of this package share: the common options and settings (`ctx.obj`), and an open store.

Owns: which flags override settings, that settings are read once, running a coroutine on the store, writing a chart to a
file, and the type of time options. Refuses: reading settings (`proxy.commands.context` passes that in), printing
(`recorder.base.terminal`), drawing (`recorder.stats.charts`).

Slow imports (SQLAlchemy) are inside functions, because `hone --help` must be instant.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from recorder.base.errors import FAILED
from recorder.base.gc_pause import pause_gc, rest_gc
from recorder.base.hours import parse_time
from recorder.base.terminal import echo, write_json

if TYPE_CHECKING:
    from proxy.settings.hone import HoneSettings, LoadedSettings
    from recorder.base.findings import Finding
    from recorder.stats.charts import Chart
    from recorder.store.database import Project


class Context:
    """The shared options of one invocation of `hone`.

    `load_settings` reads the settings of a file (None: the default one); flags, by dotted key, override them.
    """

    def __init__(self, load_settings: Callable[[Path | None, Mapping[str, object]], LoadedSettings]) -> None:
        self.config: Path | None = None
        self.json = False
        self.debug = bool(os.environ.get("HONE_DEBUG"))
        self.overrides: dict[str, object] = {}
        self._load_settings = load_settings
        self._loaded: LoadedSettings | None = None
        self._notes: set[str] = set()  # printed already

    def override(self, key: str, value: object) -> None:
        """Override a setting with a flag, by its dotted key (`proxy.port`). None: the flag was not given."""
        if value is not None:
            self.overrides[key] = value
            self._loaded = None

    def loaded(self) -> LoadedSettings:
        """The settings with the source of each. Read once; notes go to standard error. Raises `ConfigError`."""
        if self._loaded is None:
            with pause_gc():
                self._loaded = self._load_settings(self.config, self.overrides)
            for note in self._loaded.notes:
                if note not in self._notes:
                    echo(f"note: {note}", err=True)
            self._notes.update(self._loaded.notes)
        return self._loaded

    def settings(self) -> HoneSettings:
        """The effective settings. Raises `ConfigError`."""
        return self.loaded().settings


T = TypeVar("T")


def run(context: Context, read: Callable[[Project], Awaitable[T]], *, migrate: bool = False) -> T:
    """Open the store, await `read(project)`, close the store. Raises StoreError, SchemaMismatch."""

    async def main() -> T:
        from recorder.store.bootstrap import open_store
        from recorder.store.database import Project

        settings = context.settings()
        store = await open_store(settings.data, settings.recorder, migrate=migrate, project=settings.project)
        try:
            return await read(Project(store, settings.project))
        finally:
            await store.close()

    with rest_gc():
        return asyncio.run(main())


def echo_findings(findings: Sequence[Finding], *, as_json: bool) -> None:
    """Print the findings of checks; exit with status 1 if one is an error."""
    from recorder.base.findings import has_errors

    if as_json:
        write_json(findings)
    for one in () if as_json else findings:
        echo(f"{one.verdict:<7} {one.line()}")
    if has_errors(findings):
        raise SystemExit(FAILED)


def require_folder(picture: Path | None) -> None:
    """Raise UsageError if the picture's folder does not exist, before the command costs anything."""
    if picture is not None and not picture.absolute().parent.is_dir():
        raise click.UsageError(f"the picture {picture} cannot be written: its folder does not exist.")


def draw_into(chart: Chart, picture: Path) -> None:
    """Write the picture, and print its path to standard error."""
    from recorder.stats.charts import draw_svg

    try:
        picture.write_text(draw_svg(chart), "utf-8")
    except OSError as e:
        raise click.UsageError(f"the picture {picture} cannot be written: {e.strerror or e}.") from e
    echo(f"the picture is {picture}", err=True)


class TimeParam(click.ParamType[float]):
    """A time: an ISO date, unix seconds, or how long ago (`90m`, `24h`, `7d`). Becomes unix seconds."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return unix seconds, or fail with the accepted forms."""
        if isinstance(value, float):
            return value
        try:
            return parse_time(value, time.time())
        except ValueError as e:
            self.fail(str(e), param, ctx)
