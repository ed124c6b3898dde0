"""What the routes of /hone/v1 share: request and response bodies, dependencies, responses in /schema, and JSON.

Owns: the bodies that are not views of the store, and their validation; the caller of a request; and the encoding of
views as JSON. Refuses: any single route.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any, Final, Literal
from urllib.parse import parse_qsl

import orjson
from litestar import Request, Response
from litestar.di import NamedDependency
from litestar.openapi import ResponseSpec
from litestar.openapi.spec import Operation, RequestBody
from litestar.params import PathParameter
from pydantic import BaseModel, ConfigDict, Field, model_validator

from proxy.admission.auth import Caller
from proxy.admission.replies import PROBLEM
from proxy.api.actions import HoneActions
from recorder.queue import feedback


class _ResponseBody(BaseModel):
    model_config = ConfigDict(use_attribute_docstrings=True)


class Problem(_ResponseBody):
    """An error (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    """What happened, to which object, and what to do."""
    code: str | None = None
    param: str | None = None
    """The field or parameter that is wrong."""


class _RequestBody(BaseModel):
    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class CreateTrajectory(_RequestBody):
    """A new trajectory: its address for agents that take a base URL, a key for agents that do not."""

    trajectory: str | None = None
    """The trajectory's id. Default: a new one."""
    group: str | None = None
    """The group that the trajectory belongs to."""
    expires_in_s: float | None = Field(None, gt=0)
    """Seconds until the key expires. Default: it never does."""


class CreatedTrajectory(_ResponseBody):
    """A new trajectory."""

    trajectory: str
    """The trajectory's id."""
    group: str | None
    """The group that it belongs to."""
    base_url: str
    """The agent's base URL (OpenAI's form, with `/v1`)."""
    api_key: str
    """The trajectory's key. It is shown only this once."""
    key_id: str
    """The key's id, for `hone keys revoke`."""


class EndRequest(_RequestBody):
    """How a trajectory ended."""

    state: Literal["completed", "errored", "abandoned"] = "completed"
    """`completed`: the agent ended, well or badly. `errored`: something else failed; the trajectory is never judged."""
    reason: str = Field("closed", max_length=200)
    """A short reason, stored with the trajectory."""


class EndedTrajectory(_ResponseBody):
    """A trajectory that has ended."""

    trajectory_id: str
    """Hone's own id of the trajectory."""
    state: str
    """Its state. A trajectory that had already ended keeps the state it had."""


class DeletedTrajectories(_ResponseBody):
    """The result of a deletion."""

    trajectory_ids: list[str]
    """The deleted trajectories: all at the named address, or the named one."""
    calls: int
    """How many calls they had, together."""
    log_erased: bool
    """Whether the bytes have left the store's log and search index too. False: a reader holds the log, or the index is
    large; both are erased later without further requests."""


class NewFeedback(_RequestBody):
    """Feedback about a trajectory, or about one of its calls. TensorZero's field names work too."""

    name: str | None = None
    """What is measured, for example `solved`. `comment` and `demonstration` are reserved; their values are text."""
    metric_name: str | None = None
    """Another name for `name`."""
    value: bool | int | float | str
    """The value: a finite number, true, false or a text."""
    comment: str | None = Field(None, max_length=feedback.MAX_TEXT_CHARS)
    """A comment, stored with the value."""
    call_id: str | None = None
    """The call that the feedback is about (`x-hone-call`)."""
    inference_id: str | None = None
    """Another name for `call_id`."""
    trajectory_id: str | None = None
    """The trajectory, unless the path, a header or the key names it."""
    episode_id: str | None = None
    """Another name for `trajectory_id`."""
    tags: dict[str, str] = {}
    """Your own tags, stored with the value."""
    dryrun: bool = False
    """Validate only; write nothing."""

    @model_validator(mode="after")
    def _one_name(self) -> NewFeedback:
        if (self.name is None) == (self.metric_name is None):
            raise ValueError("give `name` (or `metric_name`), and only one of them")
        return self

    @property
    def about(self) -> str:
        """The feedback's name."""
        return self.name or self.metric_name or ""


class RecordedFeedback(_ResponseBody):
    """Stored feedback."""

    feedback_id: str | None
    """null for a dry run."""
    trajectory_id: str
    """Hone's own id of the trajectory."""
    call_id: str | None
    """The call that the feedback is about, if any."""


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


def query_words(request: AnyRequest) -> list[tuple[str, str]]:
    """Return the names and values of a request's query in their order, which the framework's own reading loses."""
    return parse_qsl(request.url.query, keep_blank_values=True)


def json_response(value: object, status: int = 200) -> Response[bytes]:
    """Return a view of the store, or a list of them, as JSON; token ids and logprobs become lists of numbers."""
    return Response(orjson.dumps(value, default=_listed), status_code=status, media_type="application/json")


def _listed(value: object) -> object:
    if isinstance(value, array):
        return value.tolist()
    if isinstance(value, frozenset | set):
        return sorted(value)
    raise TypeError(f"no JSON for {type(value).__name__}")
