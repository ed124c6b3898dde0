"""A group of four trajectories of three to nine trained tokens, some far from the engine that sampled them.

Trained tokens come in turns with context between them. The logprobs are given, so no model is needed.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from trainer.batch.packing import Pack, pack
from trainer.batch.row_builder import Row
from trainer.batch.weights import WeightedRow
from trainer.objectives.group_rows import GroupRows
from trainer.policy.packs.tokens import PackTokens, gather_tokens
from trainer.settings import TrainerSettings

TURNS = ((3,), (4, 3), (2, 2, 1), (9,))  # trained tokens of each turn, by trajectory
REWARDS = (1.0, 0.0, 0.3, 0.9)
MAX_LENGTH = 16  # of an answer, where a recipe needs one
_CONTEXT = 4


def names() -> list[str]:
    """The trajectories' ids."""
    return [f"trajectory-{number}" for number in range(len(TURNS))]


def values(seed: int, spread: float) -> list[NDArray[np.float64]]:
    """Numbers around −1.5 for the trained tokens of each trajectory."""
    random = np.random.default_rng(seed)
    return [-1.5 + spread * random.standard_normal(sum(turns)) for turns in TURNS]


def policy_logprobs() -> list[NDArray[np.float64]]:
    """The logprobs of each trajectory's tokens in the trainer."""
    return values(1, 0.4)


def behaviour() -> list[NDArray[np.float64]]:
    """Their logprobs in the engine."""
    return values(2, 0.4)


def teacher_logprobs() -> list[NDArray[np.float64]]:
    """Their logprobs by a teacher."""
    return values(3, 0.4)


def rows() -> list[Row]:
    """The sequences."""
    made = []
    for number, (turns, sampled) in enumerate(zip(TURNS, behaviour(), strict=True)):
        trained = np.concatenate([np.r_[np.zeros(_CONTEXT, bool), np.ones(turn, bool)] for turn in turns])
        logprobs = np.full(len(trained), np.nan, np.float32)
        logprobs[trained] = sampled
        ids = np.arange(len(trained), dtype=np.int32) + 100 * number
        ages = np.where(trained, 0, -1).astype(np.int32)
        heat = np.where(trained, np.float32(1), np.float32(np.nan))
        calls = tuple((f"call-{number}-{turn}", 0) for turn in range(len(turns)))
        made.append(Row(names()[number], ids, trained, logprobs, heat, ages, calls, tuple(turns)))
    return made


def group(advantages: dict[str, float]) -> GroupRows:
    """The trajectories as one scored group."""
    rewards = dict(zip(names(), REWARDS, strict=True))
    return GroupRows("group", "default", rows(), rewards, advantages, (), ())


def gathered(weighted: list[WeightedRow], settings: TrainerSettings) -> tuple[Pack, PackTokens]:
    """All rows in one pack, and its trained tokens."""
    (one,) = pack([each.row.token_ids for each in weighted], 10_000)
    return one, gather_tokens(one, weighted, torch.device("cpu"), settings.ratio_over)


def in_order(one: Pack, weighted: list[WeightedRow], by_trajectory: list[NDArray[np.float64]]) -> torch.Tensor:
    """Values of the trajectories' tokens in the order of a pack."""
    own = dict(zip(names(), by_trajectory, strict=True))
    return torch.from_numpy(np.concatenate([own[weighted[index].row.trajectory_id] for index in one.rows]))
