"""Datasets in /hone/v1: list, create, show, change, delete.

Refuses: what a dataset is (`recorder.curation.datasets`); its trajectories are listed by `/hone/v1/trajectories`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from litestar import Response, delete, get, post
from litestar.params import JSONBody, PathParameter

from proxy.admission.auth import Caller
from proxy.api.actions import HoneActions, caller_id
from proxy.api.curation.bodies import Answer, DatasetChange, NewDataset, Outcome
from proxy.api.curation.selection import as_outcome, resolve
from proxy.api.route_parts import AnyRequest, Injected, caller_of, json_response, response_spec
from recorder.curation import datasets
from recorder.curation.datasets import Dataset

DatasetName = Annotated[str, PathParameter(description="The dataset's name.")]


@dataclass(frozen=True, slots=True)
class DatasetDetail:
    """A dataset, and the ids of its trajectories, the newest trajectory first."""

    dataset: Dataset
    trajectory_ids: Sequence[str]


@dataclass(frozen=True, slots=True)
class ChangedDataset:
    """A dataset after a change, and what became of each trajectory."""

    dataset: Dataset
    answers: Sequence[Answer]


@get("/hone/v1/datasets", responses=response_spec(200, list[Dataset]))
async def show_datasets(hone: Injected) -> Response[bytes]:
    """List the datasets, by name. `deleted` counts their trajectories that were deleted from the store since."""
    return json_response(await datasets.list_datasets(hone.project))


@post("/hone/v1/datasets", status_code=201, responses=response_spec(201, ChangedDataset))
async def create_dataset(hone: Injected, request: AnyRequest, data: JSONBody[NewDataset]) -> Response[bytes]:
    """Create a dataset, a named list of trajectories. A name that is taken is refused."""
    caller = caller_of(request)
    made = await datasets.create_dataset(hone.project, data.name, caller_id(caller))
    changed = await _change(hone, caller, made.name, data.trajectory_ids, ())
    answer = json_response(changed)
    answer.status_code = 201
    return answer


@get("/hone/v1/datasets/{name:str}", responses=response_spec(200, DatasetDetail))
async def show_dataset(hone: Injected, name: DatasetName) -> Response[bytes]:
    """Return a dataset with the ids of its trajectories. `/hone/v1/trajectories?dataset=` lists these with figures."""
    found = await datasets.get_dataset(hone.project, name)
    return json_response(DatasetDetail(found, await datasets.dataset_ids(hone.project, name)))


@post("/hone/v1/datasets/{name:str}/trajectories", status_code=200, responses=response_spec(200, ChangedDataset))
async def change_dataset(
    hone: Injected, request: AnyRequest, name: DatasetName, data: JSONBody[DatasetChange]
) -> Response[bytes]:
    """Add up to 500 trajectories to a dataset, and remove up to 500. Each gets an answer."""
    await datasets.get_dataset(hone.project, name)
    return json_response(await _change(hone, caller_of(request), name, data.add, data.remove))


@delete("/hone/v1/datasets/{name:str}", status_code=200, responses=response_spec(200, Dataset))
async def delete_dataset(hone: Injected, name: DatasetName) -> Response[bytes]:
    """Delete a dataset, and return what it was. Its trajectories stay."""
    found = await datasets.get_dataset(hone.project, name)
    await datasets.delete_dataset(hone.project, name)
    return json_response(found)


async def _change(
    hone: HoneActions, caller: Caller, name: str, add: Sequence[str], remove: Sequence[str]
) -> ChangedDataset:
    answers: list[Answer] = []
    for names, change in ((add, datasets.add_to_dataset), (remove, datasets.remove_from_dataset)):
        found, others = await resolve(hone, caller, names)
        changes = await change(hone.project, name, list(found.values())) if found else {}
        for named, id_ in found.items():
            await others.collect(named, _outcome(id_, changes))
        answers += [others.by_name[named] for named in dict.fromkeys(names)]
    return ChangedDataset(await datasets.get_dataset(hone.project, name), answers)


def _outcome(id_: str, changes: Mapping[str, datasets.Change]) -> Callable[[], Awaitable[Outcome]]:
    async def outcome() -> Outcome:
        return as_outcome(id_, changes[id_])

    return outcome
