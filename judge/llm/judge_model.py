"""The judge model: a model of `recorder.llm.client` at temperature 0, with its failures as judge errors.

Owns: the response format, and mapping failures to `judge.errors`. Refuses: sending, retries, rate limits and keys
(`recorder.llm.client`), prompts, and the meaning of replies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from judge.errors import JudgeDown, JudgeUsage
from judge.settings import JudgeSettings
from recorder.errors import ModelFailed
from recorder.llm import client
from recorder.llm.client import LlmClient, ModelEndpoint, ModelReply

REPLY_FORMAT = {
    "type": "json_schema",
    "json_schema": {
        "name": "verdict",
        "strict": True,
        "schema": {
            "type": "object",
            "properties": {
                "trajectories": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {
                            "id": {"type": "string"},
                            "explanation": {"type": "string"},
                            "score": {"type": "number"},
                        },
                        "required": ["id", "explanation", "score"],
                        "additionalProperties": False,
                    },
                }
            },
            "required": ["trajectories"],
            "additionalProperties": False,
        },
    },
}

Messages = client.Messages


@dataclass(frozen=True, slots=True)
class JudgeAnswer:
    """One answer of the judge. `text` is empty if it gave none."""

    text: str
    finish_reason: str | None
    version: str | None  # as the provider reports it: model and fingerprint
    spent: JudgeUsage
    refusal: str | None = None  # its text when it declined to answer


class JudgeModel:
    """The judge model of the settings, which must name one. One event loop; `close()` at the end."""

    def __init__(self, settings: JudgeSettings, reply_format: Mapping[str, Any] = REPLY_FORMAT) -> None:
        key = settings.api_key.get_secret_value() if settings.api_key else ""
        at = ModelEndpoint(settings.model, settings.api_base, key)
        self._model = LlmClient(at, settings, settings.temperature, reply_format)

    async def warm_up(self) -> None:
        """Import what the first request needs."""
        await self._model.warm_up()

    async def close(self) -> None:
        """Close connections, and tasks that LiteLLM left on this loop."""
        await self._model.close()

    async def ask(self, messages: Messages) -> JudgeAnswer:
        """Send one request, and retry it after a pause if the judge is unreachable, overloaded or broken.

        Raises:
            JudgeDown: `code` is `judge_timeout` (never retried at once), `judge_refused`, `judge_filtered`,
                `judge_busy` (it asked for a longer pause than one request may take) or `judge_down`.
        """
        try:
            return _answer(await self._model.ask(messages))
        except ModelFailed as e:
            raise JudgeDown(f"judge_{e.how}", f"the judge {e}", wait_s=e.wait_s) from None


def _answer(reply: ModelReply) -> JudgeAnswer:
    spent = JudgeUsage(reply.tokens_in, reply.tokens_cached, reply.tokens_out, reply.cost_usd, reply.latency_s)
    return JudgeAnswer(reply.text, reply.finish_reason, reply.version, spent, reply.refusal)
