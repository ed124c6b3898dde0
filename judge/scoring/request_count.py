"""Count the judge requests that scoring would make, and their size, without sending any.

Refuses: which groups would be scored (`judge.scoring.rescoring`).
"""

from __future__ import annotations

from dataclasses import dataclass

from judge.errors import RequestNotSent
from judge.llm.judge_model import JudgeAnswer, Messages

CHARS_A_TOKEN = 4  # of English text and JSON, roughly: the judge's own tokenizer need not be here


@dataclass(slots=True)
class RequestCount:
    """Requests that would be sent, each with an answer of up to `max_tokens`.

    Repairs and retries are not included.
    """

    max_tokens: int
    requests: int = 0
    characters: int = 0

    @property
    def tokens_in(self) -> int:
        """The estimated number of prompt tokens."""
        return self.characters // CHARS_A_TOKEN

    @property
    def most_tokens_out(self) -> int:
        """The maximum number of answer tokens."""
        return self.requests * self.max_tokens

    async def ask(self, messages: Messages) -> JudgeAnswer:
        """Count a request. Always raises RequestNotSent."""
        self.requests += 1
        self.characters += sum(len(message["content"]) for message in messages)
        raise RequestNotSent("a dry run sends no request")
