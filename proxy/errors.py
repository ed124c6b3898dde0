"""Everything that can go wrong in the proxy, as one tree.

ProxyError
├── ConfigError               hone.toml, the environment or a flag says something that cannot be
├── StartError                a program that Hone runs (engine, judge …) did not come up
├── PortInUse                 another program listens on the port
├── EngineError               the engine cannot be used
│   ├── EngineUnreachable     it does not answer: it may be back in a moment
│   └── NoReplica             no engine can serve the version now (503: try again)
└── AdapterError              an adapter folder that must not be loaded; `code` is the ledger's word for it
"""

from __future__ import annotations


class ProxyError(Exception):
    """Base of all errors of this package. The message says what, where and what to do."""


class ConfigError(ProxyError):
    """A setting is unknown, malformed or contradicts another."""


class StartError(ProxyError):
    """A program that Hone runs did not come up."""


class PortInUse(ProxyError):
    """Another program listens on the port."""


class EngineError(ProxyError):
    """The engine cannot be used."""


class EngineUnreachable(EngineError):
    """The engine does not answer. It may be restarting."""


class NoReplica(EngineError):
    """No engine can serve the version at this moment."""

    retry_after_s = 1


class AdapterError(ProxyError):
    """An adapter must not be loaded, or did not prove to be what it claims."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
