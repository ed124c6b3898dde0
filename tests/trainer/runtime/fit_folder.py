"""A working folder for commands that train on data of a person's: settings, an alias on a real store, and a file."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

from examples.helpdesk import make_model
from tests.trainer.world import World


def in_store(here: Path, do: Callable[[World], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        async with World.opened(here / "data", make_model.MODEL) as world:
            return await do(world)

    return asyncio.run(run())


def make_folder(here: Path, alias: str, of_fit: str, file: str, rows: Iterable[Any]) -> Path:
    """`of_fit`: the section of hone.toml for the command. `rows`: the lines of `file`."""
    (here / "hone.toml").write_text(
        f'[aliases."{alias}"]\n[engine]\nbase = "{make_model.MODEL}"\n'
        f'[trainer]\ndevice = "cpu"\nrank = 4\ntarget = "attention"\n{of_fit}'
    )
    (here / file).write_text("".join(json.dumps(row) + "\n" for row in rows))

    async def nothing(_: World) -> None:
        return None

    in_store(here, nothing)
    return here
