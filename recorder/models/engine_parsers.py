"""The parsers of an engine by its settings: a name is that parser, and `auto` the one that fits the base.

Proxy and trainer ask here. Refuses: which parser fits a chat template (`recorder.models.parsers`), and whether an
installed vLLM has it (`proxy.engine.parsers`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

from recorder.errors import BaseInvalid
from recorder.models.base_model import ModelProfile
from recorder.models.chat_template import RenderedTemplate, special_tokens
from recorder.models.on_disk import read_model
from recorder.models.parsers import ParserChoice, choose_reasoning_parser, choose_tool_parser

AUTO: Final = "auto"
_SET: Final = "as it is set."


class EngineParsers(NamedTuple):
    """The parsers of tool calls and of thinking, each with why."""

    tools: ParserChoice
    thinking: ParserChoice

    @property
    def names(self) -> tuple[str | None, str | None]:
        """Their names; None for none."""
        return self.tools.name, self.thinking.name


def choose_engine_parsers(
    base: str | None, tools: str | None, thinking: str | None, chat_template: Path | None = None
) -> EngineParsers:
    """The parsers for two settings: a name, `auto`, or None for none. `chat_template`: one instead of the base's own.

    Without a network: of a base that is not on this machine and not known by name, nothing is guessed.
    """
    fitting = _fitting(base, chat_template) if AUTO in (tools, thinking) else None
    found = [
        fitting[place] if fitting is not None and setting == AUTO else ParserChoice(setting, _SET)
        for place, setting in enumerate((tools, thinking))
    ]
    return EngineParsers(*found)


def parsers_of_model(model: ModelProfile | None, base: str | None) -> EngineParsers:
    """The parsers that fit a model. `model`: what is known of `base`; None: nothing."""
    if model is not None:
        return EngineParsers(model.tool_parser, model.reasoning_parser)
    what = f"{base} is not on this disk" if base else "no base is named"
    unread = ParserChoice(None, f"{what}, so what its chat template writes is not known.")
    return EngineParsers(unread, unread)


def _fitting(base: str | None, chat_template: Path | None) -> EngineParsers:
    try:
        model = read_model(base) if base is not None else None
    except BaseInvalid:
        model = None  # whoever loads it says what is wrong with it
    if model is None or chat_template is None:
        return parsers_of_model(model, base)
    try:
        template = RenderedTemplate(chat_template.read_text("utf-8"), special_tokens(model.folder))
    except (OSError, UnicodeDecodeError):
        template = None
    return EngineParsers(choose_tool_parser(model.family, template), choose_reasoning_parser(model.family, template))
