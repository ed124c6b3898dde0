"""What the process that draws is asked, and what it answers.

Owns: a question (a chart, light or dark) and an answer (a picture) as JSON. Refuses: either process.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic import TypeAdapter

from recorder.charts import Chart

_QUESTIONS: Final = TypeAdapter(tuple[bool, Chart])


def question(chart: Chart, *, dark: bool) -> dict[str, Any]:
    """What asks for a chart."""
    return {"chart": _QUESTIONS.dump_json((dark, chart)).decode()}


def asked(request: Mapping[str, Any]) -> tuple[bool, Chart]:
    """Whether a dark drawing is wanted, and of which chart."""
    return _QUESTIONS.validate_json(request["chart"])


def answer(drawn: str) -> dict[str, Any]:
    """What brings a picture."""
    return {"svg": drawn}


def picture(reply: Mapping[str, Any]) -> bytes:
    """The picture in an answer, as SVG."""
    svg: str = reply["svg"]
    return svg.encode()
