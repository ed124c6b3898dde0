"""`hone completion`: shell completion of Hone's commands, options, aliases and versions.

Owns: the script for a shell, and the list of aliases and versions. Refuses: the protocol of a shell (click's own).
"""

from __future__ import annotations

import asyncio
from typing import Final

import click
from click.shell_completion import get_completion_class

from proxy.commands.context import ensure_context
from recorder.base.terminal import echo
from recorder.commands.context import Context

SHELLS: Final = ("bash", "zsh", "fish")
_VARIABLE: Final = "_HONE_COMPLETE"


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(click_context: click.Context, shell: str) -> None:
    """Print a script with which SHELL completes Hone's commands, options, aliases and versions.

    \b
    bash:  hone completion bash >> ~/.bashrc
    zsh:   hone completion zsh >> ~/.zshrc
    fish:  hone completion fish > ~/.config/fish/completions/hone.fish
    """
    made = get_completion_class(shell)
    assert made is not None
    echo(made(click_context.find_root().command, {}, "hone", _VARIABLE).source())


def aliases(click_context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """The aliases that begin with `incomplete`."""
    return [name for name in _names(click_context)[0] if name.startswith(incomplete)]


def versions(click_context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """The versions that begin with `incomplete`, newest first; before an `@`, aliases too."""
    return [name for names in _names(click_context) for name in names if name.startswith(incomplete)]


def _names(click_context: click.Context) -> tuple[list[str], list[str]]:
    """Aliases and versions; none without a store, because completion must not print errors."""
    from proxy.errors import ConfigError
    from recorder.errors import StoreError

    try:
        return asyncio.run(_read(ensure_context(click_context)))
    except (ConfigError, StoreError):
        return [], []


async def _read(context: Context) -> tuple[list[str], list[str]]:
    from recorder.registry.aliases import get_aliases
    from recorder.registry.versions import get_versions
    from recorder.store.bootstrap import open_to_look
    from recorder.store.database import Project

    settings = context.settings()
    store = await open_to_look(settings.data, settings.recorder)
    try:
        named = [one.name for one in await get_aliases(Project(store, settings.project))]
        made = sorted(await get_versions(Project(store, settings.project)), key=lambda one: one.state_at, reverse=True)
        return named, [one.name for one in made]
    finally:
        await store.close()
