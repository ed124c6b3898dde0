"""Models of other providers, through LiteLLM: `[[proxy.models]]`, with the interface of an engine.

Owns: sending a request to a provider and aborting it, its answer as a chat completion or its events, its errors for the
caller, and what is recorded along with the answer. Refuses: wire formats, attribution, and when an engine is replaced
(`proxy.serving.model_requests`).

Such an answer has no token ids: it is judged and exported, and never trained on. No message holds a key.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

import orjson

from proxy.engine import provider_fields
from proxy.errors import BadGateway, CallerError, ConfigError, EngineFailed, EngineRefused
from proxy.http import sse
from proxy.settings.sections import ModelSettings
from recorder.base.connection_failures import describe_failure
from recorder.llm import litellm_edge
from recorder.llm.litellm_edge import NO_KEY, mask_secrets
from recorder.messages.calls import RecordedRequest

MAX_ERROR_CHARS = 500
GRACE_S = 0.5  # LiteLLM's own time limit comes first where it is kept


class Providers:
    """The models in the settings. `start()` imports LiteLLM if there are any; `stop()` closes its connections."""

    def __init__(self, models: Sequence[ModelSettings], fallbacks: Mapping[str, str] | None = None) -> None:
        self._models = {settings.name: Provider(settings) for settings in models}
        self._fallbacks = dict(fallbacks or {})

    async def start(self) -> None:
        """Import LiteLLM, which takes seconds, before the first call. Raises ConfigError for a missing key."""
        if self._models:
            for model in self._models.values():
                model.key()
            await asyncio.to_thread(litellm_edge.load_litellm)

    async def stop(self) -> None:
        """Close LiteLLM's connections."""
        if self._models:
            await litellm_edge.close_litellm()

    def named(self, name: str) -> Provider | None:
        """Return the model that clients call by this name."""
        return self._models.get(name)

    def in_place_of(self, alias: str) -> Provider | None:
        """Return the model that answers for an alias while no engine can."""
        return self._models.get(self._fallbacks.get(alias, ""))


class Provider:
    """One model of another provider."""

    def __init__(self, settings: ModelSettings) -> None:
        self._settings = settings

    @property
    def name(self) -> str:
        """The name for clients."""
        return self._settings.name

    @property
    def model(self) -> str:
        """The name for LiteLLM."""
        return self._settings.model

    def key(self) -> str | None:
        """Return the key to send; None: LiteLLM reads the provider's own variable. Raises ConfigError."""
        settings = self._settings
        if settings.api_key_env is not None:
            key = os.environ.get(settings.api_key_env)
            if not key:
                raise ConfigError(
                    f"the environment variable {settings.api_key_env}, `api_key_env` of the model {self.name!r} in "
                    "[[proxy.models]], is missing or empty."
                )
            return key
        key = settings.api_key.get_secret_value() if settings.api_key else ""
        return key or (NO_KEY if settings.api_base else None)

    def meta(self) -> dict[str, Any]:
        """Return what is recorded of a call that was sent to it."""
        return {"provider_model": self.model}

    async def send(self, body: bytes, request: RecordedRequest) -> ProviderReply:
        """Send a body that was made for the engine; return when an answer begins. Raises CallerError, EngineFailed."""
        litellm = await asyncio.to_thread(litellm_edge.load_litellm)
        arguments = provider_fields.provider_arguments(
            orjson.loads(body), request, drop=self._settings.drop_params, model=self.model
        )
        try:
            async with self.bound():
                answer = await litellm.acompletion(
                    **self._settings.params | arguments,
                    model=self.model,
                    api_base=self._settings.api_base,
                    api_key=self.key(),
                    timeout=self._settings.timeout_s,
                    num_retries=0,  # the client retries
                    max_retries=0,
                    drop_params=self._settings.drop_params,
                )
        except Exception as e:  # noqa: BLE001 - the edge of LiteLLM, which raises whatever its providers' code raises
            raise self.failure(litellm, e) from None
        return ProviderReply(self, answer, litellm)

    def bound(self) -> asyncio.Timeout:
        """Our own limit of a wait, because some of LiteLLM's providers ignore theirs."""
        return asyncio.timeout(self._settings.timeout_s + GRACE_S)

    def failure(self, litellm: Any, error: Exception) -> CallerError | EngineFailed:
        """Return the error for an exception of LiteLLM, with a message without keys. Its own text and cause are
        dropped.
        """
        if isinstance(error, litellm.Timeout | TimeoutError):
            return EngineFailed(self._message(f"sent nothing for {self._settings.timeout_s:g} s"))
        detail, status = self._detail(error), getattr(error, "status_code", None)
        if isinstance(error, litellm.UnsupportedParamsError):
            advice = "Remove the field, or set `drop_params = true` in its [[proxy.models]]."
            return _refusal(error, self._message(f"refused the request: {detail}. {advice}"), 400)
        if not isinstance(status, int) or status < 400 or getattr(error, "litellm_response_headers", None) is None:
            where = "`api_base`" if self._settings.api_base else "`model`"
            advice = f"Retry in a moment, or check {where} in its [[proxy.models]]."
            return BadGateway(self._message(f"could not be called: {detail}. {advice}"), code="provider_error")
        return _refusal(error, self._message(f"answered {status}: {detail}"), status)

    def broke(self, error: Exception | None = None) -> EngineFailed:
        """Return the error for an answer that broke off."""
        return EngineFailed(
            self._message("broke off in the middle of its answer" + (f": {self._detail(error)}" if error else ""))
        )

    def _detail(self, error: Exception) -> str:
        return mask_secrets(describe_failure(error), self.key())[:MAX_ERROR_CHARS]

    def _message(self, what: str) -> str:
        return f"the provider of {self.name!r} ({self.model}) {what}"


class ProviderReply:
    """A provider's answer that has begun, with the interface of `proxy.engine.client.EngineReply`. `async with` it."""

    def __init__(self, provider: Provider, answer: Any, litellm: Any) -> None:
        self._provider = provider
        self._answer = answer
        self._litellm = litellm
        self._cost_usd: float | None = None
        self._over = False

    async def __aenter__(self) -> ProviderReply:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self._over and hasattr(self._answer, "aclose"):
            await self._answer.aclose()

    async def body(self) -> bytes:
        """Return the whole answer of a request that is not streamed, as a chat completion."""
        self._cost_usd = _number((getattr(self._answer, "_hidden_params", None) or {}).get("response_cost"))
        return orjson.dumps(provider_fields.to_completion(self._answer.model_dump(exclude_none=True)))

    async def chunk(self) -> bytes:
        """Return the next event, framed as an engine frames it; b"" at the end. Raises CallerError, EngineFailed."""
        if self._over:
            return b""
        try:
            async with self._provider.bound():
                event = (await anext(self._answer)).model_dump(exclude_none=True)
        except StopAsyncIteration:
            self._over = True
            return sse.encode_event(sse.DONE)
        except Exception as e:  # noqa: BLE001 - the edge of LiteLLM, as in `send`
            raise self._provider.broke(e) from None
        self._require_real_end(event)
        self._cost_usd = _number((event.get("usage") or {}).get("cost")) or self._cost_usd
        return sse.encode_event(orjson.dumps(provider_fields.to_chunk(event)))

    def _require_real_end(self, event: dict[str, Any]) -> None:
        """Raise EngineFailed for an end that LiteLLM invented: it reports a stream that broke off as finished."""
        ended = any(choice.get("finish_reason") for choice in event["choices"])
        heard = ("received_finish_reason", "intermittent_finish_reason")
        if ended and all(getattr(self._answer, name, "") is None for name in heard):
            raise self._provider.broke()

    def meta(self) -> dict[str, Any]:
        """Return what is recorded of the provider along with its answer; `cost_usd` if LiteLLM knows a price."""
        known = self._litellm.get_llm_provider(self._provider.model)[1]
        cost = {} if self._cost_usd is None else {"cost_usd": self._cost_usd}
        return {"provider": known, **cost}


def _refusal(error: Exception, message: str, status: int) -> EngineRefused:
    """A provider's refusal: its status, the field at fault, and when to retry."""
    body = getattr(error, "body", None)
    fault: Mapping[str, Any] = body if isinstance(body, dict) else {}
    param, code = fault.get("param"), fault.get("code")
    refused = EngineRefused(
        message,
        status=status,
        kind=str(fault.get("type") or ("invalid_request_error" if status < 500 else "server_error")),
        param=param if isinstance(param, str) else None,
        code=code if isinstance(code, str) else "provider_error",
    )
    retry_after = (getattr(error, "litellm_response_headers", None) or {}).get("retry-after", "")
    refused.retry_after_s = int(retry_after) if retry_after.isdecimal() else None
    return refused


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None
