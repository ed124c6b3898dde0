"""One version in detail: its ancestry, the decisions about it, what it learned at held-out tasks, what it was trained
on, and its tasks compared with those of another version.

Owns: combining these. Refuses: each of them (the other modules of this folder).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from recorder.errors import Conflict
from recorder.registry.aliases import get_alias
from recorder.registry.versions import VersionView, get_version, get_version_by_name
from recorder.store.database import Project
from recorder.views.versions.ancestry import AncestryVersion, load_ancestry_version
from recorder.views.versions.before_after import AnswerComparison, SharedTask, compare_answers, list_shared_tasks
from recorder.views.versions.evidence import Decision, EvidenceSentence, list_decisions
from recorder.views.versions.held_out import HeldOutComparison, describe_held_out
from recorder.views.versions.held_out_rows import load_held_out
from recorder.views.versions.steps import StepSummary, list_steps
from recorder.views.versions.training_data import TrainingData, load_training_data


@dataclass(frozen=True, slots=True)
class VersionDetail:
    """One version. `compared_with`: the version whose tasks are compared with its own; by default its parent.

    `held_out`: held-out tasks beside its parent, or the newest version that was measured before, by source; `evidence`:
    these comparisons and its gate's figures in sentences. `trained_on`: None for version 0.
    """

    version: AncestryVersion
    moves: Sequence[Decision]
    step: StepSummary | None
    held_out: Sequence[HeldOutComparison]
    evidence: Sequence[EvidenceSentence]
    trained_on: TrainingData | None
    compared_with: str | None
    tasks: Sequence[SharedTask]
    answers: AnswerComparison | None  # to the requested task


async def version_detail(
    project: Project, name: str, compare_with: str | None = None, task: str | None = None
) -> VersionDetail:
    """Return the version called `name` (helpdesk@3), compared with another version of its alias or with its parent.

    `task`: the key of a task to compare the answers of. Raises NotFound, Conflict.
    """
    version = await get_version_by_name(project, name)
    ancestry_version = await load_ancestry_version(project.store, await get_alias(project, version.alias_name), version)
    other = await get_version_by_name(project, compare_with) if compare_with else None
    if other is not None and other.alias_id != version.alias_id:
        raise Conflict(f"{other.name} is of another alias than {version.name}: name a version of {version.alias_name}")
    parent = await get_version(project.store, version.parent_id) if version.parent_id is not None else None
    other = other or parent
    trained = ancestry_version.trained
    held_out = await _held_out(project, ancestry_version, parent)
    tasks: Sequence[SharedTask] = await list_shared_tasks(project.store, other, version) if other is not None else ()
    return VersionDetail(
        version=ancestry_version,
        moves=await list_decisions(project, version_ids=[version.id]),
        step=next(iter(await list_steps(project, version_id=version.id, limit=1)), None),
        held_out=held_out,
        evidence=describe_version(ancestry_version, held_out),
        trained_on=await load_training_data(project.store, trained.step_id) if trained is not None else None,
        compared_with=other.name if other is not None else None,
        tasks=tasks,
        answers=await compare_answers(project.store, tasks, task) if task is not None else None,
    )


async def load_evidence(project: Project, version: AncestryVersion) -> tuple[EvidenceSentence, ...]:
    """Return what held-out tasks, its gate and the newest decision say about a version, in sentences."""
    parent = await get_version(project.store, version.parent_id) if version.parent_id is not None else None
    return describe_version(version, await _held_out(project, version, parent))


def describe_version(version: AncestryVersion, held_out: Sequence[HeldOutComparison]) -> tuple[EvidenceSentence, ...]:
    """Return the evidence about a version in sentences: held-out tasks, its gate, and the newest decision about it."""
    decisions = [version.checked, version.decided if version.decided != version.checked else None]
    told = [sentence for one in decisions if one is not None for sentence in one.evidence]
    return (*(EvidenceSentence(describe_held_out(one)) for one in held_out), *told)


async def _held_out(
    project: Project, version: AncestryVersion, parent: VersionView | None
) -> Sequence[HeldOutComparison]:
    if parent is None:
        return ()
    decided_at = version.checked.at if version.checked is not None else None
    return await load_held_out(project, version, parent, decided_at)
