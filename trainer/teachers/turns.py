"""The turns of a trajectory that a teacher may be asked about. Pure.

Owns: which answers these are, and their rows with lessons. Refuses: hints (`trainer.teachers.hindsight`), a stronger
model's logprobs (`trainer.teachers.distill`), and loading trajectories (`trainer.teachers.reader`).

The loss has a ratio to the engine that sampled the answer. So the rules are those of scored groups: the engine's
logprobs, the same base, at most `trainer.max_age` steps.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from recorder.states import CallKind
from recorder.views.trajectories.shapes import CallView, ChoiceView, TrajectoryView
from trainer.batch.row_builder import Row, RowBuilder, TrainedTurn, extend_rows
from trainer.batch.rows import ROW_TOO_LONG, RowBasis, SkippedChoice, sampled_turn, why_not_trained
from trainer.batch.weights import LessonRow
from trainer.objectives.imitate_rows import why_no_candidate

CallChoice = tuple[str, int]  # (call id, choice)


@dataclass(frozen=True, slots=True)
class UsableTurn:
    """An answer that a teacher may be asked about."""

    call: CallView
    choice: ChoiceView
    turn: TrainedTurn

    @property
    def key(self) -> CallChoice:
        """Its call and choice."""
        return self.turn.call


@dataclass(frozen=True, slots=True)
class TrajectoryLessons:
    """The rows of a trajectory with their lessons, and the turns that had a hint and are not trained on."""

    trajectory_id: str
    rows: Sequence[LessonRow] = ()
    skipped: Sequence[SkippedChoice] = field(default_factory=tuple)


def usable_turns(view: TrajectoryView, basis: RowBasis, keys: Collection[CallChoice]) -> list[UsableTurn]:
    """Return those of these answers that are on a trajectory's main path and may be trained on, in order."""
    if why_no_candidate(view) is not None:
        return []
    found = []
    wanted = set(view.main_path) & set(keys)
    for call in view.calls:
        choice = next((one for one in call.choices if (call.id, one.index) in wanted), None)
        if choice is None or call.call_kind is not CallKind.MAIN:
            continue
        if why_not_trained(view, call, choice, basis) is None:
            found.append(UsableTurn(call, choice, sampled_turn(call, choice, basis)))
    return found


def join_turns(trajectory_id: str, turns: Sequence[TrainedTurn]) -> list[Row]:
    """Return the rows of some turns of a trajectory."""
    rows: list[RowBuilder] = []
    for turn in turns:
        extend_rows(rows, turn)
    return [row.finish(trajectory_id) for row in rows]


def lone_row(trajectory_id: str, turn: TrainedTurn) -> Row:
    """Return a row with a single turn."""
    (row,) = join_turns(trajectory_id, [turn])
    return row


def split_by_room(turns: Sequence[UsableTurn], basis: RowBasis) -> tuple[list[UsableTurn], list[CallChoice]]:
    """Return the turns whose row the trainer computes, and the others' keys."""
    room = {one.key: basis.has_room(len(one.turn.prompt) + len(one.turn.answer)) for one in turns}
    return [one for one in turns if room[one.key]], [key for key, has_room in room.items() if not has_room]


def skip(trajectory_id: str, key: CallChoice, code: str = ROW_TOO_LONG) -> SkippedChoice:
    """Return a turn that is not trained on, with its reason."""
    return SkippedChoice(trajectory_id, *key, code)
