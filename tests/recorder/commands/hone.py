"""The command line over one data folder."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from proxy.cli import cli
from recorder.settings import RecorderSettings
from recorder.store import bootstrap
from recorder.store.database import Store


class Hone:
    """The command line over one data folder."""

    def __init__(self, data: Path, settings: RecorderSettings) -> None:
        self.data = data
        self._settings = settings

    def __call__(self, *arguments: str, fails: bool = False) -> Result:
        at = 2 if arguments[0] in ("keys", "db", "adapters", "datasets") else 1
        result = CliRunner().invoke(cli, [*arguments[:at], "--data", str(self.data), *arguments[at:]])
        assert (result.exit_code != 0) == fails, result.output
        return result

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "--json").stdout)

    def do(self, work: Callable[[Store], Awaitable[Any]]) -> Any:
        async def main() -> Any:
            store = await bootstrap.open_store(self.data, self._settings, migrate=True)
            try:
                return await work(store)
            finally:
                await store.close()

        return asyncio.run(main())
