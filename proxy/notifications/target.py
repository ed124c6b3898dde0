"""Where notifications go: the address, the form and the key, read once at the start.

Refuses: sending. The address and the key are secrets, so `Target` shows neither when it is printed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import urlsplit

from proxy.errors import ConfigError
from proxy.settings.notify import Form, NotifySettings


@dataclass(frozen=True, slots=True)
class Target:
    """The receiver. `pages`: the address of Hone's pages, for links; None: there are none."""

    url: str = field(repr=False)
    key: bytes | None = field(repr=False)
    form: Form
    kinds: frozenset[str]
    pages: str | None
    timeout_s: float

    @property
    def host(self) -> str:
        """The part of the address that may be shown: its host and port."""
        parts = urlsplit(self.url)
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else str(parts.hostname)
        return host if parts.port is None else f"{host}:{parts.port}"

    def link(self, path: str) -> str | None:
        """Return the address of a page, given its path from `/hone` on."""
        return None if self.pages is None else self.pages.rstrip("/") + path


def find_target(settings: NotifySettings, pages: str | None) -> Target | None:
    """Return the receiver that the settings name; None: nothing is sent. `pages`: the default address of the pages.

    Raises ConfigError, for example if a variable is not set.
    """
    try:
        url = settings.read_url()
        key = settings.read_key()
    except ValueError as e:
        raise ConfigError(f"{e}.") from e
    if url is None:
        return None
    at = settings.pages_url if settings.pages_url is not None and pages is not None else pages
    return Target(url, key, settings.form, frozenset(settings.kinds), at, settings.timeout_s)
