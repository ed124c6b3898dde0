"""What all routes of /hone/v1 share: dependencies, their responses in /schema, the caller, and JSON.

Refuses: any single route.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any, Final

import orjson
from litestar import Request, Response
from litestar.di import NamedDependency
from litestar.openapi import ResponseSpec
from litestar.openapi.spec import Operation, RequestBody
from litestar.params import PathParameter

from proxy.admission.auth import Caller
from proxy.admission.replies import PROBLEM
from proxy.api.actions import HoneActions
from proxy.api.bodies import Problem

AnyRequest = Request[Any, Any, Any]
Id = Annotated[str, PathParameter(description="Hone's own id (`traj_…`), or the id that the caller gave.")]
CallId = Annotated[str, PathParameter(description="The id that an answer has in `x-hone-call`.")]
Injected = NamedDependency[HoneActions]

PROBLEMS: Final = {
    status: ResponseSpec(
        Problem, description=HTTPStatus(status).phrase, media_type=PROBLEM.decode(), generate_examples=False
    )
    for status in (400, 401, 403, 404, 405, 409, 413, 415, 500, 503)
}


@dataclass
class BodyOptional(Operation):
    """An operation whose body is optional, which the framework does not infer from a default."""

    def __post_init__(self) -> None:
        if isinstance(self.request_body, RequestBody):
            self.request_body.required = False


def response_spec(status: int, body: Any) -> dict[int, ResponseSpec]:
    """Return the responses of a route, for /schema."""
    return PROBLEMS | {status: ResponseSpec(body, description=HTTPStatus(status).phrase, generate_examples=False)}


def caller_of(request: AnyRequest) -> Caller:
    """Return the caller of a request."""
    caller: Caller = request.scope["hone.caller"]  # type: ignore[typeddict-item]  # put there by the gate
    return caller


def json_response(value: object) -> Response[bytes]:
    """Return a view of the store, or a list of them, as JSON; token ids and logprobs become lists of numbers."""
    return Response(orjson.dumps(value, default=_listed), media_type="application/json")


def _listed(value: object) -> object:
    if isinstance(value, array):
        return value.tolist()
    if isinstance(value, frozenset | set):
        return sorted(value)
    raise TypeError(f"no JSON for {type(value).__name__}")
