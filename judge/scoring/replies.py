"""Replies of the judge that are at hand: those in the store, and those that did not get there yet.

Owns: which reply answers a prompt under the recipe in force, and remembering what was paid for and not written yet.
Refuses: reading replies (`judge.llm.reader`), writing scores (`judge.scoring.worker`).
"""

from __future__ import annotations

from typing import Final

from judge.llm.prompt import Prompt
from judge.llm.ruler import Ruling
from judge.rewards.functions import FunctionPool
from judge.rewards.kind import Replies, Reply
from judge.scoring.combine import recipe_hash
from judge.settings import JudgeSettings
from recorder.lru import Lru
from recorder.store.database import Store
from recorder.work import scores

KEPT: Final = 256  # more than a worker has in hand; of some kilobytes each


class KeptReplies(Replies):
    """What one bench can do without asking again."""

    def __init__(self, store: Store, project_id: str, settings: JudgeSettings, functions: FunctionPool | None) -> None:
        self._store = store
        self._project_id = project_id
        self._settings = settings
        self._functions = functions
        self._unwritten: Lru[tuple[str, str], Reply] = Lru(KEPT)

    async def known(self, prompt_hash: str, checks: str) -> Reply | None:
        """The newest reply in the store, else one of this process."""
        recipe = self._recipe(checks)
        stored = await scores.cached(self._store, self._project_id, recipe, prompt_hash)
        if stored is not None and stored.reply is not None and stored.order_seed is not None:
            return Reply(stored.reply, stored.order_seed, stored.judge_version)
        return self._unwritten.get((recipe, prompt_hash))

    async def keep(self, prompt: Prompt, ruling: Ruling, checks: str) -> None:
        """Until the score is in the store: it may be refused there, or dropped with a lease that ran out."""
        if ruling.reply is not None:
            self._unwritten.put((self._recipe(checks), prompt.hash), Reply(ruling.reply, prompt.seed, ruling.version))

    def _recipe(self, checks: str) -> str:
        # Functions are asked before a judge model is: by now their code is loaded. Nothing here may fail once a reply
        # was paid for, so it is not looked at again.
        return recipe_hash(self._settings, self._functions.loaded if self._functions else "", checks)
