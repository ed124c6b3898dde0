"""Calls as the views show them, for tests without a store."""

from __future__ import annotations

from typing import Any

from recorder.messages.calls import RecordedRequest, SamplingParameters
from recorder.states import CallKind, CallState, Confidence
from recorder.views.trajectories.shapes import CallView, ChoiceView


def call_view(**changes: Any) -> CallView:
    """A complete call of chat completions."""
    fields: dict[str, Any] = {
        "id": "call_1", "trajectory_id": "traj_1", "parent_call_id": None, "parent_choice": None,
        "state": CallState.COMPLETE, "superseded_by": None, "call_kind": CallKind.MAIN, "attribution_source": "path",
        "attribution_confidence": Confidence.STATED, "alias_id": "alias_1", "version_id": "ver_1",
        "base_fingerprint": None, "model": "helpdesk", "dialect": "chat", "endpoint": "/v1/chat/completions",
        "stream": False, "sampling": SamplingParameters(), "usage": None, "response_meta": None,
        "messages": [{"role": "user", "content": "Where?"}], "tools": None, "response_format": None,
        "rest": {"model": "helpdesk"}, "prompt_token_ids": None, "choices": (), "http_status": 200, "error": None,
        "retry_count": 0, "started_at": 1.0, "first_token_at": None, "finished_at": 2.0,
    }  # fmt: skip
    return CallView(**fields | changes)


def choice_view(message: dict[str, Any], index: int = 0) -> ChoiceView:
    """A sampled choice."""
    return ChoiceView(index, message, None, None, "stop", True, None)


def recorded_view(request: RecordedRequest, meta: dict[str, Any] | None = None) -> CallView:
    """The view of a call with this request."""
    kept = ("dialect", "endpoint", "model", "stream", "messages", "tools", "response_format", "rest", "sampling")
    return call_view(**{name: getattr(request, name) for name in kept}, response_meta=meta)
