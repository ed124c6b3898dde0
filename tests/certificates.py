"""The machine's certificates, read once for all clients of one test process.

Each client of an SDK makes a TLS context, and to read a bundle of certificates takes 25 CPU milliseconds. Tests make
thousands of clients, and hardly any of them speaks TLS.
"""

from __future__ import annotations

import os
import ssl
from functools import cache, wraps
from typing import Any, Final

_FILES: Final = ("SSL_CERT_FILE", "SSL_CERT_DIR")  # where OpenSSL looks, if they are set


def share_certificates() -> None:
    """Let clients with the same certificates share a context. May be called again."""
    make = ssl.create_default_context
    if not hasattr(make, "__wrapped__"):
        ssl.create_default_context = _shared(make)


def _shared(make: Any) -> Any:
    @cache
    def made(_files: tuple[str | None, ...], *args: Any, **given: Any) -> ssl.SSLContext:
        context: ssl.SSLContext = make(*args, **given)
        return context

    @wraps(make)
    def from_memory(*args: Any, **given: Any) -> ssl.SSLContext:
        return made(tuple(map(os.environ.get, _FILES)), *args, **given)

    return from_memory
