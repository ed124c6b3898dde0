"""A plain tool-calling agent that answers questions about a mailbox. It knows a base URL, and nothing of Hone.

    OPENAI_BASE_URL=http://127.0.0.1:8000/v1 INBOX_MCP_URL=http://127.0.0.1:8100/mcp \\
        python -m examples.inbox.agent "Which code did Anna send for Falcon?"

Owns its instructions and the address of its tools. The loop is the helpdesk's.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from typing import Final

from examples.helpdesk.agent import Task, TypedTask, shared_desk

SYSTEM: Final = "You answer questions about a mailbox."
MCP_URL: Final = "http://127.0.0.1:8100/mcp"


async def run(task: Task) -> str:
    """Answer the task's question; return the model's last message.

    Raises:
        openai.OpenAIError: the model could not be reached or refused the request.
        ConnectionError: the tools could not be reached.
    """
    desk = await shared_desk(os.environ.get("INBOX_MCP_URL", MCP_URL), SYSTEM)
    question = task.input if isinstance(task.input, str) else task.input["question"]
    return await desk.answer(str(question), task)


def main() -> None:
    """Answer one question from the command line."""
    parser = argparse.ArgumentParser(description="Ask about the mailbox.")
    parser.add_argument("question", help='for example "Which code did Anna send for Falcon?"')
    parser.add_argument("--model", default="inbox", help="the model's name (inbox)")
    given = parser.parse_args()
    base_url = os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:8000/v1")
    key = os.environ.get("OPENAI_API_KEY", "none")
    print(asyncio.run(run(TypedTask(given.question, base_url, key, given.model))))


if __name__ == "__main__":
    main()
