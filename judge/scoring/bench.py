"""Setting up what scoring needs, from the settings: the judge model, the processes of reward functions, replies.

Owns: opening and closing them, and refusing settings under which nobody could judge. Refuses: scoring.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from judge.errors import JudgeMisconfigured
from judge.llm.model import JudgeModel
from judge.rewards.functions import FunctionPool
from judge.rewards.kinds import Bench
from judge.rewards.rule import unusable
from judge.scoring.replies import KeptReplies
from judge.settings import JudgeSettings
from recorder.store.database import Store


def check_settings(settings: JudgeSettings) -> None:
    """Raise JudgeMisconfigured where nobody could judge, or a part of the reward cannot be found out."""
    rewards = settings.in_force()
    if not rewards:
        raise JudgeMisconfigured(
            "nobody judges: set judge.model to a LiteLLM name (HONE_JUDGE__MODEL=openai/…, with its key in "
            "HONE_JUDGE__API_KEY or the provider's own variable), or name reward functions in [[judge.rewards]]"
        )
    if not settings.model and any(reward.kind == "ruler" for reward in rewards):
        raise JudgeMisconfigured(
            "judge.rewards holds RULER but no model judges: set judge.model, or take that reward out"
        )
    for number, reward in enumerate(rewards):
        if reward.rule is not None and (why := unusable(reward.rule, reward.value)):
            raise JudgeMisconfigured(f"judge.rewards.{number}.value of the rule {reward.rule!r} {why}")


@asynccontextmanager
async def open_bench(settings: JudgeSettings, store: Store, project_id: str) -> AsyncIterator[Bench]:
    """What scoring needs, until the end of the block. Raises JudgeMisconfigured."""
    check_settings(settings)
    rewards = settings.in_force()
    async with AsyncExitStack() as stack:
        model = functions = None
        if any(reward.kind == "ruler" for reward in rewards):
            model = JudgeModel(settings)
            stack.push_async_callback(model.close)
            await model.warm_up()
        if any(reward.kind == "function" for reward in rewards):
            functions = FunctionPool(settings)
            stack.push_async_callback(functions.close)
        replies = KeptReplies(store, project_id, settings, functions)
        yield Bench(settings, model.ask if model else None, functions, replies)
