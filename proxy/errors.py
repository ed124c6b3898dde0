"""Everything that can go wrong in the proxy, as one tree.

ProxyError
├── ConfigError               hone.toml, the environment or a flag says something that cannot be
├── EngineError               the engine cannot be used
│   ├── EngineStartError      it did not start, or died while starting
│   ├── PortInUse             another program listens on the port
│   └── NoReplica             no engine can serve the version now (503: try again)
└── AdapterError              an adapter folder that must not be loaded; `code` is the ledger's word for it
"""

from __future__ import annotations


class ProxyError(Exception):
    """Base of all errors of this package. The message says what, where and what to do."""


class ConfigError(ProxyError):
    """A setting is unknown, malformed or contradicts another."""


class EngineError(ProxyError):
    """The engine cannot be used."""


class EngineStartError(EngineError):
    """The engine did not come up."""


class PortInUse(EngineError):
    """Another program listens on the port."""


class NoReplica(EngineError):
    """No engine can serve the version at this moment."""

    retry_after_s = 1


class AdapterError(ProxyError):
    """An adapter must not be loaded, or did not prove to be what it claims."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
