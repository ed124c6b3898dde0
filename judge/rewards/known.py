"""Verdicts at hand: what a judge said about a run by some criteria is not asked again.

Owns: under which key a verdict is found again, and keeping those that come at one time in one transaction. Refuses: the
rows (`recorder.work.verdicts`), and who is asked about what (`judge.rewards.rubric`).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

from judge.errors import Spent
from judge.llm.rubric import Checked
from judge.llm.rubric_prompt import content_hash
from judge.llm.rubric_reader import Met
from judge.llm.shown import Run
from judge.settings import JudgeSettings
from recorder.errors import StoreError
from recorder.store.project import Project
from recorder.work import verdicts
from recorder.work.verdicts import KeptVerdicts, NewVerdicts

# What a verdict depends on beside the response and the criteria. `extra` is there where further parameters are.
_ASKED_BY: Final = {"model", "api_base", "temperature", "max_context_chars", "extra"}


class Known:
    """Verdicts that were paid for, under the settings in force.

    With `keep` false nothing is written. With `again` none is at hand, and what is said replaces what was said before.
    """

    def __init__(self, settings: JudgeSettings, project: Project, *, keep: bool = True, again: bool = False) -> None:
        self._settings = settings
        self._by = settings.model_dump(mode="json", include=_ASKED_BY)
        self._project = project
        self._keep = keep
        self._again = again
        self._waiting: list[NewVerdicts] = []
        self._writing = asyncio.Lock()

    def afresh(self) -> Known:
        """The same, with none at hand: what is said replaces what was said before."""
        return Known(self._settings, self._project, keep=self._keep, again=True)

    def key(self, run: Run, texts: Sequence[str], *, evidence: bool) -> str:
        """Equal where the same judge is asked the same. It may take a while: not for the event loop."""
        asked = [self._by, content_hash(run, texts, evidence=evidence)]
        return blake2b(json.dumps(asked, sort_keys=True).encode(), digest_size=16).hexdigest()

    async def find(self, keys: Sequence[str]) -> dict[str, Checked]:
        """What was said under these keys, by key."""
        if self._again:
            return {}
        found = await verdicts.find(self._project, keys)
        return {key: _checked(kept) for key, kept in found.items()}

    async def keep(self, key: str, run_id: str, checked: Checked) -> None:
        """Keep what was said, before this returns. Where the store takes it not, it is asked again if it has to be."""
        if not self._keep:
            return
        said = json.dumps([[one.met, one.reason, one.quote] for one in checked.verdicts])
        self._waiting.append(NewVerdicts(key, run_id, said, checked.version))
        async with self._writing:  # who waits here may find that the one before wrote both
            together, self._waiting = self._waiting, []
            if together:
                with contextlib.suppress(StoreError):
                    await verdicts.keep(self._project, together, anew=self._again)


def _checked(kept: KeptVerdicts) -> Checked:
    return Checked([Met(*one) for one in json.loads(kept.verdicts)], kept.judge_version, Spent())
