"""LiteLLM as judge and proxy use it: imported late, without its own log, and with API keys masked in its messages.

Refuses: requests and replies.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import re
import warnings
from typing import Any

from recorder.base.gc_pause import pause_gc
from recorder.base.urls import mask_parameters

NO_KEY = "none"  # the key for a server at `api_base` without a configured key: never one from the environment

_SECRET_NAME = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD)S?$", re.IGNORECASE)
_SHORTEST_SECRET = 8
_LOGIN = re.compile(r"://[^/@\s]+@")


@functools.cache
def load_litellm() -> Any:
    """Import LiteLLM and return it. This takes seconds, so call it in a thread."""
    # Otherwise the import fetches a price list from the network, and may hang.
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    with pause_gc(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pydantic's, about LiteLLM's types
        import litellm

        litellm.ModelResponse(), litellm.ModelResponseStream()  # otherwise the first answer takes seconds longer

    litellm.suppress_debug_info = True
    litellm.telemetry = False
    # LiteLLM's errors are raised as exceptions; its log may contain keys.
    logging.getLogger("LiteLLM").setLevel(logging.CRITICAL)
    return litellm


def token_price(model: str, tokens_in: int, tokens_out: int) -> float | None:
    """Return the price of tokens in dollars by LiteLLM's table, or None if it has no price for that model.

    Importing LiteLLM takes seconds: call this in a thread.
    """
    litellm = load_litellm()
    try:
        sent, answered = litellm.cost_per_token(model=model, prompt_tokens=tokens_in, completion_tokens=tokens_out)
    except Exception:  # noqa: BLE001 - the edge of LiteLLM, which raises whatever it likes for a model it does not know
        return None
    total = float(sent) + float(answered)
    return total or None  # entries without a price have 0


async def close_litellm() -> None:
    """Close connections, and LiteLLM's tasks on this loop."""
    litellm = await asyncio.to_thread(load_litellm)
    from litellm.litellm_core_utils.logging_worker import GLOBAL_LOGGING_WORKER
    from litellm.llms.custom_httpx.async_client_cleanup import close_litellm_async_clients

    await GLOBAL_LOGGING_WORKER.stop()
    await close_litellm_async_clients()
    litellm.in_memory_llm_clients_cache.flush_cache()


def mask_secrets(text: str, *secrets: str | None) -> str:
    """Return `text` without the given secrets, any key from the environment, and keys in URLs."""
    known = [value for name, value in os.environ.items() if _SECRET_NAME.search(name)]
    for secret in sorted({*known, *(s for s in secrets if s and s != NO_KEY)}, key=len, reverse=True):
        if len(secret) >= _SHORTEST_SECRET or secret in secrets:
            text = text.replace(secret, "***")
    return mask_parameters(_LOGIN.sub("://***@", text))
