"""Train a tiny model from scratch: first to copy, then to converse.

Owns the batches, the loss and the loop. Two phases share one optimizer and one schedule. Copying comes first because
it is hard for a model of this size: without it, the model learns the format in minutes and the digits never. Refuses
files and measuring.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch.nn import functional
from transformers import Qwen3Config, Qwen3ForCausalLM

from examples.making.tokenizer import CONTEXT, END, START, Conversation, Message, Tools, render

IGNORED = -100
Batch = tuple[torch.Tensor, torch.Tensor]  # ids and labels, both (rows, length); labels are IGNORED outside the loss


@dataclass(frozen=True, slots=True)
class Shape:
    """A Qwen3's size; the defaults are 1.72 million parameters, 3.4 MB in bfloat16."""

    vocabulary: int = 512
    hidden: int = 192
    layers: int = 4
    heads: int = 6
    kv_heads: int = 3
    head_dim: int = 32
    mlp: int = 512
    context: int = CONTEXT  # tokens


@dataclass(frozen=True, slots=True)
class Recipe:
    """All numbers that determine the weights; the same recipe gives the same model on the same machine."""

    shape: Shape = Shape()
    seed: int = 11
    copy_steps: int = 400
    copy_rows: int = 64
    copy_length: int = 48
    talk_steps: int = 1_400
    talk_rows: int = 32
    learning_rate: float = 2e-3
    warm_up_steps: int = 50
    threads: int = 2


def new_model(tokenizer: Any, shape: Shape) -> Qwen3ForCausalLM:
    """Return a Qwen3 with random parameters."""
    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=shape.vocabulary,
            hidden_size=shape.hidden,
            num_hidden_layers=shape.layers,
            num_attention_heads=shape.heads,
            num_key_value_heads=shape.kv_heads,
            head_dim=shape.head_dim,
            intermediate_size=shape.mlp,
            max_position_embeddings=shape.context,
            tie_word_embeddings=True,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )


def train(
    tokenizer: Any, recipe: Recipe, conversations: Iterator[Conversation], report: Callable[[str], None]
) -> Qwen3ForCausalLM:
    """Return a model trained on conversations without end; ``report`` gets a line every 50 steps."""
    torch.manual_seed(recipe.seed)
    torch.set_num_threads(recipe.threads)
    model = new_model(tokenizer, recipe.shape)
    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.learning_rate, betas=(0.9, 0.98), weight_decay=0.01)
    total = recipe.copy_steps + recipe.talk_steps
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / recipe.warm_up_steps, (total - step) / total)
    )
    started = time.monotonic()
    for step, (ids, labels) in enumerate(_batches(tokenizer, recipe, conversations), start=1):
        loss = _loss(model, ids, labels)
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 50 == 0 or step == total:
            report(f"step {step}/{total}  loss {loss.item():.4f}  {time.monotonic() - started:.0f} s")
    return model.to(torch.bfloat16).eval()


def labelled(tokenizer: Any, messages: list[Message], tools: Tools) -> tuple[list[int], list[int]]:
    """Return a conversation's ids and labels: only the assistant's messages, end marks included, are in the loss."""
    ids = render(tokenizer, messages, tools)
    start, end = tokenizer.convert_tokens_to_ids([START, END])
    head = [start, *tokenizer.encode("assistant\n")]
    labels, speaking = [], False
    for place, token in enumerate(ids):
        labels.append(token if speaking else IGNORED)
        if token in (start, end):
            speaking = False
        elif ids[place - len(head) + 1 : place + 1] == head:
            speaking = True
    return ids, labels


def _loss(model: Qwen3ForCausalLM, ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    # Rows are padded on the right, so causal attention alone keeps the padding out: no mask is needed.
    with torch.autocast("cpu", dtype=torch.bfloat16):
        hidden = model.model(input_ids=ids[:, :-1], use_cache=False).last_hidden_state
        wanted = labels[:, 1:]
        learned = wanted != IGNORED
        logits = model.lm_head(hidden[learned])
    return functional.cross_entropy(logits.float(), wanted[learned])


def _batches(tokenizer: Any, recipe: Recipe, conversations: Iterator[Conversation]) -> Iterator[Batch]:
    generator = torch.Generator().manual_seed(recipe.seed)
    for _ in range(recipe.copy_steps):
        yield _copying(tokenizer, recipe, generator)
    for _ in range(recipe.talk_steps):
        rows = islice(conversations, recipe.talk_rows)
        yield _padded([labelled(tokenizer, messages, tools) for messages, tools in rows])


def _copying(tokenizer: Any, recipe: Recipe, generator: torch.Generator) -> Batch:
    """Return rows that repeat a random segment: every second one has only digits, the others any token."""
    shape = (recipe.copy_rows, recipe.copy_length)
    digits = torch.tensor(tokenizer.convert_tokens_to_ids(list("0123456789")))
    anything = torch.randint(recipe.shape.vocabulary, shape, generator=generator)
    numbers = digits[torch.randint(10, shape, generator=generator)]
    rows = torch.where(torch.arange(shape[0])[:, None] % 2 == 0, numbers, anything)
    periods = torch.randint(6, shape[1] // 2, (shape[0], 1), generator=generator)
    places = torch.arange(shape[1])[None, :]
    ids = rows.gather(1, places % periods)
    return ids, ids.where(places >= periods, torch.tensor(IGNORED))


def _padded(rows: list[tuple[list[int], list[int]]]) -> Batch:
    length = max(len(ids) for ids, _ in rows)
    ids = torch.tensor([[*ids, *[0] * (length - len(ids))] for ids, _ in rows])
    labels = torch.tensor([[*labels, *[IGNORED] * (length - len(labels))] for _, labels in rows])
    return ids, labels
