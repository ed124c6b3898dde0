"""The model that writes scenarios: a model of `recorder.llm.client`, with a cost limit.

Owns: the model and its key, the cost so far and its limit. Refuses: sending, retries, rate limits and hiding keys in
messages (`recorder.llm.client`), prompts, and the meaning of replies.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from judge.panel_settings import BASE
from judge.settings import JudgeSettings
from recorder.errors import ModelFailed
from recorder.llm.client import LlmClient, Messages, ModelEndpoint, ModelReply
from trainer.errors import GeneratorFailed

TEMPERATURE: Final = 1.0  # tasks should differ; omitted if the provider does not accept it


@dataclass(slots=True)
class WriterCost:
    """The cost of all requests. `usd` None: the price is unknown."""

    requests: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    usd: float | None = None


class WriterModel:
    """The model. One event loop; `close()` at the end."""

    def __init__(self, settings: JudgeSettings, model: str | None = None, max_usd: float | None = None) -> None:
        """Raises `GeneratorFailed` if no model is set."""
        name = model or settings.model
        if not name:
            raise GeneratorFailed(
                "no model is set that could write scenarios: name one with --model (by its LiteLLM name, "
                "`openai/gpt-5-mini`), or set judge.model"
            )
        if name == BASE:
            raise GeneratorFailed(
                f"{BASE!r} is a judge and does not write scenarios: it would write what it is trained on. Name a model "
                "with --model by its LiteLLM name (`openai/gpt-5-mini`)"
            )
        self._model = LlmClient(_reached(name, settings), settings, TEMPERATURE)
        self._max_usd = max_usd
        self.spent = WriterCost()

    @property
    def spent_up(self) -> bool:
        """Whether the cost limit is reached."""
        return self._max_usd is not None and (self.spent.usd or 0.0) >= self._max_usd

    async def ask(self, messages: Messages) -> str:
        """The model's answer; retried after a pause if it is unreachable, overloaded or broken.

        Raises `GeneratorFailed`.
        """
        try:
            reply = await self._model.ask(messages)
        except ModelFailed as e:
            raise GeneratorFailed(f"the model {e}") from None
        finally:
            self.spent.requests = self._model.requests
        self._count(reply)
        return reply.text

    async def close(self) -> None:
        """Close connections, and tasks that LiteLLM left on this loop."""
        await self._model.close()

    def _count(self, reply: ModelReply) -> None:
        self.spent.tokens_in += reply.tokens_in
        self.spent.tokens_out += reply.tokens_out
        if reply.cost_usd is not None:
            self.spent.usd = (self.spent.usd or 0.0) + reply.cost_usd


def _reached(name: str, settings: JudgeSettings) -> ModelEndpoint:
    """The judge's address and key are used for the judge's provider only."""
    if name.partition("/")[0] != settings.model.partition("/")[0]:
        return ModelEndpoint(name)
    return ModelEndpoint(name, settings.api_base, settings.api_key.get_secret_value() if settings.api_key else "")
