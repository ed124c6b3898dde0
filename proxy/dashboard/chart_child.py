"""What the process that draws is asked, and what it answers.

Owns: a question (a chart, light or dark) and an answer (a picture) as JSON. Refuses: either process.

The process that draws: a chart a request, its picture as the reply.

Owns: its priority. Refuses: everything else; it ends when the proxy asks no more. A chart that cannot be drawn ends the
process, and what it says then is why.
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
    """What asks for a chart."""
    return {"chart": _QUESTIONS.dump_json((dark, chart)).decode()}


def decode_question(request: Mapping[str, Any]) -> tuple[bool, Chart]:
    """Whether a dark drawing is wanted, and of which chart."""
    return _QUESTIONS.validate_json(request["chart"])


def encode_picture(drawn: str) -> dict[str, Any]:
    """What brings a picture."""
    return {"svg": drawn}


def picture(reply: Mapping[str, Any]) -> bytes:
    """The picture in an answer, as SVG."""
    svg: str = reply["svg"]
    return svg.encode()


_NICE: Final = 10  # calls come first


def main() -> None:
    """Draw until nobody asks any more."""
    connection = connect("Draws charts for a proxy, which starts it; not to be called by hand.")
    os.nice(_NICE)
    serve_in_turn(connection.messages(), connection.send, lambda _: {"ready": {}}, _drawn)


def _drawn(request: dict[str, Any]) -> dict[str, Any]:
    dark, chart = decode_question(request)
    return encode_picture(draw_svg(chart, dark=dark))


if __name__ == "__main__":
    main()
