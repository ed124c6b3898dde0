"""The SDK's server that callers of both eras talk to.

Owns: what the gateway declares to a new caller. Refuses: answering (`proxy.mcp_gateway.gateway`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Final

import mcp_types as types
from mcp.server.lowlevel.server import Server
from mcp.server.models import InitializationOptions
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel

from proxy.mcp_gateway.exchange import Context, identify_caller
from proxy.mcp_gateway.pool import Pool
from proxy.mcp_gateway.servers.handshake import SUBSCRIBE, Ability
from proxy.mcp_gateway.servers.transport import CLIENT_INFO

# A dict is a valid result, and stays unchanged; the SDK's models would drop unknown fields.
Answer = Callable[[Context, Any], Awaitable[dict[str, Any]]]

_PARAMS: Final[Mapping[str, type[BaseModel]]] = {
    "tools/list": types.PaginatedRequestParams,
    "tools/call": types.CallToolRequestParams,
    "prompts/list": types.PaginatedRequestParams,
    "prompts/get": types.GetPromptRequestParams,
    "resources/list": types.PaginatedRequestParams,
    "resources/templates/list": types.PaginatedRequestParams,
    "resources/read": types.ReadResourceRequestParams,
    "resources/subscribe": types.SubscribeRequestParams,
    "resources/unsubscribe": types.UnsubscribeRequestParams,
    "completion/complete": types.CompleteRequestParams,
    "logging/setLevel": types.SetLevelRequestParams,
}


class SdkServer(Server[Any]):
    """The SDK's server, prepared for every method; it declares only what the servers offer now.

    `answers`: handlers by method.
    """

    def __init__(self, answers: Mapping[str, Answer], pool: Pool) -> None:
        super().__init__(CLIENT_INFO["name"], version=CLIENT_INFO["version"], get_tool_input_schema=pool.schema)
        self._pool = pool
        for method, answer in answers.items():
            self.add_request_handler(method, _PARAMS[method], answer)
        self.add_request_handler("subscriptions/listen", types.SubscriptionsListenRequestParams, pool.news.listen)
        self.add_request_handler("server/discover", types.RequestParams, self._discover)
        self.add_notification_handler("notifications/initialized", types.NotificationParams, self._known)
        self.add_notification_handler("notifications/roots/list_changed", types.NotificationParams, self._moved)

    async def _known(self, ctx: Context, params: Any) -> None:
        self._pool.news.session(ctx)  # it receives notifications from now on

    async def _moved(self, ctx: Context, params: Any) -> None:
        await self._pool.roots_changed(identify_caller(ctx))

    async def _discover(self, ctx: Context, params: Any) -> types.DiscoverResult:
        """Answer a new caller of the current era."""
        return types.DiscoverResult(
            supported_versions=list(MODERN_PROTOCOL_VERSIONS),
            capabilities=offered_capabilities(self._pool.abilities(modern=True)),
            instructions=self._pool.instructions,
        )

    def create_initialization_options(self, *args: Any, **kwargs: Any) -> InitializationOptions:
        """Return the answer for a new caller of the handshake era."""
        options = super().create_initialization_options()
        update = {
            "capabilities": offered_capabilities(self._pool.abilities(modern=False)),
            "instructions": self._pool.instructions,
        }
        return options.model_copy(update=update)


def offered_capabilities(abilities: Collection[Ability | None]) -> types.ServerCapabilities:
    """Return the capabilities of all servers together. None: a server's are unknown yet, so any are possible.

    Changes of lists are always declared: lists change when a server comes or goes.
    """

    def some(name: str) -> bool:
        return any(ability is None or name in ability for ability in abilities)

    return types.ServerCapabilities(
        tools=types.ToolsCapability(list_changed=True) if some("tools") else None,
        prompts=types.PromptsCapability(list_changed=True) if some("prompts") else None,
        resources=types.ResourcesCapability(list_changed=True, subscribe=some(SUBSCRIBE))
        if some("resources")
        else None,
        logging=types.LoggingCapability() if some("logging") else None,
        completions=types.CompletionsCapability() if some("completions") else None,
    )
