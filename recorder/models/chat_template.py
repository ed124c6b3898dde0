"""A model's chat template, and what it writes for a tool call and for thinking.

The template is rendered with a made-up conversation, in the sandbox that transformers uses too. Refuses: choosing a
parser for what it writes (`recorder.models.parsers`).
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

TOOL: Final = "look_up_word"
_THOUGHT: Final = "a-thought-of-mine"
_TEXT: Final = "an-answer-of-mine"
_FOUND: Final = "a-result"
_CALL_ID: Final = "abcdefghi"  # Mistral's templates require nine characters
_ARGUMENTS: Final = {"spelling": "here"}
_SCHEMA: Final = {"type": "object", "properties": {"spelling": {"type": "string", "description": "d"}}, "required": []}
_TOOLS: Final = [{"type": "function", "function": {"name": TOOL, "description": "d", "parameters": _SCHEMA}}]
_MAX_CHARS: Final = 500_000
_TOKENS: Final = ("bos_token", "eos_token", "pad_token", "unk_token")


def read_chat_template(folder: Path) -> str | None:
    """The default chat template in a model's folder: a file of its own, else in the tokenizer's config; else None."""
    try:
        return (folder / "chat_template.jinja").read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        pass
    for name in ("chat_template.json", "tokenizer_config.json"):
        found = _json(folder / name).get("chat_template")
        if isinstance(found, list):  # several by name: [{"name": "default", "template": "…"}]
            named = {one.get("name"): one.get("template") for one in found if isinstance(one, dict)}
            found = named.get("tool_use") or named.get("default")
        if isinstance(found, str) and found:
            return found
    return None


def special_tokens(folder: Path) -> dict[str, str]:
    """The special tokens that a template may write, by their variable."""
    config = _json(folder / "tokenizer_config.json")
    found = {name: config.get(name) for name in _TOKENS}
    texts = {name: one.get("content") if isinstance(one, dict) else one for name, one in found.items()}
    return {name: text for name, text in texts.items() if isinstance(text, str)}


class _Generation(Extension):
    """`{% generation %}`, which transformers uses to find the answers in a text: its block is rendered as it is."""

    tags = {"generation"}  # noqa: RUF012 - as its base class declares it

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """Return the nodes of the block."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class RenderedTemplate:
    """What a chat template writes. `call`: of a turn that calls a tool; `opening`: what an answer begins with.

    `renders`: whether it writes a conversation without tools at all.
    """

    def __init__(self, template: str, tokens: Mapping[str, str]) -> None:
        self.source = template
        self._template: jinja2.Template | None
        try:
            self._template = _environment().from_string(template[:_MAX_CHARS])
        except (jinja2.TemplateError, RecursionError):
            self._template = None
        self._tokens = dict(tokens)
        self.renders = self._render(_conversation({})[:1], opens=True) is not None
        self.call = self._call()
        self.opening = self._opening()

    @property
    def has_tools(self) -> bool:
        """Whether a tool call of an earlier turn is written at all."""
        return TOOL in self.call

    def _call(self) -> str:
        for tools in (None, _TOOLS):  # some write a call only where a tool is declared
            for arguments in (_ARGUMENTS, json.dumps(_ARGUMENTS)):
                conversation = _conversation(arguments)
                for end in (len(conversation), 2):  # some refuse what follows a call
                    text = self._render(conversation[:end], tools=tools)
                    start = self._render(conversation[:1], tools=tools) or ""
                    if text is not None and TOOL in (written := _after(text, start)):
                        return written
        return ""

    def _opening(self) -> str:
        user = [{"role": "user", "content": "hello"}]
        with_prompt = self._render(user, opens=True)
        without = self._render(user)
        return _after(with_prompt or "", without or "")

    def _render(self, messages: list[dict[str, Any]], *, tools: object = None, opens: bool = False) -> str | None:
        """The text of a conversation, with what an answer begins with if `opens`; None if the template fails."""
        if self._template is None:
            return None
        values = {**dict.fromkeys(_TOKENS, ""), **self._tokens}
        try:
            return self._template.render(messages=messages, tools=tools, add_generation_prompt=opens, **values)
        except Exception:  # noqa: BLE001 - a template of somebody's may raise anything; it then says nothing
            return None


def _conversation(arguments: object) -> list[dict[str, Any]]:
    function = {"name": TOOL, "arguments": arguments}
    return [
        {"role": "user", "content": "hello"},
        {
            "role": "assistant",
            "content": "",
            "reasoning_content": _THOUGHT,
            "tool_calls": [{"id": _CALL_ID, "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": _CALL_ID, "name": TOOL, "content": _FOUND},
        {"role": "assistant", "content": _TEXT},
    ]


def _after(text: str, start: str) -> str:
    """What a text has beyond what it shares with another from the left."""
    length = next(
        (at for at, (a, b) in enumerate(zip(text, start, strict=False)) if a != b), min(len(text), len(start))
    )
    return text[length:]


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _Generation]
    )
    environment.filters["tojson"] = _as_json
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = _now
    return environment


def _as_json(value: object, ensure_ascii: bool = False, indent: int | None = None, **_: object) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)


def _raise(message: str) -> str:
    raise jinja2.TemplateError(message)


def _now(form: str) -> str:
    return datetime.datetime.now(tz=datetime.UTC).strftime(form)


def _json(path: Path) -> Mapping[str, Any]:
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
