"""Conversations through a chat template and a tokenizer, as vLLM puts them, and answers as a model writes them.

The templates beside this file do what those of Qwen3, Llama 3.1 and Hermes do. The tokenizer is the demo's, with their
special tokens added.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import AddedToken
from transformers import AutoTokenizer

HERE = Path(__file__).parent
MODEL = HERE.parent.parent / "examples" / "helpdesk" / "model"
ENDS = {"demo": "<|im_end|>", "qwen3": "<|im_end|>", "hermes": "<|im_end|>", "llama3": "<|eot_id|>"}
_MARKS = ("<think>", "</think>", "<tool_response>", "</tool_response>")
_SPECIAL = ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")

Message = Mapping[str, Any]


@dataclass(frozen=True)
class Answer:
    """What a model writes in one turn: thinking, text, one tool call, and how it spaces them."""

    text: str = ""
    tool: str | None = None
    arguments: Mapping[str, Any] | None = None
    thinking: str | None = None
    compact: bool = False  # JSON without spaces
    padded: bool = False  # white space around what it says

    def message(self, call_id: str = "call_0") -> dict[str, Any]:
        """The message that the engine makes of it, thinking left in the text: no reasoning parser is at work."""
        said = self._pad(self._thought() + self.text)
        if self.tool is None:
            return {"role": "assistant", "content": said}
        arguments = json.dumps(self.arguments, separators=self._separators())
        call = {"id": call_id, "type": "function", "function": {"name": self.tool, "arguments": arguments}}
        return {"role": "assistant", "content": said, "tool_calls": [call]}

    def raw(self, template: str) -> str:
        """The text that the model samples, in the format of a template, without its end-of-turn token."""
        said = self._pad(self._thought() + self.text)
        if self.tool is None:
            return said
        colon = self._separators()[1]
        name = "parameters" if template == "llama3" else "arguments"
        call = f'{{"name"{colon}"{self.tool}"{self._separators()[0]}"{name}"{colon}'
        call += json.dumps(self.arguments, separators=self._separators()) + "}"
        if template == "llama3":
            return call
        if template == "demo":
            return f"{said}<tool_call>{call}</tool_call>"
        before = "\n" if self.text else ""
        return f"{said}{before}<tool_call>\n{call}\n</tool_call>"

    def _thought(self) -> str:
        return f"<think>\n{self.thinking}\n</think>\n\n" if self.thinking is not None else ""

    def _pad(self, text: str) -> str:
        return f" {text}\n" if self.padded and text else text

    def _separators(self) -> tuple[str, str]:
        return (",", ":") if self.compact else (", ", ": ")


class Templated:
    """A template with a tokenizer; a `proxy.serving.prompt_splice.Renderer`."""

    def __init__(self, name: str, tools: Sequence[Mapping[str, Any]] | None = None) -> None:
        self.name = name
        self.tools = tools
        self.tokenizer: Any = AutoTokenizer.from_pretrained(MODEL)
        self.tokenizer.add_tokens([AddedToken(mark, special=False, normalized=False) for mark in _MARKS])
        self.tokenizer.add_special_tokens({"additional_special_tokens": list(_SPECIAL)})
        self.end: int = self.tokenizer.convert_tokens_to_ids(ENDS[name])
        if name != "demo":
            self.tokenizer.chat_template = (HERE / f"{name}.jinja").read_text()

    def text(self, messages: Sequence[Message], *, ask: bool) -> str:
        """A conversation as text."""
        rendered = self.tokenizer.apply_chat_template(
            [_for_template(m) for m in messages], tools=self.tools, add_generation_prompt=ask, tokenize=False
        )
        return str(rendered)

    def encode(self, text: str) -> list[int]:
        """A text's ids."""
        return list(self.tokenizer.encode(text, add_special_tokens=False))

    def decode(self, ids: Sequence[int]) -> str:
        """The text of some ids, special tokens and all."""
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=False))

    def sampled(self, answer: Answer) -> list[int]:
        """The ids that a model samples for an answer."""
        return [*self.encode(answer.raw(self.name)), self.end]

    async def render(self, messages: Sequence[Message], *, ask: bool) -> list[int]:
        """A conversation's ids."""
        return self.encode(self.text(messages, ask=ask))

    async def is_blank(self, ids: Sequence[int]) -> bool:
        """Whether ids are white space alone."""
        return not self.decode(ids).strip()


def _for_template(message: Message) -> Message:
    """As vLLM does: the arguments of tool calls are handed over as values."""
    if not message.get("tool_calls"):
        return message
    calls = [
        call | {"function": call["function"] | {"arguments": json.loads(call["function"]["arguments"])}}
        for call in message["tool_calls"]
    ]
    return dict(message) | {"tool_calls": calls}
