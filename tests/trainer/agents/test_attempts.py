"""Whose fault it was that an attempt ended as it did."""

from __future__ import annotations

import pytest

from recorder.states import CallState
from recorder.work.attempts import LastCall
from trainer.agents.agent import Ending, Outcome
from trainer.agents.attempts import EndReason, whose_fault
from trainer.agents.replay import NOT_RECORDED

COMPLETE = LastCall(CallState.COMPLETE, 200, None, 1)
ABORTED = LastCall(CallState.ABORTED, None, None, 1)
ENGINE_DIED = LastCall(CallState.ERRORED, None, "connection reset", 1)
ENGINE_500 = LastCall(CallState.ERRORED, 500, "CUDA error", 0)
ENGINE_REFUSED = LastCall(CallState.ERRORED, 400, "the prompt is too long", 0)


@pytest.mark.parametrize(
    ("outcome", "last", "reason"),
    [
        (Outcome(Ending.DONE, "x"), COMPLETE, None),
        (Outcome(Ending.DONE, "x"), ABORTED, None),  # the agent hung up on a call that it did not need
        (Outcome(Ending.DONE, "x"), None, EndReason.NO_CALL),
        (Outcome(Ending.DONE, "x"), ENGINE_DIED, EndReason.HARNESS_FAULT),  # it made do with an engine's error
        (Outcome(Ending.DONE, "x"), ENGINE_500, EndReason.HARNESS_FAULT),
        (Outcome(Ending.DONE, "x"), ENGINE_REFUSED, None),
        (Outcome(Ending.ERROR, error="ValueError"), COMPLETE, EndReason.AGENT_ERROR),
        (Outcome(Ending.ERROR, error="ValueError"), None, EndReason.AGENT_ERROR),
        (Outcome(Ending.ERROR, error="BadRequestError"), ENGINE_REFUSED, EndReason.AGENT_ERROR),
        (Outcome(Ending.ERROR, error="InternalServerError", network=True), ENGINE_500, EndReason.HARNESS_FAULT),
        (Outcome(Ending.ERROR, error="APIConnectionError", network=True), None, EndReason.HARNESS_FAULT),
        (Outcome(Ending.ERROR, error=f"{NOT_RECORDED}: x"), COMPLETE, EndReason.NOT_RECORDED),
        (Outcome(Ending.ERROR, error=f"{NOT_RECORDED}: x"), ENGINE_DIED, EndReason.HARNESS_FAULT),
        (Outcome(Ending.TIMEOUT), COMPLETE, EndReason.AGENT_TIMEOUT),
        (Outcome(Ending.TIMEOUT), ABORTED, EndReason.AGENT_TIMEOUT),
        (Outcome(Ending.TIMEOUT), ENGINE_DIED, EndReason.HARNESS_FAULT),
        (Outcome(Ending.LOST, error="the host ended"), COMPLETE, EndReason.HARNESS_FAULT),
    ],
)
def test_every_ending_has_one_whose_fault_it_is(
    outcome: Outcome, last: LastCall | None, reason: EndReason | None
) -> None:
    found, error = whose_fault(outcome, last)
    assert found is reason
    assert (error is None) == (reason is None)
