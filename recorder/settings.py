"""`[recorder]` and `[learn]` of hone.toml: the store, when runs and groups end; how much is learnt, and when."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from recorder.base.hours import parse_hours
from recorder.base.patterns import parse_pattern


class RecorderSettings(BaseModel):
    """What the recorder may be told."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    url: str | None = None
    """SQLAlchemy URL of the store. Default: a SQLite file `hone.db` in the data folder."""
    durability: Literal["process", "power"] = "process"
    """`process`: a finished turn survives kill -9. `power`: it survives a power cut too (one fsync a commit)."""
    commit_timeout_s: float = Field(2.0, gt=0)
    """How long the end of an answer waits for its turn to be committed."""
    on_failure: Literal["serve", "refuse"] = "serve"
    """What happens to the answer when the store cannot commit: serve it unrecorded (and alarm), or refuse it."""
    queue_bytes: int = Field(256 * 1024 * 1024, gt=0)
    """Bound of the writer's queue."""
    batch_calls: int = Field(64, gt=0)
    """Most turns in one commit."""
    open_row_after_s: float = Field(1.0, ge=0)
    """A call that is still running after this time is shown as open in the store."""
    answered_idle_s: float = Field(15.0, gt=0)
    """A live trajectory whose newest answer asks for no tool is completed when no call came for this long.

    A later call opens a continuation. Agents that write their tool calls as text are better given more.
    """
    idle_timeout_s: float = Field(900.0, gt=0)
    """Any other live trajectory (a tool it asked for is at work, no model has answered) is completed after this."""
    group_size: int = Field(8, ge=2)
    """Most members of a group without a declared size: the next run opens its successor. Full and all ended: ready."""
    same_task: Literal["exact", "normalised"] = "exact"
    """When two runs that nobody put into a group attempt one task: with equal system messages, tools and first user
    message, or with such as are equal but for numbers, dates, ids, addresses, URLs and quoted text."""
    group_window_s: float = Field(300.0, ge=0)
    """A group without a declared size that is not full is ready when nothing joined it for this long."""
    group_timeout_s: float = Field(3600.0, gt=0)
    """A group of declared size without a call for this long closes as it is."""
    lease_s: float = Field(60.0, gt=0)
    """How long a worker's claim lasts unless renewed."""
    retention_days: float | None = Field(None, gt=0)
    """A trajectory that ended longer ago is deleted, unless its group is open or a worker has it. Default: never."""
    redact: list[str] = []
    """What is never stored: names of built-in patterns (email, credit_card, api_key, phone) and regular expressions.

    A mark takes the place of each match. A call with one keeps neither token ids nor logprobs, and is not trained on.
    """

    @field_validator("redact")
    @classmethod
    def _readable(cls, entries: list[str]) -> list[str]:
        for entry in entries:
            parse_pattern(entry)
        return entries


class LearnSettings(BaseModel):
    """What judge and learner keep to, in what they do by themselves; a campaign does what it was told to."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    steps_per_hour: int | None = Field(None, ge=1)
    """Most training steps of an alias within any hour. Default: as many as there are groups for."""
    judge_tokens_per_day: int | None = Field(None, ge=1)
    """Tokens, sent and received, after which the judge waits until less was spent within the last 24 hours.

    What was begun is finished: a few groups may go over it.
    """
    judge_usd_per_day: float | None = Field(None, gt=0, allow_inf_nan=False)
    """The same in US dollars, as far as the judge's price is known (`hone score` shows it)."""
    hours: str | None = None
    """When to judge and train, by this machine's clock: `22:00-06:00`. Default: at any time."""
    max_age_s: float | None = Field(None, gt=0)
    """A group that was complete longer ago than this is not learnt from any more. Default: any is."""

    @field_validator("hours")
    @classmethod
    def _hours(cls, text: str | None) -> str | None:
        if text is not None:
            parse_hours(text)
        return text
