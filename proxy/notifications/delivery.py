"""One POST of a notification: bounded in time and size, signed, never redirected.

Owns: the request, and what its answer means: sent, try again, or never. Refuses: when to try again. The answer's body
is not read, and no error quotes the address: only its host is named.
"""

from __future__ import annotations

import asyncio
import functools
import ssl
import time
from dataclasses import dataclass
from typing import Final

import httpx

from proxy.notifications.message import body_of, signed_headers
from proxy.notifications.target import Target
from recorder.base.connection_failures import describe_failure
from recorder.queue.notifications import Notification

# The receiver may accept a later try. Any other 4xx says that this message, or this sender, is refused.
_LATER: Final = frozenset({408, 409, 425, 429})


@dataclass(frozen=True, slots=True)
class Delivery:
    """The outcome of one POST. `error` None: the receiver accepted it. `final`: a further try would fail too."""

    error: str | None = None
    final: bool = False


async def post_notification(target: Target, project: str, one: Notification) -> Delivery:
    """Send a notification once. An error is an outcome, not an exception."""
    body = body_of(one, project, target.link(one.link), target.form)
    headers = signed_headers(one.id, int(time.time()), body, target.key)
    tls = await asyncio.to_thread(_certificates) if target.url.startswith("https:") else _NO_TLS
    try:
        async with (
            asyncio.timeout(target.timeout_s),
            httpx.AsyncClient(timeout=target.timeout_s, follow_redirects=False, verify=tls) as client,
            client.stream("POST", target.url, content=body, headers=headers) as answer,
        ):
            status = answer.status_code
    except TimeoutError:
        return Delivery(f"{target.host} gave no answer within {target.timeout_s:g} s")
    except (httpx.HTTPError, httpx.InvalidURL, OSError, UnicodeError) as e:
        return Delivery(f"{target.host} cannot be reached: {_without_address(describe_failure(e), target)}")
    if 200 <= status < 300:
        return Delivery()
    if 300 <= status < 400:
        return Delivery(f"{target.host} answered {status}: redirects are not followed, set the final address", True)
    return Delivery(f"{target.host} answered {status}", 400 <= status < 500 and status not in _LATER)


_NO_TLS: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


@functools.cache
def _certificates() -> ssl.SSLContext:
    """The certificates that this machine trusts. Reading them takes 40 ms, once."""
    return httpx.create_ssl_context()


def _without_address(text: str, target: Target) -> str:
    """The reason, unless it quotes the address, which is a secret."""
    secret = target.url.partition("://")[2].partition("/")[2]
    return "no reason that can be shown" if target.url in text or (secret and secret in text) else text
