"""What came next after an answer, as data: the kinds, and one event.

Refuses: which answer an event is about (`recorder.views.follow_ups.rules`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class FollowUpKind(StrEnum):
    """What came next."""

    MESSAGE = "message"  # the user's next message in the conversation
    TOOL_ERROR = "tool_error"  # a tool that the answer called failed
    RETRY = "retry"  # the same request again, and the answer was not continued
    EDITED = "edited"  # the message before the answer was edited and sent again
    FEEDBACK = "feedback"  # feedback with a comment
    ABANDONED = "abandoned"  # nothing came, although the conversation was not over


@dataclass(frozen=True, slots=True)
class FollowUp:
    """One thing that came next after the answer `choice` of the call `call_id`.

    `source_call_id` and `source_trajectory_id`: which call and which trajectory recorded it. `name` and `value`: of
    feedback; for a tool's error `name` is the tool's, or the id of its call. `at`: unix seconds.
    """

    kind: FollowUpKind
    call_id: str
    choice: int
    text: str
    at: float
    source_trajectory_id: str
    source_call_id: str | None = None
    name: str | None = None
    value: Any = None
