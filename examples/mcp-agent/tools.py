"""The helpdesk's two tools as an MCP server on standard input and output, which Hone starts for its gateway.

Owns the server; orders and wording are the demo's. Read-only.
"""

from __future__ import annotations

from mcp.server import MCPServer
from mcp_types import ToolAnnotations

from examples.helpdesk.orders import demo_orders
from examples.helpdesk.wording import found, tracked

ORDERS = demo_orders().train
READS = ToolAnnotations(read_only_hint=True)

server = MCPServer("helpdesk", log_level="WARNING")


@server.tool(structured_output=False, annotations=READS)
def find_order(order_id: str) -> str:
    """Status and tracking number of an order."""
    return found(next((order for order in ORDERS if order.order_id == order_id), None))


@server.tool(structured_output=False, annotations=READS)
def track_parcel(tracking: str) -> str:
    """The day on which a parcel arrives."""
    return tracked(next((order for order in ORDERS if order.tracking == tracking), None))


if __name__ == "__main__":
    server.run("stdio")
