"""The parsers that an engine gets: those of its settings, if the installed vLLM has what `auto` finds.

Refuses: which parser fits a base (`recorder.models.engine_parsers`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from proxy.settings.sections import EngineSettings
from recorder.models.engine_parsers import AUTO, EngineParsers, choose_engine_parsers
from recorder.models.parsers import ParserChoice
from recorder.processes import python_probe

TOOL_PARSER: Final = "engine.tool_call_parser"
REASONING_PARSER: Final = "engine.reasoning_parser"


def engine_parsers(engine: EngineSettings) -> EngineParsers:
    """The parsers of an engine with these settings."""
    tools, thinking = engine.tool_call_parser, engine.reasoning_parser
    chosen = choose_engine_parsers(engine.base, tools, thinking, engine.chat_template)
    if AUTO not in (tools, thinking) or engine.python is not None or engine.urls:
        return chosen  # the vLLM of another Python or machine has parsers of its own
    installed = installed_parsers(chosen)
    return EngineParsers(
        installed.tools if tools == AUTO else chosen.tools, installed.thinking if thinking == AUTO else chosen.thinking
    )


def installed_parsers(chosen: EngineParsers) -> EngineParsers:
    """The same without what the vLLM of this Python does not have."""
    there: Mapping[str, Sequence[str]] = python_probe.list_parsers()
    return EngineParsers(
        _installed(chosen.tools, there.get(TOOL_PARSER)), _installed(chosen.thinking, there.get(REASONING_PARSER))
    )


def _installed(choice: ParserChoice, names: Sequence[str] | None) -> ParserChoice:
    if choice.name is None or not names or choice.name in names:
        return choice
    return ParserChoice(None, f"it needs the parser {choice.name!r}, which the installed vLLM does not have.")
