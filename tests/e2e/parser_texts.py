"""What vLLM's parsers make of answers in each family's format, compared with the ids of these answers, as JSON by name.

A program of its own: vLLM warns when it is imported, and the tests take warnings for errors. Each answer goes through
the parser as the OpenAI server sends it: whole, and as streams of pieces of one token and of several. For each parser
the program prints a word, and the first answers that led to it:

- `agrees`: the text of every answer occurs in its ids, and not in those of another answer;
- `contradicts`: the parser changes an answer so that its text does not occur in its ids;
- `garbles`: the parser makes malformed arguments of a complete call;
- `blind`: the text of a plain answer occurs in another answer's ids, too;
- `misread`: the parser reads nothing of its format, as this program writes it;
- `not built`: the parser needs the tokenizer or a package of its family;
- `no format`: this program does not write its format.

    python parser_texts.py MODEL
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from trainer.batch.recorded_text import agrees

Call = tuple[str, dict[str, Any]]  # name and arguments
LONG_NUMBER = 987000.0  # written as 987e3
PROPERTIES = {
    "city": "string", "days": "integer", "share": "number", "all": "boolean", "filter": "object", "tags": "array"
}  # fmt: skip
ARGUMENTS: dict[str, dict[str, Any]] = {
    "plain": {"city": "Bern", "days": 3},
    "empty": {},
    "other-order": {"days": 12, "city": "Zürich"},
    "nested": {"filter": {"tags": ["a b", "c"], "depth": {"most": 41}, "none": None}, "tags": ["x", 7], "all": True},
    "numbers": {"share": 1.0, "days": -5},
    "exponent": {"share": LONG_NUMBER, "days": 6},
    "fraction": {"share": 0.25},
    "lines": {"city": "one\ntwo\n\n  three\tfour\n"},
    "quotes": {"city": "\"no\" is 'no' or `no`"},
    "slashes": {"city": "C:\\new\\table\\u00e9 and a/b \\"},
    "unicode": {"city": "订单 🚚 é\u2028½"},
    "code": {"city": 'def f(x):\n    return {"a": [x, "\\n"]}\n'},
    "markup": {"city": "<b>a &amp; b</b> if a < b && c > d"},
    "entities": {"city": "a &amp; b &lt;c&gt;"},
    "edges": {"city": "\n x \n", "place": "  "},
    "digits": {"city": "007", "place": "1_000", "tags": ["1e3", "+5"], "count": "+41"},
    "json": {"city": '{"a": "b\\nc", "d": [1, 2]}'},
    "undeclared": {"place": "Bern", "count": 30, "more": {"deep": ["x\ny"]}},
}


def spelled(value: Any) -> str:
    """A value of an argument in a format that writes texts as they are."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def tagged(start: str, end: str, key: str = "arguments", between: str = "\n", **how: Any) -> Callable[..., str]:
    """JSON objects, each between two marks."""
    return lambda calls: between.join(
        start + json.dumps({"name": name, key: arguments}, **{"ensure_ascii": False, **how}) + end
        for name, arguments in calls
    )


def listed(start: str, end: str, key: str = "arguments", **how: Any) -> Callable[..., str]:
    """A JSON list between two marks."""
    return lambda calls: start + json.dumps(
        [{"name": name, key: arguments} for name, arguments in calls], **{"ensure_ascii": False, **how}
    ) + end  # fmt: skip


def marked(head: str, call: str, argument: str, call_end: str, tail: str) -> Callable[..., str]:
    """Each argument between marks, as in XML: `$n` is the name, `$k` a key, `$v` its value, `$s` whether it is text."""

    def write(calls: Sequence[Call]) -> str:
        text = head
        for name, arguments in calls:
            text += call.replace("$n", name)
            for key, value in arguments.items():
                form = argument.replace("$k", key).replace("$s", str(isinstance(value, str)).lower())
                text += form.replace("$v", spelled(value))
            text += call_end
        return text + tail

    return write


def pythonic(start: str, end: str, between: str = ", ") -> Callable[..., str]:
    return lambda calls: (
        start
        + between.join(f"{name}({', '.join(f'{k}={v!r}' for k, v in arguments.items())})" for name, arguments in calls)
        + end
    )


def gemma(value: Any, quote: str = '<|"|>') -> str:
    if isinstance(value, dict):
        return "{" + ",".join(f"{k}:{gemma(v, quote)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(gemma(one, quote) for one in value) + "]"
    return f"{quote}{value}{quote}" if isinstance(value, str) else json.dumps(value)


def json_of(arguments: Any) -> str:
    return json.dumps(arguments, ensure_ascii=False)


def each(
    form: Callable[[str, dict[str, Any], int], str], start: str = "", end: str = "", between: str = ""
) -> Callable[..., str]:
    return lambda calls: start + between.join(form(n, a, i) for i, (n, a) in enumerate(calls)) + end


@dataclass(frozen=True)
class Format:
    """How a family writes tool calls; `tokens`: the marks that are single tokens."""

    write: tuple[Callable[..., str], ...]
    tokens: tuple[str, ...] = ()
    parallel: bool = True


QWEN_XML = "<function=$n>\n", "<parameter=$k>\n$v\n</parameter>\n", "</function>\n"
TOOL_CALL = "<tool_call>", "</tool_call>"


def qwen_xml(
    start: str, end: str, call: str = QWEN_XML[0], argument: str = QWEN_XML[1], stop: str = QWEN_XML[2]
) -> Format:
    return Format((marked("", f"{start}\n{call}", argument, f"{stop}{end}\n", ""),), (start, end))


def dsml(word: str, gap: str = "") -> Format:
    mark = f"｜DSML｜{gap}"
    return Format(
        (
            marked(
                f"<{mark}{word}>\n", f'<{mark}invoke name="$n">\n',
                f'<{mark}parameter name="$k" string="$s">$v</{mark}parameter>\n',
                f"</{mark}invoke>\n", f"</{mark}{word}>",
            ),
        ),
        (f"<{mark}{word}>", f"</{mark}{word}>"),
    )  # fmt: skip


def json_ways(form: Callable[..., Callable[..., str]], *arguments: str, **named: Any) -> tuple[Callable[..., str], ...]:
    """The ways to write JSON: letters as they are, escaped, and over several lines."""
    return tuple(form(*arguments, **named, **way) for way in ({}, {"ensure_ascii": True}, {"indent": 2}))


GLM = Format(
    (
        marked("", "<tool_call>$n\n", "<arg_key>$k</arg_key>\n<arg_value>$v</arg_value>\n", "</tool_call>", ""),
        marked("", "<tool_call>$n", "<arg_key>$k</arg_key><arg_value>$v</arg_value>", "</tool_call>", ""),
    ),
    TOOL_CALL,
)
DEEPSEEK = tuple(f"<｜tool▁{one}｜>" for one in ("calls▁begin", "calls▁end", "call▁begin", "call▁end", "sep"))
KIMI = tuple(f"<|tool_call{one}|>" for one in ("s_section_begin", "s_section_end", "_begin", "_argument_begin", "_end"))
STEP3 = tuple(f"<｜tool_{one}｜>" for one in ("calls_begin", "calls_end", "call_begin", "call_end", "sep"))
PLAMO = tuple(
    f"<|plamo:{one}:plamo|>"
    for one in (
        "begin_tool_requests", "end_tool_requests", "begin_tool_request", "end_tool_request", "begin_tool_name",
        "end_tool_name", "begin_tool_arguments", "end_tool_arguments",
    )
)  # fmt: skip
HERMES = Format(json_ways(tagged, "<tool_call>\n", "\n</tool_call>"), TOOL_CALL)
FORMATS: dict[str, Format] = {
    "hermes": HERMES,
    "qwen3_json": HERMES,
    "granite4": HERMES,
    "ernie45": Format(
        json_ways(tagged, "<tool_call>\n", "\n</tool_call>\n"),
        (*TOOL_CALL, "<think>", "</think>", "<response>", "</response>"),
    ),
    "longcat": Format(
        json_ways(tagged, "<longcat_tool_call>\n", "\n</longcat_tool_call>"),
        ("<longcat_tool_call>", "</longcat_tool_call>"),
    ),
    "jamba": Format(json_ways(listed, "<tool_calls>", "</tool_calls>"), ("<tool_calls>", "</tool_calls>")),
    "hunyuan_a13b": Format(json_ways(listed, "<tool_calls>", "</tool_calls>")),
    "xlam": Format((*json_ways(listed, "", ""), listed("<tool_call>", "</tool_call>"), listed("```json\n", "\n```"))),
    "granite": Format((*json_ways(listed, "<|tool_call|> ", ""), listed("<tool_call> ", "")), ("<|tool_call|>",)),
    "granite-20b-fc": Format(json_ways(tagged, "<function_call> ", "")),
    "phi4_mini_json": Format(json_ways(listed, "functools", "")),
    "internlm": Format(
        json_ways(tagged, "<|action_start|><|plugin|>\n", "<|action_end|>", key="parameters"),
        ("<|action_start|>", "<|plugin|>", "<|action_end|>"),
        parallel=False,
    ),
    "llama3_json": Format(
        (
            *json_ways(tagged, "", "", key="parameters", between="; "),
            tagged("<|python_tag|>", "", key="parameters", between="; "),
        ),
        ("<|python_tag|>",),
    ),
    "gigachat3": Format(
        json_ways(tagged, "<|message_sep|>\n\nfunction call<|role_sep|>\n", "</s>"),
        ("<|message_sep|>", "<|role_sep|>", "</s>"),
        parallel=False,
    ),
    "inkling": Format(
        json_ways(tagged, "<|message_model|><|content_invoke_tool_json|>", "<|end_message|>", key="args", between=""),
        (
            "<|message_model|>",
            "<|content_text|>",
            "<|content_thinking|>",
            "<|content_invoke_tool_json|>",
            "<|content_invoke_tool_text|>",
            "<|content_tool_error|>",
            "<|content_model_end_sampling|>",
            "<|end_message|>",
        ),
    ),
    "apertus": Format(
        (each(lambda n, a, _: json_of({n: a}), "<|tools_prefix|>[", "]<|tools_suffix|>", ", "),),
        ("<|tools_prefix|>", "<|tools_suffix|>"),
    ),
    "deepseek_v3": Format(
        (
            each(
                lambda n, a, _: f"{DEEPSEEK[2]}function{DEEPSEEK[4]}{n}\n```json\n{json_of(a)}\n```{DEEPSEEK[3]}",
                DEEPSEEK[0],
                DEEPSEEK[1],
                "\n",
            ),
        ),
        DEEPSEEK,
    ),
    "deepseek_v31": Format(
        (each(lambda n, a, _: f"{DEEPSEEK[2]}{n}{DEEPSEEK[4]}{json_of(a)}{DEEPSEEK[3]}", DEEPSEEK[0], DEEPSEEK[1]),),
        DEEPSEEK,
    ),
    "kimi_k2": Format(
        (each(lambda n, a, i: f"{KIMI[2]}functions.{n}:{i}{KIMI[3]}{json_of(a)}{KIMI[4]}", KIMI[0], KIMI[1]),), KIMI
    ),
    "plamo3": Format(
        (
            each(
                lambda n, a, _: (
                    f"{PLAMO[2]}{PLAMO[4]}{n}{PLAMO[5]}{PLAMO[6]}<|plamo:constrain|>json<|plamo:msg|>{json_of(a)}{PLAMO[7]}{PLAMO[3]}"
                ),
                PLAMO[0],
                PLAMO[1],
            ),
        ),
        ("<|plamo:begin_", "<|plamo:end_", ":plamo|>", "<|plamo:tag|>", "<|plamo:constrain|>", "<|plamo:msg|>"),
    ),
    "deepseek_v32": dsml("function_calls"),
    "deepseek_v4": dsml("tool_calls"),
    "deepseek_v41": Format(dsml("calls", " ").write, ("<｜DSML｜ calls>", "</｜DSML｜ calls>")),
    "glm45": GLM,
    "glm47": GLM,
    "ling3": GLM,
    "poolside_v1": GLM,
    "hy_v3": Format(
        (
            marked(
                "<tool_calls>\n",
                "<tool_call>$n<tool_sep>\n",
                "<arg_key>$k</arg_key>\n<arg_value>$v</arg_value>\n",
                "</tool_call>\n",
                "</tool_calls>",
            ),
        ),
        (
            *TOOL_CALL,
            "<tool_calls>",
            "</tool_calls>",
            "<tool_sep>",
            "<arg_key>",
            "</arg_key>",
            "<arg_value>",
            "</arg_value>",
        ),
    ),
    "qwen3_coder": qwen_xml(*TOOL_CALL),
    "qwen3_xml": qwen_xml(*TOOL_CALL),
    "step3p5": qwen_xml(*TOOL_CALL),
    "mimo": qwen_xml(*TOOL_CALL, "<function=$n>", "<parameter=$k>$v</parameter>", "</function>"),
    "seed_oss": qwen_xml("<seed:tool_call>", "</seed:tool_call>"),
    "minimax_m2": Format(
        (
            marked(
                "<minimax:tool_call>\n",
                '<invoke name="$n">\n',
                '<parameter name="$k">$v</parameter>\n',
                "</invoke>\n",
                "</minimax:tool_call>",
            ),
        ),
        ("<minimax:tool_call>", "</minimax:tool_call>"),
    ),
    "dots": Format(
        (
            marked(
                "<dots_function_call>\n",
                "<invoke name=$n>\n",
                "<parameter name=$k>$v</parameter>\n",
                "</invoke>\n",
                "</dots_function_call>",
            ),
        ),
    ),
    "minicpm5": Format(
        (
            marked("", '<function name="$n">', '<param name="$k">$v</param>', "</function>", ""),
            marked("", '<function name="$n">', '<param name="$k"><![CDATA[$v]]></param>', "</function>", ""),
        ),
    ),
    "step3": Format(
        (
            marked(
                STEP3[0],
                f'{STEP3[2]}function{STEP3[4]}<steptml:invoke name="$n">',
                '<steptml:parameter name="$k">$v</steptml:parameter>',
                f"</steptml:invoke>{STEP3[3]}",
                STEP3[1],
            ),
        ),
        STEP3,
    ),
    "pythonic": Format((pythonic("[", "]"),)),
    "llama4_pythonic": Format(
        (pythonic("[", "]"), pythonic("<|python_start|>[", "]<|python_end|>")), ("<|python_start|>", "<|python_end|>")
    ),
    "olmo3": Format((pythonic("<function_calls>", "</function_calls>", "\n"),)),
    "lfm2": Format(
        (pythonic("<|tool_call_start|>[", "]<|tool_call_end|>"),), ("<|tool_call_start|>", "<|tool_call_end|>")
    ),
    "functiongemma": Format(
        (marked("", "<start_function_call>call:$n{", "$k:<escape>$v<escape>,", "}<end_function_call>", ""),),
        ("<start_function_call>", "<end_function_call>", "<escape>"),
    ),
    "gemma4": Format(
        (each(lambda n, a, _: f"<|tool_call>call:{n}{gemma(a)}<tool_call|>"),),
        ("<|tool_call>", "<tool_call|>", '<|"|>', "<|channel>", "<channel|>"),
    ),
}
FORMATS["llama4_json"] = FORMATS["llama3_json"]
THINK = "<think>", "</think>"
# The marks of thinking; before the first, the prompt's (its end has the first where the model's template writes it)
THOUGHTS: dict[str, tuple[str, str]] = dict.fromkeys(
    (
        "deepseek_r1", "deepseek_v3", "deepseek_v4", "deepseek_v41", "poolside_v1", "ernie45", "glm45", "glm47",
        "ling3", "granite_thinking_parser", "holo2", "hunyuan_a13b", "hy_v3", "hy_v4", "kimi_k2", "mimo", "minimax_m2",
        "minicpmv", "minimax_m2_append_think", "nemotron_v3", "olmo3", "qwen3", "step3", "step3p5",
    ), THINK,
) | {
    "seed_oss": ("<seed:think>", "</seed:think>"),
    "minimax_m3": ("<mm:think>", "</mm:think>"),
    "gemma4": ("<|channel>thought\n", "<channel|>"),
    "granite": ("Here is my thought process:", "Here is my response:"),
    "cohere_command3": ("<|START_THINKING|>", "<|END_THINKING|>"),
    "k2_horizon": ("<ifm|think>", "</ifm|think>"),
    "inkling": ("<|message_model|><|content_thinking|>", "<|end_message|><|message_model|><|content_text|>"),
    "plamo3": ("<|plamo:begin_think:plamo|>", "<|plamo:end_think:plamo|>"),
    "mistral": ("[THINK]", "[/THINK]"),
}  # fmt: skip
THOUGHT_TOKENS = (
    "<think>", "</think>", "<assistant>", "<seed:think>", "</seed:think>", "<mm:think>", "</mm:think>", "<|channel>",
    "<channel|>", "<|START_THINKING|>", "<|END_THINKING|>", "<ifm|think>", "</ifm|think>", "<response>", "</response>",
    *FORMATS["inkling"].tokens, *FORMATS["plamo3"].tokens, "[THINK]", "[/THINK]",
)  # fmt: skip


def answers(form: Format) -> Iterator[tuple[str, str]]:
    """Name and text of each answer."""
    for at, write in enumerate(form.write):
        for name, arguments in ARGUMENTS.items():
            text = write([("find", arguments)])
            yield f"{name}/{at}", text
            yield f"{name}/{at}/before", "Let me\nlook. " + text
            yield f"{name}/{at}/after", text + "\nThat was it."
            yield f"{name}/{at}/around", "Let me look.\n" + text + "\nThat was it."
            if form.parallel:
                two = write([("find", arguments), ("find", ARGUMENTS["other-order"])])
                yield f"{name}/{at}/two", two
                yield f"{name}/{at}/two-before", "Both: " + two
                if name == "plain":
                    yield f"{name}/{at}/between", f"One: {text}\nTwo: {two}"
            yield f"{name}/{at}/cut", text[: len(text) * 2 // 3]
    yield "none", "Just words, no call: {} [] <b>."


def tools(declared: bool) -> list[dict[str, Any]]:
    properties = {k: {"type": v} for k, v in PROPERTIES.items()} if declared else {}
    return [
        {"type": "function", "function": {"name": "find", "parameters": {"type": "object", "properties": properties}}}
    ]


def tokenizer_with(model: str, tokens: Sequence[str]) -> Any:
    from tokenizers import AddedToken
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(model)
    tokenizer.add_tokens([AddedToken(one, special="|" in one, normalized=False) for one in tokens])
    return tokenizer


def pieces_of(tokenizer: Any, ids: Sequence[int], size: int, skip: bool) -> Iterator[tuple[str, list[int]]]:
    """The pieces of a stream: the text of whole characters, and the ids."""
    before = ""
    for at in range(0, len(ids), size):
        text = tokenizer.decode(ids[: at + size], skip_special_tokens=skip)
        last = at + size >= len(ids)
        text = before if text.endswith("\ufffd") and not last else text
        yield text[len(before) :], list(ids[at : at + size])
        before = text


def whole(parser: Any, tokenizer: Any, request: Any, ids: list[int]) -> dict[str, Any]:
    text = tokenizer.decode(ids, skip_special_tokens=request.skip_special_tokens)
    reasoning, content, calls = parser.parse(text, request, enable_auto_tools=True, model_output_token_ids=ids)
    return message(reasoning, content, [(one.name, one.arguments) for one in calls or []])


def streamed(parser: Any, tokenizer: Any, request: Any, ids: list[int], prompt: list[int], size: int) -> dict[str, Any]:
    reasoning, content, calls = "", "", dict[int, list[str]]()
    chunks = list(pieces_of(tokenizer, ids, size, request.skip_special_tokens))
    for at, (text, some) in enumerate(chunks):
        delta = parser.parse_delta(text, some, request, prompt, finished=at == len(chunks) - 1)
        if delta is None:
            continue
        reasoning += delta.reasoning or ""
        content += delta.content or ""
        for call in delta.tool_calls or []:
            entry = calls.setdefault(call.index, ["", ""])
            if call.function is not None:
                entry[0] += call.function.name or ""
                entry[1] += call.function.arguments or ""
    return message(reasoning, content, [(one[0], one[1]) for _, one in sorted(calls.items())])


def message(reasoning: str | None, content: str | None, calls: Sequence[tuple[str, str]]) -> dict[str, Any]:
    function = [{"id": "1", "type": "function", "function": {"name": n, "arguments": a}} for n, a in calls]
    thought = {"reasoning_content": reasoning} if reasoning else {}
    return {"role": "assistant", "content": content, **thought, **({"tool_calls": function} if function else {})}


def spoken(thinking: str) -> Iterator[tuple[str, str, str]]:
    """Name, text and end of the prompt of each answer with thinking."""
    start, end = THOUGHTS[thinking]
    for before in ("", start):
        first = "" if before else start
        for name, thought, content in (
            ("plain", "Why\nnot? é 订单", "\n\nBecause so."),
            ("short", "hm", "ok"),
            ("none", "", "Because so."),
            ("spaces", "\n  one\n\n\ttwo  \n", "\n  three\n"),
            ("markup", 'if a < b: "x\\n" </b> {}', "<b>done</b>"),
            ("no-content", "I wonder.", ""),
            ("twice", "Why?", f" Because {end} so."),
        ):
            yield f"{name}/{before!r}", first + thought + end + content, before
        call = HERMES.write[0]([("find", ARGUMENTS["code"])])
        yield f"call/{before!r}", f"{first}I call.{end}\nSee: {call}", before
        yield f"cut/{before!r}", first + "Why not", before
    yield "without", "Because so.", ""


def verdict(model: str, tool: str | None, thinking: str | None) -> tuple[str, list[str]]:
    """A word for a parser, and the answers behind it."""
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.parser.parser_manager import ParserManager

    if tool not in FORMATS or (thinking is not None and thinking not in THOUGHTS):
        return "no format", []
    tokenizer = tokenizer_with(model, [*FORMATS[tool].tokens, *(THOUGHT_TOKENS if thinking else ())])
    try:
        cls = ParserManager.get_parser(
            tool_parser_name=tool, reasoning_parser_name=thinking, enable_auto_tools=True, tokenizer=tokenizer
        )
    except Exception as e:  # noqa: BLE001 - whatever a parser raises without the tokenizer or the package of its family
        return "not built", [str(e)[-200:]]

    def decode(ids: Sequence[int]) -> list[str]:
        return [tokenizer.decode(list(ids), skip_special_tokens=skip) for skip in (True, False)]

    found: dict[str, list[str]] = {"contradicts": [], "garbles": [], "blind": [], "error": []}
    read = False
    other = tokenizer.encode("Nothing of this kind was said.", add_special_tokens=False)
    cases = [(name, text, "") for name, text in answers(FORMATS[tool])] if thinking is None else list(spoken(thinking))
    for name, text, before in cases:
        ids = tokenizer.encode(text.replace(str(LONG_NUMBER), "987e3"), add_special_tokens=False)
        prompt = tokenizer.encode("<|im_start|>assistant\n" + before, add_special_tokens=False)
        for declared, size in product((True, False), (0, 1, 5)):
            request: Any = ChatCompletionRequest(
                model="m", messages=[{"role": "user", "content": "x"}], tools=tools(declared), tool_choice="auto"
            )
            where = f"{name}/{declared}/{size}"
            kwargs = {"thinking": True, "enable_thinking": True, "reasoning_effort": "high"} if declared else {}
            try:
                parser: Any = cls(tokenizer, request.tools, chat_template_kwargs=kwargs, model_config=None)
                request = parser.adjust_request(request)
                parser.set_prompt_token_ids(prompt)
                if size:
                    made = streamed(parser, tokenizer, request, ids, prompt, size)
                else:
                    made = whole(parser, tokenizer, request, ids)
            except Exception as e:  # noqa: BLE001 - the server answers with an error, and nothing is recorded
                found["error"].append(f"{where}: {type(e).__name__}: {e}"[:200])
                continue
            arguments = [call["function"]["arguments"] for call in made.get("tool_calls", ())]
            read |= bool(made.get("reasoning_content") if thinking else arguments)
            complete = "cut" not in name
            shown = f"{where}: {json_of(made)} <- {text!r}"
            if not agrees(made, ids, decode):
                found["contradicts"].append(shown)
            if complete and not all(map(is_object, arguments)):
                found["garbles"].append(shown)
            if complete and name.startswith("plain") and (made["content"] or arguments) and agrees(made, other, decode):
                found["blind"].append(shown)
    words = ("contradicts", *(("garbles", "blind") if read else ()))
    word = next((word for word in words if found[word]), "agrees" if read else "misread")
    return word, [f"{kind} {len(some)}: {one}" for kind, some in found.items() for one in some[:1]]


def is_object(arguments: str) -> bool:
    try:
        return isinstance(json.loads(arguments), dict)
    except ValueError:
        return False


def main(model: str, *only: str) -> None:
    from vllm.reasoning import ReasoningParserManager
    from vllm.tool_parsers import ToolParserManager

    logging.disable(logging.CRITICAL)
    names = [("tools", name) for name in sorted(ToolParserManager.list_registered())]
    names += [("thinking", name) for name in sorted(ReasoningParserManager.list_registered())]
    done: dict[str, dict[str, tuple[str, list[str]]]] = {"tools": {}, "thinking": {}}
    for kind, name in names:
        if not only or f"{kind}/{name}" in only:
            done[kind][name] = verdict(model, *((name, None) if kind == "tools" else ("hermes", name)))
    sys.stdout.write("\n" + json.dumps(done, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
