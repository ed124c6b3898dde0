"""What every command of this package needs: an open store, JSON, tables and pictures of what is told.

Owns: running a coroutine on the store, printing, writing a picture. Refuses: any single command, what is drawn.

What takes long to import (SQLAlchemy, rich) is imported where it is needed: `hone --help` must be instant.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from recorder.hours import moment

if TYPE_CHECKING:
    from rich.console import RenderableType

    from recorder.charts import Chart
    from recorder.commands.context import Context
    from recorder.findings import Finding
    from recorder.store.database import Store

T = TypeVar("T")


def run(context: Context, read: Callable[[Store, str], Awaitable[T]], *, migrate: bool = False) -> T:
    """Open the store, let `read(store, project)` do its work, close it. Raises StoreError, SchemaMismatch."""

    async def main() -> T:
        from recorder.store.migrate import open_store

        settings = context.settings()
        store = await open_store(settings.data, settings.recorder, migrate=migrate, project=settings.project)
        try:
            return await read(store, settings.project)
        finally:
            await store.close()

    return asyncio.run(main())


def echo_json(value: object) -> None:
    """Print JSON."""
    click.echo(to_json(value, indent=2))


def echo_findings(findings: Sequence[Finding], *, as_json: bool) -> None:
    """Print what checks found; exit status 1 where something is wrong."""
    from recorder.commands.terminal import clean
    from recorder.findings import any_wrong

    if as_json:
        click.echo(json.dumps([one.as_json() for one in findings], indent=2))
    for one in () if as_json else findings:
        click.echo(clean(f"{one.verdict:<7} {one.line()}"))
    if any_wrong(findings):
        raise SystemExit(1)


def to_json(value: object, *, indent: int | None = None) -> str:
    """JSON in ASCII, since a transcript must not reach a terminal as it is; what is no number is null."""
    form: dict[str, Any] = {"indent": indent, "separators": None if indent else (",", ":")}
    try:
        return json.dumps(value, allow_nan=False, default=_plain, **form)
    except ValueError:
        return json.dumps(_finite(json.loads(json.dumps(value, default=_plain))), **form)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _plain(value: object) -> object:
    """What JSON has no form for, as something it has."""
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, Sequence | frozenset) else str(value)


def show(*shown: RenderableType) -> None:
    """Print what `recorder.commands.terminal` or `transcript` made."""
    from recorder.commands.terminal import console

    screen = console()
    for one in shown:
        screen.print(one)


def show_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, right: Iterable[str] = ()) -> None:
    """Print a table; the columns in `right` hold numbers."""
    from recorder.commands.terminal import table

    show(table(columns, rows, right=right))


def require_folder(picture: Path | None) -> None:
    """Refuse a picture that could not be written, before anything is paid for."""
    if picture is not None and not picture.absolute().parent.is_dir():
        raise click.UsageError(f"the picture {picture} cannot be written: its folder is not there.")


def draw_into(chart: Chart, picture: Path) -> None:
    """Write the picture, and say so beside what is printed."""
    from recorder.charts import draw

    try:
        picture.write_text(draw(chart), "utf-8")
    except OSError as e:
        raise click.UsageError(f"the picture {picture} cannot be written: {e.strerror or e}.") from e
    click.echo(f"the picture is {picture}", err=True)


class When(click.ParamType[float]):
    """A time: an ISO date, unix seconds, or how long ago (`90m`, `24h`, `7d`). Becomes unix seconds."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read it, or fail with the forms that are known."""
        if isinstance(value, float):
            return value
        try:
            return moment(value, time.time())
        except ValueError as e:
            self.fail(str(e), param, ctx)
