"""Questions of servers to callers, translated from one era of the protocol to the other.

Owns: asking the caller until the server has its answers, and requests that wait for their caller's retry. Refuses: the
questions themselves.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import mcp_types as types
from mcp.shared.exceptions import MCPError

from proxy.mcp_gateway.exchange import CallerRequest

MOST_ROUNDS: Final = 10  # as in the SDKs
MOST_PARKED: Final = 1024
RETRY_WITHIN_S: Final = 600.0  # how long a caller may take to retry with its answers
_PAUSE_S: Final = 0.05  # before a retry that needs no answers

Params = Mapping[str, Any]
Send = Callable[[Params], Awaitable[dict[str, Any]]]


async def drive_questions(exchange: CallerRequest, params: Params, send: Send) -> dict[str, Any]:
    """Retry a request until the server has no further questions, which a caller of the handshake era answers one by
    one.
    """
    sent = dict(params)
    for _ in range(MOST_ROUNDS):
        result = await send(sent)
        if result.get("resultType") != "input_required":
            return result
        questions = result.get("inputRequests") or {}
        if not isinstance(questions, Mapping) or not all(map(_is_question, questions.values())):
            raise MCPError(types.INTERNAL_ERROR, "the server asked for input in an invalid form")
        if questions:
            answers = await _answers(exchange, questions)
        else:
            answers = {}
            await asyncio.sleep(_PAUSE_S)
        sent = {**params, "requestState": result.get("requestState")}
        if answers:
            sent["inputResponses"] = answers
        if sent["requestState"] is None:
            del sent["requestState"]
    raise MCPError(types.INTERNAL_ERROR, f"the server asked its caller {MOST_ROUNDS} times without answering")


def _is_question(value: object) -> bool:
    return (
        isinstance(value, Mapping)
        and isinstance(value.get("method"), str)
        and isinstance(value.get("params"), Mapping | None)
    )


async def _answers(exchange: CallerRequest, questions: Mapping[str, Any]) -> dict[str, Any]:
    try:
        async with asyncio.TaskGroup() as group:
            tasks = {
                key: group.create_task(exchange.ask(question["method"], question.get("params")))
                for key, question in questions.items()
            }
    except* MCPError as e:
        raise _first(e) from None
    return {key: task.result() for key, task in tasks.items()}


def _first(group: BaseExceptionGroup[Any]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


@dataclass(slots=True)
class _PendingRequest:
    owner: str | None
    method: str
    exchange: CallerRequest
    task: asyncio.Task[dict[str, Any]]
    expiry: asyncio.TimerHandle | None = None


class PendingRequests:
    """Requests to servers of the handshake era that wait for their callers' retries. One per gateway."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, _PendingRequest] = OrderedDict()  # its first entry is found in constant time

    async def run(
        self, exchange: CallerRequest, owner: str | None, method: str, params: Params, send: Send
    ) -> dict[str, Any]:
        """Run a request, or its continuation: return the result, or the server's questions. Raises MCPError."""
        state = params.get("requestState")
        if state is None:
            task = asyncio.ensure_future(send(params))
            return await self._until_asked(_PendingRequest(owner, method, exchange, task))
        pending = self._waiting.pop(state, None) if isinstance(state, str) else None
        if pending is None or (pending.owner, pending.method) != (owner, method):
            raise MCPError(types.INVALID_PARAMS, "this requestState is unknown or has expired: start the request again")
        assert pending.expiry is not None
        pending.expiry.cancel()
        pending.exchange.ctx = exchange.ctx  # progress and logs go to the caller's present request
        for key, answer in (params.get("inputResponses") or {}).items():
            question = pending.exchange.questions.pop(key, None)
            if question is not None and not question.answer.done():
                question.answer.set_result(answer)
        return await self._until_asked(pending)

    def close(self) -> None:
        """Cancel all waiting requests."""
        for pending in self._waiting.values():
            pending.task.cancel()
        self._waiting.clear()

    async def _until_asked(self, pending: _PendingRequest) -> dict[str, Any]:
        event = pending.exchange.question_event
        if not pending.exchange.questions:
            event.clear()
        question = asyncio.ensure_future(event.wait())
        try:
            await asyncio.wait({pending.task, question}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            pending.task.cancel()
            raise
        finally:
            question.cancel()
        if pending.task.done():
            return pending.task.result()
        return self._wait_for_retry(pending)

    def _wait_for_retry(self, pending: _PendingRequest) -> dict[str, Any]:
        if len(self._waiting) >= MOST_PARKED:
            self._drop(next(iter(self._waiting)))
        state = secrets.token_urlsafe(24)
        self._waiting[state] = pending
        pending.expiry = asyncio.get_running_loop().call_later(RETRY_WITHIN_S, self._drop, state)
        questions = {key: question.shown() for key, question in pending.exchange.questions.items()}
        return {"resultType": "input_required", "inputRequests": questions, "requestState": state}

    def _drop(self, state: str) -> None:
        pending = self._waiting.pop(state, None)
        if pending is not None:
            pending.task.cancel()
