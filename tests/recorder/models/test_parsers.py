"""Parsers by what a chat template writes: the forms of families, and no guess for any other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from recorder.models.base_model import read_base_model
from recorder.models.chat_template import RenderedTemplate, read_chat_template
from recorder.models.parsers import choose_reasoning_parser, choose_tool_parser
from tests.recorder.models.model_folders import write_config

# What each template writes for a call: `CALL` is put where a turn with calls is.
TEMPLATE = (
    "{% for m in messages %}<|{{ m.role }}|>"
    "{% if m.tool_calls %}{% for call in m.tool_calls %}{% set f = call.function %}CALL{% endfor %}"
    "{% else %}{{ m.content }}{% endif %}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
HERMES = '<tool_call>\n{"name": "{{ f.name }}", "arguments": {{ f.arguments | tojson }}}\n</tool_call>'
XML = "<tool_call>\n<function={{ f.name }}>{% for k, v in f.arguments.items() %}<parameter={{ k }}>{{ v }}{% endfor %}"
LLAMA = '{"name": "{{ f.name }}", "parameters": {{ f.arguments | tojson }}}'
GLM = "<tool_call>{{ f.name }}\n<arg_key>"
MISTRAL = '[TOOL_CALLS] [{"name": "{{ f.name }}", "arguments": {{ f.arguments | tojson }}}]'
HARMONY = "<|start|>assistant to=functions.{{ f.name }}<|channel|>commentary json<|message|>"


def tool_parser(family: str, call: str) -> str | None:
    return choose_tool_parser(family, RenderedTemplate(TEMPLATE.replace("CALL", call), {})).name


@pytest.mark.parametrize(
    ("family", "call", "parser"),
    [
        ("qwen2", HERMES, "hermes"),
        ("qwen3", HERMES, "hermes"),
        ("frob", HERMES, "hermes"),
        ("qwen3_moe", XML, "qwen3_xml"),
        ("qwen3_5_text", XML, "qwen3_xml"),
        ("llama", LLAMA, "llama3_json"),
        ("frob", LLAMA, None),
        ("glm4_moe", GLM, "glm45"),
        ("mistral", MISTRAL, "mistral"),
        ("gpt_oss", HARMONY, "openai"),
        ("llama", "call {{ f.name }} with {{ f.arguments | tojson }}", None),
        ("llama", "", None),
    ],
)
def test_the_form_of_a_call_decides(family: str, call: str, parser: str | None) -> None:
    assert tool_parser(family, call) == parser


def test_words_about_tools_in_an_instruction_are_no_call() -> None:
    template = "Answer with <tool_call>{'name': …}</tool_call>" + TEMPLATE.replace("CALL", "")
    choice = choose_tool_parser("qwen3", RenderedTemplate(template, {}))
    assert (choice.name, choice.reason) == (None, "its chat template writes no tool calls.")


@pytest.mark.parametrize(
    "template", ["{% if %}", "{{ messages | nothing }}", "{{ raise_exception('no') }}", "{{ 1/0 }}"]
)
def test_a_template_that_fails_is_no_template_without_tools(template: str) -> None:
    choice = choose_tool_parser("qwen3", RenderedTemplate(template, {}))
    assert (choice.name, choice.reason) == (None, "its chat template cannot be rendered.")


def test_a_template_may_read_arguments_as_text_only() -> None:
    call = '<tool_call>\n{"name": "{{ f.name }}", "arguments": {{ f.arguments + "" }}}\n</tool_call>'
    assert tool_parser("qwen2", call) == "hermes"


def test_a_template_may_mark_what_it_generates() -> None:
    template = "{% generation %}" + TEMPLATE.replace("CALL", HERMES) + "{% endgeneration %}"
    assert choose_tool_parser("smollm3", RenderedTemplate(template, {})).name == "hermes"


def test_a_template_may_refuse_what_follows_a_call() -> None:
    refusal = "{% if messages | length > 2 %}{{ raise_exception('no') }}{% endif %}"
    template = refusal + TEMPLATE.replace("CALL", MISTRAL)
    assert choose_tool_parser("mistral", RenderedTemplate(template, {})).name == "mistral"


def test_a_template_may_write_calls_only_where_tools_are_declared() -> None:
    template = "{% if tools %}Tools: {{ tools | tojson }}{% endif %}" + TEMPLATE.replace(
        "CALL", "{% if tools %}" + HERMES + "{% endif %}"
    )
    assert choose_tool_parser("qwen2", RenderedTemplate(template, {})).name == "hermes"
    needy = "{% for one in tools %}{{ one | tojson }}{% endfor %}" + TEMPLATE.replace("CALL", HERMES)
    assert choose_tool_parser("qwen2", RenderedTemplate(needy, {})).name == "hermes"
    silent = "{% if tools %}Tools: {{ tools | tojson }}{% endif %}" + TEMPLATE.replace("CALL", "")
    assert choose_tool_parser("qwen2", RenderedTemplate(silent, {})).name is None


THINKS = TEMPLATE.replace("CALL", HERMES) + "{% if enable_thinking is false %}<think>\n\n</think>{% endif %}"


@pytest.mark.parametrize(
    ("family", "template", "parser"),
    [
        ("qwen3", THINKS, "qwen3"),
        ("qwen3_moe", THINKS, "qwen3"),
        ("qwen3", TEMPLATE, None),
        ("olmo3", THINKS, "olmo3"),
        ("qwen2", TEMPLATE + "{% if add_generation_prompt %}<think>\n{% endif %}", "deepseek_r1"),
        ("qwen2", THINKS, None),
        ("frob", THINKS, None),
        ("gpt_oss", TEMPLATE + "{% if false %}<|channel|>analysis{% endif %}", "openai_gptoss"),
        ("mistral", TEMPLATE + "{% if false %}[THINK]{% endif %}", "mistral"),
    ],
)
def test_the_marks_of_thinking_and_the_family_decide(family: str, template: str, parser: str | None) -> None:
    assert choose_reasoning_parser(family, RenderedTemplate(template, {})).name == parser


def test_without_a_template_there_is_no_parser() -> None:
    assert choose_tool_parser("qwen3", None).name is None
    assert choose_reasoning_parser("qwen3", None).reason == "it has no chat template."


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("chat_template.jinja", "THE TEMPLATE"),
        ("chat_template.json", json.dumps({"chat_template": "THE TEMPLATE"})),
        ("tokenizer_config.json", json.dumps({"chat_template": "THE TEMPLATE"})),
        ("tokenizer_config.json", json.dumps({"chat_template": [{"name": "default", "template": "THE TEMPLATE"}]})),
    ],
)
def test_a_template_is_read_wherever_it_is(file: str, content: str, tmp_path: Path) -> None:
    (tmp_path / file).write_text(content)
    assert read_chat_template(tmp_path) == "THE TEMPLATE"
    assert read_base_model(write_config(tmp_path), needs_weights=False).has_chat_template


@pytest.mark.parametrize("content", ["[1]", "{", '{"chat_template": 5}', '{"chat_template": [1]}', "{}"])
def test_a_tokenizer_config_without_one_has_none(content: str, tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").write_text(content)
    assert read_chat_template(tmp_path) is None
    model = read_base_model(write_config(tmp_path), needs_weights=False)
    assert not model.has_chat_template
    assert (model.tool_parser.name, model.reasoning_parser.name) == (None, None)
