"""Verdicts on single trajectories that were paid for, under the current settings.

Owns: their keys, and writing them together. Refuses: what a verdict is (`judge.rewards.rubrics`,
`judge.rewards.follow_ups`, `judge.rewards.turns`), and the rows (`recorder.queue.judging.records`).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, Final

from judge.settings import JudgeSettings
from recorder.errors import StoreError
from recorder.queue.judging import records
from recorder.queue.judging.records import CachedVerdicts, NewVerdicts
from recorder.store.database import Project

# The settings that a verdict depends on, beside the question.
_ASKED_BY: Final = {"model", "api_base", "temperature", "max_context_chars", "extra"}


class VerdictCache:
    """Stored verdicts by the hash of a question. With `keep` false nothing is written.

    With `again` none is reused, and new ones replace the old.
    """

    def __init__(self, settings: JudgeSettings, project: Project, *, keep: bool = True, again: bool = False) -> None:
        self._settings = settings
        self._by = settings.model_dump(mode="json", include=_ASKED_BY)
        self._project = project
        self._keep = keep
        self._again = again
        self._waiting: list[NewVerdicts] = []
        self._writing = asyncio.Lock()

    def afresh(self) -> VerdictCache:
        """The same without reuse: new verdicts replace the old."""
        return VerdictCache(self._settings, self._project, keep=self._keep, again=True)

    def key(self, question: Any) -> str:
        """A key that is equal for equal questions (JSON) to the same judge."""
        return blake2b(json.dumps([self._by, question], sort_keys=True).encode(), digest_size=16).hexdigest()

    async def find(self, keys: Sequence[str]) -> dict[str, CachedVerdicts]:
        """The stored verdicts, by key."""
        return {} if self._again else await records.find_verdicts(self._project, keys)

    async def keep(self, key: str, run_id: str, verdicts: str, version: str | None) -> None:
        """Store verdicts (JSON) before returning. If the store refuses, they are requested again when needed."""
        if not self._keep:
            return
        self._waiting.append(NewVerdicts(key, run_id, verdicts, version))
        async with self._writing:  # the call before this one may have written these verdicts too
            together, self._waiting = self._waiting, []
            if together:
                with contextlib.suppress(StoreError):
                    await records.keep_verdicts(self._project, together, anew=self._again)
