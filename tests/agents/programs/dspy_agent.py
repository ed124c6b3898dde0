"""DSPy's ReAct, whose history is one user message."""

from __future__ import annotations

import dspy
from desk import MAX_TOKENS, MAX_TURNS, SYSTEM, TEMPERATURE, Run, main


class Helpdesk(dspy.Signature):
    __doc__ = SYSTEM
    question: str = dspy.InputField()
    answer: str = dspy.OutputField()


async def answer(run: Run) -> str:
    lm = dspy.LM(
        f"openai/{run.model}",
        api_base=run.base_url,
        api_key=run.api_key,
        temperature=TEMPERATURE,
        max_tokens=MAX_TOKENS,
        cache=False,
    )
    with dspy.context(lm=lm):
        agent = dspy.ReAct(Helpdesk, tools=list(run.tools()), max_iters=MAX_TURNS)
        return str((await agent.acall(question=run.question)).answer)


main(answer)
