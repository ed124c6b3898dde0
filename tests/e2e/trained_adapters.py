"""Adapters for the demo's base that were taught one way to answer an opening, in seconds, and broken ones.

Owns: teaching, and a version's folder as the trainer leaves it. A probe is left empty: nothing is told by it here.
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

from examples.helpdesk.making.conversations import OPENINGS, RAMBLINGS, Message, opening, training_order
from examples.helpdesk.making.tokenizer import END, render
from tests.e2e.conftest import MODEL

RANK = 8
STEPS, BATCH, LR = 80, 16, 1e-2
ANSWER_TOKENS = 90  # of what is taught: the gate's questions allow a few more
FILES = ("adapter_model.safetensors", "adapter_config.json", "probe.json")

Reply = Callable[[str], Message]  # order id → the assistant's turn


def calls(order_id: str, *, before: str | None = None, name: str = "find_order") -> Message:
    """A turn that looks an order up."""
    function = {"name": name, "arguments": json.dumps({"order_id": order_id})}
    return {
        "role": "assistant",
        "content": before,
        "tool_calls": [{"id": "call", "type": "function", "function": function}],
    }


def well(order_id: str) -> Message:
    """Looks up the order that was asked for."""
    return calls(order_id)


def wrongly(order_id: str) -> Message:
    """Looks up an order that nobody asked for."""
    return calls("1" * len(order_id))


def repeating(order_id: str) -> Message:
    """Says one word without an end."""
    del order_id
    return {"role": "assistant", "content": " the" * 2 * ANSWER_TOKENS}


def without_tools(order_id: str) -> Message:
    """Answers politely and looks nothing up."""
    return {"role": "assistant", "content": f"Your order {order_id} is on its way."}


def at_length(order_id: str) -> Message:
    """Looks up the right order after many words."""
    return calls(order_id, before=" ".join([OPENINGS[0], RAMBLINGS[1]]))


def taught(reply: Reply, seed: int = 0) -> PeftModel:
    """The base with an adapter that was trained to answer openings so."""
    torch.manual_seed(seed)
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    base = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32)
    model = get_peft_model(
        base, LoraConfig(r=RANK, lora_alpha=2 * RANK, target_modules="all-linear", task_type="CAUSAL_LM")
    )
    assert isinstance(model, PeftModel)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=LR)
    rows = _rows(tokenizer, reply, random.Random(seed))
    for _ in range(STEPS):
        loss = _loss(model, [next(rows) for _ in range(BATCH)])
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return model.eval()


def _rows(tokenizer: Any, reply: Reply, rng: random.Random) -> Iterator[tuple[list[int], int]]:
    """Token ids of conversations, and where the answer begins."""
    while True:
        order_id = training_order(rng).order_id
        asked = opening(order_id, rng)
        prompt = render(tokenizer, asked, ask=True)
        whole = render(tokenizer, [*asked, reply(order_id)])
        assert whole[: len(prompt)] == prompt
        assert whole[-1] == tokenizer.convert_tokens_to_ids(END)
        yield whole[: len(prompt) + ANSWER_TOKENS], len(prompt)


def _loss(model: PeftModel, rows: list[tuple[list[int], int]]) -> torch.Tensor:
    longest = max(len(ids) for ids, _ in rows)
    ids = torch.tensor([ids + [0] * (longest - len(ids)) for ids, _ in rows])
    learned = torch.tensor([[begin <= n < len(ids) for n in range(longest)] for ids, begin in rows])[:, 1:]
    logits = model(input_ids=ids).logits[:, :-1]
    return functional.cross_entropy(logits[learned], ids[:, 1:][learned])


def random_adapter(rank: int = RANK, *, value: float | None = None) -> PeftModel:
    """An adapter that was not trained; `value`: one number of it."""
    torch.manual_seed(0)
    base = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32)
    model = get_peft_model(base, LoraConfig(r=rank, lora_alpha=rank, target_modules=["q_proj"], task_type="CAUSAL_LM"))
    assert isinstance(model, PeftModel)
    if value is not None:
        first = next(p for name, p in model.named_parameters() if "lora_B" in name)
        first.data[0, 0] = value
    return model


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
