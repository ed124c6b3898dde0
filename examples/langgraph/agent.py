"""A LangGraph agent that answers where orders are. It knows nothing of Hone: OPENAI_BASE_URL points to its model.

Owns the agent and its questions. It does not check the answers: the tiny model is often wrong.
"""

from __future__ import annotations

import asyncio
from functools import cache

from langchain.agents import create_agent
from langchain_openai import ChatOpenAI

from examples.helpdesk.orders import Order, demo_orders
from examples.helpdesk.wording import found, tracked

SYSTEM = "You tell customers when their order arrives."
QUESTIONS = 8


@cache
def orders() -> tuple[Order, ...]:
    """Return the orders that customers ask about."""
    return demo_orders().train[:QUESTIONS]


def find_order(order_id: str) -> str:
    """Status and tracking number of an order."""
    return found(next((order for order in orders() if order.order_id == order_id), None))


def track_parcel(tracking: str) -> str:
    """The day on which a parcel arrives."""
    return tracked(next((order for order in orders() if order.tracking == tracking), None))


async def main() -> None:
    """Answer all questions at once."""
    model = ChatOpenAI(model="helpdesk", api_key="none", temperature=1.0, max_tokens=96)
    agent = create_agent(model, tools=[find_order, track_parcel], system_prompt=SYSTEM)
    questions = [f"Where is my order {order.order_id}?" for order in orders()]
    asked = [{"messages": [{"role": "user", "content": question}]} for question in questions]
    # the tiny model may never stop calling tools: one such attempt does not end the others
    states = await agent.abatch(asked, {"recursion_limit": 16}, return_exceptions=True)
    for question, state in zip(questions, states, strict=True):
        said = repr(state) if isinstance(state, Exception) else state["messages"][-1].text
        print(f"{question}  {said}")


if __name__ == "__main__":
    asyncio.run(main())
