"""What an error of the `tinker` library means for a step: one sentence, and whether another try may work.

Owns: the mapping from its exceptions. Refuses: retries, which the library makes itself before it raises.

The library's exceptions hold the request with its headers, so they are never chained to: what they say is masked and
shortened.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import tinker
from tinker.types import RequestErrorCategory

from trainer.errors import TinkerRefused, TinkerUnavailable, TrainerError
from trainer.step.tinker.secret import VARIABLE, ServiceKey

_LONGEST: Final = 300  # characters of what the service said
LOST: Final = frozenset({404, 410})  # a session, a model or a checkpoint that is gone
_KEY_REFUSED: Final = frozenset({401, 403})


def explain_failure(error: BaseException, what: str, key: ServiceKey) -> TrainerError:
    """The error to raise instead of the library's. `what`: what was asked for, as "saving the state"."""
    if isinstance(error, TrainerError):  # of the loss, which the library calls
        return error
    said = describe_error(error, key)
    status = find_status(error)
    where = f"{what} failed at the training service"
    if status in _KEY_REFUSED:
        return TinkerRefused(f"{where}: it refuses the key ({status}: {said}). Check {VARIABLE}, and what it may do")
    if status == 402:
        return TinkerRefused(f"{where}: the account cannot pay ({said}). Settle it with the service")
    if status == 429:
        return TinkerUnavailable(f"{where}: it limits the rate of requests ({said}). The groups are given back")
    if status in LOST:
        return TinkerUnavailable(f"{where}: it lost the session ({status}: {said}). The next step begins a new one")
    if status is not None and 400 <= status < 500 and status not in (408, 409):
        return TinkerRefused(f"{where}: it refuses the request ({status}: {said})")
    failed = next((one for one in _chain(error) if isinstance(one, tinker.RequestFailedError)), None)
    if failed is not None and failed.category is RequestErrorCategory.User:
        return TinkerRefused(f"{where}: it refuses the request ({said})")
    if failed is not None or status is not None:
        return TinkerUnavailable(f"{where}: it failed there ({said}). The groups are given back")
    return TinkerUnavailable(f"{where}: it does not answer ({said}). The groups are given back")


def is_lost(error: BaseException) -> bool:
    """Whether the service says that what was named does not exist there, or no longer does."""
    if find_status(error) in LOST:
        return True
    failed = next((one for one in _chain(error) if isinstance(one, tinker.RequestFailedError)), None)
    return failed is not None and any(word in failed.message.lower() for word in ("expired", "not found", "no such"))


def find_status(error: BaseException) -> int | None:
    """The HTTP status of an error, or of one that it came from; None: no answer arrived."""
    found = (getattr(one, "status_code", None) for one in _chain(error))
    return next((status for status in found if isinstance(status, int)), None)


def describe_error(error: BaseException, key: ServiceKey) -> str:
    """The first line of what an error says, masked and shortened."""
    text = next(iter(key.mask(str(error)).strip().splitlines()), "")
    return (text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…") or type(error).__name__


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    now: BaseException | None = error
    while now is not None and id(now) not in seen:
        seen.add(id(now))
        yield now
        now = now.__cause__ or now.__context__
