"""The judge model behind LiteLLM: one request in, one answer or one precise failure out.

Owns: the request's parameters, structured output and its fallback, time limits, waiting for a turn, immediate retries,
tokens and money, and that no key ever stands in a message. Refuses: what is asked and what the answer means.

LiteLLM takes seconds to import, so it is imported when the first request is made (or by `warm_up`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_attempt, wait_exponential

from judge.errors import JudgeDown, Spent
from judge.llm import pace
from judge.llm.pace import Turn
from judge.settings import JudgeSettings
from recorder import litellm_edge
from recorder.litellm_edge import NO_KEY, without_secrets

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
MAX_ERROR_CHARS = 500
CHARS_A_TOKEN = 3  # at least, in what a judge is shown: a request's tokens are counted too high until it is answered
# Answers that sending the same request again cannot change.
_FINAL = frozenset({400, 401, 403, 404, 405, 413, 422})

Messages = Sequence[dict[str, str]]


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer of the judge. `text` is empty where it said nothing."""

    text: str
    finish_reason: str | None
    version: str | None  # what the provider says it ran: model and fingerprint
    spent: Spent
    refusal: str | None = None  # what it said in place of an answer, where it declined to give one


class JudgeModel:
    """The judge model of the settings, which must name one. One event loop; `close()` at the end."""

    def __init__(self, settings: JudgeSettings, reply_format: Mapping[str, Any] = REPLY_FORMAT) -> None:
        self._settings = settings
        bounds = (settings.requests_per_minute, settings.tokens_per_minute)
        self._pace = pace.shared(settings.model, settings.api_base, *bounds)
        self._reply_format = reply_format
        self._structured = True  # until the provider refuses it
        self._litellm: Any = None  # until it is first needed

    async def warm_up(self) -> None:
        """Import what the first request needs."""
        await self._loaded()

    async def _loaded(self) -> Any:
        if self._litellm is None:
            self._litellm = await asyncio.to_thread(litellm_edge.load)
        return self._litellm

    async def ask(self, messages: Messages) -> Answer:
        """Send one request; again, after a pause, where the judge is unreachable, overloaded or broken.

        Raises:
            JudgeDown: `code` is `judge_timeout` (never sent again at once), `judge_refused`, `judge_filtered`,
                `judge_busy` (it asked for a longer pause than one request may take) or `judge_down`.
        """
        persistently = AsyncRetrying(
            stop=stop_after_attempt(1 + self._settings.retries),
            wait=wait_exponential(self._settings.retry_wait_s),
            retry=retry_if_exception_type(_Broken),
            reraise=True,
        )
        try:
            return await persistently(self._complete, messages)
        except _Broken as e:
            raise JudgeDown("judge_down", self._told(f"is down or broken: {e}")) from None

    async def close(self) -> None:
        """Close connections, and what LiteLLM left running on this loop."""
        await litellm_edge.close()

    async def _complete(self, messages: Messages) -> Answer:
        """One request; where structured output may be why it was refused, one more without it."""
        structured = self._structured  # another request may find out meanwhile
        try:
            return await self._in_turn(messages, structured)
        except _Refused as e:
            if not structured or e.hopeless:
                raise self._refused(e) from None
        try:
            answer = await self._in_turn(messages, structured=False)
        except _Refused as e:  # so that was not it
            raise self._refused(e) from None
        self._structured = False
        return answer

    async def _in_turn(self, messages: Messages, structured: bool) -> Answer:
        """One request as soon as the judge's pace lets it out."""
        turn = await self._turn(sum(len(m["content"]) for m in messages) // CHARS_A_TOKEN + self._settings.max_tokens)
        started = time.monotonic()
        try:
            async with asyncio.timeout(self._settings.timeout_s):
                response = await self._send(messages, structured)
        except TimeoutError:
            # Not sent again at once: a judge that hangs would hold its group for the sum of all tries.
            limit = f"{self._settings.timeout_s:g} s (judge.timeout_s)"
            raise JudgeDown("judge_timeout", self._told(f"did not answer within {limit}")) from None
        answer = _answer(response, time.monotonic() - started)
        turn.tokens = (answer.spent.tokens_in + answer.spent.tokens_out) or turn.tokens
        return answer

    async def _turn(self, tokens: int) -> Turn:
        if (held_s := self._pace.held_s()) > self._settings.timeout_s:
            told = self._told(f"asked to be left alone for {held_s:.0f} s more (Retry-After)")
            raise JudgeDown("judge_busy", told, wait_s=held_s)
        while isinstance(turn := self._pace.take(tokens), float):  # noqa: ASYNC110 - it says how long, nothing else does
            await asyncio.sleep(turn)
        return turn

    async def _send(self, messages: Messages, structured: bool) -> Any:
        litellm = await self._loaded()
        settings = self._settings
        format_ = {"response_format": self._reply_format} if structured else {}
        try:
            return await litellm.acompletion(
                model=settings.model,
                messages=list(messages),
                api_base=settings.api_base,
                api_key=self._key(),
                temperature=settings.temperature,
                max_tokens=settings.max_tokens,
                timeout=settings.timeout_s,
                num_retries=0,
                max_retries=0,
                drop_params=True,  # a reasoning model takes no temperature
                **format_,
                **settings.extra,
            )
        except TimeoutError:
            raise
        except Exception as e:  # noqa: BLE001 - the edge of LiteLLM, which raises whatever its providers' code raises
            raise self._failure(litellm, e) from None

    def _key(self) -> str | None:
        # An empty key counts as none: LiteLLM would go and find one in the environment.
        key = self._settings.api_key.get_secret_value() if self._settings.api_key else ""
        return key or (NO_KEY if self._settings.api_base else None)

    def _failure(self, litellm: Any, error: Exception) -> Exception:
        """What an exception of LiteLLM means, in words without any key. Its own text and cause stay behind."""
        if isinstance(error, litellm.Timeout):
            return TimeoutError()
        status = getattr(error, "status_code", None)
        text = without_secrets(f"{type(error).__name__}: {error}", self._key())[:MAX_ERROR_CHARS]
        if isinstance(error, litellm.ContentPolicyViolationError):
            return _Refused(text, hopeless=True, code="judge_filtered")
        if status in _FINAL:
            too_long = isinstance(error, litellm.ContextWindowExceededError)
            return _Refused(text, hopeless=too_long or status not in (400, 422))
        headers = getattr(error, "litellm_response_headers", None) or {}
        self._pace.hold(pace.asked_to_wait_s(headers.get("retry-after"), time.time()))
        return _Broken(text)

    def _refused(self, error: _Refused) -> JudgeDown:
        return JudgeDown(error.code, self._told(f"refused the request: {error}"))

    def _told(self, what: str) -> str:
        at = f" at {without_secrets(self._settings.api_base, self._key())}" if self._settings.api_base else ""
        return f"the judge {self._settings.model}{at} {what}"


class _Broken(Exception):
    """The judge is unreachable, overloaded or broken: the same request may succeed later."""


class _Refused(Exception):
    """The judge refuses this request. `hopeless`: whatever its format."""

    def __init__(self, message: str, *, hopeless: bool, code: str = "judge_refused") -> None:
        super().__init__(message)
        self.hopeless = hopeless
        self.code = code


def _answer(response: Any, latency_s: float) -> Answer:
    choice = response.choices[0] if response.choices else None
    message = getattr(choice, "message", None)
    content = getattr(message, "content", None)
    names = [getattr(response, name, None) for name in ("model", "system_fingerprint")]
    return Answer(
        text=content if isinstance(content, str) else "",
        finish_reason=getattr(choice, "finish_reason", None),
        version=" ".join(str(name) for name in names if name) or None,
        spent=_spent(response, latency_s),
        refusal=_refusal(message),
    )


def _refusal(message: Any) -> str | None:
    """LiteLLM puts a field that it does not know beside the message."""
    beside = getattr(message, "provider_specific_fields", None) or {}
    said = getattr(message, "refusal", None) or beside.get("refusal")
    return str(said)[:MAX_ERROR_CHARS] if said else None


def _spent(response: Any, latency_s: float) -> Spent:
    usage = getattr(response, "usage", None)
    details = getattr(usage, "prompt_tokens_details", None)
    cost = (getattr(response, "_hidden_params", None) or {}).get("response_cost")
    return Spent(
        tokens_in=int(getattr(usage, "prompt_tokens", None) or 0),
        tokens_cached=int(getattr(details, "cached_tokens", None) or 0),
        tokens_out=int(getattr(usage, "completion_tokens", None) or 0),
        cost_usd=float(cost) if isinstance(cost, int | float) else None,
        latency_s=latency_s,
    )
