"""Everything that can go wrong in the proxy, as one tree.

ProxyError
├── ConfigError               hone.toml, the environment or a flag says something that cannot be
├── StartError                a program that Hone runs (engine, judge …) did not come up
├── PortInUse                 another program listens on the port
├── EngineError               the engine cannot be used
│   ├── EngineUnreachable     it does not answer: it may be back in a moment
│   ├── EngineBroke           it began an answer and did not end it, or sent what is none
│   └── NoReplica             no engine can serve the version now (503: try again)
├── AdapterError              an adapter folder that must not be loaded; `code` is the ledger's word for it
├── ClientGone                the caller hung up before its answer was whole
└── CallerError               what the caller is told, with a status; a dialect gives it its format
    ├── EngineSaid            the engine refused the request: its own status and words
    ├── BadRequest            400: the request says something that cannot be
    ├── Unauthorized          401: no key, or one that is not in force
    ├── Forbidden             403: the key, or the place the request comes from, may not do this
    ├── Missing               404: no such model, route or object
    ├── WrongMethod           405
    ├── Conflicting           409: the object is not in a state for that
    ├── TooLarge              413: the body is larger than `proxy.max_body_bytes`
    ├── WrongMediaType        415: a changing request that is not application/json
    ├── TooMany               429: too many tries, or too fast: again after `retry_after_s`
    ├── Unrecorded            501: a generating route that Hone does not record yet
    ├── BadGateway            502: the engine broke off
    └── Unavailable           503: try again after `retry_after_s`

What can go wrong on the far side of the gateway.

UpstreamDown         the MCP server does not answer now; its caller is told, and other servers work on
  TooManySessions    it does, but not to one caller more
"""

from __future__ import annotations

from recorder.base.errors import MISCONFIGURED, HoneError


class ProxyError(HoneError):
    """Base of all errors of this package. The message says what, where and what to do."""


class ConfigError(ProxyError):
    """A setting is unknown, malformed or contradicts another."""

    exit_code = MISCONFIGURED


class StartError(ProxyError):
    """A program that Hone runs did not come up."""


class PortInUse(ProxyError):
    """Another program listens on the port."""


class EngineError(ProxyError):
    """The engine cannot be used."""


class EngineUnreachable(EngineError):
    """The engine does not answer. It may be restarting."""


class EngineFailed(EngineError):
    """The engine began an answer and did not end it, or sent something that is no answer."""


class NoReplica(EngineError):
    """No engine can serve the version at this moment."""

    retry_after_s = 1


class AdapterError(ProxyError):
    """An adapter must not be loaded, or did not prove to be what it claims."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class ClientDisconnected(ProxyError):
    """The caller hung up before its answer was whole."""


class CallerError(ProxyError):
    """Something the caller is told. `param` names the field at fault, `code` is OpenAI's word for the fault."""

    status = 400
    kind = "invalid_request_error"  # OpenAI's `type`
    code: str | None = None
    retry_after_s: int | None = None

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.param = param
        self.code = code or type(self).code


class EngineRefused(CallerError):
    """The engine refused the request itself: its status and its words."""

    def __init__(
        self, message: str, *, status: int, kind: str, param: str | None = None, code: str | None = None
    ) -> None:
        super().__init__(message, param=param, code=code)
        self.status = status
        self.kind = kind


class BadRequest(CallerError):
    """The request says something that cannot be."""


class Unauthorized(CallerError):
    """There is no key, or one that is not in force."""

    status = 401
    kind = "authentication_error"
    code = "invalid_api_key"


class Forbidden(CallerError):
    """The key, or the place the request comes from, may not do this."""

    status = 403
    kind = "permission_error"
    code = "forbidden"


class UnknownObject(CallerError):
    """No such model, route or object."""

    status = 404
    kind = "not_found_error"
    code = "not_found"


class WrongMethod(CallerError):
    """The route exists, but not with this method."""

    status = 405
    code = "method_not_allowed"


class StateConflict(CallerError):
    """The object is not in a state for that."""

    status = 409
    kind = "conflict_error"
    code = "conflict"


class TooLarge(CallerError):
    """The body is larger than `proxy.max_body_bytes`."""

    status = 413
    code = "request_too_large"


class WrongMediaType(CallerError):
    """A changing request that is not application/json."""

    status = 415
    code = "unsupported_media_type"


class TooMany(CallerError):
    """Too many tries in a short time."""

    status = 429
    kind = "rate_limit_error"
    code = "too_many_requests"

    def __init__(self, message: str, *, retry_after_s: int) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class UnrecordedRoute(CallerError):
    """A generating route that Hone does not record yet."""

    status = 501
    kind = "not_implemented_error"
    code = "not_recorded"


class BadGateway(CallerError):
    """The engine broke off."""

    status = 502
    kind = "server_error"
    code = "engine_broke"


class Unavailable(CallerError):
    """Try again later."""

    status = 503
    kind = "server_error"
    code = "unavailable"
    retry_after_s = 1


class UpstreamDown(ProxyError):
    """An MCP server does not answer, or not in time."""


class TooManySessions(UpstreamDown):
    """An MCP server has as many sessions as it may have."""
