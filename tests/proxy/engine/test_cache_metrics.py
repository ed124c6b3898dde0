"""What an emptied prefix cache costs, from vLLM's counters."""

from __future__ import annotations

import pytest

from proxy.engine.cache_metrics import CacheCounters, parse_counters, refill_cost

PAGE = """# HELP vllm:prefix_cache_queries_total Prefix cache queries
# TYPE vllm:prefix_cache_queries_total counter
vllm:prefix_cache_queries_total{engine="0",model_name="m"} 1000.0
vllm:prefix_cache_queries_total{engine="1",model_name="m"} 500.0
vllm:prefix_cache_queries_created{engine="0",model_name="m"} 1.7e+09
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 900.0
vllm:prompt_tokens_total{engine="0",model_name="m"} 1500.0
vllm:request_prefill_time_seconds_sum{engine="0",model_name="m"} 3.0
vllm:request_prefill_time_seconds_count{engine="0",model_name="m"} 7.0
"""


def test_counters_are_read_from_every_engine_of_a_server() -> None:
    assert parse_counters(PAGE) == CacheCounters(1500.0, 900.0, 3.0, 1500.0)
    assert parse_counters("# nothing\nup 1\n") is None
    assert parse_counters("vllm:prompt_tokens_total many\n") is None


def test_missing_hits_are_tokens_that_were_computed_again() -> None:
    before = CacheCounters(queries=1000, hits=800, prefill_s=2.0, prompt_tokens=1000)  # 10 ms a token, 80 % hits
    woken = CacheCounters(queries=1000, hits=800)
    assert refill_cost(before, woken, CacheCounters(queries=1500, hits=900)) == pytest.approx((300.0, 3.0))
    assert refill_cost(before, woken, CacheCounters(queries=1500, hits=1300)) == (0.0, 0.0)  # as full as before
    assert refill_cost(CacheCounters(), woken, woken) == (0.0, 0.0)
