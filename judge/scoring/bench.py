"""Setting up what scoring needs, from the settings: the judge model, the processes of reward functions, replies.

Owns: opening and closing them, and refusing settings under which nobody could judge. Refuses: scoring.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

from judge.errors import JudgeMisconfigured
from judge.llm.model import REPLY_FORMAT, Answer, JudgeModel, Messages
from judge.llm.rubric import reply_format
from judge.llm.ruler import Ask
from judge.rewards.coded import BY_CHECK, CodeJudge
from judge.rewards.functions import FunctionPool
from judge.rewards.kinds import Bench
from judge.rewards.known import Known
from judge.rewards.rubric import RubricJudge
from judge.scoring.replies import KeptReplies
from judge.settings import JudgeSettings
from recorder.rules import unusable
from recorder.store.database import Store

_ASKING: Final = {"ruler": "RULER", "rubric": "a rubric"}  # the kinds that need a judge model


def check_settings(settings: JudgeSettings) -> None:
    """Raise JudgeMisconfigured where nobody could judge, or a part of the reward cannot be found out."""
    rewards = settings.in_force()
    if not rewards:
        raise JudgeMisconfigured(
            "nobody judges: set judge.model to a LiteLLM name (HONE_JUDGE__MODEL=openai/…, with its key in "
            "HONE_JUDGE__API_KEY or the provider's own variable), or name reward functions in [[judge.rewards]]"
        )
    asking = [_ASKING[reward.kind] for reward in rewards if reward.kind in _ASKING]
    if asking and not settings.model:
        raise JudgeMisconfigured(
            f"judge.rewards holds {asking[0]} but no model judges: set judge.model, or take that reward out"
        )
    for number, reward in enumerate(rewards):
        if reward.rule is not None and (why := unusable(reward.rule, reward.value)):
            raise JudgeMisconfigured(f"judge.rewards.{number}.value of the rule {reward.rule!r} {why}")


@asynccontextmanager
async def open_bench(
    settings: JudgeSettings, store: Store, project_id: str, *, keep: bool = True
) -> AsyncIterator[Bench]:
    """What scoring needs, until the end of the block; with `keep` false scoring itself writes nothing.

    Raises JudgeMisconfigured.
    """
    check_settings(settings)
    rewards = settings.in_force()
    async with AsyncExitStack() as stack:
        ruler = functions = rubrics = None
        room = asyncio.Semaphore(settings.concurrency)

        async def asking(reply_format: Mapping[str, Any]) -> Ask:
            model = JudgeModel(settings, reply_format)
            stack.push_async_callback(model.close)
            await model.warm_up()
            return _in_turn(model.ask, room)

        if any(reward.kind == "ruler" for reward in rewards):
            ruler = await asking(REPLY_FORMAT)
        if any(reward.kind == "function" for reward in rewards):
            functions = FunctionPool(settings)
            stack.push_async_callback(functions.close)
        if any(reward.kind == "rubric" for reward in rewards):
            quoting = {reward.evidence for reward in rewards if reward.kind == "rubric"}
            asks = {evidence: await asking(reply_format(evidence=evidence)) for evidence in quoting}
            checks = FunctionPool(settings, [BY_CHECK])
            stack.push_async_callback(checks.close)
            known = Known(settings, store, project_id, keep=keep)
            rubrics = RubricJudge(settings, asks, CodeJudge(checks), known)

        replies = KeptReplies(store, project_id, settings, functions)
        yield Bench(settings, ruler, functions, replies, rubrics)


def _in_turn(ask: Ask, room: asyncio.Semaphore) -> Ask:
    """Asking as far as there is room: a group with rubrics asks once a run, and groups are scored side by side."""

    async def asked(messages: Messages) -> Answer:
        async with room:
            return await ask(messages)

    return asked
