"""Facts of a call, for tests that begin where they have been read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from recorder.states import Origin
from recorder.totals.call_facts import CallFacts

PLAIN = CallFacts(
    call_id="call_1",
    trajectory_id="traj_1",
    origin=Origin.LIVE,
    started_at=1_800_000_000.0,
    error=None,
    tokens_in=10,
    tokens_out=4,
    cost_usd=0.5,
    duration_s=2.0,
    first_token_s=0.25,
    alias="helpdesk",
    version="helpdesk@1",
    client="curl",
    key="",
    tags=(),
)


def facts(**changes: Any) -> CallFacts:
    return replace(PLAIN, **changes)
