"""The process that draws: a chart a request, its picture as the reply.

Owns: its priority. Refuses: everything else; it ends when the proxy asks no more. A chart that cannot be drawn ends the
process, and what it says then is why.
"""

from __future__ import annotations

import os
from typing import Any, Final

from proxy.dashboard.drawing.wire import answer, asked
from recorder.charts import draw
from recorder.processes.user_code_host import connect, serve_in_turn

_NICE: Final = 10  # calls come first


def main() -> None:
    """Draw until nobody asks any more."""
    connection = connect("Draws charts for a proxy, which starts it; not to be called by hand.")
    os.nice(_NICE)
    serve_in_turn(connection.messages(), connection.send, lambda _: {"ready": {}}, _drawn)


def _drawn(request: dict[str, Any]) -> dict[str, Any]:
    dark, chart = asked(request)
    return answer(draw(chart, dark=dark))


if __name__ == "__main__":
    main()
