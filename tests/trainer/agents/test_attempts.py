"""Whose fault it was that an attempt ended as it did."""

from __future__ import annotations

import pytest

from recorder.queue.attempts import LastCall
from recorder.states import CallState
from trainer.agents.attempts import EndReason, find_fault
from trainer.agents.replay import NOT_RECORDED
from trainer.agents.user_agent import AttemptEnding, AttemptOutcome

COMPLETE = LastCall(CallState.COMPLETE, 200, None, 1)
ABORTED = LastCall(CallState.ABORTED, None, None, 1)
ENGINE_DIED = LastCall(CallState.ERRORED, None, "connection reset", 1)
ENGINE_500 = LastCall(CallState.ERRORED, 500, "CUDA error", 0)
ENGINE_REFUSED = LastCall(CallState.ERRORED, 400, "the prompt is too long", 0)


@pytest.mark.parametrize(
    ("outcome", "last", "reason"),
    [
        (AttemptOutcome(AttemptEnding.DONE, "x"), COMPLETE, None),
        (AttemptOutcome(AttemptEnding.DONE, "x"), ABORTED, None),  # the agent hung up on a call that it did not need
        (AttemptOutcome(AttemptEnding.DONE, "x"), None, EndReason.NO_CALL),
        (
            AttemptOutcome(AttemptEnding.DONE, "x"),
            ENGINE_DIED,
            EndReason.HARNESS_FAULT,
        ),  # it made do with an engine's error
        (AttemptOutcome(AttemptEnding.DONE, "x"), ENGINE_500, EndReason.HARNESS_FAULT),
        (AttemptOutcome(AttemptEnding.DONE, "x"), ENGINE_REFUSED, None),
        (AttemptOutcome(AttemptEnding.ERROR, error="ValueError"), COMPLETE, EndReason.AGENT_ERROR),
        (AttemptOutcome(AttemptEnding.ERROR, error="ValueError"), None, EndReason.AGENT_ERROR),
        (AttemptOutcome(AttemptEnding.ERROR, error="BadRequestError"), ENGINE_REFUSED, EndReason.AGENT_ERROR),
        (
            AttemptOutcome(AttemptEnding.ERROR, error="InternalServerError", network=True),
            ENGINE_500,
            EndReason.HARNESS_FAULT,
        ),
        (AttemptOutcome(AttemptEnding.ERROR, error="APIConnectionError", network=True), None, EndReason.HARNESS_FAULT),
        (AttemptOutcome(AttemptEnding.ERROR, error=f"{NOT_RECORDED}: x"), COMPLETE, EndReason.NOT_RECORDED),
        (AttemptOutcome(AttemptEnding.ERROR, error=f"{NOT_RECORDED}: x"), ENGINE_DIED, EndReason.HARNESS_FAULT),
        (AttemptOutcome(AttemptEnding.TIMEOUT), COMPLETE, EndReason.AGENT_TIMEOUT),
        (AttemptOutcome(AttemptEnding.TIMEOUT), ABORTED, EndReason.AGENT_TIMEOUT),
        (AttemptOutcome(AttemptEnding.TIMEOUT), ENGINE_DIED, EndReason.HARNESS_FAULT),
        (AttemptOutcome(AttemptEnding.LOST, error="the host ended"), COMPLETE, EndReason.HARNESS_FAULT),
    ],
)
def test_every_ending_has_one_whose_fault_it_is(
    outcome: AttemptOutcome, last: LastCall | None, reason: EndReason | None
) -> None:
    found, error = find_fault(outcome, last)
    assert found is reason
    assert (error is None) == (reason is None)
