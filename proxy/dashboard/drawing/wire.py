"""What goes to the process that draws and comes back from it.

Owns: a question (a chart, light or dark) as one line, and an answer's length before it. Refuses: either process.
"""

from __future__ import annotations

from typing import Final

from pydantic import TypeAdapter

from recorder.charts import Chart

LENGTH_BYTES: Final = 4
_QUESTIONS: Final = TypeAdapter(tuple[bool, Chart])


def question(chart: Chart, *, dark: bool) -> bytes:
    """A question, on one line."""
    return _QUESTIONS.dump_json((dark, chart)) + b"\n"


def asked(line: bytes) -> tuple[bool, Chart]:
    """Whether a dark drawing is wanted, and of which chart."""
    return _QUESTIONS.validate_json(line)


def answer(drawn: str) -> bytes:
    """A picture as it is sent."""
    picture = drawn.encode()
    return len(picture).to_bytes(LENGTH_BYTES, "big") + picture
