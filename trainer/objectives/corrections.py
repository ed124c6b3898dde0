"""What people say that an answer should have been: feedback `demonstration` on a trajectory or on one of its calls.

Owns: which corrections count, and which call each one answers. Refuses: rows (`trainer.demonstrations.rows`).

Somebody who corrects an answer says nothing about the others of the trajectory. So a trajectory with a correction is
imitated by its corrections alone.
"""

from __future__ import annotations

from collections.abc import Iterator

from recorder.queue.feedback import DEMONSTRATION
from recorder.views.trajectories.shapes import FeedbackView, TrajectoryView


def corrections_by_call(view: TrajectoryView) -> dict[str, str]:
    """Return the better answer of each call that has one: the newest. Without a call, it is for the last answer."""
    last = view.main_path[-1][0] if view.main_path else None
    found = {one.call_id or last: str(one.value) for one in sorted(_corrections(view), key=lambda one: one.created_at)}
    return {call_id: text for call_id, text in found.items() if call_id is not None}


def corrected_at(view: TrajectoryView) -> float | None:
    """Return when the newest correction came (unix seconds); None: there is none."""
    return max((one.created_at for one in _corrections(view)), default=None)


def _corrections(view: TrajectoryView) -> Iterator[FeedbackView]:
    return (
        one for one in view.feedback if one.name == DEMONSTRATION and isinstance(one.value, str) and one.value.strip()
    )
