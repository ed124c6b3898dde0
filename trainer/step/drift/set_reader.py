"""The drift set of an alias as rows, and the versions of a day and of a week ago.

Owns: which recorded answers are measured, and how much of a trajectory. Refuses: drawing the set
(`recorder.queue.training.drift_set`), and which version is a day old (`recorder.registry.kept_versions`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from recorder.queue.leases import Lease
from recorder.queue.training import drift_set
from recorder.registry import kept_versions
from recorder.registry.kept_versions import DAY_S, WEEK_S
from recorder.registry.versions import VersionView
from recorder.states import CallKind, CallState
from recorder.store import sql
from recorder.store.database import Project
from recorder.views.trajectories.shapes import CallView, ChoiceView, TrajectoryView
from recorder.views.trajectories.transcripts import load_trajectories
from trainer.batch.row_builder import Row, RowBuilder, TrainedTurn, as_ids, extend_rows
from trainer.settings import TrainerSettings
from trainer.step.drift.request import DAY, WEEK, DriftRequest
from trainer.step.state.results import StartVersion

_AGES = {DAY: DAY_S, WEEK: WEEK_S}


class DriftReader:
    """Draws and reads one alias's drift set."""

    def __init__(self, project: Project, alias_id: str, fingerprint: str, settings: TrainerSettings) -> None:
        """`fingerprint`: of the base."""
        self._project = project
        self._alias_id = alias_id
        self._fingerprint = fingerprint
        self._size = settings.drift_trajectories
        self._tokens = min(settings.drift_tokens, settings.token_budget)

    async def draw(self, lease: Lease) -> None:
        """Draw what the set lacks, before anything that it might hold is trained on. `lease`: the trainer's."""
        if self._size > 0:
            await drift_set.draw_members(self._project, self._alias_id, self._fingerprint, self._size, lease)

    async def load(self, parent: VersionView) -> DriftRequest | None:
        """Return what a version trained from `parent` is measured on; None: there is no set, or none yet."""
        if self._size == 0:
            return None
        store = self._project.store
        ids = await drift_set.list_members(store, self._alias_id, self._fingerprint, self._size)
        views = await load_trajectories(store, ids, with_tokens=True)
        rows = [row for view in views for row in context_rows(view, self._fingerprint, self._tokens)]
        if not rows:
            return None
        async with store.read() as conn:
            line = await kept_versions.read_line(conn, parent.id)
            at = await sql.current_time(conn)
        found = {name: kept_versions.version_of_age(line, age_s, at) for name, age_s in _AGES.items()}
        earlier = {
            name: StartVersion(one.id, Path(one.path), one.manifest_sha256)
            for name, one in found.items()
            if one is not None and one.path is not None
        }
        return DriftRequest(rows, earlier)


def context_rows(trajectory: TrajectoryView, fingerprint: str, most_tokens: int) -> list[Row]:
    """Return the rows of a trajectory's answers that a base with this fingerprint sampled, of `most_tokens` in all.

    What follows is cut off: an answer's beginning depends on nothing after it.
    """
    rows: list[RowBuilder] = []
    for call, choice in _answers(trajectory, fingerprint):
        assert call.prompt_token_ids is not None
        assert choice.token_ids is not None
        turn = TrainedTurn((call.id, choice.index), as_ids(call.prompt_token_ids), as_ids(choice.token_ids))
        extend_rows(rows, turn)
    return list(_cut_rows([row.finish(trajectory.id) for row in rows], most_tokens))


def _answers(trajectory: TrajectoryView, fingerprint: str) -> Iterator[tuple[CallView, ChoiceView]]:
    for call in trajectory.calls:
        whole = call.state is CallState.COMPLETE and call.superseded_by is None and call.call_kind is not CallKind.AUX
        if whole and call.base_fingerprint == fingerprint and call.prompt_token_ids:
            yield from ((call, one) for one in call.choices if one.trainable and one.token_ids)


def _cut_rows(rows: Sequence[Row], most_tokens: int) -> Iterator[Row]:
    left = most_tokens
    for row in rows:
        part = slice(left)
        one = replace(
            row,
            token_ids=row.token_ids[part],
            trained=row.trained[part],
            behaviour=row.behaviour[part],
            temperature=row.temperature[part],
            age=row.age[part],
        )
        left -= len(one)
        if one.trained.any():
            yield one
        if left <= 0:
            return
