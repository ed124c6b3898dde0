"""Options that all commands share: `--config`, `--data`, `--json`, `--debug`, and flags that name engines.

Refuses: applying these options (`recorder.commands.context`), and importing more than click: `hone --help` is
instant.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from recorder.commands.context import Context

if TYPE_CHECKING:
    from proxy.settings.hone import LoadedSettings


def ensure_context(ctx: click.Context) -> Context:
    """Return the context object of all commands below `ctx` (`ctx.obj`); the first call creates it."""
    if not isinstance(ctx.obj, Context):
        ctx.obj = Context(_load_settings)
    return ctx.obj


def _load_settings(config: Path | None, overrides: Mapping[str, object]) -> LoadedSettings:
    from proxy.settings.loader import load_settings

    return load_settings(config, overrides)


def override_engine(context: Context, engines: Sequence[str], models: Sequence[str]) -> None:
    """Apply `--engine` and `--model`: which engines are used, and which of their models are served."""
    context.override("engine.urls", list(engines) or None)
    context.override("aliases", {name: {"base_model": name} for name in models} or None)


def take_only_model(context: Context) -> None:
    """If engines are named and no model, serve the only model of the first one. Raises ConfigError."""
    settings = context.settings()
    if not settings.engine.urls or settings.declared_aliases() or settings.proxy.models:
        return
    import asyncio

    from proxy.doctor.checkup import known_key
    from proxy.engine.replica import find_only_model

    name = asyncio.run(find_only_model(settings.engine.urls[0], known_key(settings)))
    override_engine(context, (), (name,))


def with_shared_options(command: click.Command) -> click.Command:
    """A copy of a command, or of a group of them, with `--config`, `--data`, `--json` and `--debug` where it has none.

    A group has them itself where it does something without a subcommand.

    A copy, because the command belongs to its module: it must be the same whether or not it was mounted before.
    """
    mounted = copy.copy(command)
    if isinstance(mounted, click.Group):
        mounted.commands = {name: with_shared_options(sub) for name, sub in mounted.commands.items()}
    if not isinstance(mounted, click.Group) or mounted.invoke_without_command:
        have = {option for parameter in mounted.params for option in parameter.opts}
        more = [option for option in _shared_options() if not have.intersection(option.opts)]
        mounted.params = [*mounted.params, *more]
    return mounted


def _shared_options() -> list[click.Option]:
    def keep(name: str) -> Any:
        def callback(ctx: click.Context, _parameter: click.Parameter, value: Any) -> None:
            shared = ensure_context(ctx)
            if name == "data":
                shared.override("data", value)
            elif value:
                setattr(shared, name, value)

        return callback

    path = click.Path(path_type=Path)
    return [
        click.Option(
            ["--config"], type=path, expose_value=False, callback=keep("config"), help="Settings file [./hone.toml]."
        ),
        click.Option(
            ["--data"],
            type=path,
            expose_value=False,
            callback=keep("data"),
            help="Data folder [.hone next to the file].",
        ),
        click.Option(["--json"], is_flag=True, expose_value=False, callback=keep("json"), help="Print JSON."),
        click.Option(
            ["--debug"], is_flag=True, expose_value=False, callback=keep("debug"), help="Show tracebacks [HONE_DEBUG]."
        ),
    ]
