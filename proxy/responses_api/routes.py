"""The routes of the Responses API: creating responses, and reading, cancelling and deleting stored ones.

Owns: the routes, their queries and small answers. Refuses: creating responses (`proxy.responses_api.calls`), reading
the record (`proxy.responses_api.stored_responses`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qs, unquote

from proxy.admission.replies import send_error, send_json, unknown_route
from proxy.dialects.responses.dialect import ResponsesDialect
from proxy.errors import BadRequest, CallerError, StateConflict, Unavailable, UnknownObject, WrongMethod
from proxy.http.asgi import App, Receive, Scope, Send
from proxy.responses_api.stored_responses import StoredResponses
from recorder.errors import StoreError
from recorder.messages.calls import KeyAccess

Body = dict[str, Any]

PATH: Final = ResponsesDialect.path
_PAGE: Final = 20  # items per page, and the maximum: OpenAI's
_MOST: Final = 100


@dataclass(frozen=True, slots=True)
class ResponseRoutes:
    """`/v1/responses` and all below it, as a raw ASGI app."""

    calls: App
    history: StoredResponses
    ends: Sequence[
        Callable[[str], Awaitable[bool]]
    ]  # each ends a background response if it runs there, the nearest first

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        path: str = scope["hone.path"]
        if path.rstrip("/") == PATH:
            await self.calls(scope, receive, send)
            return
        try:
            await send_json(send, await self._about(scope, path, _query(scope), scope["hone.caller"].access))
        except CallerError as e:
            await send_error(send, path, e)
        except StoreError as e:
            await send_error(send, path, Unavailable(f"the store does not answer now: {e}"))

    async def _about(self, scope: Scope, path: str, query: dict[str, str], access: KeyAccess) -> Body:
        method: str = scope["method"]
        if not path.startswith(PATH + "/"):
            raise unknown_route(scope)
        response_id, _, what = unquote(path.removeprefix(PATH + "/").rstrip("/")).partition("/")
        served = {
            ("GET", ""): self._show,
            ("DELETE", ""): self._delete,
            ("POST", "cancel"): self._cancel,
            ("GET", "input_items"): self._input_items,
        }
        serve = served.get((method, what))
        if serve is not None:
            return await serve(response_id, query, access)
        if what in ("", "cancel", "input_items"):
            allowed = " or ".join(m for m, w in served if w == what)
            raise WrongMethod(f"{method} {path[:200]} is not served: use {allowed}.")
        raise unknown_route(scope)

    async def _show(self, response_id: str, query: dict[str, str], access: KeyAccess) -> Body:
        if query.get("stream", "false").lower() not in ("false", "0"):
            raise BadRequest("a stored response is not streamed: remove 'stream'.", param="stream")
        return await self.history.response(response_id, access)

    async def _delete(self, response_id: str, query: dict[str, str], access: KeyAccess) -> Body:
        await self.history.response(response_id, access)
        await self._end(response_id)
        await self.history.delete(response_id)
        return {"id": response_id, "object": "response", "deleted": True}

    async def _end(self, response_id: str) -> bool:
        for end in self.ends:
            if await end(response_id):
                return True
        return False

    async def _cancel(self, response_id: str, query: dict[str, str], access: KeyAccess) -> Body:
        response = await self.history.response(response_id, access)
        if await self._end(response_id):
            response = await self.history.response(response_id, access)
        if not response["background"]:
            raise BadRequest("Cannot cancel a synchronous response.", param="response_id")
        if response["status"] == "in_progress":
            raise StateConflict(
                f"the response {response_id[:120]!r} is running in another Hone process: cancel it there."
            )
        return response

    async def _input_items(self, response_id: str, query: dict[str, str], access: KeyAccess) -> Body:
        items = await self.history.input_items(response_id, access)
        return _page(items, query)


def _page(items: list[Body], query: dict[str, str]) -> Body:
    """A page of items after the one that `after` names, the newest first unless `order=asc`."""
    order, after, limit = query.get("order", "desc"), query.get("after"), query.get("limit", str(_PAGE))
    if order not in ("asc", "desc"):
        raise BadRequest("order must be 'asc' or 'desc'.", param="order")
    if not limit.isdecimal() or not 1 <= int(limit[:4]) <= _MOST:
        raise BadRequest(f"limit must be a whole number from 1 to {_MOST}.", param="limit")
    ordered = items if order == "asc" else items[::-1]
    if after is not None:
        ids = [item["id"] for item in ordered]
        if after not in ids:
            raise UnknownObject(f"Item with id {after[:120]!r} not found.", param="after")
        ordered = ordered[ids.index(after) + 1 :]
    page = ordered[: int(limit)]
    return {
        "object": "list",
        "data": page,
        "first_id": page[0]["id"] if page else None,
        "last_id": page[-1]["id"] if page else None,
        "has_more": len(ordered) > len(page),
    }


def _query(scope: Scope) -> dict[str, str]:
    return {name: values[-1] for name, values in parse_qs(scope.get("query_string", b"").decode("latin-1")).items()}
