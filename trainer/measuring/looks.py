"""What a validation's attempts looked like, as means: turns, sampled tokens, seconds, and each part of the reward.

Owns: these figures, by the names that `[[campaign.goals]]` may name. Pure. Refuses: the figures that health rules look
at (they have more of them), and success.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from recorder.reading.views import TrajectoryView
from recorder.states import CallState, TrajectoryState
from recorder.work.scores import REWARD, NewPart


def figures(members: Sequence[TrajectoryView], parts: Iterable[NewPart]) -> dict[str, float]:
    """Means over the attempts that ended by themselves; `parts` of other attempts do not count."""
    ended = {member.id: member for member in members if member.state is TrajectoryState.COMPLETED}
    values: defaultdict[str, list[float]] = defaultdict(list)
    for member in ended.values():
        answered = [call for call in member.calls if call.state is CallState.COMPLETE and call.superseded_by is None]
        values["turns"].append(float(len(answered)))
        tokens = [_sampled(call.usage) for call in answered]
        if answered and None not in tokens:
            values["tokens"].append(float(sum(count for count in tokens if count is not None)))
        if member.ended_at is not None:
            values["seconds"].append(max(0.0, member.ended_at - member.started_at))
    for part in parts:
        if part.trajectory_id in ended and part.part != REWARD and part.value is not None and not part.unasked:
            values[f"part.{part.part}"].append(part.value)
    return {name: sum(of) / len(of) for name, of in values.items()}


def _sampled(usage: object) -> int | None:
    count = usage.get("completion_tokens") if isinstance(usage, Mapping) else None
    return count if isinstance(count, int) else None
