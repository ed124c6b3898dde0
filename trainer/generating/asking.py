"""The model that writes scenarios, behind LiteLLM: one request in, one answer or one precise failure out.

Owns: which model and whose key, the time limit, retries, what was spent and its bound, and that no key stands in a
message. Refuses: what is asked and what the answer means.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from pydantic import JsonValue, SecretStr
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt, wait_exponential

from recorder import litellm_edge
from recorder.litellm_edge import NO_KEY, without_secrets
from trainer.errors import GeneratorFailed

TEMPERATURE: Final = 1.0  # tasks are to differ; left out where the provider does not take one
_MAX_ERROR_CHARS: Final = 500
_FINAL: Final = frozenset({400, 401, 403, 404, 405, 413, 422})  # the same request again changes nothing


class Settings(Protocol):
    """What is needed of the judge's settings, whose model this is unless another is named."""

    @property
    def model(self) -> str:
        """Its LiteLLM name."""

    @property
    def api_base(self) -> str | None:
        """Where its API is, if not at the provider's."""

    @property
    def api_key(self) -> SecretStr | None:
        """Its key, if not the provider's variable's."""

    @property
    def timeout_s(self) -> float:
        """How long one request may take."""

    @property
    def max_tokens(self) -> int:
        """Most tokens of an answer."""

    @property
    def retries(self) -> int:
        """How often a request is sent again."""

    @property
    def retry_wait_s(self) -> float:
        """The pause before the first of these; doubled each time."""

    @property
    def extra(self) -> Mapping[str, JsonValue]:
        """Further parameters."""


@dataclass(slots=True)
class Spent:
    """What all requests came to. `usd` None: the price is not known."""

    requests: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    usd: float | None = None


class Generator:
    """The model. One event loop; `close()` at the end."""

    def __init__(self, settings: Settings, model: str | None = None, max_usd: float | None = None) -> None:
        """Raises `GeneratorFailed` where no model is set."""
        self._settings = settings
        self.model = model or settings.model
        if not self.model:
            raise GeneratorFailed(
                "no model is set that could write scenarios: name one with --model (as LiteLLM calls it, "
                "`openai/gpt-5-mini`), or set judge.model"
            )
        # The judge's address and key are for the judge's provider alone.
        own = self.model.partition("/")[0] == settings.model.partition("/")[0]
        self._api_base = settings.api_base if own else None
        self._given_key = settings.api_key.get_secret_value() if own and settings.api_key else ""
        self._max_usd = max_usd
        self.spent = Spent()

    @property
    def spent_up(self) -> bool:
        """Whether as much was spent as may be."""
        return self._max_usd is not None and (self.spent.usd or 0.0) >= self._max_usd

    async def ask(self, messages: Sequence[dict[str, str]]) -> str:
        """What the model says; sent again, after a pause, where it is unreachable, overloaded or broken.

        Raises `GeneratorFailed`.
        """
        persistently = AsyncRetrying(
            stop=stop_after_attempt(1 + self._settings.retries),
            wait=wait_exponential(self._settings.retry_wait_s),
            retry=retry_if_exception_type(_Broken),
            reraise=True,
        )
        try:
            return await persistently(self._answer, messages)
        except _Broken as e:
            raise GeneratorFailed(f"{self._told()} is down or broken: {e}") from None

    async def close(self) -> None:
        """Close connections, and what LiteLLM left running on this loop."""
        await litellm_edge.close()

    async def _answer(self, messages: Sequence[dict[str, str]]) -> str:
        litellm = await asyncio.to_thread(litellm_edge.load)
        settings = self._settings
        self.spent.requests += 1
        try:
            async with asyncio.timeout(settings.timeout_s):
                response = await litellm.acompletion(
                    model=self.model,
                    messages=list(messages),
                    api_base=self._api_base,
                    api_key=self._key(),
                    temperature=TEMPERATURE,
                    max_tokens=settings.max_tokens,
                    timeout=settings.timeout_s,
                    num_retries=0,
                    max_retries=0,
                    drop_params=True,
                    **settings.extra,
                )
        except Exception as e:  # noqa: BLE001 - the edge of LiteLLM, which raises whatever its providers' code raises
            raise self._failure(litellm, e) from None
        self._count(response)
        message = response.choices[0].message if response.choices else None
        content = getattr(message, "content", None)
        return content if isinstance(content, str) else ""

    def _key(self) -> str | None:
        # An empty key counts as none: LiteLLM would go and find one in the environment.
        return self._given_key or (NO_KEY if self._api_base else None)

    def _failure(self, litellm: Any, error: Exception) -> Exception:
        """What an exception means, in words without any key."""
        if isinstance(error, TimeoutError | litellm.Timeout):
            limit = f"{self._settings.timeout_s:g} s (judge.timeout_s)"
            return GeneratorFailed(f"{self._told()} did not answer within {limit}")
        text = without_secrets(f"{type(error).__name__}: {error}", self._key())[:_MAX_ERROR_CHARS]
        if getattr(error, "status_code", None) in _FINAL:
            return GeneratorFailed(f"{self._told()} refused the request: {text}")
        return _Broken(text)

    def _told(self) -> str:
        at = f" at {without_secrets(self._api_base, self._key())}" if self._api_base else ""
        return f"the model {self.model}{at}"

    def _count(self, response: Any) -> None:
        usage = getattr(response, "usage", None)
        self.spent.tokens_in += int(getattr(usage, "prompt_tokens", None) or 0)
        self.spent.tokens_out += int(getattr(usage, "completion_tokens", None) or 0)
        cost = (getattr(response, "_hidden_params", None) or {}).get("response_cost")
        if isinstance(cost, int | float):
            self.spent.usd = (self.spent.usd or 0.0) + float(cost)


class _Broken(Exception):
    """The model is unreachable, overloaded or broken: the same request may succeed later."""
