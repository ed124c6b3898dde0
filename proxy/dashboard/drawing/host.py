"""The process that draws: a chart a line on its standard input, its picture on its standard output.

Owns: the order of questions and answers. Refuses: everything else; it ends when its input does. A chart that
cannot be drawn ends the process, and what it says then is why.
"""

from __future__ import annotations

import os
import sys
from typing import Final

from proxy.dashboard.drawing.wire import answer, asked
from recorder.charts import draw

_NICE: Final = 10  # calls come first


def main() -> None:
    """Draw until nobody asks any more."""
    if sys.argv[1:]:
        sys.exit("A proxy starts this and asks it for charts; it takes no arguments.")
    os.nice(_NICE)
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no answer
    for line in sys.stdin.buffer:
        dark, chart = asked(line)
        out.write(answer(draw(chart, dark=dark)))
        out.flush()


if __name__ == "__main__":
    main()
