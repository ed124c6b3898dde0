"""One optimizer step over weighted rows: forward and backward pack by pack, one update, and its metrics.

Owns: gathering trained tokens, the sum of the loss, the metrics. Refuses: files, the store, choosing rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainer.batch.layouts import make_packs
from trainer.batch.packing import Pack
from trainer.batch.weights import TokenValues, WeightedRow
from trainer.errors import StepFailed, StepInterrupted
from trainer.policy import memory
from trainer.policy.logprobs import token_logprobs
from trainer.policy.losses import LOSSES, SampledTokens, TokenLoss, kl_to_teacher
from trainer.policy.model import Policy
from trainer.policy.optim import Optimizer
from trainer.ranks import rounds
from trainer.ranks.rounds import DealtPack
from trainer.settings import TrainerSettings

_ADDED = frozenset({"trained_tokens", "forward_tokens"})
_OF_THE_FIRST = frozenset({"fresh_tokens", "kl_engine", "logprob_gap", "logprob_gap_max"})


@dataclass(frozen=True, slots=True)
class PackTokens:
    """The trained tokens of a pack, each tensor of shape (n,). `before`: flat indices of the tokens before them."""

    before: Tensor  # int64
    targets: Tensor  # int64
    temperatures: Tensor
    behaviour: Tensor
    advantages: Tensor
    rl_weights: Tensor
    ce_weights: Tensor | None  # None: all are 0
    kl_weights: Tensor | None
    teacher: Tensor | None  # None: the base is the teacher of all
    parent: Tensor | None  # None: the policy is still the parent
    units: Tensor  # int64: the row or turn of each token, from 0
    unit_count: int
    fresh: Tensor  # bool: sampled by the version that is being trained

    def __len__(self) -> int:
        return len(self.targets)


@dataclass(slots=True)
class StepSums:
    """The sums of a step over its packs."""

    trained_tokens: int = 0
    forward_tokens: int = 0  # what was computed: shared prefixes once, and padding
    loss: float = 0.0
    ratio: float = 0.0
    ratio_max: float = 0.0
    clipped: int = 0
    entropy: float = 0.0
    kl_base: float | None = None  # None: not computed

    def merge(self, others: Iterable[StepSums]) -> None:
        """Become the sums of all ranks."""
        sums = list(others)
        for name in ("trained_tokens", "forward_tokens", "loss", "ratio", "clipped", "entropy"):
            setattr(self, name, sum(getattr(one, name) for one in sums))
        self.ratio_max = max(one.ratio_max for one in sums)
        measured = [one.kl_base for one in sums if one.kl_base is not None]
        self.kl_base = sum(measured) if measured else None

    def means(self) -> dict[str, float]:
        """The metrics of the step, by their names in a report."""
        n = max(1, self.trained_tokens)
        metrics = {
            "loss": self.loss,
            "ratio_mean": self.ratio / n,
            "ratio_max": self.ratio_max,
            "clip_fraction": self.clipped / n,
            "entropy": self.entropy / n,
            "trained_tokens": float(self.trained_tokens),
            "forward_tokens": float(self.forward_tokens),
        }
        if self.kl_base is not None:
            metrics["kl_base"] = self.kl_base / n
        return metrics


@dataclass(slots=True)
class FreshGaps:
    """How far the trainer's logprobs are from the engine's, before any update, over fresh tokens.

    For other tokens a gap is drift of the policy, not a difference between engine and trainer. `by_trajectory`: the
    number of tokens and the sum of their |Δlogprob| (nats).
    """

    tokens: int = 0
    kl_engine: float = 0.0  # a sum, as is the next one
    gap: float = 0.0
    gap_max: float = 0.0
    by_trajectory: dict[str, tuple[int, float]] = field(default_factory=dict)

    def add(self, one: Pack, rows: Sequence[WeightedRow], tokens: PackTokens, logprobs: Tensor) -> None:
        """Add the fresh tokens of a pack. The KL is the k3 estimate of KL(engine ‖ trainer)."""
        gaps = (logprobs.detach() - tokens.behaviour).double()  # the estimate is of the order of the square
        fresh = gaps[tokens.fresh]
        if not len(fresh):
            return
        self.tokens += len(fresh)
        self.kl_engine += float((torch.expm1(fresh) - fresh).sum())
        self.gap += float(fresh.abs().sum())
        self.gap_max = max(self.gap_max, float(fresh.abs().max()))
        sizes = [rows[index].row.trained_tokens for index in one.rows]
        each = zip(one.rows, torch.split(gaps, sizes), torch.split(tokens.fresh, sizes), strict=True)
        for index, its, is_fresh in each:
            owner = rows[index].row.trajectory_id
            number, total = self.by_trajectory.get(owner, (0, 0.0))
            self.by_trajectory[owner] = number + int(is_fresh.sum()), total + float(its[is_fresh].abs().sum())

    def merge(self, others: Iterable[FreshGaps]) -> None:
        """Become the gaps of all ranks."""
        gaps = list(others)
        self.tokens = sum(one.tokens for one in gaps)
        self.kl_engine = sum(one.kl_engine for one in gaps)
        self.gap = sum(one.gap for one in gaps)
        self.gap_max = max(one.gap_max for one in gaps)
        merged: dict[str, tuple[int, float]] = {}
        for owner, (number, total) in (pair for one in gaps for pair in one.by_trajectory.items()):
            before, earlier = merged.get(owner, (0, 0.0))
            merged[owner] = before + number, earlier + total
        self.by_trajectory = merged

    def means(self) -> dict[str, float]:
        """The metrics of the step, by their names in a report."""
        metrics = {"fresh_tokens": float(self.tokens)}
        if self.tokens:
            metrics |= {"kl_engine": self.kl_engine / self.tokens, "logprob_gap": self.gap / self.tokens}
            metrics["logprob_gap_max"] = self.gap_max
        return metrics


@dataclass(frozen=True, slots=True)
class UpdatePlan:
    """The rows of a step and how they are packed."""

    rows: Sequence[WeightedRow]
    packs: Sequence[Pack] = field(default_factory=list)


def plan_update(
    policy: Policy, rows: Sequence[WeightedRow], settings: TrainerSettings, pass_budget: int | None = None
) -> UpdatePlan:
    """Pack the rows of a step, each cut after its last trained token.

    `pass_budget`: tokens of a pack; None: `token_budget`. Rows longer than that come first, the longest one before the
    others: what does not fit into memory is then found soon. Several ranks get smaller passes where those fill their
    rounds better.
    """
    ids = [one.row.token_ids[: int(np.flatnonzero(one.row.trained)[-1]) + 1] for one in rows]
    budget = pass_budget or settings.token_budget
    packs = make_packs(ids, budget, policy.layout)
    if (count := policy.ranks.count) > 1:
        smaller = make_packs(ids, rounds.even_budget(packs, budget, count), policy.layout)
        packs = min(packs, smaller, key=lambda found: rounds.rounds_cost(found, count))
    return UpdatePlan(rows, sorted(packs, key=lambda one: -len(one) if len(one) > budget else 0))


def train_step(
    policy: Policy,
    optimizer: Optimizer,
    planned: UpdatePlan,
    settings: TrainerSettings,
    stopped: Callable[[], bool],
    fresh: FreshGaps | None = None,
) -> dict[str, float]:
    """Make one update and return its metrics. The ranks share the packs; the first one updates the weights.

    `fresh`: where the gaps of fresh tokens are added; the metrics contain what it has then. `stopped` is called between
    packs. Raises `StepInterrupted` if it returns true, and `StepFailed` if loss or gradient is not finite; then the
    parameters are unchanged.
    """
    sums, gaps, ranks = StepSums(), FreshGaps() if fresh is None else fresh, policy.ranks
    optimizer.zero()

    def accumulate(dealt: DealtPack) -> StepFailed | None:
        return _accumulate(policy, dealt, planned.rows, settings, sums, gaps)

    try:
        run_passes(policy, planned.packs, stopped, accumulate)
    except StepInterrupted:
        optimizer.zero()
        raise
    ranks.sum_gradients(policy.parameters)
    sums.merge(ranks.gather(sums))
    gaps.merge(ranks.gather(gaps))
    updated = ranks.from_first(optimizer.step)
    ranks.share_weights(policy.parameters)
    return sums.means() | gaps.means() | updated


def run_passes(
    policy: Policy,
    packs: Sequence[Pack],
    stopped: Callable[[], bool],
    compute: Callable[[DealtPack], StepFailed | None],
) -> None:
    """Compute this rank's passes. Before each, and after the last, all ranks agree on a stop or an error of any.

    `compute` returns an error that a finished pass found. Raises it on all ranks, or `StepInterrupted`.
    """
    failure: Exception | None = None
    for dealt in policy.ranks.deal(packs):
        if failure is None and stopped():
            failure = StepInterrupted("the step was stopped before its update: its groups are given back")
        policy.ranks.agree(failure)
        failure = _run_pass(policy, dealt, compute) if dealt is not None else None
    policy.ranks.agree(failure)


def _run_pass(policy: Policy, dealt: DealtPack, compute: Callable[[DealtPack], StepFailed | None]) -> Exception | None:
    try:
        with memory.pass_errors(dealt.pack):
            failure = compute(dealt)
    except Exception as e:
        if policy.ranks.is_sharded:  # the others wait in the middle of this pass, and not for an agreement
            raise
        return e
    policy.end_pass()
    return failure


def measure_parent(
    policy: Policy, planned: UpdatePlan, settings: TrainerSettings, stopped: Callable[[], bool], fresh: FreshGaps
) -> list[WeightedRow]:
    """Return rows that are trained on only after the weights have changed, with their logprobs at the parent as far as
    this rank computes them, and add their gaps to `fresh`. Raises `StepInterrupted`.
    """
    rows = list(planned.rows)

    @torch.no_grad()
    def measure(dealt: DealtPack) -> None:
        one = dealt.pack
        tokens = gather_tokens(one, planned.rows, policy.device)
        logprobs, _ = pack_logprobs(policy, one, tokens, settings.logprob_chunk)
        own = torch.split(logprobs, [rows[index].row.trained_tokens for index in one.rows])
        for index, values in zip(one.rows, own, strict=True):
            rows[index] = replace(rows[index], parent=values.cpu().numpy())
        if dealt.counts:
            fresh.add(one, planned.rows, tokens, logprobs)

    run_passes(policy, planned.packs, stopped, measure)
    return rows


def split_substeps(rows: Sequence[WeightedRow]) -> list[list[WeightedRow]]:
    """The rows of each optimizer step of a training step, in their order."""
    parts: dict[int, list[WeightedRow]] = {}
    for row in rows:
        parts.setdefault(row.substep, []).append(row)
    return [parts[number] for number in sorted(parts)]


def merge_substeps(done: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The metrics of a step from those of its optimizer steps: tokens are summed, maxima are maxima of all.

    The difference between trainer and engine is taken from the first one: after it the weights differ.
    """
    first, *later = done
    merged = dict(first)
    for name in first.keys() - _OF_THE_FIRST:
        values = [metrics[name] for metrics in done if name in metrics]
        merged[name] = sum(values) if name in _ADDED else max(values) if name.endswith("_max") else fmean(values)
    return merged if later else dict(first)


def pack_logprobs(policy: Policy, one: Pack, tokens: PackTokens, chunk: int) -> tuple[Tensor, Tensor]:
    """Return the logprobs (with gradient) and entropies of a pack's trained tokens, float32 of shape (n,)."""
    hidden = policy.hidden(one)[tokens.before]
    return token_logprobs(hidden, policy.head, tokens.targets, tokens.temperatures, chunk=chunk)


def gather_tokens(
    one: Pack, rows: Sequence[WeightedRow], device: torch.device, ratio_over: Literal["row", "turn"] = "row"
) -> PackTokens:
    """Find the trained tokens of a pack: the position that predicts each, and the inputs of the loss."""
    own = [rows[index] for index in one.rows]
    trained = [np.flatnonzero(weighted.row.trained) for weighted in own]
    pairs = [(weighted.row, at) for weighted, at in zip(own, trained, strict=True)]
    units = _units(trained, ratio_over)

    def floats(arrays: Iterable[NDArray[np.floating]]) -> Tensor:
        return torch.from_numpy(np.concatenate(list(arrays)).astype(np.float32)).to(device)

    def spread(values: Iterable[TokenValues]) -> Tensor:
        return floats(np.broadcast_to(value, len(at)) for value, at in zip(values, trained, strict=True))

    def weights(values: Sequence[TokenValues]) -> Tensor | None:
        return spread(values) if any(np.any(value) for value in values) else None

    def known(values: Sequence[NDArray[np.floating] | None]) -> Tensor | None:
        filled: list[TokenValues] = [np.nan if value is None else value for value in values]
        return spread(filled) if any(value is not None for value in values) else None

    def ints(arrays: Iterable[NDArray[np.integer]]) -> Tensor:
        return torch.from_numpy(np.concatenate(list(arrays)).astype(np.int64)).to(device)

    return PackTokens(
        before=ints(places[at - 1] for places, at in zip(one.places, trained, strict=True)),
        targets=ints(row.token_ids[at] for row, at in pairs),
        temperatures=floats(row.temperature[at] for row, at in pairs),
        behaviour=floats(row.behaviour[at] for row, at in pairs),
        advantages=spread(weighted.advantage for weighted in own),
        rl_weights=spread(weighted.rl_weight for weighted in own),
        ce_weights=weights([weighted.ce_weight for weighted in own]),
        kl_weights=weights([weighted.kl_weight for weighted in own]),
        teacher=known([weighted.teacher for weighted in own]),
        parent=known([weighted.parent for weighted in own]),
        units=ints([units]),
        unit_count=int(units[-1]) + 1,
        fresh=torch.from_numpy(np.concatenate([row.age[at] == 0 for row, at in pairs])).to(device),
    )


def _units(trained: Sequence[NDArray[np.integer]], ratio_over: Literal["row", "turn"]) -> NDArray[np.integer]:
    """For each token the number of its row, or of its turn: an unbroken run of trained tokens."""
    begins = [np.diff(at, prepend=-2) > 1 if ratio_over == "turn" else np.arange(len(at)) == 0 for at in trained]
    return np.cumsum(np.concatenate(begins)) - 1


def _accumulate(
    policy: Policy,
    dealt: DealtPack,
    rows: Sequence[WeightedRow],
    settings: TrainerSettings,
    sums: StepSums,
    fresh: FreshGaps,
) -> StepFailed | None:
    """One pass, forward and backward. An error that it finds is returned after both: other ranks wait within them."""
    one = dealt.pack
    tokens = gather_tokens(one, rows, policy.device, settings.ratio_over)
    logprobs, entropies = pack_logprobs(policy, one, tokens, settings.logprob_chunk)
    teacher = None
    if any(np.any(weighted.kl_weight) for weighted in rows):  # of any row: all ranks make this pass, or none
        teacher = _teacher(policy, one, tokens, settings)
    result, losses, divergence = weighted_losses(tokens, logprobs, teacher, settings)
    loss = losses.sum()
    torch.autograd.backward(loss if dealt.counts else 0.0 * loss)
    if not torch.isfinite(loss):
        return StepFailed(_blame(one, rows, losses.detach()))
    if not dealt.counts:
        return None
    if divergence is not None:
        sums.kl_base = (sums.kl_base or 0.0) + float(divergence.sum())
    sums.loss += float(loss.detach())
    sums.forward_tokens += len(one)
    sums.trained_tokens += len(tokens)
    sums.ratio += float(result.ratio.sum())
    sums.ratio_max = max(sums.ratio_max, float(result.ratio.max()))
    sums.clipped += int(result.clipped.sum())
    sums.entropy += float(entropies.sum())
    fresh.add(one, rows, tokens, logprobs)
    return None


def weighted_losses(
    tokens: PackTokens, logprobs: Tensor, teacher: Tensor | None, settings: TrainerSettings
) -> tuple[TokenLoss, Tensor, Tensor | None]:
    """Return what the surrogate says, each token's weighted loss, and its divergence from the teacher, if any.

    `teacher`: the logprobs of `tokens` by their teacher, needed if these have `kl_weights`.
    """
    parent = logprobs.detach() if tokens.parent is None else tokens.parent
    sampled = SampledTokens(logprobs, tokens.behaviour, tokens.advantages, parent, tokens.units, tokens.unit_count)
    result = LOSSES[settings.loss](sampled, settings)
    losses = result.loss * tokens.rl_weights
    if tokens.ce_weights is not None:
        losses = losses - logprobs * tokens.ce_weights
    if tokens.kl_weights is None or teacher is None:
        return result, losses, None
    divergence = kl_to_teacher(logprobs, teacher)
    return result, losses + divergence * tokens.kl_weights, divergence.detach()


def _teacher(policy: Policy, one: Pack, tokens: PackTokens, settings: TrainerSettings) -> Tensor:
    """The logprobs of each token's teacher: those that its row has, or the base's."""
    with policy.base_only():
        base, _ = pack_logprobs(policy, one, tokens, settings.logprob_chunk)
    return base if tokens.teacher is None else torch.where(tokens.teacher.isnan(), base, tokens.teacher)


def _blame(one: Pack, rows: Sequence[WeightedRow], losses: Tensor) -> str:
    owners = [rows[index].row.trajectory_id for index in one.rows for _ in range(rows[index].row.trained_tokens)]
    bad = (~torch.isfinite(losses)).cpu().tolist()
    guilty = sorted({owner for owner, is_bad in zip(owners, bad, strict=True) if is_bad})
    return f"the loss is not finite (trajectories {', '.join(guilty) or 'unknown'}): no update was made"
