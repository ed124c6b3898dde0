"""What vLLM's reasoning parsers tell apart as thinking behind a prompt with earlier thinking."""

from __future__ import annotations

import importlib
import warnings
from typing import Any

import pytest
from tokenizers import AddedToken
from transformers import AutoTokenizer

from proxy.serving.prompt_splice import TURN_BOUND_PARSERS
from tests.e2e.conftest import MODEL

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def manager() -> Any:
    """vLLM's parsers. To import them takes seconds, and they warn of their own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module("vllm.parser.parser_manager").ParserManager


def thinking_after(past: str, parsers: Any, tokenizer: Any) -> str:
    """What is told apart as thinking of a streamed answer, behind a prompt with this earlier turn."""
    requests = importlib.import_module("vllm.entrypoints.openai.chat_completion.protocol")
    prompt = tokenizer.encode(f"<|im_start|>assistant\n{past}<|im_end|>\n<|im_start|>assistant\n")
    parser, found = parsers(tokenizer, None), ""
    request = requests.ChatCompletionRequest(model="m", messages=[{"role": "user", "content": "x"}])
    for token in tokenizer.encode("<think>why</think>because"):
        delta = parser.parse_delta(tokenizer.decode([token]), [token], request, prompt, finished=False)
        found += (delta.reasoning or "") if delta is not None else ""
    return found


@pytest.mark.filterwarnings("ignore")
def test_reasoning_parsers_that_look_at_the_turn_alone_are_known(manager: Any) -> None:
    tokenizer: Any = AutoTokenizer.from_pretrained(MODEL)
    tokenizer.add_tokens([AddedToken(mark, special=False, normalized=False) for mark in ("<think>", "</think>")])
    found = {}
    for name in [*sorted(TURN_BOUND_PARSERS), "deepseek_r1"]:
        parsers = manager.get_parser(
            tool_parser_name="hermes", reasoning_parser_name=name, enable_auto_tools=True, tokenizer=tokenizer
        )
        found[name] = [thinking_after(past, parsers, tokenizer) for past in ("b", "<think>a</think>b")]
    alone = {name: ["why", "why"] for name in TURN_BOUND_PARSERS}
    assert found == alone | {"deepseek_r1": ["why", ""]}
