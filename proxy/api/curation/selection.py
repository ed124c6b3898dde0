"""Do one thing with several selected trajectories, with an answer for each; the pages use it too.

Owns: the scope of each action, and one answer for each trajectory. Refuses: what an action does to a trajectory, which
is the same as for a single one.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from litestar import Response, post
from litestar.params import JSONBody

from proxy.admission.auth import Caller
from proxy.api.actions import HoneActions, caller_id, own_trajectory_id
from proxy.api.curation.bodies import Answer, Outcome, Selection, SelectionAction
from proxy.api.route_parts import AnyRequest, Injected, caller_of, json_response, response_spec
from proxy.errors import BadRequest, CallerError
from recorder.curation import datasets
from recorder.curation.review_requests import request_review
from recorder.errors import RecorderError, StoreError
from recorder.ids import check_external
from recorder.maintenance import deletion
from recorder.queue.feedback import set_tag
from recorder.registry.keys import Scope
from recorder.states import TrajectoryState
from recorder.views.review.trajectories import has_counterpart
from recorder.views.trajectories.transcripts import trajectory_states

ASKED: Final = "asked"  # the ledger's reason of a deletion without one
_MERGE_S: Final = 5.0  # a deletion waits no longer for the bytes to leave a large index
_NEEDS: Final[Mapping[SelectionAction, Scope]] = {
    SelectionAction.CLOSE: Scope.FEEDBACK,
    SelectionAction.REVIEW: Scope.FEEDBACK,
    SelectionAction.TAG: Scope.ADMIN,
    SelectionAction.DELETE: Scope.ADMIN,
    SelectionAction.DATASET: Scope.ADMIN,
}
_Act = Callable[[str], Awaitable[Outcome]]
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SelectionResult:
    """What became of each selected trajectory, in the order of the request, and how many of each outcome there are."""

    action: SelectionAction
    done: int
    unchanged: int
    failed: int
    answers: Sequence[Answer]


@dataclass(slots=True)
class _Answers:
    """The answers so far, by the name of the trajectory. After the store failed, nothing further is tried."""

    by_name: dict[str, Answer] = field(default_factory=dict)
    stopped: StoreError | None = None

    async def collect(self, named: str, work: Callable[[], Awaitable[Outcome]]) -> None:
        if self.stopped is not None:
            self.by_name[named] = Answer(named, Outcome.FAILED, f"not tried: {self.stopped}")
            return
        try:
            self.by_name[named] = Answer(named, await work())
        except (RecorderError, CallerError, ValueError) as e:
            self.by_name[named] = Answer(named, Outcome.FAILED, str(e))
            self.stopped = e if isinstance(e, StoreError) else None


async def apply_selection(hone: HoneActions, caller: Caller, wanted: Selection) -> SelectionResult:
    """Do the action with each trajectory that the caller may change.

    Raises Forbidden (the action needs another scope), BadRequest (it needs a tag or a dataset), NotFound (dataset),
    InvalidId (tag), Conflict (the dataset is full).
    """
    caller.require(_NEEDS[wanted.action], f"the action {wanted.action.value}")
    _require_fields(wanted)
    found, answers = await resolve(hone, caller, wanted.trajectory_ids)
    act = await _action(hone, caller, wanted, list(found.values()))
    try:
        for named, id_ in found.items():
            await answers.collect(named, lambda id_=id_: act(id_))  # type: ignore[misc]
    finally:
        if wanted.action is SelectionAction.DELETE:
            await deletion.erase_deleted_words(hone.project.store, merge_s=_MERGE_S)
    in_order = [answers.by_name[named] for named in dict.fromkeys(wanted.trajectory_ids)]
    number = Counter(one.outcome for one in in_order)
    log.info("%s of %d trajectories by %s: %s", wanted.action, len(in_order), caller_id(caller), dict(number))
    done, unchanged, failed = number[Outcome.DONE], number[Outcome.UNCHANGED], number[Outcome.FAILED]
    return SelectionResult(wanted.action, done, unchanged, failed, in_order)


async def resolve(hone: HoneActions, caller: Caller, names: Sequence[str]) -> tuple[dict[str, str], _Answers]:
    """Return the internal id of each trajectory that the caller may change, by its name, and the other answers."""
    answers, found = _Answers(), dict[str, str]()

    async def find(named: str) -> Outcome:
        found[named] = await own_trajectory_id(hone, caller, named)
        return Outcome.UNCHANGED

    for named in dict.fromkeys(names):
        await answers.collect(named, lambda named=named: find(named))  # type: ignore[misc]
    return found, answers


def _require_fields(wanted: Selection) -> None:
    if wanted.action is SelectionAction.TAG:
        check_external(wanted.tag or "", "the tag")
    if wanted.action is SelectionAction.DATASET and not wanted.dataset:
        raise BadRequest("name the dataset that the trajectories are added to.", param="dataset")


async def _action(hone: HoneActions, caller: Caller, wanted: Selection, ids: Sequence[str]) -> _Act:
    """Return what is done with each trajectory."""
    project, by = hone.project, caller_id(caller)
    match wanted.action:
        case SelectionAction.CLOSE:
            states = await trajectory_states(project.store, ids)

            async def close(id_: str) -> Outcome:
                await hone.recorder.close(project.id, id_)
                return Outcome.DONE if states.get(id_) is TrajectoryState.OPEN else Outcome.UNCHANGED

            return close
        case SelectionAction.TAG:
            redacted = wanted.value and str(await hone.recorder.redaction.redact_value(wanted.value))

            async def tag(id_: str) -> Outcome:
                await set_tag(project, id_, wanted.tag or "", redacted or None)
                return Outcome.DONE

            return tag
        case SelectionAction.DELETE:
            why = ", ".join(filter(None, ((wanted.reason or "").strip() or ASKED, f"by {by}")))

            async def drop(id_: str) -> Outcome:
                await deletion.delete_trajectory(project, id_, why)
                return Outcome.DONE

            return drop
        case SelectionAction.DATASET:
            changes = await datasets.add_to_dataset(project, wanted.dataset or "", ids)

            async def collected(id_: str) -> Outcome:
                return as_outcome(id_, changes[id_])

            return collected
        case SelectionAction.REVIEW:

            async def review(id_: str) -> Outcome:
                if not await has_counterpart(project, id_):
                    raise BadRequest(
                        "it is not completed, or its group has no other completed trajectory to compare it with."
                    )
                return Outcome.DONE if await request_review(project, id_, by) else Outcome.UNCHANGED

            return review


def as_outcome(id_: str, change: datasets.Change) -> Outcome:
    """Return what became of a trajectory that was added to a dataset, or removed. Raises BadRequest if it is gone."""
    if change is datasets.Change.MISSING:
        raise BadRequest(f"the trajectory {id_} was deleted meanwhile.")
    return Outcome(change.value)


@post("/hone/v1/selection", status_code=200, responses=response_spec(200, SelectionResult))
async def change_selection(hone: Injected, request: AnyRequest, data: JSONBody[Selection]) -> Response[bytes]:
    """Close, tag or delete up to 500 trajectories, add them to a dataset, or put them into the review queue.

    Each gets an answer; one that fails does not stop the others. `close` and `review` need the scope `feedback`, for
    trajectories of other keys `feedback-all`. The other actions need `admin`.
    """
    return json_response(await apply_selection(hone, caller_of(request), data))
