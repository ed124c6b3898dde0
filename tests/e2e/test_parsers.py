"""Which of vLLM's parsers leave the text of an answer as its ids have it: the trainer excludes by these alone."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken
from transformers import AutoTokenizer

from tests.e2e.conftest import CONFIG, MODEL, ROOT, Stack, started
from tests.e2e.test_capture import body
from tests.stores import Stores
from trainer.batch.recorded_text import PROVEN_REASONING_PARSERS, PROVEN_TOOL_PARSERS, agrees
from trainer.policy.base_model import load_decoder

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

PROGRAM = Path(__file__).parent / "parser_texts.py"
# What parser_texts.py says of each parser that the installed vLLM registers; its docstring explains the words.
TOOL_PARSERS: dict[str, set[str]] = {
    "agrees": {
        "deepseek_v3",
        "deepseek_v32",
        "deepseek_v4",
        "deepseek_v41",
        "dots",
        "ernie45",
        "gemma4",
        "glm45",
        "glm47",
        "granite4",
        "hermes",
        "hy_v3",
        "kimi_k2",
        "lfm2",
        "ling3",
        "llama4_pythonic",
        "longcat",
        "mimo",
        "minimax_m2",
        "phi4_mini_json",
        "plamo3",
        "poolside_v1",
        "pythonic",
        "qwen3_coder",
        "qwen3_json",
        "qwen3_xml",
        "seed_oss",
        "step3p5",
    },
    "contradicts": {"functiongemma", "minicpm5"},
    "garbles": {
        "apertus",
        "deepseek_v31",
        "gigachat3",
        "granite",
        "granite-20b-fc",
        "hunyuan_a13b",
        "inkling",
        "internlm",
        "jamba",
        "llama3_json",
        "llama4_json",
        "olmo3",
        "step3",
        "xlam",
    },
    "no format": {
        "cohere_command3",
        "cohere_command4",
        "hf",
        "hy_v4",
        "k2_horizon",
        "kimi_k3",
        "minimax_m3",
        "mistral",
        "muse_glimmer",
        "openai",
    },
}
REASONING_PARSERS: dict[str, set[str]] = {
    "agrees": {
        "deepseek_r1",
        "deepseek_v3",
        "deepseek_v4",
        "deepseek_v41",
        "ernie45",
        "gemma4",
        "glm45",
        "glm47",
        "granite",
        "granite_thinking_parser",
        "holo2",
        "hy_v3",
        "hy_v4",
        "inkling",
        "k2_horizon",
        "kimi_k2",
        "ling3",
        "mimo",
        "minicpmv",
        "minimax_m2",
        "nemotron_v3",
        "plamo3",
        "poolside_v1",
        "qwen3",
        "seed_oss",
        "step3",
        "step3p5",
    },
    "contradicts": {"minimax_m2_append_think", "minimax_m3"},
    "misread": {"hunyuan_a13b"},
    "no format": {"cohere_command4", "hf", "kimi_k3", "muse_glimmer", "openai_gptoss"},
    "not built": {"cohere_command3", "mistral", "olmo3"},
}


def test_the_trainer_excludes_by_the_parsers_that_agree() -> None:
    assert {None, *TOOL_PARSERS["agrees"]} == PROVEN_TOOL_PARSERS
    assert {None, *REASONING_PARSERS["agrees"]} == PROVEN_REASONING_PARSERS


def test_the_docs_name_the_parsers_that_agree() -> None:
    page = (ROOT / "docs" / "your-vllm.md").read_text()
    for kind, proven in (("tool calls", PROVEN_TOOL_PARSERS), ("reasoning", PROVEN_REASONING_PARSERS)):
        [row] = [line for line in page.splitlines() if line.startswith(f"| {kind} |")]
        assert set(re.findall(r"`([^`]+)`", row)) == proven - {None}


@pytest.mark.long  # about two minutes
def test_each_parser_does_what_the_table_says() -> None:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(MODEL)], capture_output=True, text=True, timeout=800, check=True
    )
    found = json.loads(done.stdout.splitlines()[-1])
    notes = json.dumps(found, ensure_ascii=False, indent=1)
    assert by_word(found["tools"]) == TOOL_PARSERS, notes
    assert by_word(found["thinking"]) == REASONING_PARSERS, notes


def by_word(found: dict[str, tuple[str, list[str]]]) -> dict[str, set[str]]:
    words = {word for word, _ in found.values()}
    return {word: {name for name, (own, _) in found.items() if own == word} for word in words}


@pytest.fixture(scope="module")
def thinking_stack(stores: Stores, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """An engine with other parsers than the demo's. Its tokenizer has the marks of thinking; the model never does."""
    folder = tmp_path_factory.mktemp("parsers")
    model = folder / "model"
    shutil.copytree(MODEL, model)
    tokenizer: Any = AutoTokenizer.from_pretrained(MODEL)
    tokenizer.add_tokens([AddedToken(mark, special=False, normalized=False) for mark in ("<think>", "</think>")])
    tokenizer.save_pretrained(model)
    parsers = '\ntool_call_parser = "granite4"\nreasoning_parser = "qwen3"\n'
    settings = CONFIG.replace(str(MODEL), str(model)).replace("\n[trainer]", parsers + "\n[trainer]")
    with stores.unmade(folder / "data") as recording, started(folder, recording, settings) as running:
        yield running


@pytest.mark.long  # the engine starts for 40 to 70 s
@pytest.mark.parametrize("stream", [False, True])
def test_ids_agree_with_the_thinking_and_the_calls_of_a_real_engine(thinking_stack: Stack, stream: bool) -> None:
    """`qwen3` takes everything for thinking that stands before a call, where the mark of its end is missing."""
    decode = load_decoder(thinking_stack.data.parent / "model")
    assert decode is not None
    thoughts = calls = 0
    for seed in range(8):
        name = f"thought-{stream}-{seed}"
        with thinking_stack.proxy() as proxy:
            asked = body(seed, stream=stream, n=2)
            proxy.post(f"/t/{name}/v1/chat/completions", json=asked).raise_for_status()
        [call] = thinking_stack.calls_of(name)
        for said, choice in zip(call["response"]["choices"], call["choices"], strict=True):
            message = said["message"]
            assert agrees(message, choice["token_ids"], decode), (message, decode(choice["token_ids"]))
            thoughts += bool(message.get("reasoning"))
            calls += bool(message.get("tool_calls"))
    assert thoughts
    assert calls
