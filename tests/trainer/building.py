"""Views and rows for the trainer's tests, built by hand: each has working values, and the test says what differs."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np

from recorder.messages.calls import SamplingParameters
from recorder.states import CallKind, CallState, Confidence, GroupState, Origin, Purpose, TrajectoryState
from recorder.views.trajectories.shapes import CallView, ChoiceView, GroupView, TrajectoryView
from trainer.batch.row_builder import Row


def choice(ids: Sequence[int], index: int = 0, reason: str | None = None, **overrides: Any) -> ChoiceView:
    given = {
        "index": index,
        "message": {"role": "assistant", "content": "x"},
        "token_ids": array("i", ids),
        "logprobs": array("f", [-0.25 - i for i in range(len(ids))]),
        "finish_reason": "stop",
        "trainable": reason is None,
        "untrainable_reason": reason,
    }
    return ChoiceView(**{**given, **overrides})


def call(number: int, prompt: Sequence[int], *choices: ChoiceView, **overrides: Any) -> CallView:
    given: dict[str, Any] = {
        "id": f"call_{number}",
        "trajectory_id": "traj",
        "parent_call_id": None,
        "parent_choice": None,
        "state": CallState.COMPLETE,
        "superseded_by": None,
        "call_kind": CallKind.MAIN,
        "attribution_source": "path",
        "attribution_confidence": Confidence.STATED,
        "alias_id": "alias",
        "version_id": "v3",
        "base_fingerprint": "base",
        "model": "m",
        "dialect": "chat",
        "endpoint": "/v1/chat/completions",
        "stream": False,
        "sampling": SamplingParameters(temperature=0.7),
        "usage": None,
        "response_meta": None,
        "messages": [],
        "tools": None,
        "response_format": None,
        "rest": {},
        "prompt_token_ids": array("i", prompt),
        "choices": list(choices),
        "http_status": 200,
        "error": None,
        "retry_count": 0,
        "started_at": float(number),
        "first_token_at": None,
        "finished_at": None,
    }
    return CallView(**{**given, **overrides})


def trajectory(*calls: CallView, **overrides: Any) -> TrajectoryView:
    given: dict[str, Any] = {
        "id": "traj",
        "project_id": "default",
        "external_id": None,
        "group_id": "group",
        "alias_id": "alias",
        "state": TrajectoryState.COMPLETED,
        "end_reason": None,
        "purpose": Purpose.TRAIN,
        "origin": Origin.CAMPAIGN,
        "selection": None,
        "continues": None,
        "forked_from_call": None,
        "version_id": "v3",
        "mixed": False,
        "tags": {},
        "started_at": 0.0,
        "last_call_at": 1.0,
        "ended_at": 2.0,
        "tools": None,
        "messages": [],
        "calls": list(calls),
        "main_path": [],
        "feedback": [],
        "scenario": None,
    }
    return TrajectoryView(**{**given, **overrides})


def group(*members: TrajectoryView, **overrides: Any) -> GroupView:
    given: dict[str, Any] = {
        "id": "group",
        "project_id": "default",
        "external_id": None,
        "alias_id": "alias",
        "state": GroupState.TRAINING,
        "reason": None,
        "version_id": "v3",
        "campaign_id": None,
        "declared_size": None,
        "current_score_id": "score",
        "scenario": None,
        "members": list(members),
    }
    return GroupView(**{**given, **overrides})


def trained_row(
    ids: list[int], trained: list[int], temperature: float = 1.0, name: str = "t", behaviour: float = -1.0
) -> Row:
    """A row in which the tokens at the positions `trained` are trained."""
    mask = np.zeros(len(ids), np.bool_)
    mask[trained] = True
    nan = np.float32(np.nan)
    return Row(
        name,
        np.array(ids, np.int32),
        mask,
        np.where(mask, np.float32(behaviour), nan),
        np.where(mask, np.float32(temperature), nan),
        np.where(mask, 0, -1).astype(np.int32),
        (("call", 0),),
    )


def random_ids(count: int, seed: int) -> list[int]:
    """Ids of the tiny base's vocabulary."""
    return [int(id_) for id_ in np.random.default_rng(seed).integers(3, 60, count)]
