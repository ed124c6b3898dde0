"""The options that all commands share are on every one of them, and lead to its settings."""

from __future__ import annotations

import importlib

import click
import pytest

from proxy.cli import COMMANDS, cli
from proxy.commands.context import with_shared_options


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_of_the_table_is_there_and_takes_the_shared_options(name: str) -> None:
    module, _, attribute = COMMANDS[name][0].partition(":")
    command = with_shared_options(getattr(importlib.import_module(module), attribute))
    leaves = list(command.commands.values()) if isinstance(command, click.Group) else [command]
    for leaf in leaves:
        options = {option for parameter in leaf.params for option in parameter.opts}
        assert {"--config", "--data", "--json"} <= options
        assert leaf.help


@pytest.mark.parametrize("name", ["score", "keys", "versions"])
def test_mounting_a_command_leaves_the_modules_own_as_it_was(name: str) -> None:
    module, _, attribute = COMMANDS[name][0].partition(":")
    command = getattr(importlib.import_module(module), attribute)
    before = command.to_info_dict(click.Context(command))
    mounted = cli.get_command(click.Context(cli), name)
    assert mounted is not None
    assert mounted.to_info_dict(click.Context(mounted)) != before
    assert command.to_info_dict(click.Context(command)) == before
