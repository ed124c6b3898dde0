"""The process that draws charts, and its messages: a request holds a chart and a colour scheme, the reply an SVG.

The process runs at low priority and ends when the proxy closes the connection. A chart that cannot be drawn ends the
process; its error output has the reason.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

from pydantic import TypeAdapter

from recorder.processes.user_code_host import connect, serve_in_turn
from recorder.stats.charts import Chart, draw_svg

_QUESTIONS: Final = TypeAdapter(tuple[bool, Chart])


def encode_question(chart: Chart, *, dark: bool) -> dict[str, Any]:
    """The request for a chart."""
    return {"chart": _QUESTIONS.dump_json((dark, chart)).decode()}


def decode_question(request: Mapping[str, Any]) -> tuple[bool, Chart]:
    """Whether the chart is dark, and the chart."""
    return _QUESTIONS.validate_json(request["chart"])


def encode_picture(drawn: str) -> dict[str, Any]:
    """The reply with a picture."""
    return {"svg": drawn}


def picture(reply: Mapping[str, Any]) -> bytes:
    """The SVG of a reply."""
    svg: str = reply["svg"]
    return svg.encode()


_NICE: Final = 10  # the proxy's calls have priority


def main() -> None:
    """Draw charts until the connection closes."""
    connection = connect("Draws charts for a proxy, which starts this process itself.")
    os.nice(_NICE)
    serve_in_turn(connection.messages(), connection.send, lambda _: {"ready": {}}, _drawn)


def _drawn(request: dict[str, Any]) -> dict[str, Any]:
    dark, chart = decode_question(request)
    return encode_picture(draw_svg(chart, dark=dark))


if __name__ == "__main__":
    main()
