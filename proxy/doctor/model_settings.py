"""What a base model's files say about the engine's settings: the context, the two parsers, and whether vLLM serves it.

`hone init` writes these settings with where each is from; `hone doctor` compares the settings that are there. Refuses:
what is no base (`proxy.engine.base`), and how a GPU's memory is split (`proxy.doctor.machine`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from proxy.engine.parsers import REASONING_PARSER, TOOL_PARSER, engine_parsers, installed_parsers
from proxy.settings.hone import HoneSettings
from proxy.settings.sections import EngineSettings
from proxy.settings.toml_writer import SettingLine
from recorder.base.findings import Finding, FindingLevel
from recorder.errors import BaseInvalid
from recorder.models.base_model import ModelProfile
from recorder.models.engine_parsers import AUTO, parsers_of_model
from recorder.models.on_disk import read_model
from recorder.models.refusals import BaseRefusal
from recorder.models.served_families import refuse_family

CHECK: Final = "model"
# More context costs memory for every sequence. A user who needs more knows it; the model may have 131,072.
USUAL_CONTEXT: Final = 32768
_SHORT_CONTEXT: Final = 4096
_LEAST_CONTEXT: Final = 1024


def unserved_family(model: ModelProfile, engine: EngineSettings) -> BaseRefusal | None:
    """The refusal of a model that the engine's vLLM does not serve; None for one of another Python or machine."""
    return None if engine.python is not None or engine.urls else refuse_family(model)


def unknown_family(model: ModelProfile) -> str | None:
    """The sentence about a family that Hone does not know; None for a known one."""
    if model.is_known:
        return None
    return (
        f"the base {model.name!r} is of the family {model.family!r}, which Hone does not know: its memory is not "
        "computed, and its thinking gets no parser."
    )


def fit_context(model: ModelProfile, cache_bytes: float, element_bytes: int, usual: int) -> int | None:
    """The context for a KV cache of this size: the model's or the usual one, halved until one sequence fits.

    None: the model's context is not known. Where the weights leave no cache, a shorter context does not help.
    """
    if model.context_length is None:
        return None
    if cache_bytes <= 0:
        return min(_SHORT_CONTEXT, model.context_length)
    tokens = min(usual, model.context_length)
    while tokens > _LEAST_CONTEXT and (model.kv_cache_bytes(tokens, element_bytes=element_bytes) or 0) > cache_bytes:
        tokens //= 2
    return tokens


def context_line(model: ModelProfile, tokens: int, device: str) -> SettingLine:
    """The line of engine.max_model_len, with where the number is from."""
    if tokens == model.context_length:
        why = "the model's own context, by its config.json."
    else:
        why = f"of the model's {model.context_length} tokens, what is usual and fits {device}; more needs more memory."
    return SettingLine(("engine", "max_model_len"), tokens, why)


def parser_lines(model: ModelProfile | None, base: str) -> Iterator[SettingLine]:
    """The lines of the two parsers. Of a model that is not on this disk, the engine finds them later (`auto`)."""
    tools, thinking = installed_parsers(parsers_of_model(model, base))
    missing = "" if model is not None else AUTO
    yield SettingLine(("engine", "tool_call_parser"), tools.name or missing, tools.reason)
    if thinking.name is not None:
        yield SettingLine(("engine", "reasoning_parser"), thinking.name, thinking.reason)
    else:
        yield SettingLine(("engine", "reasoning_parser"), missing, thinking.reason, off=True)


def check_model(settings: HoneSettings) -> list[Finding]:
    """Whether the engine's settings fit its base model; none where nothing is known of it or it runs elsewhere.

    A model that `proxy.engine.base` refuses is not looked at: the check `base` says why.
    """
    engine = settings.engine
    if engine.base is None or engine.urls or not settings.declared_aliases():
        return []
    try:
        model = read_model(engine.base)
    except BaseInvalid:
        return []
    if model is None:
        return [*_auto_notes(None, engine)]
    if (refusal := unserved_family(model, engine)) is not None:
        return [Finding(CHECK, FindingLevel.WRONG, refusal.found, refusal.todo, stops=True)]
    findings = [*_parser_notes(model, engine), *_auto_notes(model, engine)]
    if (sentence := unknown_family(model)) is not None:
        todo = (
            "If it thinks or calls tools, set engine.reasoning_parser and engine.tool_call_parser (docs/your-vllm.md)."
        )
        findings.append(Finding(CHECK, FindingLevel.NOTE, sentence, todo))
    if not findings:
        length = f"a context of {model.context_length} tokens" if model.context_length else "no stated context"
        tools, thinking = (name or "no parser" for name in engine_parsers(engine).names)
        text = f"{model.name}: {model.family}, {length}, tool calls: {tools}, thinking: {thinking}."
        findings.append(Finding(CHECK, FindingLevel.FINE, text))
    return findings


def _parser_notes(model: ModelProfile, engine: EngineSettings) -> Iterator[Finding]:
    """Notes about parsers that do not read what the chat template writes. Another template may write something else."""
    if engine.chat_template is not None or any(one.partition("=")[0] == "--chat-template" for one in engine.args):
        return
    fitting = parsers_of_model(model, engine.base)
    for setting, name, choice in zip(_SETTINGS, _set_parsers(engine), fitting, strict=True):
        if name == AUTO or choice.name is None or name == choice.name or {name, choice.name} in _SAME_READERS:
            continue
        text = f"{setting} is {name or 'not set'}, and {model.name} needs {choice.name!r}: {choice.reason}"
        yield Finding(CHECK, FindingLevel.NOTE, text, f'Set {setting} = "{choice.name}".')


def _auto_notes(model: ModelProfile | None, engine: EngineSettings) -> Iterator[Finding]:
    """Notes where `auto` finds no parser, unless the files of a known model say that it needs none."""
    fitting = parsers_of_model(model, engine.base)
    for setting, name, found, choice in zip(
        _SETTINGS, _set_parsers(engine), engine_parsers(engine), fitting, strict=True
    ):
        is_odd = model is None or not model.is_known or choice.name is not None
        if name == AUTO and found.name is None and is_odd:
            text = f"{setting} is auto, and the base {engine.base!r} gets none: {found.reason}"
            later = "start Hone again once the base is on this disk" if model is None else "leave it"
            yield Finding(CHECK, FindingLevel.NOTE, text, f"Set a name of vLLM's, or {later}.")


_SETTINGS: Final = (TOOL_PARSER, REASONING_PARSER)


def _set_parsers(engine: EngineSettings) -> tuple[str | None, str | None]:
    return engine.tool_call_parser, engine.reasoning_parser


# Names of the same parser in vLLM, or of two that read the same form.
_SAME_READERS: Final = (
    {"hermes", "qwen3_json"},
    {"qwen3_xml", "qwen3_coder"},
    {"glm45", "glm47"},
    {"llama3_json", "llama4_json"},
)
