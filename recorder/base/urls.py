"""URLs without their secrets, for output, logs and errors.

Owns: which parameters of a URL are secret, and which addresses may get a key. Refuses: settings and command lines
(`proxy.settings.display`), and masking known keys by value (`recorder.llm.litellm_edge`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote_plus, urlsplit

if TYPE_CHECKING:
    from sqlalchemy.engine import URL

MASK: Final = "***"  # as SQLAlchemy masks a password
SECRET_NAMES: Final = ("key", "token", "secret", "password", "passwd", "authorization")
# A URL's query has further secret parameters: credentials, and signatures of links.
_OF_QUERIES: Final = (
    *SECRET_NAMES,
    "pass",
    "pwd",
    "user",
    "username",
    "login",
    "auth",
    "credential",
    "sig",
    "signature",
)
_PARAMETER = re.compile(r"""([?&;])([^=?&;#\s"']+)=([^&;#\s"']*)""")


def mask_parameters(text: str, mask: str = MASK) -> str:
    """Return a URL, or a text with URLs, without the values of secret parameters. Names may be percent-encoded."""

    def masked(found: re.Match[str]) -> str:
        secret = unquote_plus(found[2]).lower().endswith(_OF_QUERIES)
        return f"{found[1]}{found[2]}={mask}" if secret else found[0]

    return _PARAMETER.sub(masked, text)


def is_safe_address(url: str) -> bool:
    """Whether a key may be sent to an address: https, or http on this machine."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:  # brackets that hold no IPv6 address
        return False
    own = host in ("localhost", "::1") or re.fullmatch(r"127(\.\d{1,3}){3}", host) is not None
    return bool(host) and (parts.scheme == "https" or (parts.scheme == "http" and own))


def mask_store_url(url: URL) -> str:
    """Return a store's URL without its password, also in the query, where drivers accept one too."""
    return mask_parameters(url.render_as_string(hide_password=True))
