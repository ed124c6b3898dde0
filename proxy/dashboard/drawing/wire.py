"""A chart on its way to the process that draws it.

Owns: its form as one line of JSON, and how long an answer says that it is. Refuses: what a chart is, and how it looks
(`recorder.charts`).
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Final

from pydantic import TypeAdapter

from recorder.charts import Chart

LENGTH_BYTES: Final = 4  # before a picture on its way back
_CHART: Final = TypeAdapter(Chart)


def as_json(chart: Chart) -> str:
    """A chart on one line."""
    return json.dumps(asdict(chart))


def from_json(line: str | bytes) -> Chart:
    """The chart that `as_json` wrote."""
    return _CHART.validate_python(json.loads(line))
