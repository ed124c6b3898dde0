"""Render a conversation with the engine's chat template and tokenizer, split where an answer begins and ends.

Owns: what the template is given, the boundaries of an answer, and what a tool call begins with. Refuses: which answers
are imitated, and rows (`trainer.demonstrations.rows`).

An answer is what the template adds to the prompt that an engine would have sampled after, up to and with the token that
ends an answer. Where the two texts or their ids do not begin alike, nothing is guessed: the answer cannot be split.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from recorder.messages.calls import Message
from recorder.messages.plain_text import find_texts, thinking_text
from recorder.models.chat_template import TOOL, RenderedTemplate, special_tokens
from trainer.batch.packing import Ids
from trainer.batch.row_builder import as_ids
from trainer.errors import TrainerError

_KEPT: Final = ("role", "name", "tool_call_id")
_MARK: Final = re.compile(r"<[^<>\s]+>|\[[A-Z_]+\]")


class CannotSplit(ValueError):
    """The template gives an answer no boundary of its own; says why."""


@dataclass(frozen=True, slots=True)
class OpenPrompt:
    """A prompt that an engine answers. `opening`: its last ids, with which the template begins an answer."""

    text: str
    ids: Ids
    opening: Ids


class ChatTemplate:
    """The template and the tokenizer of a base."""

    def __init__(self, base: Path, template: Path | None = None) -> None:
        """`template`: the file that the engine uses instead of the base's own. Raises `TrainerError` without one."""
        from transformers import AutoTokenizer  # a second's work, and few steps render

        try:
            self._tokenizer: Any = AutoTokenizer.from_pretrained(base, local_files_only=True)
        except (OSError, ValueError, KeyError, ImportError) as e:
            raise TrainerError(f"the base {base} has no tokenizer to render conversations with: {e}") from e
        if template is not None:
            self._tokenizer.chat_template = template.read_text("utf-8")
        source = self._tokenizer.chat_template
        if isinstance(source, dict):  # several by name
            source = source.get("tool_use") or source.get("default")
        if not isinstance(source, str) or not source:
            raise TrainerError(
                f"the base {base} has no chat template, so conversations cannot be rendered: set engine.chat_template."
            )
        self._ends = _end_ids(base, self._tokenizer)
        self.tool_mark = _tool_mark(RenderedTemplate(source, special_tokens(base)).call)

    def split(
        self, messages: Sequence[Message], index: int, tools: Sequence[Mapping[str, Any]] | None
    ) -> tuple[Ids, Ids]:
        """Return the ids before the answer `messages[index]`, and those of the answer. Raises `CannotSplit`."""
        given = [_plain_message(message) for message in messages[: index + 1]]
        prompt_text = self._render(given[:-1], tools, opens=True)
        whole_text = self._render(given, tools, opens=False)
        if not whole_text.startswith(prompt_text):
            raise CannotSplit("the text of the answer does not follow the prompt that an engine answers")
        prompt, whole = self._encode(prompt_text), self._encode(whole_text)
        if whole[: len(prompt)] != prompt:
            raise CannotSplit("the tokenizer joins the end of the prompt with the beginning of the answer")
        answer = whole[len(prompt) :]
        last = max((at for at, id_ in enumerate(answer) if id_ in self._ends), default=None)
        if last is None:
            raise CannotSplit("the template writes no token that ends the answer")
        return as_ids(prompt), as_ids(answer[: last + 1])

    def write_prompt(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] | None,
        options: Mapping[str, Any] | None = None,
    ) -> OpenPrompt:
        """Return the prompt that an engine answers. `options`: the request's own for the template.

        Raises `CannotSplit`.
        """
        given = [_plain_message(message) for message in messages]
        text = self._render(given, tools, opens=True, options=options)
        before = self._render(given, tools, opens=False, options=options)
        if not text.startswith(before):
            raise CannotSplit("the prompt that an engine answers does not begin as the conversation")
        return OpenPrompt(text, self.encode(text), self.encode(text[len(before) :]))

    def encode(self, text: str) -> Ids:
        """Return the ids of a text, in which marks of the template are single tokens."""
        return as_ids(self._encode(text))

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids, special tokens included."""
        text: str = self._tokenizer.decode(list(ids), skip_special_tokens=False)
        return text

    @property
    def marks(self) -> Sequence[str]:
        """The texts that are single tokens of their own, as `<|im_end|>`: the longest first."""
        found = {str(token) for token in self._tokenizer.get_added_vocab()} | set(self._tokenizer.all_special_tokens)
        return sorted((mark for mark in found if mark.strip()), key=lambda mark: (-len(mark), mark))

    def _render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None,
        *,
        opens: bool,
        options: Mapping[str, Any] | None = None,
    ) -> str:
        own = {"tools": list(tools) if tools else None, "add_generation_prompt": opens, "tokenize": False}
        try:
            text: str = self._tokenizer.apply_chat_template(list(messages), **{**(options or {}), **own})
        except Exception as e:  # a template of somebody's may raise anything
            why = next(iter(str(e).splitlines()), type(e).__name__)
            raise CannotSplit(f"the template refuses the conversation: {why}") from e
        return text

    def _encode(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer(text, add_special_tokens=False).input_ids
        return ids


def _plain_message(message: Message) -> dict[str, Any]:
    """A message as an engine gives it to a template: text content, and arguments of tool calls as objects."""
    given: dict[str, Any] = {name: message[name] for name in _KEPT if message.get(name) is not None}
    given["content"] = "\n".join(find_texts(message.get("content")))
    if thinking := thinking_text(message):
        given["reasoning_content"] = thinking
    if calls := message.get("tool_calls"):
        given["tool_calls"] = [_plain_call(call) for call in calls]
    return given


def _plain_call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = dict(call.get("function") or {})
    if isinstance(arguments := function.get("arguments"), str):
        try:
            function["arguments"] = json.loads(arguments or "{}")
        except (ValueError, RecursionError) as e:
            name = function.get("name")
            raise CannotSplit(f"the arguments of the tool call {name!r} in it or before it are no JSON") from e
    return {"type": "function", **({"id": call["id"]} if call.get("id") else {}), "function": function}


def _end_ids(base: Path, tokenizer: Any) -> frozenset[int]:
    """The tokens at which an engine stops."""
    try:
        named = json.loads((base / "generation_config.json").read_text("utf-8")).get("eos_token_id")
    except (OSError, ValueError, AttributeError):
        named = None
    several = named if isinstance(named, list) else [named]
    return frozenset(id_ for id_ in (*several, tokenizer.eos_token_id) if isinstance(id_, int))


def _tool_mark(call: str) -> str | None:
    """The last mark before the name of a tool in what a template writes of a call."""
    marks = _MARK.findall(call.partition(TOOL)[0])
    return marks[-1] if marks else None
