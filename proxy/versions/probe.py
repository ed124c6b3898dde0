"""The probe after a load: whether the engine's answers really come from the new version.

Owns: reading probe.json and judging the answers. Refuses: asking the engine (the controller does).

The trainer stores a few contexts in which the new version and its parent differ most, with its own logprobs of named
tokens under both. The engine's logprobs must be nearer to the new version's by a factor. If the two differ by less than
the engine's noise, path and manifest are the proof (`identity`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from proxy.errors import AdapterError
from proxy.versions.adapter_files import PROBE

FACTOR = 3.0
# Mean |engine - trainer| in logprobs. float32: 8e-8 measured, plus a margin for other kernels; 16 bits: 1.5e-3.
NOISE = {"float32": 1e-6, "float16": 1.5e-3, "bfloat16": 1.5e-3}
# A right answer passes FACTOR if new and parent differ by at least this many times the noise.
ABOVE_NOISE = FACTOR + 1.0

Verified = Literal["logprobs", "identity"]


class ProbeContext(BaseModel):
    """One context: prompt ids, the named tokens, their logprobs under the new version and under its parent."""

    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)

    prompt_token_ids: list[int]
    token_ids: list[int]
    new: list[float]
    parent: list[float]

    @model_validator(mode="after")
    def _even(self) -> ProbeContext:
        if not self.prompt_token_ids or not self.token_ids:
            raise ValueError("a context needs prompt ids and named tokens")
        if not len(self.token_ids) == len(self.new) == len(self.parent):
            raise ValueError("token_ids, new and parent differ in length")
        return self


class Probe(BaseModel):
    """The probe of one version."""

    model_config = ConfigDict(extra="ignore")

    contexts: list[ProbeContext]

    @property
    def separation(self) -> float:
        """Mean |new - parent| over all named tokens."""
        return logprob_distance([c.new for c in self.contexts], [c.parent for c in self.contexts])


@dataclass(frozen=True, slots=True)
class ProbeVerdict:
    """Distances of the engine's logprobs from the new version's and its parent's: mean absolute differences."""

    to_new: float
    to_parent: float

    @property
    def accepted(self) -> bool:
        """Whether the answer is nearer to the new version by the factor."""
        return math.isfinite(self.to_new) and self.to_new * FACTOR <= self.to_parent


def read_probe(folder: Path) -> Probe | None:
    """Return the probe of an adapter's folder; None if it has none or an empty one. Raises AdapterError."""
    try:
        raw = (folder / PROBE).read_bytes()
    except FileNotFoundError:
        return None
    try:
        probe = Probe.model_validate(json.loads(raw))
    except (ValueError, ValidationError) as e:
        raise AdapterError("probe_unreadable", f"{folder / PROBE}: {e}") from e
    return probe if probe.contexts else None


def is_distinguishable(probe: Probe, dtype: str) -> bool:
    """Whether new and parent differ by more than the engine's noise in this precision (unknown: 16 bits)."""
    return probe.separation >= ABOVE_NOISE * NOISE.get(dtype, NOISE["bfloat16"])


def judge_probe(probe: Probe, answers: Sequence[Sequence[float]]) -> ProbeVerdict:
    """Compare the engine's logprobs, one list per context, with the trainer's."""
    return ProbeVerdict(
        to_new=logprob_distance(answers, [c.new for c in probe.contexts]),
        to_parent=logprob_distance(answers, [c.parent for c in probe.contexts]),
    )


def logprob_distance(a: Sequence[Sequence[float]], b: Sequence[Sequence[float]]) -> float:
    """Return the mean absolute difference of two ragged lists of equal shape; infinite if a value is not finite."""
    gaps = [abs(x - y) for row_a, row_b in zip(a, b, strict=True) for x, y in zip(row_a, row_b, strict=True)]
    return sum(gaps) / len(gaps) if all(map(math.isfinite, gaps)) else math.inf
