"""What /hone/v1 is sent and what it answers with, as /schema tells it.

Owns: the bodies and answers that are no views of the store, and what makes a body one. Refuses: what is done with them.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from recorder.queue import feedback


class _ResponseBody(BaseModel):
    model_config = ConfigDict(use_attribute_docstrings=True)


class Problem(_ResponseBody):
    """What is wrong with a request (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    """What happened, to what, and what to do."""
    code: str | None = None
    param: str | None = None
    """The field or parameter at fault."""


class _RequestBody(BaseModel):
    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class CreateTrajectory(_RequestBody):
    """A run to be made: an address for an agent that can be given a base URL, a key for one that can't."""

    trajectory: str | None = None
    """The run's id. Default: a new one."""
    group: str | None = None
    """The group that the run is an attempt of."""
    expires_in_s: float | None = Field(None, gt=0)
    """How long the key is good. Default: until it is revoked."""


class CreatedTrajectory(_ResponseBody):
    """A run that was made."""

    trajectory: str
    """The run's id."""
    group: str | None
    """The group that it is an attempt of."""
    base_url: str
    """What an agent takes for its base URL (OpenAI's form, with `/v1`)."""
    api_key: str
    """A key that stands for the run: it is shown this once."""
    key_id: str
    """What `hone keys revoke` takes."""


class EndRequest(_RequestBody):
    """How a run ended."""

    state: Literal["completed", "errored", "abandoned"] = "completed"
    """`completed`: the agent ended, however badly. `errored`: the fault was not the agent's; it is never judged."""
    reason: str = Field("closed", max_length=200)
    """Why, in a word: it is kept with the run."""


class EndedTrajectory(_ResponseBody):
    """A run that has ended."""

    trajectory_id: str
    """Hone's own id of the run."""
    state: str
    """How it ended: the state that it already had, where it had ended before."""


class DeletedTrajectories(_ResponseBody):
    """What was deleted."""

    trajectory_ids: list[str]
    """All trajectories at the address that was named, or the one."""
    calls: int
    """How many calls they had."""
    log_erased: bool
    """Whether the bytes have left the store's log and search index too. False: readers kept the log, or the index is
    large; both are emptied soon by themselves."""


class NewFeedback(_RequestBody):
    """What somebody says about a run, or about one call of it. TensorZero's names work too."""

    name: str | None = None
    """What is measured, for example `solved`. Reserved: `comment` and `demonstration`, whose value is text."""
    metric_name: str | None = None
    """Another name for `name`."""
    value: bool | int | float | str
    """How it was: a finite number, true, false or a text."""
    comment: str | None = Field(None, max_length=feedback.MAX_TEXT_CHARS)
    """A word on it, kept beside the value."""
    call_id: str | None = None
    """The call that is meant (`x-hone-call`)."""
    inference_id: str | None = None
    """Another name for `call_id`."""
    trajectory_id: str | None = None
    """The run that is meant, where neither the path, nor a header, nor the key names it."""
    episode_id: str | None = None
    """Another name for `trajectory_id`."""
    tags: dict[str, str] = {}
    """Notes of yours, kept beside the value."""
    dryrun: bool = False
    """Check and write nothing."""

    @model_validator(mode="after")
    def _one_name(self) -> NewFeedback:
        if (self.name is None) == (self.metric_name is None):
            raise ValueError("give `name` (or `metric_name`), and only one of them")
        return self

    @property
    def about(self) -> str:
        """The feedback's name."""
        return self.name or self.metric_name or ""


class RecordedFeedback(_ResponseBody):
    """Feedback that was written."""

    feedback_id: str | None
    """None for a dry run."""
    trajectory_id: str
    """Hone's own id of the run."""
    call_id: str | None
    """The call that is meant, where one was named."""
