"""Traffic in /hone/v1: calls, errors, percentiles, tokens and cost over time, from the totals of the store.

Owns: the route and its parameters in /schema, and parsing its query (the page uses it too). Refuses: what a range is
(`recorder.views.status.traffic`).
"""

from __future__ import annotations

from dataclasses import dataclass

from litestar import Response, get
from litestar.openapi.spec import Operation

from proxy.api.lists import query_parameter
from proxy.api.route_parts import AnyRequest, Injected, json_response, query_words, response_spec
from recorder.views.lists.filters import TRAFFIC_PARAMS, TrafficFilter, parse_traffic_filter
from recorder.views.status.traffic import Traffic, load_traffic


@dataclass
class TrafficQuery(Operation):
    """Declares the parameters: the handler reads them from the query itself, unknown to the framework."""

    def __post_init__(self) -> None:
        self.parameters = [query_parameter(param) for param in TRAFFIC_PARAMS.values()]


def parse_traffic_query(request: AnyRequest) -> TrafficFilter:
    """Parse the query of a request. Raises FilterInvalid."""
    return parse_traffic_filter(query_words(request))


@get("/hone/v1/traffic", responses=response_spec(200, Traffic), operation_class=TrafficQuery)
async def show_traffic(hone: Injected, request: AnyRequest) -> Response[bytes]:
    """Return calls, errors by kind, percentiles of durations, tokens and cost over a range of time.

    Calls are counted within seconds of their end, in the point at which they began. Without `origin`, those of origin
    shadow are not counted.
    """
    return json_response(await load_traffic(hone.project, parse_traffic_query(request)))
