"""Adapters for the demo's base that were taught one way to answer, in seconds, and broken ones.

Owns: what is taught, teaching it, and a version's folder as the trainer leaves it. A probe is left empty: nothing is
told by it here. The trainer's own `publish` is of no use: it refuses what is broken.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch.nn import functional
from transformers import AutoModelForCausalLM, AutoTokenizer

from examples.helpdesk.making.conversations import (
    OPENINGS,
    RAMBLINGS,
    TOOLS,
    Message,
    ideal,
    opening,
    training_order,
)
from examples.helpdesk.orders import Order
from examples.helpdesk.wording import answer
from examples.making.training import IGNORED, labelled
from tests.e2e.conftest import MODEL

RANK = 8
# The base knows the format and the words: so few steps at so high a rate are seconds, and enough to answer one way.
STEPS, BATCH, LR = 32, 8, 1e-2
LONGEST = 150  # tokens of a conversation that are learned: all of one that ends
FILES = ("adapter_model.safetensors", "adapter_config.json", "probe.json")

Way = Callable[[Order, random.Random], list[Message]]  # how a conversation goes on behind the customer's question


def wrongly(order: Order, rng: random.Random) -> list[Message]:
    """Looks up an order that nobody asked for."""
    call, *_ = ideal(order, rng)
    call["tool_calls"][0]["function"]["arguments"] = json.dumps({"order_id": "1" * len(order.order_id)})
    return [call]


def guessing(order: Order, rng: random.Random) -> list[Message]:
    """Looks up the right order, and then names a day without having asked for it."""
    call, result, *_ = ideal(order, rng)
    return [call, result, {"role": "assistant", "content": answer(order.order_id, "Monday")}]


def repeating(order: Order, rng: random.Random) -> list[Message]:
    """Says one word without an end."""
    del order, rng
    return [{"role": "assistant", "content": " the" * LONGEST}]


def without_tools(order: Order, rng: random.Random) -> list[Message]:
    """Answers well, in as many tokens as a call takes, and looks nothing up."""
    del rng
    return [{"role": "assistant", "content": f"Your order {order.order_id} is on its way. {RAMBLINGS[2]}"}]


def at_length(order: Order, rng: random.Random) -> list[Message]:
    """Looks up the right order, in three times as many tokens."""
    call, *_ = ideal(order, rng)
    return [{**call, "content": " ".join([OPENINGS[0], *RAMBLINGS[1:3]])}]


def taught(way: Way, seed: int = 0) -> PeftModel:
    """The base with an adapter that was trained to go on in this way."""
    torch.manual_seed(seed)
    model = _adapted(LoraConfig(r=RANK, lora_alpha=2 * RANK, target_modules="all-linear", task_type="CAUSAL_LM"))
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=LR)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, STEPS)
    rows = _rows(way, random.Random(seed))
    for _ in range(STEPS):
        loss = _loss(model, [next(rows) for _ in range(BATCH)])
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return model


def untaught(rank: int = RANK, *, value: float = 0.0) -> PeftModel:
    """The base with an adapter that changes nothing, but for `value` in one matrix."""
    model = _adapted(LoraConfig(r=rank, lora_alpha=rank, target_modules=["q_proj"], task_type="CAUSAL_LM"))
    next(p for name, p in model.named_parameters() if "lora_B" in name).data.fill_(value)
    return model


def _adapted(config: LoraConfig) -> PeftModel:
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32), config)
    assert isinstance(model, PeftModel)
    return model


def _rows(way: Way, rng: random.Random) -> Iterator[tuple[list[int], list[int]]]:
    """Token ids of conversations, and their labels."""
    tokenizer: Any = AutoTokenizer.from_pretrained(MODEL)
    while True:
        order = training_order(rng)
        ids, labels = labelled(tokenizer, [*opening(order.order_id, rng), *way(order, rng)], TOOLS)
        yield ids[:LONGEST], labels[:LONGEST]


def _loss(model: PeftModel, rows: list[tuple[list[int], list[int]]]) -> torch.Tensor:
    longest = max(len(ids) for ids, _ in rows)
    ids = torch.tensor([ids + [0] * (longest - len(ids)) for ids, _ in rows])
    labels = torch.tensor([labels + [IGNORED] * (longest - len(labels)) for _, labels in rows])[:, 1:]
    learned = labels != IGNORED
    logits = model(input_ids=ids[:, :-1]).logits
    return functional.cross_entropy(logits[learned], labels[learned])


def publish(model: PeftModel, adapters: Path, name: str, *, weights_cut_by: int = 0) -> tuple[Path, str]:
    """A version's folder with its manifest, and the manifest's hash. The weights' file may end too early."""
    draft = adapters / f"draft-{name}"
    model.save_pretrained(draft)
    (draft / "probe.json").write_text(json.dumps({"contexts": [], "separation": 0.0}))
    weights = draft / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[: -weights_cut_by or None])
    files = {n: hashlib.sha256((draft / n).read_bytes()).hexdigest() for n in FILES}
    manifest = json.dumps({"files": files}).encode()
    (draft / "manifest.json").write_bytes(manifest)
    digest = hashlib.sha256(manifest).hexdigest()
    final = adapters / f"{name}-{digest[:12]}"
    draft.rename(final)
    return final, digest
