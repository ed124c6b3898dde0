"""`[recorder]`, `[learn]` and `[adapters]` of hone.toml: the store, when trajectories and groups end, how much Hone
learns, and where adapters are shared.

Also the settings of a health rule, which campaigns have too.
"""

from __future__ import annotations

import re
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from recorder.base.hours import parse_hours


class RecorderSettings(BaseModel):
    """The store, and when trajectories and groups end."""

    model_config = ConfigDict(extra="forbid")

    url: str | None = None
    """SQLAlchemy URL of the store. Default: a SQLite file `hone.db` in the data folder."""
    durability: Literal["process", "power"] = "process"
    """`process`: a committed call survives kill -9. `power`: it also survives a power cut, at the cost of one fsync a
    commit."""
    commit_timeout_s: float = Field(2.0, gt=0)
    """How long the end of an answer waits until its call is committed."""
    on_failure: Literal["serve", "refuse"] = "serve"
    """What happens to an answer when the store cannot commit its call in time. `serve`: it is served, and recorded when
    the store returns within 60 s; otherwise there is an alarm. `refuse`: the request fails."""
    queue_bytes: int = Field(256 * 1024 * 1024, gt=0)
    """Size limit of the writer's queue, and of the calls that begin while the store is away, in bytes."""
    batch_calls: int = Field(64, gt=0)
    """Most calls in one commit."""
    open_row_after_s: float = Field(1.0, ge=0)
    """A call that runs longer than this appears as open in the store."""
    answered_idle_s: float = Field(15.0, gt=0)
    """A live trajectory is completed when its newest answer requests no tool and no call follows for this long.

    A later call opens a continuation. Give more time to agents that write their tool calls as text.
    """
    idle_timeout_s: float = Field(900.0, gt=0)
    """Any other live trajectory (a tool is running, or no model has answered) is completed after this long without a
    call."""
    group_size: int = Field(8, ge=2)
    """Most trajectories in a group without a declared size; the next trajectory opens a new group. A full group is
    ready when all its members have ended."""
    same_task: Literal["exact", "normalised"] = "exact"
    """When two trajectories without a named group are attempts at the same task. `exact`: their system messages, tools
    and first user message are equal. `normalised`: these are equal apart from numbers, dates, ids, addresses, URLs and
    quoted text."""
    same_conversation: Literal["masked_system", "exact"] = "masked_system"
    """When a call without a name continues a recorded conversation. `exact`: its history is equal to the recorded one.
    `masked_system`: so it is apart from system and developer messages (a clock, the weather, what an agent remembers
    about its user), or it is a part of the recorded one up to its last answer (a trimmed window)."""
    group_window_s: float = Field(300.0, ge=0)
    """A group without a declared size that is not full is ready when no trajectory joined it for this long."""
    group_timeout_s: float = Field(3600.0, gt=0)
    """A group of declared size closes as it is after this long without a call."""
    lease_s: float = Field(60.0, gt=0)
    """How long a worker's lease lasts unless it is renewed."""
    retention_days: float | None = Field(None, gt=0)
    """Trajectories are deleted this many days after they ended, unless their group is open or a worker holds it.
    Default: never."""
    redact: list[str] = []
    """What is never stored: names of built-in patterns (email, credit_card, api_key, phone) and regular expressions.

    A mark replaces each match. A call with a match stores neither token ids nor logprobs, and is not trained on. A call
    whose redaction takes more than a second is stored without its text.
    """

    @field_validator("redact")
    @classmethod
    def _readable(cls, entries: list[str]) -> list[str]:
        from recorder.base.patterns import parse_pattern  # here: to compile all patterns takes 5 ms

        for entry in entries:
            parse_pattern(entry)
        return entries


RuleName = Literal[
    "reward_hacking", "converged", "reward_jump", "perfect_scores", "repetition", "length_drift", "tool_drift",
    "latency_drift", "entropy_collapse", "logprob_gap", "engine_mismatch", "zero_variance", "part_divergence",
    "judge_drift", "reward_fall",
]  # fmt: skip


class HealthSettings(BaseModel):
    """One health rule by its name: `length_drift = {at = 3, then = "pause"}` (docs/health.md)."""

    model_config = ConfigDict(extra="forbid")

    at: float | None = Field(None, gt=0, allow_inf_nan=False)
    """Threshold at which the rule raises an alarm, in the rule's unit. Default: the rule's own."""
    then: Literal["note", "pause", "off"] | None = None
    """`note`: the alarm is shown and recorded. `pause`: the campaign also stops, and can be resumed; `hone learn` waits
    for a person's decision. `off`: the rule is not checked. Default: the rule's own: `pause` for reward_hacking,
    reward_fall and logprob_gap, the end of a campaign for converged, and `note` for all others."""


ALWAYS_WATCHED: Final[frozenset[RuleName]] = frozenset(("reward_fall", "logprob_gap"))  # in `hone learn`


class LearnSettings(BaseModel):
    """Limits on what the judge and the learner do on their own. Campaigns ignore them."""

    model_config = ConfigDict(extra="forbid")

    paused: bool = False
    """Whether learning is paused: no training step begins, and judging goes on. The pages, `/hone/v1` and `hone config
    learn.paused --set true` pause a running learner."""
    steps_per_hour: int | None = Field(None, ge=1)
    """Most training steps of an alias in any hour. Default: no limit."""
    judge_tokens_per_day: int | None = Field(None, ge=1)
    """Tokens, sent and received, in the last 24 hours at which the judge pauses.

    It finishes the groups that it has begun, so it may exceed this slightly.
    """
    judge_usd_per_day: float | None = Field(None, gt=0, allow_inf_nan=False)
    """The same limit in US dollars, as far as the judge's price is known (`hone score` shows it)."""
    hours: str | None = None
    """Hours in which Hone judges and trains, by this machine's clock: `22:00-06:00`. Default: any time."""
    max_age_s: float | None = Field(None, gt=0)
    """Groups that became complete longer ago than this are not trained on. Default: no limit."""
    health: dict[RuleName, HealthSettings] = {}
    """Health rules that watch the steps of `hone learn`, by name: the threshold of each, and what happens at an alarm.
    reward_fall and logprob_gap are always watched, and have no setting here."""

    @field_validator("health")
    @classmethod
    def _watched(cls, health: dict[RuleName, HealthSettings]) -> dict[RuleName, HealthSettings]:
        if given := sorted(health.keys() & ALWAYS_WATCHED):
            raise ValueError(f"hone learn always watches {' and '.join(given)}: remove the setting (docs/health.md)")
        return health

    @field_validator("hours")
    @classmethod
    def _hours(cls, text: str | None) -> str | None:
        if text is not None:
            parse_hours(text)
        return text


class AdapterSettings(BaseModel):
    """Where adapters are shared, if proxy, learner and engines have no common folder."""

    model_config = ConfigDict(extra="forbid")

    url: str | None = None
    """The place of the versions' adapters: a folder that all can mount (`/mnt/adapters`), `s3://BUCKET/FOLDER`,
    `gs://BUCKET/FOLDER` or `az://CONTAINER/FOLDER`, with the extra `s3`, `gs` or `az`. The learner writes each version
    there once; the host of each engine fetches it with `hone adapters sync`. Credentials come from the environment, as
    the provider's own tools read them. Default: engines read the data folder."""
    sync_s: float = Field(5.0, gt=0)
    """Seconds between two looks of `hone adapters sync` at the URL."""
    wait_s: float = Field(120.0, ge=0)
    """How many seconds a new version waits for engines whose host has not fetched it. Then it goes on with those that
    have it, and the others get it later. It waits longer while no host has it."""

    @field_validator("url")
    @classmethod
    def _without_credentials(cls, url: str | None) -> str | None:
        if url is None:
            return None
        scheme, _, rest = url.rpartition("://")
        if not (re.fullmatch(r"[a-z][a-z0-9+.-]*", scheme) or (not scheme and url.startswith("/"))) or "::" in url:
            raise ValueError("it is no absolute folder and no URL: write /FOLDER, s3://BUCKET/FOLDER, gs://… or az://…")
        if "?" in rest or re.search(r":[^/]*@", rest.partition("/")[0]):
            raise ValueError("it has credentials or parameters: put them into the environment (docs/deploy.md)")
        return url.rstrip("/")
