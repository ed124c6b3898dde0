"""Report tools that the proxy withholds from a campaign's attempts because they may write, and calls of them.

Owns: polling, and reporting each tool once. Refuses: withholding (`proxy.mcp_gateway.write_protection`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

from recorder.errors import StoreError
from recorder.registry import tool_permissions
from recorder.store.database import Store
from trainer.progress import Notice, Progress

LOOK_S: Final = 5.0


@asynccontextmanager
async def notify_withheld(store: Store, campaign_id: str, progress: Progress) -> AsyncIterator[None]:
    """Report withheld tools while the campaign runs, and at its end how many calls were refused."""
    teller = WithheldToolsNotifier(store, campaign_id, progress)
    looking = asyncio.create_task(_keep_looking(teller), name="withheld tools")
    try:
        yield
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
        with suppress(StoreError):  # the campaign's own end reports the store's error
            await teller.end()


async def _keep_looking(teller: WithheldToolsNotifier) -> None:
    while True:
        await asyncio.sleep(LOOK_S)
        with suppress(StoreError):  # busy for a moment
            await teller.look()


class WithheldToolsNotifier:
    """What this program has reported of one campaign."""

    def __init__(self, store: Store, campaign_id: str, progress: Progress) -> None:
        self._store = store
        self._campaign_id = campaign_id
        self._progress = progress
        self._told: set[str] = set()

    async def look(self) -> None:
        """Report tools that were not reported yet."""
        new = [
            tool
            for tool in await tool_permissions.list_withheld_tools(self._store, self._campaign_id)
            if tool not in self._told
        ]
        self._told.update(new)
        if new:
            text = (
                f"not offered to attempts, because their MCP server does not mark them read-only: {', '.join(new)}. "
                "If attempts may change things there, start with --allow-writes (campaign.allow_writes). If these "
                "tools are read-only, let the server set readOnlyHint"
            )
            self._progress.tell(Notice(text, warning=True))

    async def end(self) -> None:
        """Report the rest, and how many calls were refused."""
        await self.look()
        if refused := await tool_permissions.count_refused_calls(self._store, self._campaign_id):
            calls = "1 call of such a tool was" if refused == 1 else f"{refused} calls of such tools were"
            self._progress.tell(Notice(f"{calls} refused in this campaign's attempts", warning=True))
