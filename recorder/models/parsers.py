"""Which of vLLM's parsers reads a model's tool calls and its thinking: by its family and what its template writes.

There is no guess: where the template writes a form that is not in these tables, there is no parser, with the reason.
Refuses: whether the installed vLLM has a parser (`proxy.doctor` looks it up in the engine's own Python).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from recorder.models.chat_template import TOOL, RenderedTemplate

# What a template writes for a call (NAME is the tool's) → the parser that reads it. The first that matches is taken.
_TOOL_FORMS: Final[tuple[tuple[str, str], ...]] = (
    (r"<tool_call>\s*<function=NAME>", "qwen3_xml"),
    (r"<tool_call>NAME\s*<arg_key>", "glm45"),
    (r'<tool_call>\s*\{\s*"name":\s*"NAME"', "hermes"),
    (r"\[TOOL_CALLS\]", "mistral"),
    (r"to=functions\.NAME", "openai"),
    (r"<\|tool_calls_section_begin\|>", "kimi_k2"),
    (r"<\|tool_call_start\|>\[NAME\(", "lfm2"),
    (r"<minimax:tool_call>", "minimax_m2"),
    (r"<seed:tool_call>", "seed_oss"),
    (r"<｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME", "deepseek_v3"),
    (r"<｜tool▁call▁begin｜>NAME<｜tool▁sep｜>", "deepseek_v31"),
    (r"<start_function_call>call:NAME", "functiongemma"),
    (r"<\|tool_call>call:NAME", "gemma4"),
)
# The same form in the words of several families: the family decides.
_LLAMA_CALL: Final = r'\{\s*"name":\s*"NAME",\s*"parameters":'
_QWEN_THINKS: Final = {"qwen3", "qwen3_moe", "qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"}
_THINKS: Final = {"glm4_moe": "glm45", "olmo3": "olmo3", "minimax_m2": "minimax_m2", "seed_oss": "seed_oss"}


@dataclass(frozen=True, slots=True)
class ParserChoice:
    """A parser of vLLM, or None; and why."""

    name: str | None
    reason: str


def choose_tool_parser(family: str, template: RenderedTemplate | None) -> ParserChoice:
    """The parser of the tool calls that a chat template writes."""
    if template is None:
        return ParserChoice(None, "it has no chat template.")
    if not template.has_tools:
        what = "writes no tool calls" if template.renders else "cannot be rendered"
        return ParserChoice(None, f"its chat template {what}.")
    for form, name in _TOOL_FORMS:
        if _writes(template, form):
            return ParserChoice(name, "its chat template writes tool calls in this form.")
    if family == "llama" and _writes(template, _LLAMA_CALL):
        return ParserChoice("llama3_json", "its chat template writes tool calls in this form.")
    return ParserChoice(None, "its chat template writes tool calls in a form that Hone knows no parser for.")


def choose_reasoning_parser(family: str, template: RenderedTemplate | None) -> ParserChoice:
    """The parser of the thinking that a chat template writes or begins an answer with."""
    if template is None:
        return ParserChoice(None, "it has no chat template.")
    source = template.source
    thinks = ParserChoice(None, "its chat template marks thinking in a form that Hone knows no parser for.")
    if family == "gpt_oss" and "<|channel|>analysis" in source:
        return ParserChoice("openai_gptoss", "its chat template writes an analysis channel.")
    if "[THINK]" in source and family in {"mistral", "mistral3", "ministral3"}:
        return ParserChoice("mistral", "its chat template marks thinking with [THINK].")
    if "<seed:think>" in source and family == "seed_oss":
        return ParserChoice("seed_oss", "its chat template marks thinking with <seed:think>.")
    if "</think>" not in source and "<think>" not in source:
        return ParserChoice(None, "its chat template marks no thinking.") if "think" not in source.lower() else thinks
    marked = "its chat template marks thinking with <think>."
    if family in _QWEN_THINKS:
        return ParserChoice("qwen3", marked)
    if family in _THINKS:
        return ParserChoice(_THINKS[family], marked)
    if family in {"qwen2", "llama"} and template.opening.rstrip().endswith("<think>"):
        return ParserChoice("deepseek_r1", "its chat template begins an answer with <think>.")
    return thinks


def _writes(template: RenderedTemplate, form: str) -> bool:
    return re.search(form.replace("NAME", re.escape(TOOL)), template.call) is not None
