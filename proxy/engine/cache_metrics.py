"""What an emptied prefix cache costs, by vLLM's own counters before and after a pause.

Owns: reading the counters, and the estimate. Refuses: when they are read (`proxy.versions.pauses`).

Until the cache is full again, prompts hit it less often than before. The tokens that are missing in hits were computed
again; a token costs what computing a prompt's token cost before. Requests that are computed together are each counted
with their whole time, so the seconds are rather too many.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from proxy.engine.replica import Replica
from proxy.errors import EngineError

_NAMES: Final = {
    "vllm:prefix_cache_queries_total": "queries",
    "vllm:prefix_cache_hits_total": "hits",
    "vllm:request_prefill_time_seconds_sum": "prefill_s",
    "vllm:prompt_tokens_total": "prompt_tokens",
}


@dataclass(frozen=True, slots=True)
class CacheCounters:
    """An engine's counters since it started. `queries` and `hits`: tokens of prompts looked up and found.

    `prefill_s`: seconds until the first token, summed over requests.
    """

    queries: float = 0.0
    hits: float = 0.0
    prefill_s: float = 0.0
    prompt_tokens: float = 0.0

    @property
    def token_s(self) -> float:
        """Seconds for one token of a prompt that was not found in the cache."""
        return self.prefill_s / max(1.0, self.prompt_tokens - self.hits)


def refill_cost(before: CacheCounters, woken: CacheCounters, now: CacheCounters) -> tuple[float, float]:
    """Return the tokens that were computed again since the engine woke, and the seconds that took.

    `before`: at the pause; `woken`: when the engine was awake again.
    """
    share = before.hits / max(1.0, before.queries)
    tokens = max(0.0, share * (now.queries - woken.queries) - (now.hits - woken.hits))
    return tokens, tokens * before.token_s


async def read_counters(replica: Replica) -> CacheCounters | None:
    """Return an engine's counters; None if it has none, or does not answer."""
    try:
        answer = await replica.send("GET", "/metrics")
    except EngineError:
        return None
    return parse_counters(answer.text) if answer.is_success else None


def parse_counters(text: str) -> CacheCounters | None:
    """Return the counters in a page of Prometheus's text format, summed over their labels; None without any."""
    found: dict[str, float] = {}
    for line in text.splitlines():
        name = _NAMES.get(line.partition("{")[0].partition(" ")[0])
        if name is not None:
            try:
                found[name] = found.get(name, 0.0) + float(line.rpartition(" ")[2])
            except ValueError:
                return None
    return CacheCounters(**found) if found else None
