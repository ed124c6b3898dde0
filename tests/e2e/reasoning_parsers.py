"""What vLLM's reasoning parsers tell apart as thinking behind a prompt with earlier thinking, as JSON by name.

A program of its own: vLLM warns when it is imported, and the tests take warnings for errors.

    python reasoning_parsers.py MODEL NAME…
"""

from __future__ import annotations

import json
import sys
from typing import Any


def thinking_after(past: str, parsers: Any, tokenizer: Any) -> str:
    """What is told apart as thinking of a streamed answer, behind a prompt with this earlier turn."""
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest

    prompt = tokenizer.encode(f"<|im_start|>assistant\n{past}<|im_end|>\n<|im_start|>assistant\n")
    parser, found = parsers(tokenizer, None), ""
    request = ChatCompletionRequest(model="m", messages=[{"role": "user", "content": "x"}])
    for token in tokenizer.encode("<think>why</think>because"):
        delta = parser.parse_delta(tokenizer.decode([token]), [token], request, prompt, finished=False)
        found += (delta.reasoning or "") if delta is not None else ""
    return found


def main(model: str, *names: str) -> None:
    """Print, for each parser, what it finds without and with thinking in the earlier turn."""
    from tokenizers import AddedToken
    from transformers import AutoTokenizer
    from vllm.parser.parser_manager import ParserManager

    tokenizer = AutoTokenizer.from_pretrained(model)
    tokenizer.add_tokens([AddedToken(mark, special=False, normalized=False) for mark in ("<think>", "</think>")])
    found = {}
    for name in names:
        parsers = ParserManager.get_parser(
            tool_parser_name="hermes", reasoning_parser_name=name, enable_auto_tools=True, tokenizer=tokenizer
        )
        found[name] = [thinking_after(past, parsers, tokenizer) for past in ("b", "<think>a</think>b")]
    sys.stdout.write("\n" + json.dumps(found) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
