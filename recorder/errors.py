"""All errors of the recorder, as one tree.

RecorderError
├── StoreError                the store cannot be opened, is locked or is full
│   ├── SchemaMismatch        another version of Hone wrote the store
│   └── StoreUnavailable      a commit failed or took too long
│       ├── RolledBack        nothing was committed: the write may be repeated
│       └── TooSlow           a read exceeded its time limit
├── NotFound                  no such object
├── Conflict                  a guarded change found another state than it requires
│   ├── LeaseLost             the lease expired and another owner took over
│   └── VersionPending        a version of the alias is not decided yet, so no step may begin
├── StalePreparation          something was deleted after a write was prepared
├── NotOwner                  the trajectory belongs to another key
├── InvalidId                 an external id has a form that is not allowed
├── FilterInvalid             a list has no such filter, or the filter no such value
├── RubricInvalid             a rubric that cannot produce a reward
├── BaseInvalid               what is named as a base model is none, or not all there
├── ModelFailed               a model gave no answer: unreachable, too slow, or it refused
├── ReplyUnreadable           a model's reply contains no JSON document
├── AdaptersUnavailable       `adapters.url` does not answer, refuses, or a disk is full: it may be tried again
├── AdapterDamaged            an adapter's files are not those that it was published with
└── CorruptRecord             stored bytes contradict their own lengths or hashes
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from recorder.base.errors import HoneError

FailureKind = Literal["timeout", "refused", "filtered", "busy", "down"]


class RecorderError(HoneError):
    """Base of all errors of this package. The message says what, where and what to do."""


class StoreError(RecorderError):
    """The store cannot be used."""


class SchemaMismatch(StoreError):
    """The store's schema is not the one this program was written for."""


class StoreUnavailable(StoreError):
    """A write could not be committed."""


class RolledBack(StoreUnavailable):
    """The database was unavailable or ended a transaction. Nothing is committed: the transaction may be run again."""


class TooSlow(StoreUnavailable):
    """A read exceeded its time limit. A smaller read, or the same read under less load, may succeed."""


class BaseInvalid(RecorderError):
    """What is named as a base model cannot be one, or is not all there."""


class NotFound(RecorderError):
    """No object has that id."""


class Conflict(RecorderError):
    """An object is not in the state that the change requires."""


class LeaseLost(Conflict):
    """The lease expired and another owner holds the object."""


class VersionPending(Conflict):
    """A version of the alias exists and is not decided yet, so no step may begin."""


class StalePreparation(RecorderError):
    """Something was deleted after a write was prepared, so it has to be prepared again."""

    def __init__(self, deletions: Mapping[str, int]) -> None:
        super().__init__("something was deleted from the store meanwhile")
        self.deletions = deletions  # by project, the current number of deletions


class NotOwner(RecorderError):
    """A call named a trajectory that belongs to another key."""


class InvalidId(RecorderError):
    """An id does not match ``[A-Za-z0-9._:~-]{1,128}``, or is ``.`` or ``..``."""


class FilterInvalid(RecorderError):
    """A list has no such filter, or the filter does not accept this value. `word`: the filter."""

    def __init__(self, message: str, word: str) -> None:
        super().__init__(message)
        self.word = word


class SettingInvalid(RecorderError):
    """A setting does not accept this value. The message is that of the same value in hone.toml."""


class RubricInvalid(RecorderError):
    """A scenario's criteria cannot be judged or cannot produce a reward.

    `place`: the position of the invalid one, from 1.
    """

    def __init__(self, message: str, place: int | None = None) -> None:
        super().__init__(message)
        self.place = place


class ModelFailed(RecorderError):
    """A model did not answer. The message begins with the model's name and contains no key.

    `how`: `timeout`, `refused`, `filtered` (by its provider's filter), `busy` (it asked for a pause that is longer than
    a request may take: `wait_s`, in seconds) or `down`.
    """

    def __init__(self, how: FailureKind, message: str, wait_s: float | None = None) -> None:
        super().__init__(message)
        self.how = how
        self.wait_s = wait_s


class ReplyUnreadable(RecorderError):
    """A reply is empty, too long, only thinking, or contains no JSON. The caller may send the request again."""


class AdaptersUnavailable(RecorderError):
    """The place of `adapters.url`, or the disk of its local copies, cannot be used now."""


class AdapterDamaged(RecorderError):
    """An adapter's files are not those that it was published with."""


class CorruptRecord(RecorderError):
    """Stored bytes contradict their own lengths or hashes."""
