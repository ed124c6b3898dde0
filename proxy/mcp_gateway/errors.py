"""What can go wrong on the far side of the gateway.

UpstreamDown         the MCP server does not answer now; its caller is told, and other servers work on
  TooManySessions    it does, but not to one caller more
"""

from __future__ import annotations

from proxy.errors import ProxyError


class UpstreamDown(ProxyError):
    """An MCP server does not answer, or not in time."""


class TooManySessions(UpstreamDown):
    """An MCP server has as many sessions as it may have."""
