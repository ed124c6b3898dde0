"""A tiny model's tokenizer and chat template.

Owns the vocabulary (byte-level BPE, one token a digit, so that copying a number is copying digits) and the layout of a
conversation in text. The template renders a tool call exactly as the model is taught to write it, so a turn's prompt
begins with the prompt and the sampled tokens of the turn before. Refuses training and tensors.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

Message = dict[str, Any]
Tools = Sequence[dict[str, Any]]
Conversation = tuple[list[Message], Tools]  # messages and tools, in OpenAI's format

PAD, START, END = "<|pad|>", "<|im_start|>", "<|im_end|>"
TOOL_CALL, TOOL_CALL_END = "<tool_call>", "</tool_call>"
CONTEXT = 2048
# The list of tools is one short line: a prompt of 60 tokens instead of 400 is the main reason why tiny models are fast.
# Jinja's own newlines are trimmed here; every intended newline is inside an expression.
CHAT_TEMPLATE = """\
{%- for message in messages -%}
{{- '<|im_start|>' + message.role + '\\n' + (message.content or '') -}}
{%- if loop.first and message.role == 'system' and tools -%}
{{- '\\nTools:' -}}
{%- for tool in tools -%}
{{- ' ' + tool.function.name + '(' + tool.function.parameters.properties | join(', ') + ')' -}}
{%- endfor -%}
{%- endif -%}
{%- for call in message.tool_calls or [] -%}
{%- set arguments = call.function.arguments -%}
{{- '<tool_call>{"name": ' + call.function.name | tojson + ', "arguments": ' -}}
{{- (arguments if arguments is string else arguments | tojson) + '}</tool_call>' -}}
{%- endfor -%}
{{- '<|im_end|>' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<|im_start|>assistant\\n' -}}
{%- endif -%}
"""


def make_tokenizer(texts: Iterable[str], vocabulary: int = 512) -> PreTrainedTokenizerFast:
    """Return a tokenizer with a vocabulary of exactly this size (at least 262: every byte is a token).

    Raises:
        ValueError: the texts are too few for this size.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary - 2,
        special_tokens=[PAD, START, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    # Not special: the engine's tool parser reads them in the decoded text.
    tokenizer.add_tokens([AddedToken(mark, special=False, normalized=False) for mark in (TOOL_CALL, TOOL_CALL_END)])
    if tokenizer.get_vocab_size() != vocabulary:
        raise ValueError(f"the vocabulary has {tokenizer.get_vocab_size()} tokens, not {vocabulary}: give it more text")
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END,
        pad_token=PAD,
        model_max_length=CONTEXT,
        clean_up_tokenization_spaces=False,
    )
    wrapped.chat_template = CHAT_TEMPLATE
    return wrapped


def render(tokenizer: Any, messages: list[Message], tools: Tools, *, ask: bool = False) -> list[int]:
    """Return the token ids of a conversation with these tools; with ``ask``, up to the beginning of the next turn."""
    offered = list(tools) or None
    text = tokenizer.apply_chat_template(messages, tools=offered, add_generation_prompt=ask, tokenize=False)
    return list(tokenizer.backend_tokenizer.encode(text, add_special_tokens=False).ids)


def texts_of(conversations: Iterable[Conversation], seed: int) -> Iterator[str]:
    """Return the texts for a vocabulary: the messages' text, and every word of the template."""
    rng = random.Random(seed)
    for messages, tools in conversations:
        for message in messages:
            yield f"{message['role']}\n{message['content'] or ''}"
            for call in message.get("tool_calls", ()):
                function = call["function"]
                yield f'{{"name": "{function["name"]}", "arguments": {function["arguments"]}}}'
        # a tenth: the line is the same in every conversation, and would otherwise take most of the tokens
        if tools and rng.random() < 0.1:
            yield "\nTools: " + " ".join(_offered(tool["function"]) for tool in tools)


def _offered(function: dict[str, Any]) -> str:
    return f"{function['name']}({', '.join(function['parameters']['properties'])})"
