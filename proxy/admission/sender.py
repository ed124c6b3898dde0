"""The address of a request's sender, behind load balancers that settings trust.

Owns: reading `X-Forwarded-For`. It decides nothing: the limit of failed sign-ins and logs use it. Loopback trust and
keys use the peer of the connection, which no header changes.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from typing import Final

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_MOST_HOPS: Final = 32
UNKNOWN: Final = "an unknown peer"


def sender_address(peer: str | None, headers: Iterable[tuple[bytes, bytes]], trusted: Sequence[Network]) -> str:
    """Return the last address that is not of a trusted proxy, from the peer on backwards.

    An entry that is no address ends the search: what stands before it was written by somebody unknown.
    """
    if peer is None or not trusted or not _is_trusted(_address(peer), trusted):
        return peer or UNKNOWN
    values = [value for name, value in headers if name == b"x-forwarded-for"]
    hops = b",".join(values).decode("latin-1").split(",")
    sender = peer
    for hop in reversed(hops[-_MOST_HOPS:]):
        address = _address(hop)
        if address is None:
            break
        sender = str(address)
        if not _is_trusted(address, trusted):
            break
    return sender


def _address(text: str) -> _Address | None:
    """Read an address as load balancers write it: with a port, or in brackets."""
    text = text.strip()
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def _is_trusted(address: _Address | None, trusted: Sequence[Network]) -> bool:
    return address is not None and any(address in network for network in trusted)
