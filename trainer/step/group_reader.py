"""Claimed groups as rows: their scores, trajectories with tokens, and baselines from the store.

Refuses: the rules of rows and advantages (`trainer.objectives`), and excluding groups (`trainer.step.alias_trainer`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from recorder.queue.claims import GroupClaim
from recorder.queue.groups.same_request import counts_in_own_group
from recorder.queue.judging import scores
from recorder.queue.judging.calibrations import load_agreements
from recorder.queue.judging.scores import NewPart, part_rewards
from recorder.queue.judging.turn_values import read_turn_values
from recorder.registry import versions
from recorder.registry.versions import VersionView
from recorder.store.database import Project
from recorder.views.trajectories import transcripts
from recorder.views.trajectories.shapes import GroupView
from trainer.batch.recorded_text import TextCheck
from trainer.batch.rows import FitsAlone, RowBasis
from trainer.errors import TrainerError
from trainer.measures.round_figures import health_figures
from trainer.objectives.group_rows import GroupRows, group_rows
from trainer.settings import TrainerSettings
from trainer.step import baselines
from trainer.step.state.results import PhaseSeconds
from trainer.step.state.torch_thread import TorchThread


@dataclass(frozen=True, slots=True)
class ClaimedScore:
    """The score that a group was claimed with. `judge_hash`: of the judge model in its rewards, if there is one;
    `follow_up`: what users wrote next has a part in them.
    """

    parts: Sequence[NewPart] = ()
    judge_hash: str | None = None
    follow_up: bool = False


@dataclass(frozen=True, slots=True)
class ReadGroups:
    """The rows of claimed groups, and the figures of their trajectories that health rules read."""

    rows: list[GroupRows]
    figures: Mapping[str, float]


class GroupReader:
    """Reads groups for a trainer."""

    def __init__(
        self, project: Project, settings: TrainerSettings, fingerprint: str, fits_alone: FitsAlone, torch: TorchThread
    ) -> None:
        """`fingerprint`: of the base that is trained. `fits_alone`: as in `RowBasis`. Rows are made in the thread."""
        self._project = project
        self._store = project.store
        self._settings = settings
        self._fingerprint = fingerprint
        self._fits_alone = fits_alone
        self._torch = torch

    async def load_scores(self, held: Sequence[GroupClaim], seconds: PhaseSeconds) -> dict[str, ClaimedScore]:
        """Return what a step takes of the scores that the groups were claimed with, by group.

        Raises `TrainerError` for a claim without a score.
        """
        of_group: dict[str, str] = {}
        for claim in held:
            if claim.score_id is None:
                raise TrainerError(f"group {claim.group_id} was claimed for training but has no score")
            of_group[claim.group_id] = claim.score_id
        with seconds.phase("read"):
            found = await scores.get_scores(self._store, of_group.values())
        claimed = {id_: ClaimedScore(score.parts, score.judge_hash, score.follow_up) for id_, score in found.items()}
        return {group_id: claimed.get(id_, ClaimedScore()) for group_id, id_ in of_group.items()}

    async def read(
        self,
        scored: Mapping[str, ClaimedScore],
        parent: VersionView,
        seconds: PhaseSeconds,
        text: TextCheck | None,
    ) -> ReadGroups:
        """Return the rows of the groups, for a step from `parent`. `text`: compares answers with their ids."""
        ancestry = await versions.list_ancestors(self._store, parent.id)
        ids = list(scored)
        in_own = await counts_in_own_group(self._store, ids)
        settings = self._settings
        basis = RowBasis(
            self._fingerprint, ancestry, settings.max_age, settings.token_budget, in_own, text, self._fits_alone
        )
        with seconds.phase("read"):
            views = await transcripts.load_groups(self._store, ids, with_tokens=True)
            rewards = [part_rewards(scored[view.id].parts) for view in views]
            judges = {score.judge_hash for score in scored.values() if score.judge_hash is not None}
            agreements = await load_agreements(self._project, judges)
            compared = await baselines.load_baselines(self._store, views)

        def rows_of(view: GroupView, given: Mapping[str, float | None]) -> GroupRows:
            judge = scored[view.id].judge_hash
            known = agreements.get(judge) if judge is not None else None
            return group_rows(
                view,
                given,
                basis,
                rule=settings.advantage,
                baselines=compared.get(view.id),
                min_spread=settings.min_spread if judge is not None else 0.0,
                agreement=known.agreement if known is not None else None,
                turns=read_turn_values(scored[view.id].parts),
                turn_weight=settings.turn_weight,
            )

        by_score = {view.current_score_id or "": scored[view.id] for view in views}

        def read_all() -> ReadGroups:
            rows = [rows_of(view, given) for view, given in zip(views, rewards, strict=True)]
            return ReadGroups(rows, health_figures(views, by_score))

        with seconds.phase("rows"):
            return await self._torch.run(read_all)
