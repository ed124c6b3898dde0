"""Whether an engine's logprobs can be trained on: those of the distribution that it samples from, and the trainer's.

Owns: both questions, one token at another temperature and named tokens after a fixed text, and what the answer to the
first means. Refuses: sending (`proxy.engine.replica`), and comparing with the trainer's logprobs
(`trainer.step.engine_check`, in a child process).

vLLM's own default returns logprobs before the temperature (`--logprobs-mode raw_logprobs`). The logprob of a token
that was sampled at another temperature then equals the logprob of the same token at temperature 1.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from proxy.engine.answers import EngineQuestion
from proxy.engine.replica import Replica
from proxy.errors import EngineError
from proxy.settings.hone import HoneSettings
from proxy.settings.sections import base_name
from recorder.base.findings import Finding, FindingLevel
from recorder.queue.training.fixed_text import FIXED_TEXT, named_tokens

CHECK: Final = "engine logprobs"
TEMPERATURES: Final = (2.0, 0.5)  # one flattens a sharp distribution, the other sharpens a flat one
SAME: Final = 0.01  # nats: an engine of 16 bits answers one prompt twice within this
CERTAIN: Final = -0.001  # nats: so likely a token is at every temperature
_QUESTION: Final = EngineQuestion([{"role": "user", "content": "Name an animal, a colour or a city."}], max_tokens=1)


async def check_logprobs(urls: Sequence[str], key: str | None, settings: HoneSettings) -> list[Finding]:
    """One finding for each engine that answers; none without aliases."""
    names = settings.declared_aliases().items()
    bases = [alias.base_model or base_name(settings.engine) or name for name, alias in names]
    if not bases:
        return []
    findings = await asyncio.gather(*(_check(url, key, bases[0]) for url in urls))
    return [one for one in findings if one is not None]


async def ask_fixed_text(urls: Sequence[str], key: str | None, settings: HoneSettings) -> list[dict[str, Any]]:
    """Each engine's logprobs of named tokens after a fixed text, as `hone learn --check` reads them; of those that
    answer.
    """
    names = settings.declared_aliases().items()
    bases = [alias.base_model or base_name(settings.engine) or name for name, alias in names]
    if not bases:
        return []
    answers = await asyncio.gather(*(_ask_fixed_text(url, key, bases[0]) for url in urls))
    return [one for one in answers if one is not None]


async def _ask_fixed_text(url: str, key: str | None, model: str) -> dict[str, Any] | None:
    replica = Replica(url, key)
    try:
        prompt, _ = await replica.spelled(model, FIXED_TEXT)
        named = named_tokens(prompt)
        logprobs = await replica.logprobs(model, prompt, named)
    except EngineError:  # `check_engine` and `check_logprobs` report it
        return None
    finally:
        await replica.close()
    return {"url": url, "prompt_ids": prompt, "token_ids": named, "logprobs": logprobs}


async def _check(url: str, key: str | None, model: str) -> Finding | None:
    """The finding of one engine; None if it does not answer or serve the model, which `check_engine` reports."""
    replica = Replica(url, key)
    try:
        if model not in (await replica.served()).bases:
            return None
    except EngineError:
        await replica.close()
        return None
    try:
        pairs = []
        for temperature in TEMPERATURES:
            pairs.append(await _pair(replica, model, temperature))
            if differs(*pairs[-1]):
                break
    except EngineError as e:
        return Finding(CHECK, FindingLevel.WRONG, f"{e}.", "Hone trains on tokens with logprobs (docs/your-vllm.md).")
    finally:
        await replica.close()
    return read_pairs(url, pairs)


async def _pair(replica: Replica, model: str, temperature: float) -> tuple[float, float]:
    """The logprob of a token that was sampled at a temperature, as reported there, and the same token's at 1."""
    answer = await replica.answer(model, replace(_QUESTION, temperature=temperature))
    if not answer.token_ids or math.isnan(answer.logprobs[0]):
        raise EngineError(f"the engine {replica.url} answered a chat without logprobs")
    plain = await replica.logprobs(model, answer.prompt_ids, answer.token_ids[:1])
    return answer.logprobs[0], plain[0]


def differs(reported: float, plain: float) -> bool:
    """Whether a logprob reported at another temperature differs from the one at temperature 1."""
    return abs(reported - plain) > SAME


def read_pairs(url: str, pairs: Sequence[tuple[float, float]]) -> Finding:
    """The finding for pairs of logprobs of one token each: reported at another temperature, and at 1."""
    if any(differs(*pair) for pair in pairs):
        return Finding(CHECK, FindingLevel.FINE, f"{url} returns logprobs after the temperature.")
    if all(plain > CERTAIN for _, plain in pairs):
        text = f"{url} is certain of its answer, so that a temperature changes nothing: its logprobs say nothing."
        return Finding(CHECK, FindingLevel.NOTE, text)
    return Finding(
        CHECK,
        FindingLevel.WRONG,
        f"{url} returns logprobs before the temperature: Hone would train on wrong ones at any temperature but 1.",
        "Start it with --logprobs-mode processed_logprobs (docs/your-vllm.md).",
    )
