"""Write protection of campaigns: their attempts are not offered tools that are not marked read-only.

Owns: which tools those are, withholding them from lists, the text of a refusal, and noting each tool once. Refuses:
which campaign a caller's attempt belongs to (`recorder.registry.tool_permissions`), and other callers: live agents may
use every tool.

If the store cannot answer, a caller that named a group, as attempts do, is treated as one that may not write.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from proxy.admission.address import NOWHERE, StatedAddress
from proxy.mcp_gateway.exchange import Context
from recorder.base.rate_limited_log import RateLimitedLog
from recorder.errors import RecorderError
from recorder.registry import tool_permissions
from recorder.registry.tool_permissions import REFUSED
from recorder.store.database import Project

log = logging.getLogger(__name__)

UNKNOWN: Final = ""  # instead of a campaign: the store could not name it

Item = dict[str, Any]


def is_read_only(tool: Mapping[str, Any]) -> bool:
    """Whether a server marks a tool as read-only."""
    hints = tool.get("annotations")
    return isinstance(hints, Mapping) and hints.get("readOnlyHint") is True


def write_refusal(name: str) -> str:
    """Return the refusal for the model of an attempt."""
    return (
        f"{REFUSED}: {name[:200]} is not marked read-only, and this campaign does not allow writes "
        "(hone train --allow-writes, or campaign.allow_writes)"
    )


def unlisted_refusal(name: str) -> str:
    """Return the refusal for a tool that no list describes, so that it may write."""
    return f"Unknown tool: {name[:200]} is not called for an attempt of a campaign, because its server does not list it"


class WriteProtection:
    """The rule for one gateway."""

    def __init__(self, project: Project, timeout_s: float) -> None:
        self._project = project
        self._timeout_s = timeout_s
        self._noted: set[tuple[str, str]] = set()
        self._store_failing = RateLimitedLog(log)

    async def barred(self, ctx: Context, trajectory_id: str | None = None) -> str | None:
        """Return the campaign of a caller's attempt if it allows no writes, or `UNKNOWN`; None if the caller
        may write.
        """
        stated: StatedAddress = ctx.request.scope.get("hone.stated", NOWHERE) if ctx.request is not None else NOWHERE
        group, family = stated.address.group, stated.address.access.key
        if group is None and trajectory_id is None and not family:
            return None
        try:
            async with asyncio.timeout(self._timeout_s):
                return await tool_permissions.find_barred_campaign(
                    self._project, group=group, trajectory_id=trajectory_id, family=family
                )
        except (RecorderError, TimeoutError) as e:
            self._store_failing(
                logging.WARNING,
                "the store cannot say now which callers may use tools that write: %s",
                e or type(e).__name__,
            )
            return UNKNOWN if group is not None else None

    async def offered(self, ctx: Context, tools: Sequence[Item]) -> Sequence[Item]:
        """Return the tools that a caller is offered; the same list object if none is withheld."""
        withheld = [str(tool["name"]) for tool in tools if not is_read_only(tool)]
        campaign = await self.barred(ctx) if withheld else None
        if campaign is None:
            return tools
        await self.note(campaign, withheld)
        return [tool for tool in tools if is_read_only(tool)]

    async def note(self, campaign: str, tools: Collection[str]) -> None:
        """Note, once, that tools were withheld from a campaign; its program reports it."""
        new = [tool for tool in tools if campaign != UNKNOWN and (campaign, tool) not in self._noted]
        if not new:
            return
        self._noted.update((campaign, tool) for tool in new)
        try:
            async with asyncio.timeout(self._timeout_s):
                await tool_permissions.note_withheld_tools(self._project, campaign, new)
        except (RecorderError, TimeoutError) as e:
            self._noted.difference_update((campaign, tool) for tool in new)
            self._store_failing(logging.WARNING, "withheld tools cannot be noted now: %s", e or type(e).__name__)
