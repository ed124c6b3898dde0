"""Replies of the judge that are at hand: those in the store, and those that did not get there yet.

Owns: which reply answers a prompt under the recipe in force, and remembering what was paid for and not written yet.
Refuses: reading replies (`judge.llm.reader`), writing scores (`judge.scoring.worker`).
"""

from __future__ import annotations

from typing import Final

from judge.llm.prompt import Prompt
from judge.llm.ruler import Ruling
from judge.panel.asking import Reply
from judge.rewards.functions import FunctionPool
from judge.rewards.kind import AtHand, Replies
from judge.scoring.combine import recipe_hash
from judge.settings import JudgeSettings
from recorder.base.lru import Lru
from recorder.store.project import Project
from recorder.work import scores
from recorder.work.scores import StoredScore

KEPT: Final = 256  # more than a worker has in hand; of some kilobytes each


class KeptReplies(Replies):
    """What one bench can do without asking again."""

    def __init__(self, project: Project, settings: JudgeSettings, functions: FunctionPool | None) -> None:
        self._project = project
        self._settings = settings
        self._functions = functions
        self._unwritten: Lru[tuple[str, str], AtHand] = Lru(KEPT)

    async def known(self, prompt_hash: str, checks: str) -> AtHand | None:
        """Those of the newest score in the store, else of this process."""
        recipe = self._recipe(checks)
        stored = _at_hand(await scores.cached(self._project, recipe, prompt_hash))
        return stored or self._unwritten.get((recipe, prompt_hash))

    async def keep(self, prompt: Prompt, ruling: Ruling, checks: str) -> None:
        """Until the score is in the store: it may be refused there, or dropped with a lease that ran out."""
        if ruling.reply is None:
            return
        key = (self._recipe(checks), prompt.hash)
        before = self._unwritten.get(key)
        others = before.replies if before is not None and before.order_seed == prompt.seed else {}
        reply = Reply(ruling.reply, ruling.version)
        self._unwritten.put(key, AtHand(prompt.seed, {**others, prompt.turn.number: reply}))

    def _recipe(self, checks: str) -> str:
        # Functions are asked before a judge model is: by now their code is loaded. Nothing here may fail once a reply
        # was paid for, so it is not looked at again.
        return recipe_hash(self._settings, self._functions.loaded if self._functions else "", checks)


def _at_hand(score: StoredScore | None) -> AtHand | None:
    """The replies that a score was made of; None: it has none any more."""
    if score is None or score.order_seed is None:
        return None
    found = {one.number: Reply(one.reply, one.judge_version) for one in score.replies if one.reply is not None}
    if score.reply is not None:
        found[0] = Reply(score.reply, score.judge_version)
    return AtHand(score.order_seed, found, whole=True) if found else None
