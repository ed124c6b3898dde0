"""The errors of the proxy, as one tree.

ProxyError
├── ConfigError               hone.toml, the environment or a flag holds an invalid value
├── StartError                a program that Hone runs (engine, judge …) did not start
├── PortInUse                 another program listens on the port
├── EngineError               the engine cannot be used
│   ├── EngineUnreachable     it does not answer; it may be restarting
│   ├── EngineFailed          it broke off an answer, or sent something that is not an answer
│   └── NoReplica             no engine can serve the version now (503: retry)
├── AdapterError              an adapter that must not be loaded; `code` is the ledger's reason
│   └── AdapterNotVisible     the engine does not see its folder, which its host may still fetch
├── ClientDisconnected        the client hung up before its answer was complete
├── UpstreamDown              an MCP server behind the gateway does not answer; the other servers work on
│   └── TooManySessions       it answers, but accepts no further session
└── CallerError               sent to the caller with a status; a dialect gives it its format
   ├── EngineRefused         the engine refused the request: its own status and message
   ├── BadRequest            400: the request is invalid
   ├── Unauthorized          401: no key, or a key that is not valid now
   ├── Forbidden             403: the key, or the place the request comes from, does not allow this
   ├── UnknownObject         404: no such model, route or object
   ├── WrongMethod           405: the route does not take this method
   ├── RequestTimeout        408: the request's head or body did not come in time
   ├── StateConflict         409: the object's state does not allow this
   ├── TooLarge              413: the body is larger than `proxy.max_body_bytes`
   ├── WrongMediaType        415: a changing request that is not application/json
   │   └── UnknownCoding     415: its body has a content coding that is not decoded here
   ├── TooMany               429: too many requests; retry after `retry_after_s`
   ├── HeadTooLarge          431: the URL and the headers are larger than `proxy.max_head_bytes`
   ├── UnrecordedRoute       501: a generating route that Hone does not record
   ├── BadGateway            502: the engine broke off
   └── Unavailable           503: retry after `retry_after_s`
"""

from __future__ import annotations

from recorder.base.errors import MISCONFIGURED, HoneError


class ProxyError(HoneError):
    """Base of all errors of this package. The message says what happened, to which object, and what to do."""


class ConfigError(ProxyError):
    """A setting is unknown, malformed or contradicts another one."""

    exit_code = MISCONFIGURED


class StartError(ProxyError):
    """A program that Hone runs did not start."""


class PortInUse(ProxyError):
    """Another program listens on the port."""


class EngineError(ProxyError):
    """The engine cannot be used."""


class EngineUnreachable(EngineError):
    """The engine does not answer. It may be restarting."""


class SleepUnsupported(EngineError):
    """The engine has no routes for sleeping, so no trainer may use its GPU."""


class EngineFailed(EngineError):
    """The engine broke off an answer, or sent something that is not an answer."""


class NoReplica(EngineError):
    """No engine can serve the version now."""

    retry_after_s = 1


class AdapterError(ProxyError):
    """An adapter must not be loaded, or failed its checks. `code` is the ledger's reason."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class AdapterNotVisible(AdapterError):
    """The engine does not see an adapter's folder. Its host may still fetch it."""


class ClientDisconnected(ProxyError):
    """The client hung up before its answer was complete."""


class CallerError(ProxyError):
    """An error that is sent to the caller. `param` names the field at fault, `code` is OpenAI's code of the fault."""

    status = 400
    kind = "invalid_request_error"  # OpenAI's `type`
    code: str | None = None
    retry_after_s: int | None = None

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.param = param
        self.code = code or type(self).code


class EngineRefused(CallerError):
    """The engine refused the request: its status and its message."""

    def __init__(
        self, message: str, *, status: int, kind: str, param: str | None = None, code: str | None = None
    ) -> None:
        super().__init__(message, param=param, code=code)
        self.status = status
        self.kind = kind


class BadRequest(CallerError):
    """The request is invalid."""


class Unauthorized(CallerError):
    """The request has no key, or a key that is not valid now."""

    status = 401
    kind = "authentication_error"
    code = "invalid_api_key"


class Forbidden(CallerError):
    """The key, or the place the request comes from, does not allow this."""

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


class RequestTimeout(CallerError):
    """The head or the body of the request did not come in time."""

    status = 408
    code = "request_timeout"


class StateConflict(CallerError):
    """The object's state does not allow this."""

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


class UnknownCoding(WrongMediaType):
    """A body with a content coding that is not decoded here."""

    code = "unsupported_content_coding"


class HeadTooLarge(CallerError):
    """The URL and the headers are larger than `proxy.max_head_bytes`."""

    status = 431
    code = "head_too_large"


class TooMany(CallerError):
    """Too many requests in a short time."""

    status = 429
    kind = "rate_limit_error"
    code = "too_many_requests"

    def __init__(self, message: str, *, retry_after_s: int) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class UnrecordedRoute(CallerError):
    """A generating route that Hone does not record."""

    status = 501
    kind = "not_implemented_error"
    code = "not_recorded"


class BadGateway(CallerError):
    """The engine broke off."""

    status = 502
    kind = "server_error"
    code = "engine_broke"


class Unavailable(CallerError):
    """The service is unavailable now; the caller should retry."""

    status = 503
    kind = "server_error"
    code = "unavailable"
    retry_after_s = 1


class UpstreamDown(ProxyError):
    """An MCP server does not answer, or not in time."""


class TooManySessions(UpstreamDown):
    """An MCP server has reached its limit of sessions."""
