"""Probes: contexts by which a proxy can tell a new version from its parent once an engine serves it.

Owns: choosing short contexts and tokens where the two differ most, the size of the difference, and reading them back.
Refuses: asking an engine (the proxy does), and the threshold.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trainer.artifacts.adapters import PROBE
from trainer.batch.layouts import make_packs
from trainer.batch.packing import Ids
from trainer.batch.row_builder import Row
from trainer.policy import memory
from trainer.policy.logprobs import full_logprobs
from trainer.policy.model import Policy

CONTEXTS = 8
NAMED = 4  # tokens a context
_ROWS = 6  # the shortest of a step: each yields several contexts in one forward pass
_POSITIONS = 12  # a row
_LIKELY = 8  # tokens are chosen among the parent's likeliest, because an engine's rounding is largest in the tail


@dataclass(frozen=True, slots=True)
class ProbeCandidates:
    """Contexts that may become probes: prefixes of trained rows, each with the index of its last token."""

    rows: Sequence[Ids]
    ends: Sequence[Sequence[int]]  # per row: lengths of the contexts

    def contexts(self) -> list[Ids]:
        """Every context, in the order of `next_token_logprobs`."""
        return [row[:end] for row, ends in zip(self.rows, self.ends, strict=True) for end in ends]


def probe_candidates(rows: Sequence[Row]) -> ProbeCandidates:
    """Choose contexts from the shortest rows: the prefixes of their first trained tokens, without duplicates."""
    chosen: list[Ids] = []
    ends: list[list[int]] = []
    seen: set[bytes] = set()
    for row in sorted(rows, key=lambda row: (_first(row), row.trajectory_id)):
        trained = np.flatnonzero(row.trained)[:_POSITIONS]
        fresh = [int(end) for end in trained if row.token_ids[:end].tobytes() not in seen]
        if not fresh:
            continue
        seen.update(row.token_ids[:end].tobytes() for end in fresh)
        chosen.append(row.token_ids[: fresh[-1]])
        ends.append(fresh)
        if len(chosen) == _ROWS:
            break
    return ProbeCandidates(chosen, ends)


@torch.no_grad()
def next_token_logprobs(policy: Policy, given: ProbeCandidates, pass_budget: int) -> Tensor:
    """Return the logprobs of every next token after each context, at temperature 1: (contexts, vocabulary), CPU."""
    found: dict[int, Tensor] = {}
    for one in make_packs(given.rows, pass_budget, policy.layout):
        with memory.pass_errors(one):
            hidden = policy.hidden(one)
            for row, places in zip(one.rows, one.places, strict=True):
                at = torch.from_numpy(places[np.asarray(given.ends[row]) - 1]).to(policy.device)
                found[row] = full_logprobs(hidden[at], policy.head).cpu()
    return torch.cat([found[row] for row in range(len(given.rows))])


def choose_contexts(given: ProbeCandidates, new: Tensor, parent: Tensor, gap: float = 0.0) -> dict[str, Any]:
    """Return probe.json: the contexts that changed most, with four likely tokens each and their logprobs in both.

    `separation` is the mean of |new − parent| over all named tokens. `gap`: the largest mean difference of a likely
    token's logprob to an engine of the same weights, if it is more than rounding; `noise` is that of the named tokens.
    """
    likely = parent.topk(min(_LIKELY, parent.shape[1]), dim=1).indices
    change = (new - parent).abs().gather(1, likely)
    best = change.topk(min(NAMED, change.shape[1]), dim=1)
    order = best.values.mean(1).argsort(descending=True, stable=True)[:CONTEXTS]
    contexts = given.contexts()
    chosen = [
        {
            "prompt_token_ids": contexts[index].tolist(),
            "token_ids": (named := likely[index][best.indices[index]]).tolist(),
            "new": new[index][named].tolist(),
            "parent": parent[index][named].tolist(),
        }
        for index in order.tolist()
    ]
    unlikely = -sum(map(sum, (one["new"] for one in chosen))) / max(1, sum(len(one["new"]) for one in chosen))
    return {
        "contexts": chosen,
        "separation": float(best.values[order].mean()),
        **({"noise": gap * max(1.0, unlikely)} if gap else {}),
    }


def read_probe(folder: Path) -> dict[str, Any] | None:
    """The probe of a version's directory; None: it has none that can be read."""
    try:
        found = json.loads((folder / PROBE).read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _first(row: Row) -> int:
    return int(np.flatnonzero(row.trained)[0])
