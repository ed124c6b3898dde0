"""The state machines of all stateful objects, as tables of allowed transitions.

Owns: the names of states, which may follow which, and the tone in which each is shown. Refuses: storage, colours.
`recorder.store.transitions` enforces these tables with guarded UPDATEs; no other module changes a state.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class CallState(StrEnum):
    """One model request and its response."""

    OPEN = "open"
    COMPLETE = "complete"  # the engine finished every choice, even if the client hung up later
    ABORTED = "aborted"  # the client hung up before that; the sampled tokens are stored and not trained on
    ERRORED = "errored"  # a fault of the engine, the network or Hone


class ErrorKind(StrEnum):
    """Why a call has no complete answer, for totals and filters."""

    ABORTED = "aborted"  # the client hung up
    REFUSED = "refused"  # the request was refused: a status from 400 to 499
    RATE_LIMITED = "rate_limited"  # 429
    TIMEOUT = "timeout"  # 408 or 504
    UNAVAILABLE = "unavailable"  # 503: no engine could answer
    FAILED = "failed"  # the engine or the provider failed, or broke off its answer
    LOST = "lost"  # the proxy ended before the call did


class TrajectoryState(StrEnum):
    """The recorded episode of one agent."""

    OPEN = "open"
    COMPLETED = "completed"  # the agent ended, successfully or not
    ERRORED = "errored"  # not by the agent's fault: never judged, never trained on
    ABANDONED = "abandoned"  # replaced by a new attempt, or abandoned by its owner
    SEALED_LATE = "sealed-late"  # still open when its group closed without it


class GroupState(StrEnum):
    """Trajectories that attempted the same task.

    `tried`: an undecided version was trained on them. `trained`: the live version or one of its ancestors was.
    """

    OPEN = "open"
    READY = "ready"
    JUDGING = "judging"
    SCORED = "scored"
    UNSCORED = "unscored"  # judging failed; it is repeated after `try_after`
    TRAINING = "training"
    TRIED = "tried"  # a version was trained on it, and is not decided yet
    TRAINED = "trained"  # the version that was trained on it is live, or an ancestor of the live one
    LEFT_OUT = "left_out"
    MEASURED = "measured"  # of a validation, a gate or an evaluation: never for training, and no exclusion


class VersionState(StrEnum):
    """One immutable LoRA adapter of an alias."""

    ALLOCATED = "allocated"
    WRITTEN = "written"
    LOADED = "loaded"
    GATED = "gated"
    CANARY = "canary"
    LIVE = "live"
    RETIRED = "retired"
    REJECTED = "rejected"
    ABANDONED = "abandoned"


class CampaignState(StrEnum):
    """Training over a list of scenarios that Hone attempts itself."""

    RUNNING = "running"
    FINISHED = "finished"
    STOPPED = "stopped"
    FAILED = "failed"


class AttemptState(StrEnum):
    """One try of a campaign at a scenario."""

    PENDING = "pending"
    RUNNING = "running"
    DONE = "done"
    ERRORED = "errored"
    ABANDONED = "abandoned"


class StepState(StrEnum):
    """One optimizer step of an alias."""

    RUNNING = "running"
    DONE = "done"
    ABANDONED = "abandoned"


class NotificationState(StrEnum):
    """What became of a notification."""

    WAITING = "waiting"  # for its first try, or for the next one
    SENT = "sent"
    FAILED = "failed"
    COUNTED = "counted"  # sent as a number only, in another one of its kind


class Purpose(StrEnum):
    """What a trajectory may be used for. Only `train` reaches the trainer."""

    TRAIN = "train"
    VAL = "val"
    EVAL = "eval"
    NONE = "none"


class Origin(StrEnum):
    """Where a trajectory came from."""

    LIVE = "live"
    CAMPAIGN = "campaign"
    SHADOW = "shadow"
    REPLAY = "replay"
    IMPORT = "import"


class CallKind(StrEnum):
    """Whether a call belongs to the agent's main path, is an auxiliary call or a sub-agent's."""

    MAIN = "main"
    AUX = "aux"  # a title, a summary: never trained on
    SUB = "sub"  # a sub-agent's: trained with its trajectory's advantage; never the end that the judge sees


class ToolOutcome(StrEnum):
    """The outcome of a tool call that went through the gateway."""

    COMPLETE = "complete"
    FAILED = "failed"  # the tool answered, and reported that it failed
    ERRORED = "errored"  # the tool gave no answer: its server is down or slow, or refused the request
    INPUT_REQUIRED = "input_required"  # the tool asks its caller for input first; the answer comes in another call
    ABORTED = "aborted"  # the caller did not wait


class Confidence(StrEnum):
    """The confidence with which a call was attributed to its trajectory."""

    STATED = "stated"  # the caller named the trajectory (path, key, header)
    EXACT = "exact"  # it follows from ids or text that only this trajectory has
    NEW = "new"  # a first call that opens a trajectory
    HINT = "hint"  # recorded, not trained
    AMBIGUOUS = "ambiguous"  # recorded, not trained


TRAJECTORY: Mapping[TrajectoryState, frozenset[TrajectoryState]] = {
    TrajectoryState.OPEN: frozenset(
        {
            TrajectoryState.COMPLETED,
            TrajectoryState.ERRORED,
            TrajectoryState.ABANDONED,
            TrajectoryState.SEALED_LATE,
        }
    ),
}

CALL: Mapping[CallState, frozenset[CallState]] = {
    CallState.OPEN: frozenset({CallState.COMPLETE, CallState.ABORTED, CallState.ERRORED}),
}

GROUP: Mapping[GroupState, frozenset[GroupState]] = {
    # ready … left_out → trained: its version was rolled back, the group continued, and the version is made live again
    GroupState.OPEN: frozenset({GroupState.READY, GroupState.LEFT_OUT, GroupState.MEASURED}),
    GroupState.READY: frozenset({GroupState.JUDGING, GroupState.LEFT_OUT, GroupState.MEASURED, GroupState.TRAINED}),
    GroupState.JUDGING: frozenset(
        {
            GroupState.SCORED,
            GroupState.UNSCORED,
            GroupState.READY,
            GroupState.LEFT_OUT,
            GroupState.MEASURED,
            GroupState.TRAINED,
        }
    ),
    GroupState.UNSCORED: frozenset({GroupState.JUDGING, GroupState.LEFT_OUT, GroupState.MEASURED, GroupState.TRAINED}),
    # scored → judging: a new recipe, or new feedback, scores the group again
    GroupState.SCORED: frozenset({GroupState.TRAINING, GroupState.JUDGING, GroupState.LEFT_OUT, GroupState.TRAINED}),
    # training → scored: the trainer died and its lease expired
    GroupState.TRAINING: frozenset({GroupState.TRIED, GroupState.SCORED, GroupState.LEFT_OUT, GroupState.TRAINED}),
    # tried → scored: the version never went live, through no fault of its groups
    GroupState.TRIED: frozenset({GroupState.TRAINED, GroupState.SCORED, GroupState.LEFT_OUT}),
    # trained → left_out: its version was rolled back
    GroupState.TRAINED: frozenset({GroupState.LEFT_OUT}),
    # left_out → judging: a person requested a rescore, because its version or its score was at fault
    GroupState.LEFT_OUT: frozenset({GroupState.JUDGING, GroupState.TRAINED}),
    # measured → judging: as scored → judging
    GroupState.MEASURED: frozenset({GroupState.JUDGING}),
}

VERSION: Mapping[VersionState, frozenset[VersionState]] = {
    VersionState.ALLOCATED: frozenset({VersionState.WRITTEN, VersionState.ABANDONED, VersionState.REJECTED}),
    VersionState.WRITTEN: frozenset({VersionState.LOADED, VersionState.REJECTED, VersionState.ABANDONED}),
    VersionState.LOADED: frozenset({VersionState.GATED, VersionState.REJECTED}),
    VersionState.GATED: frozenset({VersionState.CANARY, VersionState.LIVE, VersionState.REJECTED}),
    VersionState.CANARY: frozenset({VersionState.LIVE, VersionState.REJECTED, VersionState.RETIRED}),
    VersionState.LIVE: frozenset({VersionState.RETIRED}),
    # retired → live: promote or roll back to an earlier version
    VersionState.RETIRED: frozenset({VersionState.LIVE}),
}

CAMPAIGN: Mapping[CampaignState, frozenset[CampaignState]] = {
    CampaignState.RUNNING: frozenset({CampaignState.FINISHED, CampaignState.STOPPED, CampaignState.FAILED}),
    # a stopped or failed campaign may be resumed
    CampaignState.STOPPED: frozenset({CampaignState.RUNNING}),
    CampaignState.FAILED: frozenset({CampaignState.RUNNING}),
}

ATTEMPT: Mapping[AttemptState, frozenset[AttemptState]] = {
    AttemptState.PENDING: frozenset({AttemptState.RUNNING, AttemptState.ABANDONED}),
    AttemptState.RUNNING: frozenset({AttemptState.DONE, AttemptState.ERRORED, AttemptState.ABANDONED}),
}

STEP: Mapping[StepState, frozenset[StepState]] = {
    StepState.RUNNING: frozenset({StepState.DONE, StepState.ABANDONED}),
}

NOTIFICATION: Mapping[NotificationState, frozenset[NotificationState]] = {
    NotificationState.WAITING: frozenset({NotificationState.SENT, NotificationState.FAILED, NotificationState.COUNTED}),
}

TERMINAL_TRAJECTORY = frozenset(TrajectoryState) - {TrajectoryState.OPEN}
# states of a version in which no step of its alias begins
UNDECIDED = frozenset(
    {VersionState.ALLOCATED, VersionState.WRITTEN, VersionState.LOADED, VersionState.GATED, VersionState.CANARY}
)


class Tone(StrEnum):
    """How a page or a terminal shows a state or a reason (`recorder.reasons`)."""

    GOOD = "good"  # green
    FAULT = "bad"  # red: something failed
    ATTENTION = "warn"  # amber: it waits, or a person may want to look
    NEUTRAL = "neutral"  # a fact, and nothing is wrong


_TONES: Mapping[Tone, frozenset[str]] = {
    Tone.GOOD: frozenset({"completed", "complete", "scored", "trained", "live", "up", "done", "finished"}),
    Tone.FAULT: frozenset({"errored", "rejected", "aborted", "down", "failed"}),
    Tone.ATTENTION: frozenset({"unscored", "tried", "canary", "gated", "loaded", "abandoned", "sealed-late"}),
}


def state_tone(state: str) -> Tone:
    """Return the tone of any object's state. An excluded group (`left_out`) and a measured one are neutral."""
    return next((tone for tone, states in _TONES.items() if state in states), Tone.NEUTRAL)


def state_word(state: str) -> str:
    """Return the word for any object's state in sentences, labels and headings: the stored `left_out` is "excluded"."""
    return "excluded" if state == GroupState.LEFT_OUT else state
