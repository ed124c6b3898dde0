"""Bodies of the requests of this folder, and the answer for each of several trajectories.

Refuses: handling them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

from recorder.curation.saved_filters import FilteredList

MOST: Final = 500  # trajectories of one request
MAX_REASON_CHARS: Final = 500
_Ids = Annotated[list[str], Field(max_length=MOST)]


class SelectionAction(StrEnum):
    """What is done with each selected trajectory."""

    CLOSE = "close"
    TAG = "tag"
    DELETE = "delete"
    DATASET = "add_to_dataset"
    REVIEW = "review"


class Outcome(StrEnum):
    """What became of one trajectory."""

    DONE = "done"
    UNCHANGED = "unchanged"  # nothing was to be done: it had ended, was in the dataset, or waited for review
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of one trajectory. `trajectory_id`: as the request named it. `detail`: why it failed."""

    trajectory_id: str
    outcome: Outcome
    detail: str | None = None


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class Selection(_Body):
    """Selected trajectories, and what is done with each."""

    trajectory_ids: Annotated[_Ids, Field(min_length=1)]
    """Hone's own ids, or the ids that callers gave."""
    action: SelectionAction
    """`close` ends a trajectory, `review` puts it into the review queue."""
    tag: str | None = None
    """With `tag`: the name of the tag."""
    value: str | None = None
    """With `tag`: the value of the tag. Without one, the tag is removed."""
    dataset: str | None = None
    """With `add_to_dataset`: the name of the dataset."""
    reason: str | None = Field(None, max_length=MAX_REASON_CHARS)
    """With `delete`: the reason, recorded in the ledger."""


class NewDataset(_Body):
    """A new dataset."""

    name: str
    """Its name: up to 128 of A-Z a-z 0-9 . _ : ~ -"""
    trajectory_ids: _Ids = []
    """Its first trajectories."""


class DatasetChange(_Body):
    """Trajectories that are added to a dataset, and removed from it."""

    add: _Ids = []
    """Hone's own ids, or the ids that callers gave."""
    remove: _Ids = []
    """Hone's own ids, or the ids that callers gave."""


class NewFilter(_Body):
    """A filter of a list that is kept under a name."""

    list: FilteredList
    """The list."""
    name: str
    """Its name. A saved filter of the same name is replaced."""
    query: str = Field(max_length=10_000)
    """The filters, and `sort`, as in the query of the list: `state=open&alias=helpdesk`."""
