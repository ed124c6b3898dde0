"""The SDK's server that callers of both eras talk to.

Owns: what the gateway declares to a new caller. Refuses: answering (`proxy.mcp_gateway.gateway`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from contextvars import ContextVar
from typing import Any, Final

import mcp_types as types
from mcp.server.context import CallNext, HandlerResult
from mcp.server.lowlevel.server import Server
from mcp.server.models import InitializationOptions
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel

from proxy.mcp_gateway.exchange import BODIES, Context, identify_caller, is_question, shape_for_era
from proxy.mcp_gateway.pool import Pool
from proxy.mcp_gateway.servers.handshake import SUBSCRIBE, Ability
from proxy.mcp_gateway.servers.transport import CLIENT_INFO

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


# The result of the running request, which the SDK must not rewrite; None: there is none.
_RESULT: ContextVar[list[dict[str, Any]] | None] = ContextVar("hone_mcp_result", default=None)


async def _pass_on(ctx: Context, call_next: CallNext) -> HandlerResult:
    """Answer with a server's result as it is: the SDK drops unknown fields, and refuses parts of unknown types."""
    results = list[dict[str, Any]]()
    before = _RESULT.set(results)
    try:
        rewritten = await call_next(ctx)
    finally:
        _RESULT.reset(before)
    if not results or not isinstance(rewritten, dict):
        return rewritten
    [result] = results
    return {**rewritten, **result, **_merged_meta(rewritten.get("_meta"), result.get("_meta"))}


def _merged_meta(stamped: Any, own: Any) -> dict[str, Any]:
    meta = {**(stamped or {}), **(own if isinstance(own, Mapping) else {})}
    return {"_meta": meta} if meta else {}


def _passed_on(method: str, answer: Answer) -> Answer:
    """Keep the result for `_pass_on`, and give the SDK an empty one in its place."""
    field = BODIES.get(method)

    async def handle(ctx: Context, params: Any) -> dict[str, Any]:
        result, results = await answer(ctx, params), _RESULT.get()
        if field is None or results is None or is_question(result):
            return result
        results.append(result)
        return shape_for_era(ctx, {field: []})

    return handle


class SdkServer(Server[Any]):
    """The SDK's server, prepared for every method; it declares only what the servers offer now.

    `answers`: handlers by method.
    """

    def __init__(self, answers: Mapping[str, Answer], pool: Pool) -> None:
        super().__init__(CLIENT_INFO["name"], version=CLIENT_INFO["version"], get_tool_input_schema=pool.schema)
        self._pool = pool
        self.middleware.append(_pass_on)
        for method, answer in answers.items():
            self.add_request_handler(method, _PARAMS[method], _passed_on(method, answer))
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
