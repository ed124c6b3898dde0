"""Client for a model behind LiteLLM, for the judge and the scenario generator: a request returns a reply or fails.

Owns: request parameters, structured output and its fallback, timeouts, rate limiting, immediate retries, counts of
tokens and cost, and removing API keys from error messages. Refuses: the prompt, the meaning of the reply, and calls of
agents (`proxy.engine.providers`).

LiteLLM takes seconds to import, so the first request imports it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt, wait_exponential

from judge.settings import JudgeSettings
from recorder.base.connection_failures import describe_failure
from recorder.errors import ModelFailed
from recorder.llm import litellm_edge, rate_limiter
from recorder.llm.litellm_edge import NO_KEY, mask_secrets
from recorder.llm.rate_limiter import RequestSlot

MAX_ERROR_CHARS: Final = 500
CHARS_A_TOKEN: Final = 3  # a lower bound: a request's tokens are overestimated until the model answers
# Status codes that the same request would get again.
_FINAL: Final = frozenset({400, 401, 403, 404, 405, 413, 422})

Messages = Sequence[dict[str, str]]


@dataclass(frozen=True, slots=True)
class ModelEndpoint:
    """A model and its address. `key` empty: the provider's environment variable has the key."""

    name: str  # LiteLLM's name for it
    api_base: str | None = None  # None: the provider's
    key: str = field(default="", repr=False)

    def sent_key(self) -> str | None:
        """The key for LiteLLM; given an empty one, LiteLLM would search the environment."""
        return self.key or (NO_KEY if self.api_base else None)

    def label(self) -> str:
        """The model's name and address for messages, without any key."""
        at = f" at {mask_secrets(self.api_base, self.sent_key())}" if self.api_base else ""
        return f"{self.name}{at}"


@dataclass(frozen=True, slots=True)
class ModelReply:
    """One reply. `text`: empty if it has none. `cost_usd`: None if the price is unknown."""

    text: str
    finish_reason: str | None
    version: str | None  # the model and fingerprint that the provider reports
    refusal: str | None  # the model's explanation, if it declined to answer
    tokens_in: int
    tokens_cached: int
    tokens_out: int
    cost_usd: float | None
    latency_s: float


class LlmClient:
    """A client for one model on one event loop; call `close()` at the end. `requests`: how many were sent so far."""

    def __init__(
        self,
        at: ModelEndpoint,
        manner: JudgeSettings,
        temperature: float,
        reply_format: Mapping[str, Any] | None = None,
    ) -> None:
        self._at = at
        self._manner = manner
        self._temperature = temperature
        self._pace = rate_limiter.shared_limiter(
            at.name, at.api_base, manner.requests_per_minute, manner.tokens_per_minute
        )
        self._reply_format = reply_format
        self._structured = reply_format is not None  # until the provider rejects it
        self._litellm: Any = None  # imported when it is first needed
        self.requests = 0

    async def _loaded(self) -> Any:
        if self._litellm is None:
            self._litellm = await asyncio.to_thread(litellm_edge.load_litellm)
        return self._litellm

    async def ask(self, messages: Messages) -> ModelReply:
        """Send one request; retry after a pause if the model is unreachable, overloaded or broken.

        Raises `ModelFailed`. A request that timed out is not retried at once.
        """
        persistently = AsyncRetrying(
            stop=stop_after_attempt(1 + self._manner.retries),
            wait=wait_exponential(self._manner.retry_wait_s),
            retry=retry_if_exception_type(_ModelUnavailable),
            reraise=True,
        )
        try:
            return await persistently(self._complete, messages)
        except _ModelUnavailable as e:
            raise ModelFailed("down", self._message(f"is down or broken: {e}")) from None

    async def close(self) -> None:
        """Close connections, and LiteLLM's tasks on this loop."""
        await litellm_edge.close_litellm()

    async def _complete(self, messages: Messages) -> ModelReply:
        """Send one request; if it may be rejected because of structured output, send one more without it."""
        structured = self._structured  # another request may change it meanwhile
        try:
            return await self._in_turn(messages, structured)
        except _RequestRejected as e:
            if not structured or e.hopeless:
                raise self._refused(e) from None
        try:
            reply = await self._in_turn(messages, structured=False)
        except _RequestRejected as e:  # structured output was not the cause
            raise self._refused(e) from None
        self._structured = False
        return reply

    async def _in_turn(self, messages: Messages, structured: bool) -> ModelReply:
        """Send one request as soon as the rate limits allow it."""
        litellm = await self._loaded()
        turn = await self._turn(sum(len(m["content"]) for m in messages) // CHARS_A_TOKEN + self._manner.max_tokens)
        self.requests += 1
        started = time.monotonic()
        try:
            async with asyncio.timeout(self._manner.timeout_s):
                response = await self._send(litellm, messages, structured)
        except TimeoutError:
            # Not retried at once: a hanging model would block the caller for the sum of all timeouts.
            limit = f"{self._manner.timeout_s:g} s (judge.timeout_s)"
            raise ModelFailed("timeout", self._message(f"did not answer within {limit}")) from None
        reply = _reply(response, time.monotonic() - started)
        turn.tokens = (reply.tokens_in + reply.tokens_out) or turn.tokens
        return reply

    async def _turn(self, tokens: int) -> RequestSlot:
        if (held_s := self._pace.held_s()) > self._manner.timeout_s:
            reason = self._message(f"asked for a pause of {held_s:.0f} s more (Retry-After)")
            raise ModelFailed("busy", reason, held_s)
        while isinstance(turn := self._pace.take(tokens), float):  # noqa: ASYNC110 - it says how long, nothing else does
            await asyncio.sleep(turn)
        return turn

    async def _send(self, litellm: Any, messages: Messages, structured: bool) -> Any:
        format_ = {"response_format": self._reply_format} if structured else {}
        try:
            return await litellm.acompletion(
                model=self._at.name,
                messages=list(messages),
                api_base=self._at.api_base,
                api_key=self._at.sent_key(),
                temperature=self._temperature,
                max_tokens=self._manner.max_tokens,
                timeout=self._manner.timeout_s,
                num_retries=0,
                max_retries=0,
                drop_params=True,  # a reasoning model accepts no temperature
                **format_,
                **self._manner.extra,
            )
        except TimeoutError:
            raise
        except Exception as e:  # noqa: BLE001 - the edge of LiteLLM, which raises whatever its providers' code raises
            raise self._failure(litellm, e) from None

    def _failure(self, litellm: Any, error: Exception) -> Exception:
        """Convert an exception of LiteLLM to one of this module, without keys; its own text and cause are dropped."""
        if isinstance(error, litellm.Timeout):
            return TimeoutError()
        status = getattr(error, "status_code", None)
        text = mask_secrets(describe_failure(error), self._at.sent_key())[:MAX_ERROR_CHARS]
        if isinstance(error, litellm.ContentPolicyViolationError):
            return _RequestRejected(text, hopeless=True, how="filtered")
        if status in _FINAL:
            too_long = isinstance(error, litellm.ContextWindowExceededError)
            return _RequestRejected(text, hopeless=too_long or status not in (400, 422))
        headers = getattr(error, "litellm_response_headers", None) or {}
        self._pace.hold(rate_limiter.retry_after_s(headers.get("retry-after"), time.time()))
        return _ModelUnavailable(text)

    def _refused(self, error: _RequestRejected) -> ModelFailed:
        return ModelFailed(error.how, self._message(f"refused the request: {error}"))

    def _message(self, what: str) -> str:
        return f"{self._at.label()} {what}"


class _ModelUnavailable(Exception):
    """The model is unreachable, overloaded or broken: the same request may succeed later."""


class _RequestRejected(Exception):
    """The model rejects this request. `hopeless`: it would be rejected in any format."""

    def __init__(self, message: str, *, hopeless: bool, how: Literal["refused", "filtered"] = "refused") -> None:
        super().__init__(message)
        self.hopeless = hopeless
        self.how = how


def _reply(response: Any, latency_s: float) -> ModelReply:
    choice = response.choices[0] if response.choices else None
    message = getattr(choice, "message", None)
    content = getattr(message, "content", None)
    names = [getattr(response, name, None) for name in ("model", "system_fingerprint")]
    usage = getattr(response, "usage", None)
    details = getattr(usage, "prompt_tokens_details", None)
    cost = (getattr(response, "_hidden_params", None) or {}).get("response_cost")
    return ModelReply(
        text=content if isinstance(content, str) else "",
        finish_reason=getattr(choice, "finish_reason", None),
        version=" ".join(str(name) for name in names if name) or None,
        refusal=_refusal(message),
        tokens_in=int(getattr(usage, "prompt_tokens", None) or 0),
        tokens_cached=int(getattr(details, "cached_tokens", None) or 0),
        tokens_out=int(getattr(usage, "completion_tokens", None) or 0),
        cost_usd=float(cost) if isinstance(cost, int | float) else None,
        latency_s=latency_s,
    )


def _refusal(message: Any) -> str | None:
    """Return the refusal that LiteLLM stores beside the message, among unknown fields."""
    beside = getattr(message, "provider_specific_fields", None) or {}
    said = getattr(message, "refusal", None) or beside.get("refusal")
    return str(said)[:MAX_ERROR_CHARS] if said else None
