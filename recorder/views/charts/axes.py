"""The axis of times: in the machine's time zone, as the pages' other times."""

from __future__ import annotations

import time
from collections.abc import Sequence

from recorder.stats.charts import Axis


def time_axis(name: str, at: Sequence[float]) -> Axis:
    """Times (unix seconds, rising) with the zone's offset at the newest of them."""
    return Axis(name, "times", tuple(at), time.localtime(at[-1]).tm_gmtoff if at else 0)
